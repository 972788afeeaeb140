/*
 * Memory for large arrays that is a mapped, unlinked file: it costs no anonymous memory, the system can write it out.
 *
 * The functions are those of an allocator of NumPy (NEP 49). Allocations of less than RIG_IN_FILE_FROM bytes, and those
 * for which there is no file, come from malloc.
 */
#ifndef RIG_ARRAYS_H
#define RIG_ARRAYS_H

#include <stddef.h>

#define RIG_IN_FILE_FROM ((size_t)1 << 20)

/* Where the files are; without it everything comes from malloc. 0, or -1 if the path is too long. */
int rig_arrays_directory(const char *path);

/* context: unused */
void *rig_arrays_malloc(void *context, size_t size);
void *rig_arrays_calloc(void *context, size_t count, size_t size);
void *rig_arrays_realloc(void *context, void *memory, size_t size);
void rig_arrays_free(void *context, void *memory, size_t size);

#endif
