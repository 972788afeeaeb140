/*
 * The capture kernel: packet records of a capture file in, columns of the frame table out, in one pass.
 *
 * It takes what is frequent: Enhanced Packet Blocks (draft-ietf-opsawg-pcapng section 4.3) and classic pcap records
 * that are sound and hold whole packets, and blocks that nobody reads. At anything else (other blocks, damage, IP fragments, times that need more
 * than 64 bits) it stops in front of the record and says so; the plain reader in Python takes that one, and the kernel
 * goes on behind it. So both give the same table, and what is rare is written once.
 *
 * No Python, no I/O, no global state. It reads data[0 .. size) and writes rows below `capacity`, nothing else.
 */
#ifndef RIG_KERNEL_H
#define RIG_KERNEL_H

#include <stddef.h>
#include <stdint.h>

/* Of a record, in bytes: more is corrupt. The plain reader's MAX_CAPTURED. */
#define RIG_MAX_CAPTURED 262144u
/* Of a pcapng block, in bytes: more is corrupt. The plain reader's _MAX_BLOCK. */
#define RIG_MAX_BLOCK (16u << 20)
/* More tags than these are left to the caller. */
#define RIG_MAX_VLANS 4

enum rig_proto { RIG_OTHER = 0, RIG_ICMP = 1, RIG_TCP = 6, RIG_UDP = 17, RIG_ARP = 255 };

enum rig_status {
    RIG_END,       /* the cursor reached its limit */
    RIG_LEFT,      /* the record at the cursor is for the caller */
    RIG_FULL,      /* no room for another row */
    RIG_NO_MEMORY, /* the flow table could not grow */
};

/* What tells one flow from another; compared byte by byte, so unused bytes are zero. */
typedef struct {
    uint16_t vlans[RIG_MAX_VLANS]; /* from outer to inner */
    uint16_t srcport, dstport;
    uint8_t vlan_count;
    uint8_t address_size; /* 4 or 16; 0: the caller's own, never found by the kernel */
    uint8_t proto;
    uint8_t zero;
    uint8_t src[16], dst[16];
} rig_flow;

/* The columns. Those marked * are written only from the first row on that differs from what the note says, and then
 * filled in for the rows before; `differs` has their bits. */
typedef struct {
    uint32_t *number;
    int64_t *time_ns;
    uint32_t *wire_len;
    uint32_t *cap_len; /* * equals wire_len */
    uint64_t *payload_off;
    uint32_t *payload_len;
    uint32_t *payload_cap; /* * equals payload_len */
    int32_t *flow;
    uint16_t *interface; /* * is 0 */
    uint8_t *proto;
    uint64_t capacity;
    uint64_t rows;
    uint32_t differs;
    uint32_t unsorted; /* 1: some row is earlier than the one before it */
    /* Frames of which the file has less than was on the wire. */
    uint64_t cut;
    uint32_t cut_number, cut_cap_len, cut_wire_len; /* of the first of them */
} rig_columns;

#define RIG_CAP_LEN 1u
#define RIG_PAYLOAD_CAP 2u
#define RIG_INTERFACE 4u

/* What is known of an interface after the rows so far. */
typedef struct {
    uint64_t frames;
    uint64_t back_ns;     /* its largest step back in time, 0 for none */
    uint32_t back_number; /* at this frame */
} rig_interface_state;

typedef struct {
    uint64_t position; /* of the next record in data */
    uint64_t limit;    /* begin no record at or beyond it */
    uint32_t number;   /* of the last frame so far */
    uint32_t first;    /* pcapng: the section's first interface */
    uint32_t big_endian;
    uint32_t to_ns;    /* pcap: ns per unit of the fraction */
} rig_cursor;

/* One row, as the plain reader decoded it. */
typedef struct {
    int64_t time_ns;
    uint64_t payload_off;
    uint32_t number, wire_len, cap_len, payload_len, payload_cap;
    int32_t flow;
    uint16_t interface;
    uint8_t proto;
} rig_row;

typedef struct rig_kernel rig_kernel;

enum { RIG_NOT_LISTED = -1, RIG_NO_ROOM = -2 }; /* in place of a flow's index */

/* Which sources the library was built from: RIG_SOURCES, which the build defines. */
uint32_t rig_sources(void);

/* max_flows: packets of further flows belong to none. */
rig_kernel *rig_kernel_new(uint32_t max_flows);
void rig_kernel_free(rig_kernel *kernel);

/* Add an interface. A tick is `multiple` ns, or 10^9 / ticks_per_s of them where that is 0; both 0: its frames are left
 * to the caller. 0, or -1 without memory. */
int rig_add_interface(rig_kernel *kernel, int32_t linktype, uint64_t multiple, uint64_t ticks_per_s,
                      int64_t offset_ns);
int rig_get_interface(const rig_kernel *kernel, uint32_t index, rig_interface_state *state);

/* The index of a flow, which is added if it is new; RIG_NOT_LISTED, which is counted, or RIG_NO_ROOM without memory. */
int32_t rig_find_flow(rig_kernel *kernel, const rig_flow *flow);
/* All flows in the order of their first packets; valid until one is added. */
const rig_flow *rig_flows(const rig_kernel *kernel, uint32_t *count);

/* How often a flow was one too many. */
uint64_t rig_not_listed(const rig_kernel *kernel);

/* Append one row. RIG_END, or RIG_FULL. */
int rig_put(rig_kernel *kernel, rig_columns *columns, const rig_row *row);

/* Read records from the cursor on; an enum rig_status. */
int rig_read_pcapng(rig_kernel *kernel, const uint8_t *data, uint64_t size, rig_cursor *cursor, rig_columns *columns);
int rig_read_pcap(rig_kernel *kernel, const uint8_t *data, uint64_t size, rig_cursor *cursor, rig_columns *columns);

#endif
