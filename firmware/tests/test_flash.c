/* Flash map and the check for an empty one. */
#include "check.h"
#include "flash.h"

static void test_sectors_are_those_of_the_chip(void) {
  static const uint32_t offsets[] = {0, 0x8000, 0x10000, 0x18000, 0x20000, 0x40000, 0x80000, 0xC0000, 0x100000};
  uint32_t offset, size;

  for (uint16_t sector = 0; sector < 8; sector++) {
    CHECK(flash_sector(sector, &offset, &size));
    CHECK_EQUAL(offset, offsets[sector]);
    CHECK_EQUAL(size, offsets[sector + 1] - offsets[sector]);
  }
  CHECK(!flash_sector(8, &offset, &size));
}

static void test_map_has_exact_ends(void) {
  CHECK(flash_mapped(0x08000000, 1));
  CHECK(flash_mapped(0x080FFFFF, 1));
  CHECK(!flash_mapped(0x080FFFFF, 2));
  CHECK(!flash_mapped(0x07FFFFFF, 2));
  CHECK(!flash_mapped(0x08100000, 1));
  CHECK(flash_mapped(0x08000000, 0x100000));
  CHECK(!flash_mapped(0x08000004, 0xFFFFFFFC)); /* end wraps around */
}

static void test_empty_flash_is_not_started(void) {
  CHECK(flash_bootable(&(struct flash_vectors){0x01200000, 0x60000201}, 0x60000000));
  CHECK(!flash_bootable(&(struct flash_vectors){0xFFFFFFFF, 0xFFFFFFFF}, 0x60000000));
  CHECK(!flash_bootable(&(struct flash_vectors){0, 0}, 0x60000000));
  CHECK(!flash_bootable(&(struct flash_vectors){0x01200000, 0x60000200}, 0x60000000)); /* not Thumb */
  CHECK(!flash_bootable(&(struct flash_vectors){0x01200000, 0x60100001}, 0x60000000)); /* beyond the flash */
  CHECK(!flash_bootable(&(struct flash_vectors){0x01200002, 0x60000201}, 0x60000000)); /* stack not aligned */
  CHECK(!flash_bootable(&(struct flash_vectors){0x20050000, 0x08000201}, 0x60000000)); /* a real STM32's image */
}

int main(void) {
  RUN(test_sectors_are_those_of_the_chip);
  RUN(test_map_has_exact_ends);
  RUN(test_empty_flash_is_not_started);
  return 0;
}
