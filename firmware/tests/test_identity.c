/* The identity block. */
#include <string.h>

#include "check.h"
#include "crc32.h"
#include "identity.h"
#include "little_endian.h"

static void make(uint8_t block[64]) {
  memset(block, 0, 64);
  memcpy(block, "RGID", 4);
  put_u16(block + 4, 1);
  put_u16(block + 6, 64);
  memcpy(block + 8, "\x02\x52\x49\x47\x00\x10", 6);
  put_u16(block + 14, 5005);
  memcpy(block + 16, "\x0a\x4d\x00\x0a\xff\xff\xff\x00\x00\x00\x00\x00\x0a\x4d\x00\x14", 16);
  memcpy(block + 32, "bench-7", 7);
  put_u32(block + 60, crc32(block, 60));
}

static void test_crc_is_zlibs(void) {
  CHECK_EQUAL(crc32("123456789", 9), 0xCBF43926);
  CHECK_EQUAL(crc32("", 0), 0);
}

static void test_a_sound_block(void) {
  uint8_t block[64];
  struct identity identity;

  make(block);
  CHECK_EQUAL(identity_parse(block, &identity), IDENTITY_OK);
  CHECK_EQUAL(identity.port, 5005);
  CHECK(memcmp(identity.mac, "\x02\x52\x49\x47\x00\x10", 6) == 0);
  CHECK(memcmp(identity.address, "\x0a\x4d\x00\x0a", 4) == 0);
  CHECK(memcmp(identity.netmask, "\xff\xff\xff\x00", 4) == 0);
  CHECK(memcmp(identity.peer, "\x0a\x4d\x00\x14", 4) == 0);
  CHECK(strcmp(identity.name, "bench-7") == 0);
}

static void test_a_name_of_sixteen_letters_needs_no_end(void) {
  uint8_t block[64];
  struct identity identity;

  make(block);
  memcpy(block + 32, "0123456789abcdef", 16);
  put_u32(block + 60, crc32(block, 60));
  CHECK_EQUAL(identity_parse(block, &identity), IDENTITY_OK);
  CHECK(strcmp(identity.name, "0123456789abcdef") == 0);
}

static void test_erased_and_blank_pages_are_missing(void) {
  uint8_t block[64];
  struct identity identity;

  memset(block, 0xFF, sizeof(block));
  CHECK_EQUAL(identity_parse(block, &identity), IDENTITY_MISSING);
  memset(block, 0x00, sizeof(block));
  CHECK_EQUAL(identity_parse(block, &identity), IDENTITY_MISSING);
}

static void test_any_flipped_bit_is_corrupt(void) {
  for (unsigned bit = 0; bit < 8 * 64; bit++) {
    uint8_t block[64];
    struct identity identity;

    make(block);
    block[bit / 8] ^= (uint8_t)(1u << bit % 8);
    CHECK_EQUAL(identity_parse(block, &identity), IDENTITY_CORRUPT);
  }
}

static void test_a_name_that_breaks_the_banner_is_corrupt(void) {
  uint8_t block[64];
  struct identity identity;

  make(block);
  memcpy(block + 32, "a b", 4);
  put_u32(block + 60, crc32(block, 60));
  CHECK_EQUAL(identity_parse(block, &identity), IDENTITY_CORRUPT);
}

int main(void) {
  RUN(test_crc_is_zlibs);
  RUN(test_a_sound_block);
  RUN(test_a_name_of_sixteen_letters_needs_no_end);
  RUN(test_erased_and_blank_pages_are_missing);
  RUN(test_any_flipped_bit_is_corrupt);
  RUN(test_a_name_that_breaks_the_banner_is_corrupt);
  return 0;
}
