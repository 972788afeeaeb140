/*
 * token-v2 on the wire: 52 bytes of header, little-endian, then u32 token ids.
 *
 *  0 'T' '2'       4 u32 request_id   16 u16 payload bytes   36 u64 t_send
 *  2 u8 type       8 u32 sequence     18 u16 zero            44 u32 t_queued - t_send of the previous datagram
 *  3 u8 flags     12 u32 boot_id      20 u64 t_rx            48 u32 CRC-32 of the header with this field zero
 *                                     28 u64 t_ready
 *
 * Times are ns of the sender's monotonic clock, 0 unknown. The vectors in tests/vectors/token_v2.json bind this file.
 */
#ifndef TOKEN_V2_H
#define TOKEN_V2_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "crc32.h"
#include "little_endian.h"

#define TOKEN_V2_HEADER_LENGTH 52u
#define TOKEN_V2_TOKENS_MAX 355u /* (1472 - 52) / 4 */
#define TOKEN_V2_QUEUED_UNKNOWN 0xFFFFFFFFu

#define TOKEN_V2_REQUEST 1u
#define TOKEN_V2_ANSWER 2u
#define TOKEN_V2_ACKNOWLEDGE 3u
#define TOKEN_V2_ERROR 4u
#define TOKEN_V2_SENTINEL 5u

#define TOKEN_V2_FIRST 1u
#define TOKEN_V2_LAST 2u

#define TOKEN_V2_SENTINEL_START 0xFFFFFFFEu /* request_id: 0xFFFFFFFF - kind */
#define TOKEN_V2_SENTINEL_END 0xFFFFFFFDu
#define TOKEN_V2_SENTINEL_PROBE 0xFFFFFFFCu /* asks whether the network is up; begins and ends nothing */

/* Payload of an error answer: one u32. */
#define TOKEN_V2_ERROR_LENGTH 1u  /* payload bytes of the header are not those of the datagram */
#define TOKEN_V2_ERROR_REQUEST 2u /* a request whose payload is not answer_tokens, zero, whole tokens */
#define TOKEN_V2_ERROR_TYPE 3u    /* a type that the board does not take */
#define TOKEN_V2_ERROR_BUSY 4u    /* the NPU's queue is full */

struct token_v2_header {
  uint8_t type;
  uint8_t flags;
  uint32_t request_id;
  uint32_t sequence;
  uint32_t boot_id;
  uint16_t payload_length;
  uint64_t t_rx_ns;
  uint64_t t_ready_ns;
  uint64_t t_send_ns;
  uint32_t prev_queued_ns;
};

static inline void token_v2_encode(const struct token_v2_header *header, uint8_t bytes[TOKEN_V2_HEADER_LENGTH]) {
  bytes[0] = 'T';
  bytes[1] = '2';
  bytes[2] = header->type;
  bytes[3] = header->flags;
  put_u32(bytes + 4, header->request_id);
  put_u32(bytes + 8, header->sequence);
  put_u32(bytes + 12, header->boot_id);
  put_u16(bytes + 16, header->payload_length);
  put_u16(bytes + 18, 0);
  put_u64(bytes + 20, header->t_rx_ns);
  put_u64(bytes + 28, header->t_ready_ns);
  put_u64(bytes + 36, header->t_send_ns);
  put_u32(bytes + 44, header->prev_queued_ns);
  put_u32(bytes + 48, 0);
  put_u32(bytes + 48, crc32(bytes, TOKEN_V2_HEADER_LENGTH));
}

/* True if the datagram begins with a header whose magic, zero field and CRC are right. Its payload is not looked at. */
static inline bool token_v2_decode(const uint8_t *datagram, size_t length, struct token_v2_header *header) {
  uint8_t copy[TOKEN_V2_HEADER_LENGTH];

  if (length < TOKEN_V2_HEADER_LENGTH || datagram[0] != 'T' || datagram[1] != '2' || get_u16(datagram + 18) != 0) {
    return false;
  }
  memcpy(copy, datagram, sizeof(copy));
  put_u32(copy + 48, 0);
  if (crc32(copy, sizeof(copy)) != get_u32(datagram + 48)) {
    return false;
  }
  header->type = datagram[2];
  header->flags = datagram[3];
  header->request_id = get_u32(datagram + 4);
  header->sequence = get_u32(datagram + 8);
  header->boot_id = get_u32(datagram + 12);
  header->payload_length = get_u16(datagram + 16);
  header->t_rx_ns = get_u64(datagram + 20);
  header->t_ready_ns = get_u64(datagram + 28);
  header->t_send_ns = get_u64(datagram + 36);
  header->prev_queued_ns = get_u32(datagram + 44);
  return true;
}

#endif
