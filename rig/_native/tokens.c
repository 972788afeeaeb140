#include "tokens.h"

#include <stddef.h>

/* Layout of the header, as in rig/protocol/token_v2.py. */
enum {
    MAGIC = 0,
    TYPE = 2,
    FLAGS = 3,
    REQUEST_ID = 4,
    SEQUENCE = 8,
    BOOT_ID = 12,
    PAYLOAD_LENGTH = 16,
    RESERVED = 18,
    T_RX = 20,
    T_READY = 28,
    T_SEND = 36,
    PREV_QUEUED = 44,
    CRC32 = 48,
    HEADER_LENGTH = 52,
    REQUEST_PREFIX = 4,
};
enum { REQUEST = 1, ANSWER = 2, SENTINEL = 5 };
enum { FLAG_FIRST = 1, FLAG_LAST = 2 };

static inline uint16_t le16(const uint8_t *at) {
    return (uint16_t)(at[1] << 8 | at[0]);
}

static inline uint32_t le32(const uint8_t *at) {
    return (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
}

static inline uint64_t le64(const uint8_t *at) {
    return (uint64_t)le32(at + 4) << 32 | le32(at);
}

/* Tables for CRC-32 (IEEE 802.3) of eight bytes a step. */
static void crc_tables(uint32_t table[8][256]) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0xEDB88320u & (0u - (crc & 1)));
        table[0][byte] = crc;
    }
    for (uint32_t byte = 0; byte < 256; byte++)
        for (int step = 1; step < 8; step++)
            table[step][byte] = table[step - 1][byte] >> 8 ^ table[0][table[step - 1][byte] & 0xFF];
}

/* CRC-32 of a header with its CRC field taken as zero. */
static uint32_t header_crc(const uint32_t table[8][256], const uint8_t *header) {
    uint32_t crc = 0xFFFFFFFFu;
    for (int at = 0; at < CRC32; at += 8) {
        uint32_t low = le32(header + at) ^ crc, high = le32(header + at + 4);
        crc = table[7][low & 0xFF] ^ table[6][low >> 8 & 0xFF] ^ table[5][low >> 16 & 0xFF] ^ table[4][low >> 24] ^
              table[3][high & 0xFF] ^ table[2][high >> 8 & 0xFF] ^ table[1][high >> 16 & 0xFF] ^ table[0][high >> 24];
    }
    for (int byte = CRC32; byte < HEADER_LENGTH; byte++)
        crc = crc >> 8 ^ table[0][crc & 0xFF];
    return ~crc;
}

static uint8_t reason_of(const uint32_t table[8][256], const uint8_t *header, uint32_t body) {
    if (header[MAGIC] != 'T' || header[MAGIC + 1] != '2')
        return RIG_NOT_TOKEN;
    if (header_crc(table, header) != le32(header + CRC32))
        return RIG_BAD_CHECKSUM;
    if (header[TYPE] < REQUEST || header[TYPE] > SENTINEL || le16(header + RESERVED) != 0)
        return RIG_BAD_FIELD;
    if (le16(header + PAYLOAD_LENGTH) != body || (header[TYPE] <= ANSWER && body % 4 != 0))
        return RIG_BAD_LENGTH;
    return RIG_SOUND;
}

uint64_t rig_tokens_v2(const rig_payloads *p, uint8_t *reason, const rig_token_columns *c) {
    uint32_t table[8][256];
    crc_tables(table);
    uint64_t sound = 0;
    for (uint64_t i = 0; i < p->count; i++) {
        int64_t row = p->rows[i];
        uint64_t offset = p->payload_off[row], held = p->payload_cap[row];
        uint32_t length = p->payload_len[row];
        if (offset > p->size)
            held = 0;
        else if (held > p->size - offset)
            held = p->size - offset;
        if (length < HEADER_LENGTH || held < HEADER_LENGTH) {
            reason[i] = length < HEADER_LENGTH ? RIG_NOT_TOKEN : RIG_CUT;
            continue;
        }
        const uint8_t *header = p->data + offset;
        uint32_t body = length - HEADER_LENGTH;
        reason[i] = reason_of(table, header, body);
        if (reason[i] != RIG_SOUND)
            continue;
        int request = header[TYPE] == REQUEST;
        c->row[sound] = row;
        c->type[sound] = header[TYPE];
        c->first[sound] = (header[FLAGS] & FLAG_FIRST) != 0;
        c->last[sound] = (header[FLAGS] & FLAG_LAST) != 0;
        c->request_id[sound] = le32(header + REQUEST_ID);
        c->sequence[sound] = le32(header + SEQUENCE);
        c->boot_id[sound] = le32(header + BOOT_ID);
        c->t_rx_ns[sound] = le64(header + T_RX);
        c->t_ready_ns[sound] = le64(header + T_READY);
        c->t_send_ns[sound] = le64(header + T_SEND);
        c->prev_queued_ns[sound] = le32(header + PREV_QUEUED);
        c->tokens[sound] = (int32_t)(body / 4) - request; /* A request's first word is no token. */
        c->answer_tokens[sound] =
            request && held >= HEADER_LENGTH + REQUEST_PREFIX ? le16(header + HEADER_LENGTH) : -1;
        sound++;
    }
    return sound;
}
