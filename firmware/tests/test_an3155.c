/* The boot ROM's protocol, byte by byte as AN3155 draws its diagrams, on a flash in memory. */
#include <string.h>

#include "an3155.h"
#include "check.h"
#include "flash.h"

static uint8_t flash[STM32_FLASH_SIZE];
static uint8_t out[4096];
static size_t out_length;
static uint32_t gone_to;
static unsigned erased;

static void reply(void *context, const uint8_t *bytes, size_t length) {
  (void)context;
  CHECK(out_length + length <= sizeof(out));
  memcpy(out + out_length, bytes, length);
  out_length += length;
}
static bool mapped(void *context, uint32_t address, uint32_t length) {
  (void)context;
  return flash_mapped(address, length);
}
static void read_memory(void *context, uint32_t address, uint8_t *bytes, size_t length) {
  (void)context;
  memcpy(bytes, flash + (address - STM32_FLASH_BASE), length);
}
static bool write_memory(void *context, uint32_t address, const uint8_t *bytes, size_t length) {
  (void)context;
  flash_program(flash, address, bytes, (uint32_t)length);
  return true;
}
static bool erase_sector(void *context, uint16_t sector) {
  (void)context;
  erased |= 1u << sector;
  return flash_erase(flash, sector);
}
static bool startable(void *context, uint32_t address) {
  (void)context;
  return address == STM32_FLASH_BASE;
}
static void go(void *context, uint32_t address) {
  (void)context;
  gone_to = address;
}

static const struct an3155_port port = {NULL,  0x449,        STM32_FLASH_SECTORS, reply,     mapped, read_memory,
                                        write_memory, erase_sector, startable, go};
static struct an3155 rom;

static void send(const uint8_t *bytes, size_t length) {
  out_length = 0;
  for (size_t i = 0; i < length; i++) {
    an3155_receive(&rom, bytes[i]);
  }
}
#define SEND(...)                              \
  do {                                         \
    const uint8_t bytes[] = {__VA_ARGS__};     \
    send(bytes, sizeof(bytes));                \
  } while (0)
#define EXPECT(...)                                        \
  do {                                                     \
    const uint8_t wanted[] = {__VA_ARGS__};                \
    CHECK_EQUAL(out_length, sizeof(wanted));               \
    CHECK(memcmp(out, wanted, sizeof(wanted)) == 0);       \
  } while (0)
#define EXPECT_NOTHING() CHECK_EQUAL(out_length, 0)

static void synced(void) {
  an3155_init(&rom, &port);
  memset(flash, 0, sizeof(flash));
  erased = 0;
  gone_to = 0;
  SEND(0x7F);
  EXPECT(0x79);
}

static void address(uint32_t value) {
  SEND((uint8_t)(value >> 24), (uint8_t)(value >> 16), (uint8_t)(value >> 8), (uint8_t)value,
       (uint8_t)(value >> 24 ^ value >> 16 ^ value >> 8 ^ value));
}

static void test_noise_before_synchronisation_is_ignored(void) {
  an3155_init(&rom, &port);
  SEND(0x00, 0xFF, 0x80, 0x79);
  EXPECT_NOTHING();
  SEND(0x7F);
  EXPECT(0x79);
}

static void test_repeated_synchronisation_is_the_start_of_a_command_and_draws_nack(void) {
  synced();
  SEND(0x7F);
  EXPECT_NOTHING();
  SEND(0x7F);
  EXPECT(0x1F);
  SEND(0x02, 0xFD);
  EXPECT(0x79, 0x01, 0x04, 0x49, 0x79);
}

static void test_get_lists_the_commands(void) {
  synced();
  SEND(0x00, 0xFF);
  EXPECT(0x79, 0x07, 0x31, 0x00, 0x01, 0x02, 0x11, 0x21, 0x31, 0x44, 0x79);
}

static void test_get_version(void) {
  synced();
  SEND(0x01, 0xFE);
  EXPECT(0x79, 0x31, 0x00, 0x00, 0x79);
}

static void test_wrong_complement_and_unknown_command_draw_nack(void) {
  synced();
  SEND(0x02, 0xFC);
  EXPECT(0x1F);
  SEND(0x43, 0xBC); /* Erase: a chip has either it or Extended Erase */
  EXPECT(0x1F);
  SEND(0x02, 0xFD);
  EXPECT(0x79, 0x01, 0x04, 0x49, 0x79);
}

static void test_write_then_read_back(void) {
  synced();
  memset(flash, 0xFF, 512);
  SEND(0x31, 0xCE);
  EXPECT(0x79);
  address(0x08000100);
  EXPECT(0x79);
  SEND(0x03, 0xDE, 0xAD, 0xBE, 0xEF);
  EXPECT_NOTHING();
  SEND(0x03 ^ 0xDE ^ 0xAD ^ 0xBE ^ 0xEF);
  EXPECT(0x79);
  SEND(0x11, 0xEE);
  EXPECT(0x79);
  address(0x080000FF);
  EXPECT(0x79);
  SEND(0x05, 0xFA);
  EXPECT(0x79, 0xFF, 0xDE, 0xAD, 0xBE, 0xEF, 0xFF);
}

static void test_whole_block_of_256(void) {
  uint8_t frame[258];
  uint8_t checksum = 0xFF;

  synced();
  memset(flash, 0xFF, sizeof(flash));
  frame[0] = 0xFF;
  for (int i = 0; i < 256; i++) {
    frame[1 + i] = (uint8_t)(i * 7);
    checksum ^= frame[1 + i];
  }
  frame[257] = checksum;
  SEND(0x31, 0xCE);
  address(0x080FFF00);
  send(frame, sizeof(frame));
  EXPECT(0x79);
  CHECK(memcmp(flash + 0xFFF00, frame + 1, 256) == 0);
  SEND(0x11, 0xEE);
  address(0x080FFF00);
  SEND(0xFF, 0x00);
  CHECK_EQUAL(out_length, 257);
  CHECK(memcmp(out + 1, frame + 1, 256) == 0);
}

static void test_write_with_wrong_checksum_changes_nothing(void) {
  synced();
  memset(flash, 0xFF, 16);
  SEND(0x31, 0xCE);
  address(0x08000000);
  SEND(0x03, 1, 2, 3, 4, 0x00);
  EXPECT(0x1F);
  CHECK_EQUAL(flash[0], 0xFF);
}

static void test_writes_can_only_clear_bits(void) {
  synced();
  memset(flash, 0xFF, 16);
  SEND(0x31, 0xCE);
  address(0x08000000);
  SEND(0x03, 0xF0, 0xF0, 0xF0, 0xF0, 0x03);
  EXPECT(0x79);
  SEND(0x31, 0xCE);
  address(0x08000000);
  SEND(0x03, 0x3C, 0x3C, 0x3C, 0x3C, 0x03);
  EXPECT(0x79); /* the chip does not say so; reading back does */
  CHECK_EQUAL(flash[0], 0x30);
}

static void test_unaligned_writes_draw_nack(void) {
  synced();
  SEND(0x31, 0xCE);
  address(0x08000002);
  SEND(0x03, 0, 0, 0, 0, 0x03);
  EXPECT(0x1F);
  SEND(0x31, 0xCE);
  address(0x08000000);
  SEND(0x02, 0, 0, 0, 0x02);
  EXPECT(0x1F);
}

static void test_addresses_outside_of_the_flash_draw_nack(void) {
  static const uint8_t commands[] = {0x11, 0x21, 0x31};
  static const uint32_t outside[] = {0x00000000, 0x07FFFFFF, 0x08100000, 0x20000000, 0x60000000, 0xFFFFFFFF};

  synced();
  for (size_t c = 0; c < sizeof(commands); c++) {
    for (size_t a = 0; a < sizeof(outside) / sizeof(outside[0]); a++) {
      SEND(commands[c], (uint8_t)~commands[c]);
      EXPECT(0x79);
      address(outside[a]);
      EXPECT(0x1F);
    }
  }
}

static void test_blocks_that_leave_the_flash_draw_nack(void) {
  synced();
  SEND(0x11, 0xEE);
  address(0x080FFFFC);
  EXPECT(0x79);
  SEND(0x04, 0xFB);
  EXPECT(0x1F);
  SEND(0x31, 0xCE);
  address(0x080FFFFC);
  EXPECT(0x79);
  SEND(0x07, 0, 0, 0, 0, 0, 0, 0, 0, 0x07);
  EXPECT(0x1F);
}

static void test_wrong_address_checksum_draws_nack(void) {
  synced();
  SEND(0x11, 0xEE);
  SEND(0x08, 0x00, 0x00, 0x00, 0x09);
  EXPECT(0x1F);
}

static void test_wrong_read_count_complement_draws_nack(void) {
  synced();
  SEND(0x11, 0xEE);
  address(0x08000000);
  SEND(0x03, 0x03);
  EXPECT(0x1F);
}

static void test_erase_of_named_sectors(void) {
  synced();
  SEND(0x44, 0xBB);
  EXPECT(0x79);
  SEND(0x00, 0x01, 0x00, 0x00, 0x00, 0x04);
  EXPECT_NOTHING();
  SEND(0x01 ^ 0x04);
  EXPECT(0x79);
  CHECK_EQUAL(erased, 1u << 0 | 1u << 4);
  CHECK_EQUAL(flash[0x7FFF], 0xFF);
  CHECK_EQUAL(flash[0x8000], 0x00);
  CHECK_EQUAL(flash[0x20000], 0xFF);
  CHECK_EQUAL(flash[0x3FFFF], 0xFF);
  CHECK_EQUAL(flash[0x40000], 0x00);
}

static void test_global_erase(void) {
  synced();
  SEND(0x44, 0xBB);
  SEND(0xFF, 0xFF, 0x00);
  EXPECT(0x79);
  CHECK_EQUAL(erased, 0xFF);
  CHECK_EQUAL(flash[0], 0xFF);
  CHECK_EQUAL(flash[STM32_FLASH_SIZE - 1], 0xFF);
}

static void test_refused_erases_erase_nothing(void) {
  synced();
  SEND(0x44, 0xBB);
  SEND(0xFF, 0xFE, 0x01); /* bank 1: this chip has one bank */
  EXPECT(0x1F);
  SEND(0x44, 0xBB);
  SEND(0xFF, 0xF3, 0x0C); /* reserved */
  EXPECT(0x1F);
  SEND(0x44, 0xBB);
  SEND(0xFF, 0xFF, 0x01); /* wrong checksum */
  EXPECT(0x1F);
  SEND(0x44, 0xBB);
  SEND(0x00, 0x01, 0x00, 0x00, 0x00, 0x08, 0x09); /* sector 8 does not exist */
  EXPECT(0x1F);
  CHECK_EQUAL(erased, 0);
}

static void test_long_erase_list_is_read_to_its_end(void) {
  synced();
  SEND(0x44, 0xBB);
  SEND(0x01, 0x2C); /* 301 sectors, all sector 2 */
  for (int i = 0; i < 301; i++) {
    SEND(0x00, 0x02);
    EXPECT_NOTHING();
  }
  SEND(0x01 ^ 0x2C ^ 0x02);
  EXPECT(0x79);
  CHECK_EQUAL(erased, 1u << 2);
}

static void test_go_acknowledges_then_starts(void) {
  synced();
  SEND(0x21, 0xDE);
  EXPECT(0x79);
  address(0x08000000);
  EXPECT(0x79);
  CHECK_EQUAL(gone_to, 0x08000000);
}

static void test_go_to_a_place_without_application_draws_nack(void) {
  synced();
  SEND(0x21, 0xDE);
  address(0x08040000);
  EXPECT(0x1F);
  CHECK_EQUAL(gone_to, 0);
}

/* Whatever comes in, the ROM neither leaves its memory nor stops answering. Sanitizers watch. */
static void test_random_input_never_wedges_it(void) {
  uint32_t seed = 1;

  synced();
  for (int i = 0; i < 2000000; i++) {
    seed = seed * 1664525u + 1013904223u;
    if (i % 64 == 0) {
      out_length = 0;
    }
    an3155_receive(&rom, seed >> 20 & 1 ? (uint8_t)(seed >> 24) : "\x11\xEE\x31\xCE\x44\xBB\x08\x00"[seed >> 24 & 7]);
    out_length = 0;
  }
  /* The longest field is an erase list of 65520 sectors: zeros end it, then a new command is heard. */
  for (int i = 0; i < 140000; i++) {
    out_length = 0;
    an3155_receive(&rom, 0x00);
  }
  for (int i = 0; i < 2 && rom.state != AN3155_WAIT_COMMAND; i++) {
    an3155_receive(&rom, 0x00);
  }
  SEND(0x02, 0xFD);
  EXPECT(0x79, 0x01, 0x04, 0x49, 0x79);
}

int main(void) {
  RUN(test_noise_before_synchronisation_is_ignored);
  RUN(test_repeated_synchronisation_is_the_start_of_a_command_and_draws_nack);
  RUN(test_get_lists_the_commands);
  RUN(test_get_version);
  RUN(test_wrong_complement_and_unknown_command_draw_nack);
  RUN(test_write_then_read_back);
  RUN(test_whole_block_of_256);
  RUN(test_write_with_wrong_checksum_changes_nothing);
  RUN(test_writes_can_only_clear_bits);
  RUN(test_unaligned_writes_draw_nack);
  RUN(test_addresses_outside_of_the_flash_draw_nack);
  RUN(test_blocks_that_leave_the_flash_draw_nack);
  RUN(test_wrong_address_checksum_draws_nack);
  RUN(test_wrong_read_count_complement_draws_nack);
  RUN(test_erase_of_named_sectors);
  RUN(test_global_erase);
  RUN(test_refused_erases_erase_nothing);
  RUN(test_long_erase_list_is_read_to_its_end);
  RUN(test_go_acknowledges_then_starts);
  RUN(test_go_to_a_place_without_application_draws_nack);
  RUN(test_random_input_never_wedges_it);
  return 0;
}
