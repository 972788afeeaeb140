/* The pass over the file: from records to rows. */
#include "state.h"

#include <string.h>

#ifndef RIG_SOURCES
#define RIG_SOURCES 0
#endif

uint32_t rig_sources(void) {
    return RIG_SOURCES;
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

/* The caller has made sure that there is room and that the interface exists. */
static inline void put(rig_kernel *kernel, rig_columns *c, const rig_row *row) {
    uint64_t at = c->rows;
    c->number[at] = row->number;
    c->time_ns[at] = row->time_ns;
    c->wire_len[at] = row->wire_len;
    c->payload_off[at] = row->payload_off;
    c->payload_len[at] = row->payload_len;
    c->flow[at] = row->flow;
    c->proto[at] = row->proto;
    if (c->differs & RIG_CAP_LEN) {
        c->cap_len[at] = row->cap_len;
    } else if (row->cap_len != row->wire_len) {
        c->differs |= RIG_CAP_LEN;
        memcpy(c->cap_len, c->wire_len, at * sizeof *c->cap_len);
        c->cap_len[at] = row->cap_len;
    }
    if (c->differs & RIG_PAYLOAD_CAP) {
        c->payload_cap[at] = row->payload_cap;
    } else if (row->payload_cap != row->payload_len) {
        c->differs |= RIG_PAYLOAD_CAP;
        memcpy(c->payload_cap, c->payload_len, at * sizeof *c->payload_cap);
        c->payload_cap[at] = row->payload_cap;
    }
    if (c->differs & RIG_INTERFACE) {
        c->interface[at] = row->interface;
    } else if (row->interface != 0) {
        c->differs |= RIG_INTERFACE;
        memset(c->interface, 0, at * sizeof *c->interface);
        c->interface[at] = row->interface;
    }
    if (row->cap_len < row->wire_len && c->cut++ == 0) {
        c->cut_number = row->number;
        c->cut_cap_len = row->cap_len;
        c->cut_wire_len = row->wire_len;
    }
    c->unsorted |= at > 0 && row->time_ns < c->time_ns[at - 1];
    c->rows = at + 1;

    interface_t *interface = &kernel->interfaces[row->interface];
    if (interface->state.frames++ > 0 && row->time_ns < interface->last_ns) {
        uint64_t back_ns = (uint64_t)interface->last_ns - (uint64_t)row->time_ns;
        if (back_ns > interface->state.back_ns) {
            interface->state.back_ns = back_ns;
            interface->state.back_number = row->number;
        }
    }
    interface->last_ns = row->time_ns;
}

int rig_put(rig_kernel *kernel, rig_columns *columns, const rig_row *row) {
    if (columns->rows >= columns->capacity || row->interface >= kernel->interface_count)
        return RIG_FULL;
    put(kernel, columns, row);
    return RIG_END;
}

/* --- records ------------------------------------------------------------------------------------------------------ */

enum { INTERFACE_DESCRIPTION = 1, OLD_PACKET, SIMPLE_PACKET, STATISTICS = 5, ENHANCED_PACKET };
#define SECTION_HEADER 0x0A0D0D0Au

/* Blocks that the plain reader skips too, without even a frame number for them. */
static inline int is_skipped(uint32_t kind) {
    switch (kind) {
    case SECTION_HEADER: case INTERFACE_DESCRIPTION: case OLD_PACKET: case SIMPLE_PACKET: case STATISTICS:
    case ENHANCED_PACKET:
    case 0x9: case 0x204: case 0x216: case 0x221: case 0xBAD: case 0x40000BAD: /* numbered: pcapng.py */
        return 0;
    default:
        return 1;
    }
}

/* False where the time does not fit 64 bits. */
static inline int to_ns(const interface_t *interface, uint64_t ticks, int64_t *time_ns) {
    unsigned __int128 whole;
    if (interface->multiple)
        whole = (unsigned __int128)ticks * interface->multiple;
    else if (interface->ticks_per_s)
        whole = (unsigned __int128)ticks * 1000000000u / interface->ticks_per_s;
    else
        return 0;
    if (whole > INT64_MAX)
        return 0;
    return !__builtin_add_overflow((int64_t)whole, interface->offset_ns, time_ns);
}

static inline __attribute__((always_inline)) int read_pcapng(rig_kernel *kernel, const uint8_t *data, uint64_t size,
                                                             rig_cursor *cursor, rig_columns *columns,
                                                             int big_endian) {
    uint64_t position = cursor->position;
    int status = RIG_END;
    rig_row row;
    if (cursor->first > kernel->interface_count)
        return RIG_LEFT;
    uint32_t known = kernel->interface_count - cursor->first;
    while (position < cursor->limit) {
        status = RIG_LEFT;
        if (position > size || size - position < 12)
            break;
        const uint8_t *block = data + position;
        uint32_t kind = word(block, big_endian), length = word(block + 4, big_endian);
        if (length < 12 || length & 3 || length > RIG_MAX_BLOCK || length > size - position ||
            word(block + length - 4, big_endian) != length)
            break;
        if (is_skipped(kind)) {
            position += length;
            status = RIG_END;
            continue;
        }
        if (kind != ENHANCED_PACKET || length < 32)
            break;
        uint32_t id = word(block + 8, big_endian);
        row.cap_len = word(block + 20, big_endian);
        if (id >= known || row.cap_len > length - 32 || row.cap_len > RIG_MAX_CAPTURED)
            break;
        const interface_t *interface = &kernel->interfaces[cursor->first + id];
        uint64_t ticks = (uint64_t)word(block + 12, big_endian) << 32 | word(block + 16, big_endian);
        if (!to_ns(interface, ticks, &row.time_ns) || cursor->number == UINT32_MAX)
            break;
        if (columns->rows >= columns->capacity) {
            status = RIG_FULL;
            break;
        }
        row.number = cursor->number + 1;
        row.wire_len = word(block + 24, big_endian);
        row.interface = (uint16_t)(cursor->first + id);
        row.payload_off = position + 28;
        enum rig_decoded decoded = rig_decode(kernel, interface->linktype, block + 28, &row);
        if (decoded != DECODED) {
            status = decoded == OUT_OF_MEMORY ? RIG_NO_MEMORY : RIG_LEFT;
            break;
        }
        put(kernel, columns, &row);
        cursor->number++;
        position += length;
        status = RIG_END;
    }
    cursor->position = position;
    return status;
}

int rig_read_pcapng(rig_kernel *kernel, const uint8_t *data, uint64_t size, rig_cursor *cursor, rig_columns *columns) {
    return cursor->big_endian ? read_pcapng(kernel, data, size, cursor, columns, 1)
                              : read_pcapng(kernel, data, size, cursor, columns, 0);
}

static inline __attribute__((always_inline)) int read_pcap(rig_kernel *kernel, const uint8_t *data, uint64_t size,
                                                           rig_cursor *cursor, rig_columns *columns, int big_endian) {
    uint64_t position = cursor->position;
    int status = RIG_END;
    rig_row row;
    if (kernel->interface_count != 1 || cursor->to_ns == 0)
        return RIG_LEFT;
    int32_t linktype = kernel->interfaces[0].linktype;
    uint32_t second = 1000000000u / cursor->to_ns;
    row.interface = 0;
    while (position < cursor->limit) {
        status = RIG_LEFT;
        if (position > size || size - position < 16)
            break;
        const uint8_t *record = data + position;
        uint32_t fraction = word(record + 4, big_endian);
        row.cap_len = word(record + 8, big_endian);
        if (row.cap_len > RIG_MAX_CAPTURED || row.cap_len > size - position - 16 || fraction >= second ||
            cursor->number == UINT32_MAX)
            break;
        if (columns->rows >= columns->capacity) {
            status = RIG_FULL;
            break;
        }
        row.number = cursor->number + 1;
        row.time_ns = (int64_t)word(record, big_endian) * 1000000000 + (int64_t)fraction * cursor->to_ns;
        row.wire_len = word(record + 12, big_endian);
        row.payload_off = position + 16;
        enum rig_decoded decoded = rig_decode(kernel, linktype, record + 16, &row);
        if (decoded != DECODED) {
            status = decoded == OUT_OF_MEMORY ? RIG_NO_MEMORY : RIG_LEFT;
            break;
        }
        put(kernel, columns, &row);
        cursor->number++;
        position += 16 + (uint64_t)row.cap_len;
        status = RIG_END;
    }
    cursor->position = position;
    return status;
}

int rig_read_pcap(rig_kernel *kernel, const uint8_t *data, uint64_t size, rig_cursor *cursor, rig_columns *columns) {
    return cursor->big_endian ? read_pcap(kernel, data, size, cursor, columns, 1)
                              : read_pcap(kernel, data, size, cursor, columns, 0);
}
