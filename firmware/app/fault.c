/* Armv8-M exception frame: r0 to r3, r12, lr, pc, xPSR at the stack pointer of the interrupted code (MSP here). */
#include "fault.h"

#include <stdint.h>

#include "arch/cc.h"
#include "boot.h"
#include "mps3_an547.h"
#include "uart.h"

#define FRAME_LR 5
#define FRAME_PC 6

__attribute__((used)) static void report(const uint32_t *frame) {
  uart_text("\r\nFAULT HardFault pc=0x");
  uart_hex(frame[FRAME_PC], 8);
  uart_text(" lr=0x");
  uart_hex(frame[FRAME_LR], 8);
  uart_text(" cfsr=0x");
  uart_hex(SCB_CFSR, 8);
  uart_text(" hfsr=0x");
  uart_hex(SCB_HFSR, 8);
  uart_text(" bfar=0x");
  uart_hex(SCB_BFAR, 8);
  uart_end_line();
  boot_reset();
}

__attribute__((naked)) void fault_handler(void) {
  __asm volatile("mrs r0, msp\n\tb report");
}

void platform_assert(const char *message, const char *file, int line) {
  irq_disable();
  uart_text("\r\nFAULT assert ");
  uart_text(file);
  uart_text(":");
  uart_decimal((uint64_t)line);
  uart_text(" ");
  uart_text(message);
  uart_end_line();
  boot_reset();
}
