/*
 * The NPU as the application sees it: jobs go in, chunks of tokens come out when they are ready, the CPU is free
 * meanwhile. One job runs at a time, others wait in order. All calls come from the main loop; times are ns.
 */
#ifndef NPU_H
#define NPU_H

#include <stdbool.h>
#include <stdint.h>

#define NPU_QUEUE_LENGTH 128u
#define NPU_CHUNK_MAX 355u

struct npu_settings {
  uint32_t first_us; /* from the start of a job to its first token */
  uint32_t token_us; /* per further token */
  uint16_t chunk;    /* tokens per chunk, 1..NPU_CHUNK_MAX */
};

/* Belongs to the application, which keeps it until its last chunk has been taken. */
struct npu_job {
  uint32_t request_id;
  uint16_t answer_tokens; /* 0 gives one empty chunk */
};

struct npu_chunk {
  struct npu_job *job;
  uint64_t ready_ns; /* when the NPU was done with it, which is not later than when it is taken */
  uint16_t first_token;
  uint16_t tokens;
  bool first, last;
};

void npu_init(void);
const char *npu_name(void);
struct npu_settings npu_settings(void);
/*
 * False, and nothing changed, if a value is out of range. The tokens of a running job that are still to come follow the
 * new values.
 */
bool npu_configure(const struct npu_settings *settings);

/* Queues a job with its prompt of `tokens` little-endian u32 ids, read before the call returns. False if full. */
bool npu_infer(struct npu_job *job, const uint8_t *prompt, uint16_t tokens, uint64_t now_ns);
/* The oldest chunk that is ready, without taking it; false if none is. */
bool npu_peek(uint64_t now_ns, struct npu_chunk *chunk);
/* Takes the chunk that npu_peek() showed. */
void npu_take(void);
/* When the next chunk will be ready, CLOCK_NEVER if the NPU is idle. */
uint64_t npu_next_ns(void);
/* Token `index` of a job's answer. */
uint32_t npu_token(const struct npu_job *job, uint16_t index);
/* Largest number of jobs that were in the NPU at once. */
uint32_t npu_high_water(void);

#endif
