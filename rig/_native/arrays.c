#define _GNU_SOURCE /* O_TMPFILE, fallocate */
#include "arrays.h"

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_MAPPINGS = 4096, PAGE = 4096 };

/* NumPy may allocate from any thread. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char directory[512];
static struct {
    void *memory;
    size_t size;
} mappings[MAX_MAPPINGS];
static int mapping_count;

int rig_arrays_directory(const char *path) {
    if (strlen(path) >= sizeof directory)
        return -1;
    pthread_mutex_lock(&lock);
    strcpy(directory, path);
    pthread_mutex_unlock(&lock);
    return 0;
}

/* NULL where there is no file for it. */
static void *map(size_t size) {
    void *memory = NULL;
    pthread_mutex_lock(&lock);
    if (directory[0] && mapping_count < MAX_MAPPINGS) {
        int file = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (file >= 0) {
            /* Not ftruncate: a full disk must show here, not as SIGBUS at the first touch. */
            if (fallocate(file, 0, 0, (off_t)size) == 0) {
                memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
                if (memory == MAP_FAILED)
                    memory = NULL;
            }
            close(file);
        }
        if (memory != NULL) {
            mappings[mapping_count].memory = memory;
            mappings[mapping_count++].size = size;
        }
    }
    pthread_mutex_unlock(&lock);
    return memory;
}

/* The size of a mapping, which is then forgotten if asked; 0 for what is none. */
static size_t mapped_size(void *memory, int forget) {
    size_t size = 0;
    if (memory == NULL || (uintptr_t)memory % PAGE != 0)
        return 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < mapping_count; i++) {
        if (mappings[i].memory == memory) {
            size = mappings[i].size;
            if (forget)
                mappings[i] = mappings[--mapping_count];
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    return size;
}

void *rig_arrays_malloc(void *context, size_t size) {
    (void)context;
    void *memory = size >= RIG_IN_FILE_FROM ? map(size) : NULL;
    return memory != NULL ? memory : malloc(size);
}

void *rig_arrays_calloc(void *context, size_t count, size_t size) {
    (void)context;
    size_t total;
    if (__builtin_mul_overflow(count, size, &total))
        return NULL;
    void *memory = total >= RIG_IN_FILE_FROM ? map(total) : NULL; /* A new file is all zero. */
    return memory != NULL ? memory : calloc(count, size);
}

void rig_arrays_free(void *context, void *memory, size_t size) {
    (void)context;
    (void)size;
    size_t mapped = mapped_size(memory, 1);
    if (mapped)
        munmap(memory, mapped);
    else
        free(memory);
}

void *rig_arrays_realloc(void *context, void *memory, size_t size) {
    size_t mapped = mapped_size(memory, 0);
    if (!mapped && size < RIG_IN_FILE_FROM)
        return realloc(memory, size);
    size_t held = mapped ? mapped : memory ? malloc_usable_size(memory) : 0;
    void *moved = rig_arrays_malloc(context, size);
    if (moved == NULL)
        return NULL; /* As with realloc, the old memory stays. */
    if (held)
        memcpy(moved, memory, held < size ? held : size);
    rig_arrays_free(context, memory, held);
    return moved;
}
