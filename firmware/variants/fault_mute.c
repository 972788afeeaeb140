/* Fault: on the network (ARP, ICMP), receives and counts, but sends no UDP datagram, no sentinel either. */
#include "variant.h"

const struct variant variant = {.name = "fault_mute", .transmitter = &transmit_copy, .mute = true};
