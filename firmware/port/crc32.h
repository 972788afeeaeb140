/* CRC-32 of IEEE 802.3 (zlib's), as token-v2 headers and the identity block use it. */
#ifndef CRC32_H
#define CRC32_H

#include <stddef.h>
#include <stdint.h>

uint32_t crc32(const void *bytes, size_t length);

#endif
