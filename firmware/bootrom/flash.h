/* The flash that the boot ROM offers: an STM32F746's (RM0385 table 3), kept in DDR, with NOR rules. */
#ifndef FLASH_H
#define FLASH_H

#include <stdbool.h>
#include <stdint.h>

#define STM32F74X_PRODUCT_ID 0x449u
#define STM32_FLASH_BASE 0x08000000u
#define STM32_FLASH_SIZE 0x00100000u
#define STM32_FLASH_SECTORS 8u

/* True if all of [address, address + length) is flash; address is the STM32's. */
bool flash_mapped(uint32_t address, uint32_t length);
/* Offset and size of a sector; false beyond the last one. */
bool flash_sector(uint16_t sector, uint32_t *offset, uint32_t *size);
/* Programming can only clear bits; `storage` is the flash's first byte. The range must be mapped. */
void flash_program(uint8_t *storage, uint32_t address, const uint8_t *bytes, uint32_t length);
/* Sets all bits of the sector; false beyond the last one. */
bool flash_erase(uint8_t *storage, uint16_t sector);

/*
 * The empty check: initial stack pointer (word aligned, in RAM) and reset vector (Thumb, inside of the flash as the
 * core sees it). Erased or never written flash fails both.
 */
struct flash_vectors {
  uint32_t stack_pointer;
  uint32_t reset;
};
bool flash_bootable(const struct flash_vectors *vectors, uint32_t core_base);

#endif
