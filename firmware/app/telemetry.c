/* Telemetry ring. See telemetry.h. */
#include "telemetry.h"

#include "clock.h"
#include "uart.h"

#define RING_LENGTH 512u

static struct {
  uint64_t at_ns;
  uint32_t event, a, b;
} ring[RING_LENGTH];
static uint32_t added, drained, dropped;

static const struct {
  const char *name, *a, *b; /* a null pointer: the event has no such value */
} formats[] = {
    [TELEMETRY_START] = {"start", "id", "seq"},
    [TELEMETRY_END] = {"end", "id", "seq"},
    [TELEMETRY_LINK] = {"link", "up", 0},
    [TELEMETRY_BAD] = {"bad", "bytes", "first"},
    [TELEMETRY_BUSY] = {"busy", "id", 0},
    [TELEMETRY_TX_ERR] = {"tx_err", "id", "err"},
    [TELEMETRY_NO_BUFFER] = {"no_buffer", "id", "free"},
    [TELEMETRY_ARP_WAIT] = {"arp_wait", "id", 0},
};

void telemetry_add(enum telemetry_event event, uint32_t a, uint32_t b) {
  if (added - drained == RING_LENGTH) {
    drained++;
    dropped++;
  }
  ring[added % RING_LENGTH].at_ns = clock_ns();
  ring[added % RING_LENGTH].event = event;
  ring[added % RING_LENGTH].a = a;
  ring[added % RING_LENGTH].b = b;
  added++;
}

void telemetry_drain(void) {
  for (; drained != added; drained++) {
    const uint32_t slot = drained % RING_LENGTH;
    const uint32_t event = ring[slot].event;

    uart_text("t ");
    uart_decimal(ring[slot].at_ns);
    uart_text(" ");
    uart_text(formats[event].name);
    if (formats[event].a != 0) {
      uart_field(formats[event].a, ring[slot].a);
    }
    if (formats[event].b != 0) {
      uart_field(formats[event].b, ring[slot].b);
    }
    uart_end_line();
  }
  uart_text("dropped=");
  uart_decimal(dropped);
  uart_end_line();
  dropped = 0;
}
