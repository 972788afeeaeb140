/* Command lines of the console, taken apart without I/O. */
#ifndef COMMAND_H
#define COMMAND_H

#include <stdbool.h>
#include <stdint.h>

#define COMMAND_LENGTH_MAX 120u

struct command_field {
  const char *key;
  uint32_t value; /* stays as it was where the line does not name the key */
  bool given;
};

/* True if `line` begins with the word `name`; `*rest` is what follows it. */
bool command_is(const char *line, const char *name, const char **rest);
/* Reads `key=N` words. False on an unknown or repeated key, or a value that is not a decimal number below 2^32. */
bool command_fields(const char *words, struct command_field *fields, unsigned count);

#endif
