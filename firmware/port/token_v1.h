/*
 * token-v1 on the wire, little-endian: u16 sequence, u16 payload bytes, u8 sum of the payload bytes, u16 token ids.
 * A request's first u16 is the number of tokens that it asks for. Each datagram of the answer repeats its sequence.
 */
#ifndef TOKEN_V1_H
#define TOKEN_V1_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "little_endian.h"

#define TOKEN_V1_HEADER_LENGTH 5u
#define TOKEN_V1_TOKENS_MAX 733u /* (1472 - 5) / 2 */

static inline uint8_t token_v1_sum(const uint8_t *bytes, size_t length) {
  uint8_t sum = 0;

  for (size_t i = 0; i < length; i++) {
    sum = (uint8_t)(sum + bytes[i]);
  }
  return sum;
}

/* The payload must already stand behind the header. */
static inline void token_v1_encode(uint8_t *datagram, uint16_t sequence, uint16_t payload_length) {
  put_u16(datagram, sequence);
  put_u16(datagram + 2, payload_length);
  datagram[4] = token_v1_sum(datagram + TOKEN_V1_HEADER_LENGTH, payload_length);
}

/* True if length, sum and the whole number of tokens are right. */
static inline bool token_v1_decode(const uint8_t *datagram, size_t length, uint16_t *sequence) {
  if (length < TOKEN_V1_HEADER_LENGTH || length % 2 == 0 || length != TOKEN_V1_HEADER_LENGTH + get_u16(datagram + 2) ||
      datagram[4] != token_v1_sum(datagram + TOKEN_V1_HEADER_LENGTH, length - TOKEN_V1_HEADER_LENGTH)) {
    return false;
  }
  *sequence = get_u16(datagram);
  return true;
}

#endif
