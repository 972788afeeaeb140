/*
 * ST AN3155, "USART protocol used in the STM32 bootloader": the device side as a state machine without I/O.
 *
 * Bytes go in through an3155_receive(), replies come out through the port's `reply`; memory is touched only through the
 * port's operations. Terms and order follow AN3155: section 1 (synchronisation by 0x7F), section 3 (commands).
 */
#ifndef AN3155_H
#define AN3155_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AN3155_SYNC 0x7Fu
#define AN3155_ACK 0x79u
#define AN3155_NACK 0x1Fu

#define AN3155_CMD_GET 0x00u
#define AN3155_CMD_GET_VERSION 0x01u
#define AN3155_CMD_GET_ID 0x02u
#define AN3155_CMD_READ_MEMORY 0x11u
#define AN3155_CMD_GO 0x21u
#define AN3155_CMD_WRITE_MEMORY 0x31u
#define AN3155_CMD_EXTENDED_ERASE 0x44u

#define AN3155_VERSION 0x31u /* protocol version 3.1 */
#define AN3155_BLOCK_MAX 256u
#define AN3155_ERASE_GLOBAL 0xFFFFu
#define AN3155_ERASE_SPECIAL 0xFFF0u /* 0xFFF0..0xFFFF are codes, not counts */

/* What the state machine needs from its chip. Addresses are the chip's own. */
struct an3155_port {
  void *context;
  uint16_t product_id;
  uint16_t sector_count;
  void (*reply)(void *context, const uint8_t *bytes, size_t length);
  /* True if [address, address + length) can be read and written. */
  bool (*mapped)(void *context, uint32_t address, uint32_t length);
  void (*read)(void *context, uint32_t address, uint8_t *bytes, size_t length);
  bool (*write)(void *context, uint32_t address, const uint8_t *bytes, size_t length);
  bool (*erase_sector)(void *context, uint16_t sector);
  /* True if an application can start at `address`. */
  bool (*startable)(void *context, uint32_t address);
  /* Called after the final ACK of Go; may return in tests only. */
  void (*go)(void *context, uint32_t address);
};

enum an3155_state {
  AN3155_WAIT_SYNC,
  AN3155_WAIT_COMMAND,
  AN3155_WAIT_COMPLEMENT,
  AN3155_WAIT_ADDRESS,
  AN3155_WAIT_READ_COUNT,
  AN3155_WAIT_WRITE_DATA,
  AN3155_WAIT_ERASE_COUNT,
  AN3155_WAIT_ERASE_LIST,
};

struct an3155 {
  const struct an3155_port *port;
  enum an3155_state state;
  uint8_t command;
  uint8_t checksum; /* XOR of the bytes of the current field, its checksum byte included: 0 when right */
  uint32_t address;
  uint32_t received;  /* bytes of the current field so far */
  uint32_t remaining; /* bytes of the current field still to come, checksum included */
  uint16_t special;   /* Extended Erase: special code, else 0 */
  uint8_t high_byte;
  bool list_refused;
  uint64_t sectors; /* Extended Erase: sectors asked for, bit n is sector n */
  uint8_t buffer[AN3155_BLOCK_MAX];
};

/* sector_count of the port must be at most 64. */
void an3155_init(struct an3155 *self, const struct an3155_port *port);
void an3155_receive(struct an3155 *self, uint8_t byte);

#endif
