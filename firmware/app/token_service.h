/*
 * The token service on the UDP port of the identity block: requests in token-v1 and token-v2, streamed tokens, pushes,
 * sentinels. Answers leave chunk by chunk as the NPU has them ready.
 */
#ifndef TOKEN_SERVICE_H
#define TOKEN_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

/* Since boot. Datagrams, not exchanges, so that they can be held against a capture; failed sends are in tx_err only. */
struct token_counters {
  uint32_t rx_requests;  /* sound requests, refused ones (npu_overflow) included */
  uint32_t rx_bad;       /* datagrams that are neither token-v1 nor token-v2, or malformed */
  uint32_t rx_stream;    /* token datagrams of mode stream */
  uint32_t rx_sentinels;
  uint32_t tx_answers;   /* token datagrams that answer requests */
  uint32_t tx_acks;
  uint32_t tx_sentinels;
  uint32_t tx_errors;    /* error answers */
  uint32_t pushes;       /* token datagrams sent unasked */
  uint32_t tx_err;       /* datagrams that could not be sent */
  uint32_t npu_overflow; /* requests and pushes that found the NPU's queue full */
  uint32_t buffer_waits; /* times that an answer had to wait for a transmit buffer */
};
extern struct token_counters token_counters;

/* False if the port cannot be bound. */
bool token_service_init(uint16_t port, uint32_t boot_id);
/* Does what is due, at most one datagram; true if there may be more to do at once. */
bool token_service_poll(void);
/* When something will be due, CLOCK_NEVER if only a received frame or a returned buffer can change that. */
uint64_t token_service_next_ns(void);
/* True from a start sentinel to an end sentinel: nothing is printed meanwhile. */
bool token_service_measuring(void);

/*
 * After the next start sentinel `count` pushes of `tokens` tokens go to its sender, the first one `every_us` after it,
 * until the end sentinel. Their request ids are 1 to count; t_rx is the sensor tick. False if a value is out of range.
 */
bool token_service_arm_push(uint32_t every_us, uint32_t count, uint16_t tokens);

#endif
