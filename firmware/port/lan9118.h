/* SMSC LAN9118 as an lwIP netif: interrupt-driven receive, software transmit ring. */
#ifndef LAN9118_H
#define LAN9118_H

#include <stdbool.h>
#include <stdint.h>

#include "lwip/netif.h"
#include "lwip/pbuf.h"

/*
 * Where a build may interfere with the transmit path. A null pointer leaves the path as it is.
 * before_queue  sees each frame that lwIP hands over; false drops it while lwIP is told that all is well.
 * before_kick   after a descriptor was filled; false leaves the MAC unkicked until the next frame or interrupt.
 * after_complete  the MAC has sent the frame; false keeps the descriptor's reference to the pbuf for ever.
 */
struct lan9118_hooks {
  bool (*before_queue)(struct pbuf *frame);
  bool (*before_kick)(void);
  bool (*after_complete)(struct pbuf *frame);
};

struct lan9118_counters {
  uint32_t rx_frames, rx_errors, rx_no_buffer;
  uint32_t tx_frames, tx_errors, tx_ring_full;
  uint32_t tx_ip_queued; /* IPv4 frames put into the ring: tells a sender whether its datagram has got there */
};

extern struct lan9118_counters lan9118_counters;
/* Time at which the newest IPv4 frame was put into the ring, ns. */
extern uint64_t lan9118_ip_queued_ns;

/* Largest number of descriptors that were in use at once. */
uint32_t lan9118_tx_high_water(void);

/* For netif_add(); state is the struct lan9118_hooks or NULL. The netif's hwaddr must be set. */
err_t lan9118_init(struct netif *netif);
/* Receives, completes and kicks what is due; call from the main loop. */
void lan9118_poll(struct netif *netif);
bool lan9118_link_up(void);
/* True once after the PHY has reported a change. */
bool lan9118_link_changed(void);
/* True if the interrupt handler has asked for lan9118_poll(). */
bool lan9118_pending(void);
void lan9118_irq_handler(void);

#endif
