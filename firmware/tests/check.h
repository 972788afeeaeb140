/* A test is a function; a failed check prints its place and ends the program. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                          \
  do {                                                                            \
    if (!(condition)) {                                                           \
      fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);   \
      exit(1);                                                                    \
    }                                                                             \
  } while (0)

#define CHECK_EQUAL(seen, expected)                                                                       \
  do {                                                                                                    \
    const long long seen_value = (long long)(seen), expected_value = (long long)(expected);               \
    if (seen_value != expected_value) {                                                                   \
      fprintf(stderr, "%s:%d: %s is %lld (0x%llx), expected %lld (0x%llx)\n", __FILE__, __LINE__, #seen,  \
              seen_value, seen_value, expected_value, expected_value);                                    \
      exit(1);                                                                                            \
    }                                                                                                     \
  } while (0)

#define RUN(test)            \
  do {                       \
    test();                  \
    printf("ok %s\n", #test); \
  } while (0)

#endif
