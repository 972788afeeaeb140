/*
 * boot_id: a counter in the backup domain, which outlives power cycles and flash erases, goes through a bijection of 32
 * bits that is seeded once per board. So no id repeats within 2^32 boots of a board, and two boards' ids differ in
 * general. A backup domain that is lost or damaged is seeded anew from the jitter of the free-running counter.
 *
 * Cause of reset: a word in RAM that a reset keeps and a power cycle does not. A pin reset leaves it as it was, a reset
 * by software says so beforehand.
 */
#include "boot.h"

#include <string.h>

#include "clock.h"
#include "crc32.h"
#include "mps3_an547.h"

#define RETAINED_RUNNING 0x52554E21u
#define RETAINED_SOFTWARE 0x534F4654u

struct backup_domain {
  uint32_t seed;
  uint32_t boots;
  uint32_t check; /* CRC-32 of the two words before */
};

struct build_note { /* ELF note: name "GNU", type 3 */
  uint32_t name_size, description_size, type;
  char name[4];
  uint8_t description[BUILD_ID_LENGTH];
};
extern const struct build_note __build_id_note;

static enum boot_cause cause;
static uint32_t id;

/* Each step is invertible, so that distinct inputs give distinct outputs. */
static uint32_t scramble(uint32_t value) {
  value ^= value >> 16;
  value *= 0x7FEB352Du;
  value ^= value >> 15;
  value *= 0x846CA68Bu;
  value ^= value >> 16;
  return value;
}

static uint32_t next_boot_id(volatile struct backup_domain *backup) {
  struct backup_domain state = {backup->seed, backup->boots, backup->check};

  if (state.check != crc32(&state, 8)) {
    state.seed = scramble((uint32_t)clock_ns() ^ state.seed);
    state.boots = 0;
  }
  state.boots++;
  backup->seed = state.seed;
  backup->boots = state.boots;
  backup->check = crc32(&state, 8);
  return scramble(state.boots + state.seed);
}

void boot_init(void) {
  const uint32_t retained = REG32(RETAINED_RAM);

  cause = retained == RETAINED_RUNNING ? BOOT_PIN : retained == RETAINED_SOFTWARE ? BOOT_SOFTWARE : BOOT_COLD;
  REG32(RETAINED_RAM) = RETAINED_RUNNING;
  id = next_boot_id((volatile struct backup_domain *)BACKUP_DOMAIN);
}

enum boot_cause boot_cause(void) {
  return cause;
}

uint32_t boot_id(void) {
  return id;
}

const uint8_t *boot_build_id(void) {
  return __build_id_note.description;
}

void boot_reset(void) {
  REG32(RETAINED_RAM) = RETAINED_SOFTWARE;
  __asm volatile("dsb");
  SCB_AIRCR = SCB_AIRCR_SYSRESETREQ;
  for (;;) {
  }
}
