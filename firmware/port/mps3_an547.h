/*
 * Arm MPS3 FPGA image AN547 (SSE-300, Cortex-M55): the registers that this firmware uses.
 * Sources: Arm DAI 0547 (memory map, interrupts), Arm 101773 (SSE-300 TRM, system counter and timers), Arm DDI 0479
 * (CMSDK APB UART), Armv8-M Architecture Reference Manual (SCB, NVIC, CPACR).
 */
#ifndef MPS3_AN547_H
#define MPS3_AN547_H

#include <stdint.h>

#define REG32(address) (*(volatile uint32_t *)(address))

/* Memory. The STM32 flash of the boot ROM's protocol is the first MiB of DDR4. */
#define FLASH_BASE 0x60000000u
#define BOOT0_PIN 0x60F00000u     /* word: level of the BOOT0 pin, 1 selects the boot ROM; outside of the flash */
#define BACKUP_DOMAIN 0x60F01000u /* outlives a power cycle and any flash erase, like a battery-backed register */
#define RETAINED_RAM 0x21000000u  /* survives a reset, not a power cycle; no section is linked here */

/* CMSDK APB UART 0, DDI 0479 section 4.3. One byte of buffer each way. */
#define UART0_BASE 0x59303000u
#define UART_DATA REG32(UART0_BASE + 0x00u)
#define UART_STATE REG32(UART0_BASE + 0x04u)
#define UART_CTRL REG32(UART0_BASE + 0x08u)
#define UART_INTCLEAR REG32(UART0_BASE + 0x0Cu)
#define UART_BAUDDIV REG32(UART0_BASE + 0x10u)
#define UART_STATE_TX_FULL (1u << 0)
#define UART_STATE_RX_FULL (1u << 1)
#define UART_CTRL_TX_EN (1u << 0)
#define UART_CTRL_RX_EN (1u << 1)
#define UART_CTRL_RX_INT_EN (1u << 3)
#define UART_INT_RX (1u << 1)
#define UART_CLOCK_HZ 25000000u

/* SSE-300 system counter and timer 0: 64 bit at 32 MHz, the clock of every time stamp. */
#define SYSCOUNTER_CNTCR REG32(0x58100000u)
#define SYSCOUNTER_CNTCR_EN (1u << 0)
#define TIMER0_BASE 0x58000000u
#define TIMER0_CNTPCT_LO REG32(TIMER0_BASE + 0x00u)
#define TIMER0_CNTPCT_HI REG32(TIMER0_BASE + 0x04u)
#define TIMER0_CNTP_CVAL_LO REG32(TIMER0_BASE + 0x20u)
#define TIMER0_CNTP_CVAL_HI REG32(TIMER0_BASE + 0x24u)
#define TIMER0_CNTP_CTL REG32(TIMER0_BASE + 0x2Cu)
#define TIMER_CTL_ENABLE (1u << 0)
#define TIMER_CTL_IMASK (1u << 1)
#define SYSCOUNTER_HZ 32000000u

#define LAN9118_BASE 0x51400000u

/* Interrupt lines of the NVIC. */
#define IRQ_TIMER0 3u
#define IRQ_UART0_RX 33u
#define IRQ_ETHERNET 49u
#define IRQ_COUNT 64u

/* Core peripherals. */
#define SCB_VTOR REG32(0xE000ED08u)
#define SCB_AIRCR REG32(0xE000ED0Cu)
#define SCB_AIRCR_SYSRESETREQ 0x05FA0004u
#define SCB_CFSR REG32(0xE000ED28u)
#define SCB_HFSR REG32(0xE000ED2Cu)
#define SCB_BFAR REG32(0xE000ED38u)
#define SCB_CPACR REG32(0xE000ED88u)
#define SCB_CPACR_CP10_CP11_FULL (0xFu << 20)
#define NVIC_ISER(irq) REG32(0xE000E100u + 4u * ((irq) / 32u))
#define NVIC_ICER(irq) REG32(0xE000E180u + 4u * ((irq) / 32u))
#define NVIC_ICPR(irq) REG32(0xE000E280u + 4u * ((irq) / 32u))
#define NVIC_BIT(irq) (1u << ((irq) % 32u))

static inline void irq_disable(void) {
  __asm volatile("cpsid i" ::: "memory");
}
static inline void irq_enable(void) {
  __asm volatile("cpsie i\n\tisb" ::: "memory");
}
static inline void wait_for_interrupt(void) {
  __asm volatile("dsb\n\twfi" ::: "memory");
}

#endif
