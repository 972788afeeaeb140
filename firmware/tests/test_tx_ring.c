/* The transmit ring's book-keeping. */
#include "check.h"
#include "tx_ring.h"

static int frames[100];

static void test_frames_leave_in_order(void) {
  struct tx_ring ring = {0};

  CHECK(tx_ring_next(&ring) == NULL);
  CHECK(tx_ring_queue(&ring, &frames[0]) && tx_ring_queue(&ring, &frames[1]));
  CHECK(tx_ring_next(&ring) == &frames[0]);
  CHECK_EQUAL(tx_ring_tag(&ring), 0);
  CHECK_EQUAL(tx_ring_kick(&ring), 0);
  CHECK(tx_ring_next(&ring) == &frames[1]);
  CHECK(tx_ring_complete(&ring, 0) == &frames[0]);
  CHECK_EQUAL(tx_ring_used(&ring), 1);
}

static void test_a_descriptor_is_in_use_until_the_mac_is_done(void) {
  struct tx_ring ring = {0};

  for (unsigned i = 0; i < TX_RING_LENGTH; i++) {
    CHECK(tx_ring_queue(&ring, &frames[i]));
    tx_ring_kick(&ring);
  }
  CHECK(!tx_ring_queue(&ring, &frames[TX_RING_LENGTH]));
  CHECK(tx_ring_complete(&ring, 0) == &frames[0]);
  CHECK(tx_ring_queue(&ring, &frames[TX_RING_LENGTH]));
  CHECK_EQUAL(ring.high_water, TX_RING_LENGTH);
}

static void test_a_frame_that_was_not_kicked_cannot_complete(void) {
  struct tx_ring ring = {0};

  CHECK(tx_ring_queue(&ring, &frames[0]));
  CHECK(tx_ring_complete(&ring, 0) == NULL);
  tx_ring_kick(&ring);
  CHECK(tx_ring_complete(&ring, 1) == NULL); /* not its tag */
  CHECK(tx_ring_complete(&ring, 0) == &frames[0]);
  CHECK(tx_ring_complete(&ring, 0) == NULL); /* reported twice */
}

static void test_counts_and_tags_wrap(void) {
  struct tx_ring ring = {.queued = UINT32_MAX - 2, .kicked = UINT32_MAX - 2, .completed = UINT32_MAX - 2};

  for (unsigned i = 0; i < 100; i++) {
    CHECK(tx_ring_queue(&ring, &frames[i]));
    CHECK(tx_ring_next(&ring) == &frames[i]);
    const uint16_t tag = tx_ring_kick(&ring);
    CHECK_EQUAL(tag, (uint16_t)(UINT32_MAX - 2 + i));
    CHECK(tx_ring_complete(&ring, tag) == &frames[i]);
  }
  CHECK_EQUAL(tx_ring_used(&ring), 0);
}

int main(void) {
  RUN(test_frames_leave_in_order);
  RUN(test_a_descriptor_is_in_use_until_the_mac_is_done);
  RUN(test_a_frame_that_was_not_kicked_cannot_complete);
  RUN(test_counts_and_tags_wrap);
  return 0;
}
