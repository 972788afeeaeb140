/*
 * Scripted backend: tokens by formula, ready by timetable. Token i of request r is (r * 2654435761 + i) mod 2^32.
 * Token i of a job is ready first_us + i * token_us after the job's start; a chunk is ready with its last token.
 */
#include "npu.h"

#include "clock.h"

#define KNUTH_MULTIPLIER 2654435761u
#define MINUTE_US 60000000u

static struct npu_job *queue[NPU_QUEUE_LENGTH];
static uint32_t entered, left, high_water; /* free-running; the job at `left` runs */
static uint64_t started_ns;                /* of the running job */
static uint16_t taken;                     /* tokens of the running job */
static struct npu_settings settings;

void npu_init(void) {
  entered = left = high_water = 0;
  settings = (struct npu_settings){.first_us = 1000, .token_us = 0, .chunk = NPU_CHUNK_MAX};
}

const char *npu_name(void) {
  return "scripted";
}

struct npu_settings npu_settings(void) {
  return settings;
}

bool npu_configure(const struct npu_settings *wanted) {
  if (wanted->chunk == 0 || wanted->chunk > NPU_CHUNK_MAX || wanted->first_us > MINUTE_US ||
      wanted->token_us > MINUTE_US) {
    return false;
  }
  settings = *wanted;
  return true;
}

static void start(uint64_t at_ns) {
  started_ns = at_ns;
  taken = 0;
}

bool npu_infer(struct npu_job *job, const uint8_t *prompt, uint16_t tokens, uint64_t now_ns) {
  (void)prompt; /* the script does not depend on it */
  (void)tokens;
  if (entered - left == NPU_QUEUE_LENGTH) {
    return false;
  }
  if (entered == left) {
    start(now_ns);
  }
  queue[entered++ % NPU_QUEUE_LENGTH] = job;
  if (entered - left > high_water) {
    high_water = entered - left;
  }
  return true;
}

static struct npu_chunk next_chunk(void) {
  struct npu_job *job = queue[left % NPU_QUEUE_LENGTH];
  const uint16_t to_come = (uint16_t)(job->answer_tokens - taken);
  const uint16_t tokens = to_come < settings.chunk ? to_come : settings.chunk;
  const uint32_t last_token = tokens == 0 ? 0 : taken + tokens - 1u;

  return (struct npu_chunk){
      .job = job,
      .ready_ns = started_ns + (settings.first_us + (uint64_t)last_token * settings.token_us) * 1000u,
      .first_token = taken,
      .tokens = tokens,
      .first = taken == 0,
      .last = tokens == to_come,
  };
}

uint64_t npu_next_ns(void) {
  return entered == left ? CLOCK_NEVER : next_chunk().ready_ns;
}

bool npu_peek(uint64_t now_ns, struct npu_chunk *chunk) {
  if (npu_next_ns() > now_ns) {
    return false;
  }
  *chunk = next_chunk();
  return true;
}

void npu_take(void) {
  const struct npu_chunk chunk = next_chunk();

  taken = (uint16_t)(taken + chunk.tokens);
  if (chunk.last) {
    left++;
    start(chunk.ready_ns); /* the next job starts when this one ended, however late the CPU looked */
  }
}

uint32_t npu_token(const struct npu_job *job, uint16_t index) {
  return job->request_id * KNUTH_MULTIPLIER + index;
}

uint32_t npu_high_water(void) {
  return high_water;
}
