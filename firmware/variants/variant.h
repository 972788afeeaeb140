/*
 * What a build of the application does in its own way. One file beside this one defines `variant` and is linked in;
 * all other code is the same in every build.
 */
#ifndef VARIANT_H
#define VARIANT_H

#include <stdbool.h>
#include <stdint.h>

#include "lan9118.h"
#include "lwip/udp.h"

#define DATAGRAM_MAX 1472u /* UDP payload of one Ethernet frame: 1500 - 20 - 8 */

/* How datagrams get from the application to lwIP. */
struct transmitter {
  /* DATAGRAM_MAX bytes, word aligned, to write the next datagram into; NULL while no buffer is free. */
  uint8_t *(*begin)(void);
  /* Sends the first `length` bytes of what begin() gave. lwIP's error if it did not take them. */
  err_t (*send)(struct udp_pcb *pcb, uint16_t length, const ip_addr_t *to, uint16_t port);
  uint32_t (*free_buffers)(void);
};

struct variant {
  const char *name;
  const struct transmitter *transmitter;
  const struct lan9118_hooks *hooks;   /* NULL: none */
  bool mute;                           /* sends no UDP datagram at all */
  void (*on_measured_request)(void);   /* NULL: none; called for each request between the sentinels */
};

extern const struct variant variant;
extern const struct transmitter transmit_copy;
extern const struct transmitter transmit_zero_copy;

#endif
