/* Identity block. See identity.h. */
#include "identity.h"

#include <stdbool.h>
#include <string.h>

#include "crc32.h"
#include "little_endian.h"

#define VERSION 1u

static bool filled_with(const uint8_t *bytes, uint8_t value) {
  for (unsigned i = 0; i < IDENTITY_LENGTH; i++) {
    if (bytes[i] != value) {
      return false;
    }
  }
  return true;
}

/* The console prints the name as one word. */
static bool printable_name(const char *name) {
  if (*name == '\0') {
    return false;
  }
  for (; *name != '\0'; name++) {
    if (*name <= ' ' || *name > '~') {
      return false;
    }
  }
  return true;
}

enum identity_state identity_parse(const uint8_t block[IDENTITY_LENGTH], struct identity *identity) {
  struct identity found;

  if (filled_with(block, 0xFF) || filled_with(block, 0x00)) {
    return IDENTITY_MISSING;
  }
  if (memcmp(block, "RGID", 4) != 0 || get_u16(block + 4) != VERSION || get_u16(block + 6) != IDENTITY_LENGTH ||
      get_u32(block + 60) != crc32(block, 60)) {
    return IDENTITY_CORRUPT;
  }
  memcpy(found.mac, block + 8, 6);
  found.port = get_u16(block + 14);
  memcpy(found.address, block + 16, 4);
  memcpy(found.netmask, block + 20, 4);
  memcpy(found.gateway, block + 24, 4);
  memcpy(found.peer, block + 28, 4);
  memcpy(found.name, block + 32, 16);
  found.name[16] = '\0';
  if (!printable_name(found.name)) {
    return IDENTITY_CORRUPT;
  }
  *identity = found;
  return IDENTITY_OK;
}
