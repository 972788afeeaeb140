/* The board's monotonic clock (ns since reset) and its one-shot wake-up. */
#ifndef CLOCK_H
#define CLOCK_H

#include <stdint.h>

#define CLOCK_NEVER UINT64_MAX

void clock_init(void);
/* 31.25 ns a tick: the system counter at 32 MHz. */
uint64_t clock_ns(void);
/* The next interrupt at or shortly after `when_ns`; CLOCK_NEVER for none. Calling again replaces it. */
void clock_wake_at(uint64_t when_ns);
void clock_irq_handler(void);

#endif
