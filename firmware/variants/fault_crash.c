/* Fault: a real HardFault on the first request after a start sentinel. Each boot needs a new start sentinel for it. */
#include "variant.h"

#define UNMAPPED 0x08000000u /* nothing answers here on this board: a BusFault, which escalates */

static void crash(void) {
  *(volatile uint32_t *)UNMAPPED = 0;
  __asm volatile("dsb");
}

const struct variant variant = {
    .name = "fault_crash", .transmitter = &transmit_copy, .on_measured_request = crash};
