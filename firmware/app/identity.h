/*
 * The identity block: who this board is, in a flash page of its own, written per bench. 64 bytes, little-endian but for
 * the addresses, which stand in network byte order:
 *  0 'RGID', 4 u16 version 1, 6 u16 length 64, 8 MAC, 14 u16 UDP port, 16 IPv4, 20 netmask, 24 gateway, 28 peer,
 *  32 name (16 ASCII, NUL-padded), 48 zero, 60 u32 CRC-32 of bytes 0 to 59.
 */
#ifndef IDENTITY_H
#define IDENTITY_H

#include <stdint.h>

#define IDENTITY_LENGTH 64u
#define IDENTITY_ADDRESS 0x60020000u /* 0x08020000 of the STM32 map */

enum identity_state { IDENTITY_OK, IDENTITY_MISSING, IDENTITY_CORRUPT };

struct identity {
  uint8_t mac[6];
  uint16_t port;
  uint8_t address[4], netmask[4], gateway[4], peer[4];
  char name[17];
};

/* MISSING: the page is erased or was never written. `identity` is filled only when OK. */
enum identity_state identity_parse(const uint8_t block[IDENTITY_LENGTH], struct identity *identity);

#endif
