/* The kernel's memory: interfaces, and the table of flows. */
#include "state.h"

#include <stdlib.h>
#include <string.h>

rig_kernel *rig_kernel_new(uint32_t max_flows) {
    rig_kernel *kernel = calloc(1, sizeof *kernel);
    if (kernel == NULL)
        return NULL;
    kernel->max_flows = max_flows < INT32_MAX ? max_flows : INT32_MAX;
    kernel->slot_mask = 255;
    kernel->slots = calloc(kernel->slot_mask + 1, sizeof *kernel->slots);
    if (kernel->slots == NULL) {
        free(kernel);
        return NULL;
    }
    return kernel;
}

void rig_kernel_free(rig_kernel *kernel) {
    if (kernel == NULL)
        return;
    free(kernel->interfaces);
    free(kernel->flows);
    free(kernel->slots);
    free(kernel);
}

int rig_add_interface(rig_kernel *kernel, int32_t linktype, uint64_t multiple, uint64_t ticks_per_s,
                      int64_t offset_ns) {
    if (kernel->interface_count == kernel->interface_room) {
        uint32_t room = kernel->interface_room ? kernel->interface_room * 2 : 8;
        interface_t *grown = realloc(kernel->interfaces, room * sizeof *grown);
        if (grown == NULL)
            return -1;
        kernel->interfaces = grown;
        kernel->interface_room = room;
    }
    interface_t *added = &kernel->interfaces[kernel->interface_count++];
    memset(added, 0, sizeof *added);
    added->linktype = linktype;
    added->multiple = multiple;
    added->ticks_per_s = ticks_per_s;
    added->offset_ns = offset_ns;
    return 0;
}

int rig_get_interface(const rig_kernel *kernel, uint32_t index, rig_interface_state *state) {
    if (index >= kernel->interface_count)
        return -1;
    *state = kernel->interfaces[index].state;
    return 0;
}

static uint32_t hash_flow(const rig_flow *flow) {
    uint64_t words[sizeof *flow / 8], mixed = 0x9e3779b97f4a7c15u;
    memcpy(words, flow, sizeof *flow);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        mixed = (mixed ^ words[i]) * 0xff51afd7ed558ccdu;
        mixed ^= mixed >> 32;
    }
    return (uint32_t)mixed;
}

static int grow_slots(rig_kernel *kernel) {
    uint32_t mask = kernel->slot_mask * 2 + 1;
    uint32_t *slots = calloc((size_t)mask + 1, sizeof *slots);
    if (slots == NULL)
        return -1;
    for (uint32_t index = 0; index < kernel->flow_count; index++) {
        uint32_t at = hash_flow(&kernel->flows[index]) & mask;
        while (slots[at])
            at = (at + 1) & mask;
        slots[at] = index + 1;
    }
    free(kernel->slots);
    kernel->slots = slots;
    kernel->slot_mask = mask;
    return 0;
}

int32_t rig_find_flow(rig_kernel *kernel, const rig_flow *flow) {
    for (int i = 0; i < 2; i++) {
        uint32_t recent = kernel->recent[i];
        if (recent < kernel->flow_count && memcmp(&kernel->flows[recent], flow, sizeof *flow) == 0 &&
            flow->address_size)
            return (int32_t)recent;
    }
    uint32_t at = hash_flow(flow) & kernel->slot_mask, found;
    while ((found = kernel->slots[at]) != 0) {
        if (flow->address_size && memcmp(&kernel->flows[found - 1], flow, sizeof *flow) == 0) {
            found--;
            goto remember;
        }
        at = (at + 1) & kernel->slot_mask;
    }
    if (kernel->flow_count == kernel->max_flows) {
        kernel->not_listed++;
        return RIG_NOT_LISTED;
    }
    if (kernel->flow_count == kernel->flow_room) {
        uint32_t room = kernel->flow_room ? kernel->flow_room * 2 : 64;
        rig_flow *grown = realloc(kernel->flows, room * sizeof *grown);
        if (grown == NULL)
            return RIG_NO_ROOM;
        kernel->flows = grown;
        kernel->flow_room = room;
    }
    kernel->flows[kernel->flow_count] = *flow;
    if (flow->address_size == 0)
        return (int32_t)kernel->flow_count++; /* Not among the slots: nothing is to find it. */
    found = kernel->flow_count++;
    kernel->slots[at] = found + 1;
    if (kernel->flow_count > kernel->slot_mask / 2 && grow_slots(kernel) != 0)
        return RIG_NO_ROOM;
remember:
    kernel->recent[1] = kernel->recent[0];
    kernel->recent[0] = found;
    return (int32_t)found;
}

const rig_flow *rig_flows(const rig_kernel *kernel, uint32_t *count) {
    *count = kernel->flow_count;
    return kernel->flows;
}

uint64_t rig_not_listed(const rig_kernel *kernel) {
    return kernel->not_listed;
}
