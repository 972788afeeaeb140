/* Console command lines. */
#include <string.h>

#include "check.h"
#include "command.h"

static struct command_field fields[2];

static bool parse(const char *words) {
  fields[0] = (struct command_field){"every_us", 11, false};
  fields[1] = (struct command_field){"count", 22, false};
  return command_fields(words, fields, 2);
}

static void test_a_command_is_a_whole_word(void) {
  const char *rest;

  CHECK(command_is("push count=1", "push", &rest) && strcmp(rest, " count=1") == 0);
  CHECK(command_is("info", "info", &rest) && *rest == '\0');
  CHECK(!command_is("information", "info", &rest));
  CHECK(!command_is("inf", "info", &rest));
}

static void test_fields_in_any_order_keep_what_is_not_named(void) {
  CHECK(parse(" count=4294967295  every_us=0 "));
  CHECK_EQUAL(fields[0].value, 0);
  CHECK_EQUAL(fields[1].value, 4294967295);
  CHECK(parse(" count=5"));
  CHECK_EQUAL(fields[0].value, 11);
  CHECK(!fields[0].given && fields[1].given);
  CHECK(parse(""));
}

static void test_what_is_not_a_field_is_refused(void) {
  static const char *const wrong[] = {" count", " count=", " count=x", " count=1x", " count=-1", " count=4294967296",
                                      " counts=1", " =1", " count=1 count=2", " count=1,every_us=2", " 7"};

  for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
    CHECK(!parse(wrong[i]));
  }
}

int main(void) {
  RUN(test_a_command_is_a_whole_word);
  RUN(test_fields_in_any_order_keep_what_is_not_named);
  RUN(test_what_is_not_a_field_is_refused);
  return 0;
}
