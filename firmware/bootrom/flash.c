/* STM32F746 flash on RAM. See flash.h. */
#include "flash.h"

#include <string.h>

/* RM0385 table 3: 4 x 32 KiB, 128 KiB, 3 x 256 KiB. */
static const uint16_t sector_kib[STM32_FLASH_SECTORS] = {32, 32, 32, 32, 128, 256, 256, 256};

bool flash_mapped(uint32_t address, uint32_t length) {
  return address >= STM32_FLASH_BASE && length <= STM32_FLASH_SIZE &&
         address - STM32_FLASH_BASE <= STM32_FLASH_SIZE - length;
}

bool flash_sector(uint16_t sector, uint32_t *offset, uint32_t *size) {
  if (sector >= STM32_FLASH_SECTORS) {
    return false;
  }
  *offset = 0;
  for (uint16_t before = 0; before < sector; before++) {
    *offset += sector_kib[before] * 1024u;
  }
  *size = sector_kib[sector] * 1024u;
  return true;
}

void flash_program(uint8_t *storage, uint32_t address, const uint8_t *bytes, uint32_t length) {
  uint8_t *cell = storage + (address - STM32_FLASH_BASE);

  for (uint32_t i = 0; i < length; i++) {
    cell[i] &= bytes[i];
  }
}

bool flash_erase(uint8_t *storage, uint16_t sector) {
  uint32_t offset, size;

  if (!flash_sector(sector, &offset, &size)) {
    return false;
  }
  memset(storage + offset, 0xFF, size);
  return true;
}

bool flash_bootable(const struct flash_vectors *vectors, uint32_t core_base) {
  const uint32_t sp = vectors->stack_pointer;
  const uint32_t pc = vectors->reset;
  /* SRAM 2 MiB, DTCM 512 KiB, SRAM2 4 MiB; a full-descending stack may start at the end. */
  const bool in_ram = (sp > 0x01000000u && sp <= 0x01200000u) || (sp > 0x20000000u && sp <= 0x20080000u) ||
                      (sp > 0x21000000u && sp <= 0x21400000u);

  return sp % 4u == 0 && in_ram && pc % 2u == 1 && pc >= core_base && pc - core_base < STM32_FLASH_SIZE;
}
