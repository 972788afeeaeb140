/* What is known about this boot: its cause, its id, the image's build id; and how to reset. */
#ifndef BOOT_H
#define BOOT_H

#include <stdint.h>

#define BUILD_ID_LENGTH 20u

enum boot_cause { BOOT_COLD, BOOT_PIN, BOOT_SOFTWARE };

/* Reads and advances the retained state; call once, first. */
void boot_init(void);
enum boot_cause boot_cause(void);
/* Differs on every boot of a board: see boot.c. */
uint32_t boot_id(void);
/* GNU build id of this image. */
const uint8_t *boot_build_id(void);
void boot_reset(void) __attribute__((noreturn));

#endif
