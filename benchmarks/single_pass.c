/*
 * The yardstick: what a C program needs that is written for one kind of file and one question, and for nothing else.
 *
 *     cc -O2 -o single_pass single_pass.c && ./single_pass FILE.pcapng
 *
 * It maps a little-endian pcapng file of one Ethernet interface with nanosecond stamps, decodes each frame in the same
 * pass that measures (IPv4 without options, IPv6 without extension headers, one VLAN tag, token-v2 over UDP with its
 * header checksum), tells flows apart by VLAN, addresses and ports, matches by request id, and prints for every pair of
 * flows response times and losses, for every flow the gaps: n, lost, min, p50, p90, p99, max in ns, percentiles as exact
 * order statistics with a lost answer as infinite. Bounds are checked, so that a damaged file ends it, and that is all:
 * no findings, no evidence, no confidence, no limits.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAIRS = 4, HEADER = 52 };
static const char *const NAMES[PAIRS] = {"first", "second", "tagged", "six"};

typedef struct {
    int64_t *values;
    uint64_t count, room;
} list_t;

typedef struct {
    uint32_t id;
    int64_t time_ns; /* 0: free */
} entry_t;

typedef struct {
    entry_t *entries;
    uint64_t count, mask;
} table_t;

typedef struct {
    uint8_t bytes[38]; /* VLAN, addresses, ports */
} flow_key_t;

static flow_key_t keys[2 * PAIRS];
static int flow_count;
static list_t gaps[PAIRS][2]; /* of requests, of answers */
static list_t responses[PAIRS];
static table_t by_id[PAIRS];
static uint64_t requests[PAIRS];
static int64_t last[PAIRS][2];
static uint64_t packets[PAIRS][2];
static uint32_t crc_table[8][256];

static void crc_tables(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0xEDB88320u & (0u - (crc & 1)));
        crc_table[0][byte] = crc;
    }
    for (uint32_t byte = 0; byte < 256; byte++)
        for (int step = 1; step < 8; step++)
            crc_table[step][byte] = crc_table[step - 1][byte] >> 8 ^ crc_table[0][crc_table[step - 1][byte] & 0xFF];
}

static int crc_is_right(const uint8_t *header) {
    uint32_t crc = 0xFFFFFFFFu, low, high;
    for (int at = 0; at < HEADER - 4; at += 8) {
        memcpy(&low, header + at, 4);
        memcpy(&high, header + at + 4, 4);
        low ^= crc;
        crc = crc_table[7][low & 0xFF] ^ crc_table[6][low >> 8 & 0xFF] ^ crc_table[5][low >> 16 & 0xFF] ^
              crc_table[4][low >> 24] ^ crc_table[3][high & 0xFF] ^ crc_table[2][high >> 8 & 0xFF] ^
              crc_table[1][high >> 16 & 0xFF] ^ crc_table[0][high >> 24];
    }
    for (int byte = 0; byte < 4; byte++)
        crc = crc >> 8 ^ crc_table[0][crc & 0xFF];
    memcpy(&low, header + HEADER - 4, 4);
    return ~crc == low;
}

/* The entry of an id, or the free one where it belongs. */
static entry_t *find(table_t *table, uint32_t id) {
    if (table->count * 2 >= table->mask) {
        table_t grown = {calloc(table->mask ? (table->mask + 1) * 2 : 1024, sizeof(entry_t)), table->count,
                         table->mask ? table->mask * 2 + 1 : 1023};
        for (uint64_t i = 0; table->mask && i <= table->mask; i++)
            if (table->entries[i].time_ns)
                *find(&grown, table->entries[i].id) = table->entries[i];
        free(table->entries);
        *table = grown;
    }
    uint64_t at = id * 2654435761u & table->mask;
    while (table->entries[at].time_ns && table->entries[at].id != id)
        at = (at + 1) & table->mask;
    return &table->entries[at];
}

static void append(list_t *list, int64_t value) {
    uint64_t at = list->count++;
    if (at >= list->room) {
        list->room = list->room ? list->room * 2 : 1 << 16;
        list->values = realloc(list->values, list->room * sizeof *list->values);
    }
    list->values[at] = value;
}

/* The k-th smallest, by Hoare's selection. */
static int64_t nth(int64_t *values, int64_t count, int64_t k) {
    int64_t low = 0, high = count - 1;
    while (low < high) {
        int64_t pivot = values[(low + high) / 2], i = low, j = high;
        while (i <= j) {
            while (values[i] < pivot)
                i++;
            while (values[j] > pivot)
                j--;
            if (i <= j) {
                int64_t swap = values[i];
                values[i++] = values[j], values[j--] = swap;
            }
        }
        if (k <= j)
            high = j;
        else if (k >= i)
            low = i;
        else
            break;
    }
    return values[k];
}

static void report(const char *what, const char *name, list_t *list, uint64_t lost) {
    int64_t min = INT64_MAX, max = 0;
    for (uint64_t i = 0; i < list->count; i++) {
        if (list->values[i] == INT64_MAX)
            continue;
        min = list->values[i] < min ? list->values[i] : min;
        max = list->values[i] > max ? list->values[i] : max;
    }
    printf("%s-%s %llu %llu %lld", what, name, (unsigned long long)list->count, (unsigned long long)lost,
           (long long)min);
    static const int percent[] = {50, 90, 99};
    for (int i = 0; i < 3; i++) {
        int64_t rank = ((int64_t)list->count * percent[i] + 99) / 100 - 1;
        printf(" %lld", (long long)nth(list->values, (int64_t)list->count, rank));
    }
    printf(" %lld\n", (long long)max);
}

static int flow_of(const flow_key_t *key) {
    for (int i = 0; i < flow_count; i++)
        if (memcmp(&keys[i], key, sizeof *key) == 0)
            return 1;
    if (flow_count == 2 * PAIRS)
        return 0;
    keys[flow_count++] = *key;
    return 1;
}

static void packet(int64_t time_ns, int pair, int answer, const uint8_t *token) {
    uint32_t id;
    memcpy(&id, token + 4, 4);
    if (packets[pair][answer]++)
        append(&gaps[pair][answer], time_ns - last[pair][answer]);
    last[pair][answer] = time_ns;
    entry_t *entry = find(&by_id[pair], id);
    if (answer && entry->time_ns > 0) {
        append(&responses[pair], time_ns - entry->time_ns);
        entry->time_ns = -1;
    } else if (!answer && entry->time_ns == 0) {
        entry->id = id;
        entry->time_ns = time_ns;
        by_id[pair].count++;
        requests[pair]++;
    }
}

int main(int argc, char **argv) {
    struct stat status;
    int file = argc > 1 ? open(argv[1], O_RDONLY) : -1;
    if (file < 0 || fstat(file, &status) != 0)
        return 2;
    uint64_t size = (uint64_t)status.st_size;
    const uint8_t *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0);
    if (data == MAP_FAILED)
        return 2;
    crc_tables();
    for (uint64_t at = 0; at + 32 <= size;) {
        uint32_t block[7], trailer;
        memcpy(block, data + at, 28);
        if (block[1] < 12 || block[1] > size - at)
            break;
        memcpy(&trailer, data + at + block[1] - 4, 4);
        if (trailer != block[1])
            break;
        const uint8_t *frame = data + at + 28, *ip = frame + 14;
        uint32_t captured = block[5];
        at += block[1];
        if (block[0] != 6 || captured > block[1] - 32 || captured < 14 + 4 + 40)
            continue;
        flow_key_t key = {{0}};
        if (frame[12] == 0x81 && frame[13] == 0) {
            memcpy(key.bytes, frame + 14, 2);
            ip += 4;
        }
        int four = ip[-2] == 0x08 && ip[-1] == 0x00 && ip[0] == 0x45;
        if (!four && !(ip[-2] == 0x86 && ip[-1] == 0xDD))
            continue;
        if (ip[four ? 9 : 6] != 17 || (four && (ip[6] & 0x3F || ip[7])))
            continue;
        const uint8_t *udp = ip + (four ? 20 : 40);
        if (udp + 8 + HEADER > frame + captured)
            continue;
        memcpy(key.bytes + 2, ip + (four ? 12 : 8), four ? 8 : 32);
        memcpy(key.bytes + 34, udp, 4);
        int source = udp[0] << 8 | udp[1], destination = udp[2] << 8 | udp[3];
        int answer = source < destination, port = answer ? source : destination;
        const uint8_t *token = udp + 8;
        if (port >= 5005 && port < 5005 + PAIRS && token[0] == 'T' && token[1] == '2' && crc_is_right(token) &&
            flow_of(&key))
            packet((int64_t)((uint64_t)block[3] << 32 | block[4]), port - 5005, answer, token);
    }
    for (int pair = 0; pair < PAIRS; pair++) {
        uint64_t lost = requests[pair] - responses[pair].count;
        for (uint64_t i = 0; i < lost; i++)
            append(&responses[pair], INT64_MAX);
        report("response", NAMES[pair], &responses[pair], lost);
        printf("loss-%s %llu %llu\n", NAMES[pair], (unsigned long long)requests[pair], (unsigned long long)lost);
        report("gap-requests", NAMES[pair], &gaps[pair][0], 0);
        report("gap-answers", NAMES[pair], &gaps[pair][1], 0);
    }
    return 0;
}
