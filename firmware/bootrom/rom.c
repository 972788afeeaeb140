/*
 * Boot ROM of the emulated board. After reset: the application in flash, unless the BOOT0 pin is high or the flash is
 * empty; else ST's UART bootloader (AN3155) on UART0.
 *
 * The receiver polls with a pause between two looks. In the emulator each access to the UART takes the lock that its
 * main loop needs to deliver the next byte, so polling at full speed, an interrupt per byte or sleeping between bytes
 * all flash more slowly. On a quiet line the core sleeps until the UART's interrupt becomes pending.
 */
#include "an3155.h"
#include "flash.h"
#include "mps3_an547.h"

#include <string.h>

#define PAUSE_ROUNDS 500u  /* about a microsecond of the emulated core */
#define QUIET_LOOKS 10000u /* looks without a byte before the core sleeps: longer than any gap inside a block */

extern uint32_t __stack_end[], __bss_start[], __bss_end[];

static void uart_init(void) {
  UART_BAUDDIV = UART_CLOCK_HZ / 115200u;
  UART_CTRL = UART_CTRL_TX_EN | UART_CTRL_RX_EN;
  (void)UART_DATA; /* the emulator offers a byte that was already waiting only after a read */
}

/* Interrupts are masked throughout: a pending one wakes the core and runs no handler. */
static void sleep_until_byte(void) {
  UART_INTCLEAR = UART_INT_RX;
  UART_CTRL = UART_CTRL_TX_EN | UART_CTRL_RX_EN | UART_CTRL_RX_INT_EN;
  NVIC_ISER(IRQ_UART0_RX) = NVIC_BIT(IRQ_UART0_RX);
  if ((UART_STATE & UART_STATE_RX_FULL) == 0) {
    wait_for_interrupt();
  }
  UART_CTRL = UART_CTRL_TX_EN | UART_CTRL_RX_EN;
  UART_INTCLEAR = UART_INT_RX;
  NVIC_ICER(IRQ_UART0_RX) = NVIC_BIT(IRQ_UART0_RX);
  NVIC_ICPR(IRQ_UART0_RX) = NVIC_BIT(IRQ_UART0_RX);
}

static uint8_t uart_receive(void) {
  for (;;) {
    for (uint32_t look = 0; look < QUIET_LOOKS; look++) {
      if ((UART_STATE & UART_STATE_RX_FULL) != 0) {
        return (uint8_t)UART_DATA;
      }
      for (uint32_t round = 0; round < PAUSE_ROUNDS; round++) {
        __asm volatile("");
      }
    }
    sleep_until_byte();
  }
}

static void port_reply(void *context, const uint8_t *bytes, size_t length) {
  (void)context;
  for (size_t i = 0; i < length; i++) {
    while ((UART_STATE & UART_STATE_TX_FULL) != 0) {
    }
    UART_DATA = bytes[i];
  }
}

static uint8_t *core_address(uint32_t address) {
  return (uint8_t *)(FLASH_BASE + (address - STM32_FLASH_BASE));
}

static bool port_mapped(void *context, uint32_t address, uint32_t length) {
  (void)context;
  return flash_mapped(address, length);
}

static void port_read(void *context, uint32_t address, uint8_t *bytes, size_t length) {
  (void)context;
  memcpy(bytes, core_address(address), length);
}

static bool port_write(void *context, uint32_t address, const uint8_t *bytes, size_t length) {
  (void)context;
  flash_program((uint8_t *)FLASH_BASE, address, bytes, (uint32_t)length);
  return true;
}

static bool port_erase(void *context, uint16_t sector) {
  (void)context;
  return flash_erase((uint8_t *)FLASH_BASE, sector);
}

static bool port_startable(void *context, uint32_t address) {
  (void)context;
  return address % 512u == 0 && flash_mapped(address, sizeof(struct flash_vectors)) &&
         flash_bootable((const struct flash_vectors *)core_address(address), FLASH_BASE);
}

static void port_go(void *context, uint32_t address) {
  const struct flash_vectors *application = (const struct flash_vectors *)core_address(address);

  (void)context;
  UART_CTRL = 0; /* the application gets the UART and the interrupt mask as a reset leaves them */
  SCB_VTOR = (uint32_t)application;
  __asm volatile(
      "dsb\n\tisb\n\t"
      "msr msp, %0\n\t"
      "cpsie i\n\t"
      "bx %1" ::"r"(application->stack_pointer), "r"(application->reset) : "memory");
  __builtin_unreachable();
}

static const struct an3155_port port = {
    .product_id = STM32F74X_PRODUCT_ID,
    .sector_count = STM32_FLASH_SECTORS,
    .reply = port_reply,
    .mapped = port_mapped,
    .read = port_read,
    .write = port_write,
    .erase_sector = port_erase,
    .startable = port_startable,
    .go = port_go,
};

void reset_handler(void);

void reset_handler(void) {
  static struct an3155 bootloader;

  memset(__bss_start, 0, (uintptr_t)__bss_end - (uintptr_t)__bss_start);
  if (REG32(BOOT0_PIN) != 1 && port_startable(NULL, STM32_FLASH_BASE)) {
    port_go(NULL, STM32_FLASH_BASE);
  }
  irq_disable();
  an3155_init(&bootloader, &port);
  uart_init();
  for (;;) {
    an3155_receive(&bootloader, uart_receive());
  }
}

/* Nothing here is meant to fault: stop where a debugger finds it. */
static void fault_handler(void) {
  for (;;) {
    wait_for_interrupt();
  }
}

__attribute__((section(".vectors"), used)) const void *const vectors[16] = {
    __stack_end,
    (const void *)reset_handler,
    (const void *)fault_handler,
    (const void *)fault_handler,
};
