/*
 * Software transmit ring: descriptors between lwIP and the MAC. A descriptor is empty, queued (given by lwIP) or in
 * flight (handed to the MAC, not yet reported sent). The frame belongs to the ring from queue to complete. No I/O here.
 */
#ifndef TX_RING_H
#define TX_RING_H

#include <stdbool.h>
#include <stdint.h>

#define TX_RING_LENGTH 8u

struct tx_ring {
  void *frame[TX_RING_LENGTH];
  /* Free-running counts; their differences are the number of descriptors in each state. */
  uint32_t queued, kicked, completed;
  uint32_t high_water;
};

static inline uint32_t tx_ring_used(const struct tx_ring *ring) {
  return ring->queued - ring->completed;
}

/* False if all descriptors are in use. */
static inline bool tx_ring_queue(struct tx_ring *ring, void *frame) {
  if (tx_ring_used(ring) == TX_RING_LENGTH) {
    return false;
  }
  ring->frame[ring->queued++ % TX_RING_LENGTH] = frame;
  if (tx_ring_used(ring) > ring->high_water) {
    ring->high_water = tx_ring_used(ring);
  }
  return true;
}

/* The oldest queued frame, which stays queued; a null pointer if none is. */
static inline void *tx_ring_next(const struct tx_ring *ring) {
  return ring->queued == ring->kicked ? 0 : ring->frame[ring->kicked % TX_RING_LENGTH];
}

/* The frame of tx_ring_next() is in flight; returns its tag. */
static inline uint16_t tx_ring_kick(struct tx_ring *ring) {
  return (uint16_t)ring->kicked++;
}

/* The tag of the frame that goes next. */
static inline uint16_t tx_ring_tag(const struct tx_ring *ring) {
  return (uint16_t)ring->kicked;
}

/* The MAC, which sends in order, reports `tag` as sent. Returns the frame, a null pointer if it was not its turn. */
static inline void *tx_ring_complete(struct tx_ring *ring, uint16_t tag) {
  if (ring->completed == ring->kicked || (uint16_t)ring->completed != tag) {
    return 0;
  }
  return ring->frame[ring->completed++ % TX_RING_LENGTH];
}

#endif
