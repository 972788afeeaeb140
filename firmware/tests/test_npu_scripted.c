/* The scripted backend's timetable; times worked out by hand. */
#include "check.h"
#include "clock.h"
#include "npu.h"

#define US 1000ull

static struct npu_chunk chunk;

static void configure(uint32_t first_us, uint32_t token_us, uint16_t tokens) {
  npu_init();
  CHECK(npu_configure(&(struct npu_settings){first_us, token_us, tokens}));
}

static void test_one_chunk_is_ready_with_its_last_token(void) {
  struct npu_job job = {7, 5};

  configure(100, 10, 355);
  CHECK(npu_infer(&job, NULL, 0, 1000 * US));
  CHECK_EQUAL(npu_next_ns(), (1000 + 100 + 4 * 10) * US);
  CHECK(!npu_peek(1140 * US - 1, &chunk));
  CHECK(npu_peek(1140 * US, &chunk));
  CHECK(chunk.job == &job && chunk.first && chunk.last);
  CHECK_EQUAL(chunk.tokens, 5);
  CHECK_EQUAL(chunk.ready_ns, 1140 * US);
  npu_take();
  CHECK_EQUAL(npu_next_ns(), CLOCK_NEVER);
}

static void test_long_answers_come_in_chunks(void) {
  struct npu_job job = {7, 5};
  static const struct {
    uint64_t ready;
    int first_token, tokens, first, last;
  } expected[] = {{110, 0, 2, 1, 0}, {130, 2, 2, 0, 0}, {140, 4, 1, 0, 1}};

  configure(100, 10, 2);
  CHECK(npu_infer(&job, NULL, 0, 0));
  for (int i = 0; i < 3; i++) {
    CHECK_EQUAL(npu_next_ns(), expected[i].ready * US);
    CHECK(npu_peek(expected[i].ready * US, &chunk));
    CHECK_EQUAL(chunk.first_token, expected[i].first_token);
    CHECK_EQUAL(chunk.tokens, expected[i].tokens);
    CHECK_EQUAL(chunk.first, expected[i].first);
    CHECK_EQUAL(chunk.last, expected[i].last);
    npu_take();
  }
  CHECK(!npu_peek(CLOCK_NEVER - 1, &chunk));
}

static void test_an_exact_multiple_has_no_empty_chunk_at_its_end(void) {
  struct npu_job job = {7, 4};

  configure(0, 0, 2);
  CHECK(npu_infer(&job, NULL, 0, 5));
  CHECK(npu_peek(5, &chunk) && !chunk.last);
  npu_take();
  CHECK(npu_peek(5, &chunk) && chunk.last);
  CHECK_EQUAL(chunk.tokens, 2);
  npu_take();
  CHECK_EQUAL(npu_next_ns(), CLOCK_NEVER);
}

static void test_an_answer_of_no_tokens_is_one_empty_chunk(void) {
  struct npu_job job = {7, 0};

  configure(50, 10, 2);
  CHECK(npu_infer(&job, NULL, 0, 0));
  CHECK(npu_peek(50 * US, &chunk));
  CHECK(chunk.first && chunk.last);
  CHECK_EQUAL(chunk.tokens, 0);
}

static void test_jobs_run_one_after_the_other(void) {
  struct npu_job one = {1, 1}, two = {2, 1}, three = {3, 1};

  configure(100, 0, 355);
  CHECK(npu_infer(&one, NULL, 0, 0));
  CHECK(npu_infer(&two, NULL, 0, 10 * US)); /* waits for one */
  CHECK(npu_peek(150 * US, &chunk) && chunk.job == &one);
  npu_take(); /* late: two has been running since 100 us all the same */
  CHECK_EQUAL(npu_next_ns(), 200 * US);
  CHECK(npu_peek(200 * US, &chunk) && chunk.job == &two);
  npu_take();
  CHECK(npu_infer(&three, NULL, 0, 500 * US)); /* idle before */
  CHECK_EQUAL(npu_next_ns(), 600 * US);
}

static void test_a_full_queue_refuses(void) {
  static struct npu_job jobs[NPU_QUEUE_LENGTH + 1];

  configure(100, 0, 355);
  for (unsigned i = 0; i < NPU_QUEUE_LENGTH; i++) {
    CHECK(npu_infer(&jobs[i], NULL, 0, 0));
  }
  CHECK(!npu_infer(&jobs[NPU_QUEUE_LENGTH], NULL, 0, 0));
  CHECK_EQUAL(npu_high_water(), NPU_QUEUE_LENGTH);
  CHECK(npu_peek(100 * US, &chunk));
  npu_take();
  CHECK(npu_infer(&jobs[NPU_QUEUE_LENGTH], NULL, 0, 0));
}

static void test_tokens_follow_from_the_request_id(void) {
  struct npu_job job = {1000, 3};

  CHECK_EQUAL(npu_token(&job, 0), 1000ull * 2654435761ull % (1ull << 32));
  CHECK_EQUAL(npu_token(&job, 2), (1000ull * 2654435761ull + 2) % (1ull << 32));
}

static void test_settings_out_of_range_change_nothing(void) {
  configure(100, 10, 2);
  CHECK(!npu_configure(&(struct npu_settings){1, 1, 0}));
  CHECK(!npu_configure(&(struct npu_settings){1, 1, 356}));
  CHECK(!npu_configure(&(struct npu_settings){60000001, 1, 1}));
  CHECK(!npu_configure(&(struct npu_settings){1, 60000001, 1}));
  CHECK_EQUAL(npu_settings().first_us, 100);
  CHECK_EQUAL(npu_settings().chunk, 2);
}

static void test_the_longest_job_does_not_overflow(void) {
  struct npu_job job = {1, 65535};

  configure(60000000, 60000000, 355);
  CHECK(npu_infer(&job, NULL, 0, 0));
  for (int i = 0; i < 65535 / 355; i++) {
    npu_take();
  }
  CHECK_EQUAL(npu_next_ns(), 65535ull * 60000000ull * US);
}

int main(void) {
  RUN(test_one_chunk_is_ready_with_its_last_token);
  RUN(test_long_answers_come_in_chunks);
  RUN(test_an_exact_multiple_has_no_empty_chunk_at_its_end);
  RUN(test_an_answer_of_no_tokens_is_one_empty_chunk);
  RUN(test_jobs_run_one_after_the_other);
  RUN(test_a_full_queue_refuses);
  RUN(test_tokens_follow_from_the_request_id);
  RUN(test_settings_out_of_range_change_nothing);
  RUN(test_the_longest_job_does_not_overflow);
  return 0;
}
