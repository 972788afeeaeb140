/* Console UART: blocking transmit, as field firmware commonly has it; interrupt-driven receive; a little formatting. */
#ifndef UART_H
#define UART_H

#include <stdbool.h>
#include <stdint.h>

void uart_init(void);
void uart_irq_handler(void);
/* False if nothing has been received. */
bool uart_receive(char *character);
bool uart_received(void);

void uart_text(const char *text);
void uart_decimal(uint64_t value);
void uart_hex(uint32_t value, unsigned digits);
/* " key=value", decimal. */
void uart_field(const char *key, uint64_t value);
void uart_end_line(void);

#endif
