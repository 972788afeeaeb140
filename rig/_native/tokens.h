/*
 * token-v2 headers of many datagrams at once: checked, and laid out as columns.
 *
 * The rules are those of rig/timing/tokens.py, which does the same without this kernel and is compared with it.
 */
#ifndef RIG_TOKENS_H
#define RIG_TOKENS_H

#include <stdint.h>

enum rig_reason {
    RIG_SOUND,
    RIG_CUT,
    RIG_NOT_TOKEN,
    RIG_BAD_CHECKSUM,
    RIG_BAD_FIELD,
    RIG_BAD_LENGTH,
};

/* The datagrams' payloads: columns of the frame table, and which of its rows. */
typedef struct {
    const uint8_t *data;
    uint64_t size;
    const uint64_t *payload_off;
    const uint32_t *payload_len, *payload_cap;
    const int64_t *rows;
    uint64_t count;
} rig_payloads;

/* Room for `count` sound datagrams each. */
typedef struct {
    int64_t *row;
    uint8_t *type, *first, *last;
    uint32_t *request_id, *sequence, *boot_id;
    uint64_t *t_rx_ns, *t_ready_ns, *t_send_ns;
    uint32_t *prev_queued_ns;
    int32_t *tokens, *answer_tokens;
} rig_token_columns;

/* Fill reason[0 .. count) and the columns; the number of sound datagrams. Rows must be rows of the table. */
uint64_t rig_tokens_v2(const rig_payloads *payloads, uint8_t *reason, const rig_token_columns *columns);

#endif
