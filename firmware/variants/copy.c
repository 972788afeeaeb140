/* Baseline: every datagram is copied. */
#include "variant.h"

const struct variant variant = {.name = "copy", .transmitter = &transmit_copy};
