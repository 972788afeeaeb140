/* What the kernel's files share. */
#ifndef RIG_STATE_H
#define RIG_STATE_H

#include "kernel.h"

typedef struct {
    int32_t linktype;
    uint64_t multiple, ticks_per_s;
    int64_t offset_ns;
    int64_t last_ns;
    rig_interface_state state;
} interface_t;

struct rig_kernel {
    interface_t *interfaces;
    uint32_t interface_count, interface_room;
    rig_flow *flows;
    uint32_t flow_count, flow_room, max_flows;
    uint64_t not_listed;
    uint32_t *slots; /* open addressing: index + 1 of a flow, 0 for empty */
    uint32_t slot_mask;
    uint32_t recent[2]; /* the flows of the last packets: traffic goes to and fro */
};

static inline uint16_t be16(const uint8_t *at) {
    return (uint16_t)(at[0] << 8 | at[1]);
}

static inline uint32_t be32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline uint32_t le32(const uint8_t *at) {
    return (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
}

static inline uint32_t word(const uint8_t *at, int big_endian) {
    return big_endian ? be32(at) : le32(at);
}

enum rig_decoded { DECODED, FOR_CALLER, OUT_OF_MEMORY };

/* Decode the frame of row->cap_len bytes. row comes with numbers, lengths and time, payload_off the frame's offset. */
enum rig_decoded rig_decode(rig_kernel *kernel, int32_t linktype, const uint8_t *frame, rig_row *row);

#endif
