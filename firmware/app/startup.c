/* Vector table and the way from reset to main(). */
#include <stdint.h>
#include <string.h>

#include "clock.h"
#include "fault.h"
#include "lan9118.h"
#include "mps3_an547.h"
#include "uart.h"

extern uint32_t __stack_end[], __data_load[], __data_start[], __data_end[], __bss_start[], __bss_end[];

int main(void);
void reset_handler(void);

void reset_handler(void) {
  memcpy(__data_start, __data_load, (uintptr_t)__data_end - (uintptr_t)__data_start);
  memset(__bss_start, 0, (uintptr_t)__bss_end - (uintptr_t)__bss_start);
  main();
}

__attribute__((section(".vectors"), used)) static const void *const vectors[16 + IRQ_COUNT] = {
    __stack_end,
    (const void *)reset_handler,
    [2 ... 15] = (const void *)fault_handler, /* no other exception or interrupt is enabled */
    [16 + IRQ_TIMER0] = (const void *)clock_irq_handler,
    [16 + IRQ_UART0_RX] = (const void *)uart_irq_handler,
    [16 + IRQ_ETHERNET] = (const void *)lan9118_irq_handler,
};
