/*
 * Fuzz target for the capture kernel: any bytes as a capture file, in memory of exactly their size, so that the address
 * sanitizer sees the first byte that is read or written too much.
 *
 *     clang -g -O1 -fsanitize=fuzzer,address,undefined fuzz_kernel.c ../../rig/_native/{flows,decode,records,tokens}.c
 *     gcc -g -O1 -fsanitize=address,undefined -DOWN_LOOP …        mutates seed files itself, where there is no clang
 */
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../rig/_native/kernel.h"
#include "../../rig/_native/tokens.h"

enum { ROWS = 300 };

static void *room(size_t size) {
    void *memory = malloc(size);
    assert(memory != NULL);
    return memory;
}

static uint32_t word(const uint8_t *at, int big_endian) {
    return big_endian ? (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3]
                      : (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
}

static void put_word(uint8_t *at, uint32_t value, int big_endian) {
    for (int i = 0; i < 4; i++)
        at[big_endian ? 3 - i : i] = (uint8_t)(value >> 8 * i);
}

/* What every row promises. */
static void check(const rig_columns *c, uint64_t size, uint32_t flows) {
    for (uint64_t row = 0; row < c->rows; row++) {
        uint32_t cap = c->differs & RIG_PAYLOAD_CAP ? c->payload_cap[row] : c->payload_len[row];
        assert(c->payload_off[row] <= size && cap <= size - c->payload_off[row]);
        assert(cap <= c->payload_len[row]);
        assert(c->flow[row] >= -1 && (c->flow[row] < 0 || (uint32_t)c->flow[row] < flows));
        assert(row == 0 || c->number[row] > c->number[row - 1]);
    }
}

static void decode_tokens(const uint8_t *data, uint64_t size, const rig_columns *c) {
    uint64_t n = c->rows;
    int64_t *rows = room(n * sizeof *rows + 1);
    for (uint64_t row = 0; row < n; row++)
        rows[row] = (int64_t)row;
    rig_payloads payloads = {data, size, c->payload_off, c->payload_len, c->payload_len, rows, n};
    if (c->differs & RIG_PAYLOAD_CAP)
        payloads.payload_cap = c->payload_cap;
    uint8_t *reason = room(n + 1);
    void *memory[13];
    static const size_t sizes[13] = {8, 1, 1, 1, 4, 4, 4, 8, 8, 8, 4, 4, 4};
    for (int i = 0; i < 13; i++)
        memory[i] = room(n * sizes[i] + 1);
    rig_token_columns columns = {memory[0], memory[1], memory[2], memory[3],  memory[4],  memory[5], memory[6],
                                 memory[7], memory[8], memory[9], memory[10], memory[11], memory[12]};
    assert(rig_tokens_v2(&payloads, reason, &columns) <= n);
    for (int i = 0; i < 13; i++)
        free(memory[i]);
    free(reason);
    free(rows);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t input_size) {
    if (input_size < 4)
        return 0;
    /* The first four bytes choose what the plain reader would have told the kernel; the rest is the file. */
    static const int32_t linktypes[] = {1, 0, 108, 113, 276, 101, 12, 127};
    int pcap = input[0] & 1, big_endian = input[0] >> 1 & 1;
    int single = input[0] >> 2 & 1; /* One pcap record around one frame, which ends where the memory does. */
    size_t header = single ? 16 : 0, size = header + input_size - 4;
    uint8_t *data = room(size ? size : 1);
    memset(data, 0, header);
    memcpy(data + header, input + 4, input_size - 4);
    if (single) {
        pcap = 1;
        put_word(data + 8, (uint32_t)(input_size - 4), big_endian);
        put_word(data + 12, (uint32_t)(input_size - 4), big_endian);
    }

    rig_kernel *kernel = rig_kernel_new(400);
    assert(kernel != NULL);
    int interfaces = pcap ? 1 : 1 + (input[1] & 3);
    for (int i = 0; i < interfaces; i++)
        assert(rig_add_interface(kernel, linktypes[(input[2] + i) & 7], input[3] & 1 ? 1 : 0,
                                 input[3] & 2 ? 1000000000u : (uint64_t)1 << (input[3] >> 2), -5) == 0);
    rig_columns c = {0};
    c.capacity = ROWS;
    c.number = room(ROWS * sizeof *c.number);
    c.time_ns = room(ROWS * sizeof *c.time_ns);
    c.wire_len = room(ROWS * sizeof *c.wire_len);
    c.cap_len = room(ROWS * sizeof *c.cap_len);
    c.payload_off = room(ROWS * sizeof *c.payload_off);
    c.payload_len = room(ROWS * sizeof *c.payload_len);
    c.payload_cap = room(ROWS * sizeof *c.payload_cap);
    c.flow = room(ROWS * sizeof *c.flow);
    c.interface = room(ROWS * sizeof *c.interface);
    c.proto = room(ROWS * sizeof *c.proto);

    rig_cursor cursor = {.limit = size, .big_endian = (uint32_t)big_endian, .to_ns = input[3] & 1 ? 1 : 1000};
    uint32_t flows;
    while (cursor.position < size) {
        uint64_t before = cursor.position;
        int status = pcap ? rig_read_pcap(kernel, data, size, &cursor, &c)
                          : rig_read_pcapng(kernel, data, size, &cursor, &c);
        assert(cursor.position >= before && cursor.position <= size && c.rows <= c.capacity);
        if (status == RIG_END)
            break;
        assert(status != RIG_NO_MEMORY);
        if (status == RIG_FULL) {
            rig_flows(kernel, &flows);
            check(&c, size, flows);
            c.rows = 0;
            c.differs = 0;
            continue;
        }
        /* The plain reader's turn: skip one record as it would. */
        uint64_t left = size - cursor.position;
        const uint8_t *record = data + cursor.position;
        uint64_t length = pcap ? 16 : 12;
        if (left < length)
            break;
        length = pcap ? 16 + (uint64_t)word(record + 8, big_endian) : word(record + 4, big_endian);
        if (length < 12 || length > left)
            break;
        cursor.position += length;
        cursor.number++;
    }
    rig_flows(kernel, &flows);
    check(&c, size, flows);
    decode_tokens(data, size, &c);
    rig_kernel_free(kernel);
    free(c.number), free(c.time_ns), free(c.wire_len), free(c.cap_len), free(c.payload_off), free(c.payload_len);
    free(c.payload_cap), free(c.flow), free(c.interface), free(c.proto), free(data);
    return 0;
}

#ifdef OWN_LOOP
static uint64_t state;

static uint32_t draw(uint32_t below) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17; /* xorshift64 */
    return (uint32_t)((state >> 11) % below);
}

/* fuzz_kernel ROUNDS SEED FILE… */
int main(int argc, char **argv) {
    enum { MAX = 1 << 17 };
    static uint8_t original[MAX], mutant[MAX];
    static const uint32_t words[] = {0, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 0x20, 0x10000, 0x0800, 0x86DD, 6};
    assert(argc > 3);
    long rounds = atol(argv[1]);
    state = strtoull(argv[2], NULL, 10) * 2 + 1;
    for (long round = 0; round < rounds; round++) {
        FILE *file = fopen(argv[3 + round % (argc - 3)], "rb");
        assert(file != NULL);
        size_t size = fread(original, 1, MAX - 4, file);
        fclose(file);
        for (int repeat = 0; repeat < 20; repeat++) {
            for (int i = 0; i < 4; i++)
                mutant[i] = (uint8_t)draw(256);
            memcpy(mutant + 4, original, size);
            size_t length = size + 4;
            for (uint32_t change = draw(30); change > 0 && length > 8; change--) {
                size_t at = 4 + draw((uint32_t)length - 8);
                switch (draw(3)) {
                case 0:
                    mutant[at] ^= (uint8_t)(1u << draw(8));
                    break;
                case 1:
                    memcpy(mutant + at, &words[draw(sizeof words / sizeof *words)], 4);
                    break;
                default:
                    if (draw(20) == 0)
                        length = at;
                    else
                        mutant[at] = (uint8_t)draw(256);
                }
            }
            LLVMFuzzerTestOneInput(mutant, length);
        }
    }
    printf("%ld inputs\n", rounds * 20);
    return 0;
}
#endif
