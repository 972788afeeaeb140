/* ST AN3155, device side. See an3155.h. */
#include "an3155.h"

#include <string.h>

static void reply_byte(struct an3155 *self, uint8_t byte) {
  self->port->reply(self->port->context, &byte, 1);
}

static void expect(struct an3155 *self, enum an3155_state state, uint32_t bytes) {
  self->state = state;
  self->checksum = 0;
  self->received = 0;
  self->remaining = bytes;
}

static void finish(struct an3155 *self, uint8_t answer) {
  reply_byte(self, answer);
  expect(self, AN3155_WAIT_COMMAND, 1);
}

/* Section 3.1 to 3.3: ACK, count of what follows less one, the bytes, ACK; in one piece. */
static void reply_framed(struct an3155 *self, const uint8_t *bytes, uint8_t length, bool with_count) {
  uint8_t frame[16];
  size_t used = 0;

  frame[used++] = AN3155_ACK;
  if (with_count) {
    frame[used++] = (uint8_t)(length - 1u);
  }
  memcpy(&frame[used], bytes, length);
  used += length;
  frame[used++] = AN3155_ACK;
  self->port->reply(self->port->context, frame, used);
  expect(self, AN3155_WAIT_COMMAND, 1);
}

static void begin_command(struct an3155 *self) {
  static const uint8_t get[] = {AN3155_VERSION,     AN3155_CMD_GET,          AN3155_CMD_GET_VERSION,
                                AN3155_CMD_GET_ID,  AN3155_CMD_READ_MEMORY,  AN3155_CMD_GO,
                                AN3155_CMD_WRITE_MEMORY, AN3155_CMD_EXTENDED_ERASE};
  static const uint8_t version[] = {AN3155_VERSION, 0x00, 0x00};
  const uint8_t id[] = {(uint8_t)(self->port->product_id >> 8), (uint8_t)self->port->product_id};

  switch (self->command) {
    case AN3155_CMD_GET:
      reply_framed(self, get, sizeof(get), true);
      break;
    case AN3155_CMD_GET_VERSION:
      reply_framed(self, version, sizeof(version), false);
      break;
    case AN3155_CMD_GET_ID:
      reply_framed(self, id, sizeof(id), true);
      break;
    case AN3155_CMD_READ_MEMORY:
    case AN3155_CMD_WRITE_MEMORY:
    case AN3155_CMD_GO:
      reply_byte(self, AN3155_ACK);
      expect(self, AN3155_WAIT_ADDRESS, 5);
      break;
    case AN3155_CMD_EXTENDED_ERASE:
      reply_byte(self, AN3155_ACK);
      expect(self, AN3155_WAIT_ERASE_COUNT, 2);
      break;
    default:
      finish(self, AN3155_NACK);
      break;
  }
}

/* Four address bytes, most significant first, and their XOR are in. */
static void end_address(struct an3155 *self) {
  const struct an3155_port *port = self->port;

  if (self->checksum != 0 || !port->mapped(port->context, self->address, 1)) {
    finish(self, AN3155_NACK);
    return;
  }
  switch (self->command) {
    case AN3155_CMD_GO:
      if (!port->startable(port->context, self->address)) {
        finish(self, AN3155_NACK);
        return;
      }
      finish(self, AN3155_ACK);
      port->go(port->context, self->address);
      break;
    case AN3155_CMD_READ_MEMORY:
      reply_byte(self, AN3155_ACK);
      expect(self, AN3155_WAIT_READ_COUNT, 2);
      break;
    default:
      reply_byte(self, AN3155_ACK);
      expect(self, AN3155_WAIT_WRITE_DATA, 1);
      break;
  }
}

/* Section 3.4: N and its complement are in; N + 1 bytes go out after the ACK. */
static void end_read(struct an3155 *self) {
  const struct an3155_port *port = self->port;
  const uint32_t length = self->buffer[0] + 1u;
  uint8_t frame[1 + AN3155_BLOCK_MAX];

  if (self->checksum != 0xFF || !port->mapped(port->context, self->address, length)) {
    finish(self, AN3155_NACK);
    return;
  }
  frame[0] = AN3155_ACK;
  port->read(port->context, self->address, &frame[1], length);
  port->reply(port->context, frame, 1 + length);
  expect(self, AN3155_WAIT_COMMAND, 1);
}

/*
 * Section 3.6: N + 1 data bytes and the checksum are in. Address and length must be whole words, as the application
 * note demands; a chip may behave in any way otherwise, so a host that gets it wrong is told here.
 */
static void end_write(struct an3155 *self) {
  const struct an3155_port *port = self->port;
  const uint32_t length = self->received - 2u; /* without N and the checksum */
  const bool aligned = self->address % 4u == 0 && length % 4u == 0;

  if (self->checksum != 0 || !aligned || !port->mapped(port->context, self->address, length) ||
      !port->write(port->context, self->address, self->buffer, length)) {
    finish(self, AN3155_NACK);
    return;
  }
  finish(self, AN3155_ACK);
}

/* Section 3.8: the list (or special code) and the checksum are in. */
static void end_erase(struct an3155 *self) {
  const struct an3155_port *port = self->port;
  const bool global = self->special == AN3155_ERASE_GLOBAL;

  /* Bank codes 0xFFFE and 0xFFFD are for chips with two banks, the rest of 0xFFFx is reserved. */
  if (self->checksum != 0 || self->list_refused || (self->special != 0 && !global)) {
    finish(self, AN3155_NACK);
    return;
  }
  for (uint16_t sector = 0; sector < port->sector_count; sector++) {
    if ((global || (self->sectors >> sector & 1u) != 0) && !port->erase_sector(port->context, sector)) {
      finish(self, AN3155_NACK);
      return;
    }
  }
  finish(self, AN3155_ACK);
}

static void receive_erase(struct an3155 *self, uint8_t byte) {
  if (self->received % 2u != 0) {
    self->high_byte = byte;
    return;
  }
  const uint16_t value = (uint16_t)(self->high_byte << 8 | byte);

  if (self->state == AN3155_WAIT_ERASE_COUNT) {
    const uint8_t checksum = self->checksum;
    const bool special = value >= AN3155_ERASE_SPECIAL;

    expect(self, AN3155_WAIT_ERASE_LIST, special ? 1u : 2u * (value + 1u) + 1u);
    self->checksum = checksum; /* covers the count too */
    self->special = special ? value : 0;
    self->sectors = 0;
    self->list_refused = false;
  } else if (value < self->port->sector_count) {
    self->sectors |= (uint64_t)1 << value;
  } else {
    self->list_refused = true;
  }
}

void an3155_init(struct an3155 *self, const struct an3155_port *port) {
  memset(self, 0, sizeof(*self));
  self->port = port;
  expect(self, AN3155_WAIT_SYNC, 1);
}

void an3155_receive(struct an3155 *self, uint8_t byte) {
  self->checksum ^= byte;
  self->received++;
  self->remaining--;

  switch (self->state) {
    case AN3155_WAIT_SYNC:
      if (byte == AN3155_SYNC) {
        finish(self, AN3155_ACK);
      } else {
        expect(self, AN3155_WAIT_SYNC, 1);
      }
      break;
    case AN3155_WAIT_COMMAND:
      /* A late 0x7F is taken as the first byte of a command, as on the chip: a second one then draws NACK. */
      self->command = byte;
      expect(self, AN3155_WAIT_COMPLEMENT, 1);
      break;
    case AN3155_WAIT_COMPLEMENT:
      if ((self->command ^ byte) == 0xFF) {
        begin_command(self);
      } else {
        finish(self, AN3155_NACK);
      }
      break;
    case AN3155_WAIT_ADDRESS:
      if (self->remaining > 0) {
        self->address = self->address << 8 | byte;
      } else {
        end_address(self);
      }
      break;
    case AN3155_WAIT_READ_COUNT:
      if (self->remaining > 0) {
        self->buffer[0] = byte;
      } else {
        end_read(self);
      }
      break;
    case AN3155_WAIT_WRITE_DATA:
      if (self->received == 1) {
        self->remaining = byte + 2u;
      } else if (self->remaining > 0) {
        self->buffer[self->received - 2u] = byte;
      } else {
        end_write(self);
      }
      break;
    case AN3155_WAIT_ERASE_COUNT:
      receive_erase(self, byte);
      break;
    case AN3155_WAIT_ERASE_LIST:
      if (self->remaining > 0) {
        receive_erase(self, byte);
      } else {
        end_erase(self);
      }
      break;
  }
}
