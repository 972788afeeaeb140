/* Command lines. See command.h. */
#include "command.h"

#include <string.h>

bool command_is(const char *line, const char *name, const char **rest) {
  const size_t length = strlen(name);

  if (strncmp(line, name, length) != 0 || (line[length] != ' ' && line[length] != '\0')) {
    return false;
  }
  *rest = line + length;
  return true;
}

static bool number(const char **at, uint32_t *value) {
  const char *digit = *at;
  uint64_t sum = 0;

  while (*digit >= '0' && *digit <= '9') {
    sum = sum * 10u + (uint64_t)(*digit++ - '0');
    if (sum > UINT32_MAX) {
      return false;
    }
  }
  if (digit == *at || (*digit != ' ' && *digit != '\0')) {
    return false;
  }
  *at = digit;
  *value = (uint32_t)sum;
  return true;
}

bool command_fields(const char *words, struct command_field *fields, unsigned count) {
  for (;;) {
    while (*words == ' ') {
      words++;
    }
    if (*words == '\0') {
      return true;
    }
    struct command_field *field = NULL;

    for (unsigned i = 0; i < count && field == NULL; i++) {
      const size_t length = strlen(fields[i].key);

      if (strncmp(words, fields[i].key, length) == 0 && words[length] == '=') {
        field = &fields[i];
        words += length + 1;
      }
    }
    if (field == NULL || field->given || !number(&words, &field->value)) {
      return false;
    }
    field->given = true;
  }
}
