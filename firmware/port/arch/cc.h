/* lwIP's compiler and platform definitions, for the target and for the host tests. */
#ifndef LWIP_ARCH_CC_H
#define LWIP_ARCH_CC_H

#include <stdint.h>

/* Never returns. On the target it prints FAULT and resets. */
void platform_assert(const char *message, const char *file, int line) __attribute__((noreturn));
#define LWIP_PLATFORM_ASSERT(message) platform_assert(message, __FILE_NAME__, __LINE__)
#ifndef __FILE_NAME__
#define __FILE_NAME__ __FILE__
#endif

#define LWIP_PLATFORM_DIAG(message) do { } while (0)

#define LWIP_NO_INTTYPES_H 1
#define X8_F "02x"
#define U16_F "hu"
#define S16_F "hd"
#define X16_F "hx"
#define U32_F "u"
#define S32_F "d"
#define X32_F "x"
#define SZT_F "u"

uint32_t platform_random(void);
#define LWIP_RAND() platform_random()

#endif
