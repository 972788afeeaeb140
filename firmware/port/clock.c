/* SSE-300 system counter and timer 0 (Arm 101773, sections on the system counter and the system timer). */
#include "clock.h"

#include "lwip/sys.h"
#include "mps3_an547.h"

/* 1e9 / 32e6 = 125 / 4 exactly: no drift, no rounding beyond one tick. */
#define NS_PER_4_TICKS 125u

void clock_init(void) {
  SYSCOUNTER_CNTCR = SYSCOUNTER_CNTCR_EN;
  TIMER0_CNTP_CTL = 0;
  NVIC_ISER(IRQ_TIMER0) = NVIC_BIT(IRQ_TIMER0);
}

static uint64_t ticks(void) {
  uint32_t high, low;

  do {
    high = TIMER0_CNTPCT_HI;
    low = TIMER0_CNTPCT_LO;
  } while (high != TIMER0_CNTPCT_HI);
  return (uint64_t)high << 32 | low;
}

uint64_t clock_ns(void) {
  return ticks() * NS_PER_4_TICKS / 4u;
}

void clock_wake_at(uint64_t when_ns) {
  static uint64_t armed_ns = CLOCK_NEVER;

  if (when_ns == armed_ns && (when_ns == CLOCK_NEVER || TIMER0_CNTP_CTL == TIMER_CTL_ENABLE)) {
    return;
  }
  armed_ns = when_ns;
  TIMER0_CNTP_CTL = 0;
  if (when_ns != CLOCK_NEVER) {
    /* Rounded up, so that clock_ns() has reached when_ns when the interrupt comes; in two parts against overflow. */
    const uint64_t rest_ns = when_ns % NS_PER_4_TICKS;
    const uint64_t at = when_ns / NS_PER_4_TICKS * 4u + (rest_ns * 4u + NS_PER_4_TICKS - 1u) / NS_PER_4_TICKS;

    TIMER0_CNTP_CVAL_LO = (uint32_t)at;
    TIMER0_CNTP_CVAL_HI = (uint32_t)(at >> 32);
    TIMER0_CNTP_CTL = TIMER_CTL_ENABLE;
  }
}

/* The line stays active while the counter is beyond the compare value: switch the timer off until it is set again. */
void clock_irq_handler(void) {
  TIMER0_CNTP_CTL = 0;
}

u32_t sys_now(void) {
  return (u32_t)(ticks() / (SYSCOUNTER_HZ / 1000u));
}
