/* token-v1 and token-v2 headers; the vectors are shared with all other implementations. */
#include "check.h"
#include "token_v1.h"
#include "token_v2.h"
#include "token_v2_vectors.h"

static void test_v2_encodes_the_shared_vectors(void) {
  CHECK(sizeof(vectors) / sizeof(vectors[0]) >= 5);
  for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
    uint8_t bytes[TOKEN_V2_HEADER_LENGTH];

    token_v2_encode(&vectors[i].header, bytes);
    if (memcmp(bytes, vectors[i].bytes, sizeof(bytes)) != 0) {
      fprintf(stderr, "vector %s\n", vectors[i].name);
      exit(1);
    }
  }
}

static void test_v2_decodes_the_shared_vectors(void) {
  for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
    struct token_v2_header header;
    uint8_t again[TOKEN_V2_HEADER_LENGTH];

    CHECK(token_v2_decode(vectors[i].bytes, sizeof(vectors[i].bytes), &header));
    CHECK_EQUAL(header.request_id, vectors[i].header.request_id);
    CHECK_EQUAL(header.t_send_ns, vectors[i].header.t_send_ns);
    token_v2_encode(&header, again);
    CHECK(memcmp(again, vectors[i].bytes, sizeof(again)) == 0);
  }
}

static void test_v2_refuses_any_flipped_bit(void) {
  for (unsigned bit = 0; bit < 8 * TOKEN_V2_HEADER_LENGTH; bit++) {
    uint8_t bytes[TOKEN_V2_HEADER_LENGTH];
    struct token_v2_header header;

    memcpy(bytes, vectors[0].bytes, sizeof(bytes));
    bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    CHECK(!token_v2_decode(bytes, sizeof(bytes), &header));
  }
}

static void test_v2_refuses_a_short_datagram(void) {
  struct token_v2_header header;

  for (size_t length = 0; length < TOKEN_V2_HEADER_LENGTH; length++) {
    uint8_t *exact = malloc(length + 1); /* the sanitizer sees a read beyond it */

    memcpy(exact, vectors[0].bytes, length);
    CHECK(!token_v2_decode(exact, length, &header));
    free(exact);
  }
}

static void test_v1_round_trip(void) {
  /* sequence 0x0201, payload 4 bytes, sum 0x01 + 0x02 + 0xFF + 0xFF = 0x201 */
  uint8_t datagram[9] = {0, 0, 0, 0, 0, 0x01, 0x02, 0xFF, 0xFF};
  const uint8_t wanted[9] = {0x01, 0x02, 0x04, 0x00, 0x01, 0x01, 0x02, 0xFF, 0xFF};
  uint16_t sequence;

  token_v1_encode(datagram, 0x0201, 4);
  CHECK(memcmp(datagram, wanted, sizeof(wanted)) == 0);
  CHECK(token_v1_decode(datagram, sizeof(datagram), &sequence));
  CHECK_EQUAL(sequence, 0x0201);
}

static void test_v1_refuses_wrong_length_and_sum(void) {
  uint8_t datagram[9] = {0x01, 0x02, 0x04, 0x00, 0x01, 0x01, 0x02, 0xFF, 0xFF};
  uint16_t sequence;

  CHECK(!token_v1_decode(datagram, 4, &sequence));
  CHECK(!token_v1_decode(datagram, 8, &sequence));
  datagram[2] = 3;
  CHECK(!token_v1_decode(datagram, 8, &sequence)); /* half a token */
  datagram[2] = 4;
  datagram[4] = 2;
  CHECK(!token_v1_decode(datagram, 9, &sequence));
}

int main(void) {
  RUN(test_v2_encodes_the_shared_vectors);
  RUN(test_v2_decodes_the_shared_vectors);
  RUN(test_v2_refuses_any_flipped_bit);
  RUN(test_v2_refuses_a_short_datagram);
  RUN(test_v1_round_trip);
  RUN(test_v1_refuses_wrong_length_and_sum);
  return 0;
}
