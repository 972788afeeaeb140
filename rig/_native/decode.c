/* From frame to datagram, by the rules of rig/capture/decode.py. */
#include "state.h"

#include <string.h>

static inline int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

enum { NULL_LOOPBACK = 0, ETHERNET = 1, LOOP = 108, SLL = 113, SLL2 = 276 };
enum { IPV4 = 0x0800, ARP = 0x0806, IPV6 = 0x86DD };
enum { ARP_SIZE = 28 };

static inline int is_vlan_tag(uint16_t ethertype) {
    return ethertype == 0x8100 || ethertype == 0x88A8 || ethertype == 0x9100;
}

static uint16_t family_ethertype(const uint8_t *frame) {
    uint32_t family = be32(frame);
    if (family >= 256)
        family = le32(frame); /* The byte order is that of the machine that captured. */
    switch (family) {
    case 2:
        return IPV4;
    case 10: case 24: case 28: case 30:
        return IPV6;
    default:
        return 0;
    }
}

/* The datagram or segment of an IP packet whose payload of `length` bytes begins at `at`; flow has the addresses. */
static inline enum rig_decoded transport(rig_kernel *kernel, const uint8_t *frame, uint32_t captured, uint32_t at,
                                     int64_t length, uint8_t protocol, rig_flow *flow, rig_row *row) {
    uint32_t begin = at < captured ? at : captured;
    int64_t held = least(captured, (int64_t)at + length) - begin; /* of the payload, in the file */
    if (held < 0)
        held = 0;
    const uint8_t *segment = frame + begin;
    int64_t header = 0;
    row->proto = protocol == RIG_UDP || protocol == RIG_TCP ? protocol
                 : protocol == 1 || protocol == 58          ? RIG_ICMP
                                                            : RIG_OTHER;
    if (row->proto == RIG_UDP || row->proto == RIG_TCP) {
        if (held < 4)
            return DECODED;
        flow->srcport = be16(segment);
        flow->dstport = be16(segment + 2);
        header = 8;
        if (row->proto == RIG_TCP) {
            header = held < 13 ? 20 : (segment[12] >> 4) * 4;
            if (header < 20)
                header = 20;
        } else if (held >= 6) {
            uint16_t udp_length = be16(segment + 4);
            if (udp_length != 0) /* else as long as the IP packet: RFC 2675, and segmentation offload */
                length = least(length, udp_length);
        }
        if (length < header)
            return DECODED;
    }
    flow->proto = row->proto;
    row->flow = rig_find_flow(kernel, flow);
    if (row->flow == RIG_NO_ROOM)
        return OUT_OF_MEMORY;
    int64_t payload = length - header;
    int64_t payload_cap = least(payload, held - header);
    row->payload_len = (uint32_t)payload;
    row->payload_cap = (uint32_t)(payload_cap < 0 ? 0 : payload_cap);
    row->payload_off += begin + (uint64_t)least(header, held);
    return DECODED;
}

static inline enum rig_decoded ipv4(rig_kernel *kernel, const uint8_t *frame, uint32_t captured, uint32_t at,
                                rig_flow *flow, rig_row *row) {
    if (captured < at + 20)
        return DECODED;
    const uint8_t *ip = frame + at;
    uint32_t header = (ip[0] & 0x0Fu) * 4;
    if (ip[0] >> 4 != 4 || header < 20)
        return DECODED;
    int64_t total = be16(ip + 2);
    if (total == 0)
        total = (int64_t)row->wire_len - at; /* Segmentation offload leaves the length to the hardware. */
    if (total < header)
        return DECODED;
    if (be16(ip + 6) & 0x3FFF)
        return FOR_CALLER; /* a fragment */
    flow->address_size = 4;
    memcpy(flow->src, ip + 12, 4);
    memcpy(flow->dst, ip + 16, 4);
    return transport(kernel, frame, captured, at + header, total - header, ip[9], flow, row);
}

static inline enum rig_decoded ipv6(rig_kernel *kernel, const uint8_t *frame, uint32_t captured, uint32_t at,
                                rig_flow *flow, rig_row *row) {
    if (captured < at + 40)
        return DECODED;
    const uint8_t *ip = frame + at;
    if (ip[0] >> 4 != 6)
        return DECODED;
    int64_t length = be16(ip + 4);
    uint8_t protocol = ip[6];
    at += 40;
    if (length == 0) {
        length = (int64_t)row->wire_len - at;
        if (length < 0)
            return DECODED;
    }
    for (;;) {
        uint32_t size;
        switch (protocol) {
        case 0: case 43: case 60: case 135: /* hop-by-hop, routing, destination options, mobility */
            if (captured < at + 2)
                return DECODED;
            size = (frame[at + 1] + 1u) * 8;
            break;
        case 51: /* authentication */
            if (captured < at + 2)
                return DECODED;
            size = (frame[at + 1] + 2u) * 4;
            break;
        case 44: /* fragment */
            if (captured < at + 8)
                return DECODED;
            if (be16(frame + at + 2) & 0xFFF9)
                return FOR_CALLER; /* else atomic: whole (RFC 6946) */
            size = 8;
            break;
        default:
            flow->address_size = 16;
            memcpy(flow->src, ip + 8, 16);
            memcpy(flow->dst, ip + 24, 16);
            return transport(kernel, frame, captured, at, length, protocol, flow, row);
        }
        protocol = frame[at];
        at += size;
        length -= size;
        if (length < 0)
            return DECODED;
    }
}

enum rig_decoded rig_decode(rig_kernel *kernel, int32_t linktype, const uint8_t *frame, rig_row *row) {
    uint32_t captured = row->cap_len, at;
    uint16_t ethertype;
    rig_flow flow;
    memset(&flow, 0, sizeof flow);
    row->proto = RIG_OTHER;
    row->flow = -1;
    row->payload_len = row->payload_cap = 0;
    switch (linktype) {
    case ETHERNET:
        at = 14;
        if (captured < at)
            return DECODED;
        ethertype = be16(frame + 12);
        break;
    case SLL:
        at = 16;
        if (captured < at)
            return DECODED;
        ethertype = be16(frame + 14);
        break;
    case SLL2:
        at = 20;
        if (captured < 2)
            return DECODED;
        ethertype = be16(frame);
        break;
    case 12: case 14: case 101: case 228: case 229: /* raw IP */
        at = 0;
        ethertype = captured == 0 ? 0 : frame[0] >> 4 == 4 ? IPV4 : frame[0] >> 4 == 6 ? IPV6 : 0;
        break;
    case NULL_LOOPBACK: case LOOP:
        at = 4;
        if (captured < at)
            return DECODED;
        ethertype = family_ethertype(frame);
        break;
    default:
        return DECODED;
    }
    while (is_vlan_tag(ethertype)) {
        if (captured < at + 4)
            return DECODED;
        if (flow.vlan_count == RIG_MAX_VLANS)
            return FOR_CALLER;
        flow.vlans[flow.vlan_count++] = be16(frame + at) & 0x0FFF;
        ethertype = be16(frame + at + 2);
        at += 4;
    }
    switch (ethertype) {
    case IPV4:
        return ipv4(kernel, frame, captured, at, &flow, row);
    case IPV6:
        return ipv6(kernel, frame, captured, at, &flow, row);
    case ARP: /* The ARP packet is the payload. */
        row->proto = RIG_ARP;
        if (at > captured)
            at = captured;
        row->payload_off += at;
        row->payload_len = row->payload_cap = (uint32_t)least(ARP_SIZE, captured - at);
        return DECODED;
    default:
        return DECODED;
    }
}
