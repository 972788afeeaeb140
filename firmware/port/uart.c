/* CMSDK APB UART (Arm DDI 0479, section 4.3). */
#include "uart.h"

#include "mps3_an547.h"

#define RING_LENGTH 256u /* two command lines */

static volatile uint32_t head; /* written by the interrupt */
static volatile uint32_t tail;
static char ring[RING_LENGTH];

void uart_init(void) {
  UART_BAUDDIV = UART_CLOCK_HZ / 115200u;
  UART_CTRL = UART_CTRL_TX_EN | UART_CTRL_RX_EN | UART_CTRL_RX_INT_EN;
  (void)UART_DATA; /* the emulator offers a byte that was already waiting only after a read */
  NVIC_ISER(IRQ_UART0_RX) = NVIC_BIT(IRQ_UART0_RX);
}

void uart_irq_handler(void) {
  UART_INTCLEAR = UART_INT_RX; /* before the read, which lets the next byte in */
  const char character = (char)UART_DATA;

  if (head - tail < RING_LENGTH) {
    ring[head % RING_LENGTH] = character;
    head = head + 1;
  }
}

bool uart_received(void) {
  return head != tail;
}

bool uart_receive(char *character) {
  if (head == tail) {
    return false;
  }
  *character = ring[tail % RING_LENGTH];
  tail = tail + 1;
  return true;
}

static void put(char character) {
  while ((UART_STATE & UART_STATE_TX_FULL) != 0) {
  }
  UART_DATA = (uint8_t)character;
}

void uart_text(const char *text) {
  while (*text != '\0') {
    put(*text++);
  }
}

void uart_decimal(uint64_t value) {
  char digits[20];
  unsigned used = 0;

  do {
    digits[used++] = (char)('0' + value % 10u);
    value /= 10u;
  } while (value > 0);
  while (used > 0) {
    put(digits[--used]);
  }
}

void uart_hex(uint32_t value, unsigned digits) {
  while (digits > 0) {
    put("0123456789abcdef"[value >> (4u * --digits) & 15u]);
  }
}

void uart_field(const char *key, uint64_t value) {
  put(' ');
  uart_text(key);
  put('=');
  uart_decimal(value);
}

void uart_end_line(void) {
  uart_text("\r\n");
}
