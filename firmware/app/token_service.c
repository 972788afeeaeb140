/* Token service. See token_service.h; wire formats in token_v1.h and token_v2.h. */
#include "token_service.h"

#include <string.h>

#include "clock.h"
#include "lan9118.h"
#include "lwip/udp.h"
#include "npu.h"
#include "telemetry.h"
#include "token_v1.h"
#include "token_v2.h"
#include "variant.h"

#define REQUEST_PREFIX_LENGTH 4u /* u16 answer_tokens, u16 zero */
#define COUNTERS_IN_SENTINEL 8u
#define PUSH_PERIOD_MIN_US 10u

enum kind { ANSWER_V1, ANSWER_V2, PUSH };

struct exchange {
  struct npu_job job; /* first: the NPU hands back a pointer to it */
  struct exchange *next_free;
  enum kind kind;
  uint16_t v1_sequence;
  uint16_t peer_port;
  ip_addr_t peer;
  uint64_t t_rx_ns;
};

struct token_counters token_counters;

static struct udp_pcb *pcb;
static uint32_t own_boot_id;
static uint32_t next_sequence;
static uint32_t prev_queued_ns = TOKEN_V2_QUEUED_UNKNOWN;

static struct exchange exchanges[NPU_QUEUE_LENGTH];
static struct exchange *free_exchanges;
static bool waits_for_buffer;

static bool measuring;
static struct {
  uint32_t every_us, count; /* count 0: not armed */
  uint16_t tokens;
  uint32_t done;
  bool running;
  uint64_t next_ns;
  ip_addr_t peer;
  uint16_t peer_port;
} push;

static struct exchange *take_exchange(void) {
  struct exchange *exchange = free_exchanges;

  if (exchange != NULL) {
    free_exchanges = exchange->next_free;
  }
  return exchange;
}

static void release(struct exchange *exchange) {
  exchange->next_free = free_exchanges;
  free_exchanges = exchange;
}

/* Gives what begin() returned to lwIP and notes when the driver got it. */
static bool send(uint16_t length, const ip_addr_t *to, uint16_t port, uint32_t id, uint64_t t_send_ns) {
  const uint32_t queued_before = lan9118_counters.tx_ip_queued;
  const err_t error = variant.transmitter->send(pcb, length, to, port);

  prev_queued_ns = TOKEN_V2_QUEUED_UNKNOWN;
  if (error != ERR_OK) {
    token_counters.tx_err++;
    telemetry_add(TELEMETRY_TX_ERR, id, (uint32_t)-error);
    return false;
  }
  if (lan9118_counters.tx_ip_queued == queued_before) {
    telemetry_add(TELEMETRY_ARP_WAIT, id, 0);
  } else if (lan9118_ip_queued_ns - t_send_ns < TOKEN_V2_QUEUED_UNKNOWN) {
    prev_queued_ns = (uint32_t)(lan9118_ip_queued_ns - t_send_ns);
  }
  return true;
}

/* Completes the header in front of a payload that already stands in `datagram`, and sends. */
static bool send_v2(uint8_t *datagram, struct token_v2_header header, const ip_addr_t *to, uint16_t port) {
  header.sequence = next_sequence;
  header.boot_id = own_boot_id;
  header.prev_queued_ns = prev_queued_ns;
  header.t_send_ns = clock_ns();
  token_v2_encode(&header, datagram);
  if (!send((uint16_t)(TOKEN_V2_HEADER_LENGTH + header.payload_length), to, port, header.request_id,
            header.t_send_ns)) {
    return false;
  }
  next_sequence++; /* a datagram that was not sent leaves no gap */
  return true;
}

/* A datagram without answer tokens: acknowledge, error, sentinel. It is lost if no buffer is free. */
static bool send_words(struct token_v2_header header, const uint32_t *words, unsigned count, const ip_addr_t *to,
                       uint16_t port) {
  uint8_t *datagram;

  if (variant.mute) {
    return false;
  }
  datagram = variant.transmitter->begin();
  if (datagram == NULL) {
    token_counters.tx_err++;
    telemetry_add(TELEMETRY_NO_BUFFER, header.request_id, 0);
    return false;
  }
  for (unsigned i = 0; i < count; i++) {
    put_u32(datagram + TOKEN_V2_HEADER_LENGTH + 4u * i, words[i]);
  }
  header.payload_length = (uint16_t)(4u * count);
  return send_v2(datagram, header, to, port);
}

static void send_error(uint32_t request_id, uint32_t reason, uint64_t t_rx_ns, const ip_addr_t *to, uint16_t port) {
  const struct token_v2_header header = {.type = TOKEN_V2_ERROR,
                                         .flags = TOKEN_V2_FIRST | TOKEN_V2_LAST,
                                         .request_id = request_id,
                                         .t_rx_ns = t_rx_ns};

  token_counters.tx_errors += send_words(header, &reason, 1, to, port);
}

static void refuse(const struct pbuf *datagram) {
  uint8_t first[4] = {0};

  pbuf_copy_partial(datagram, first, sizeof(first), 0);
  token_counters.rx_bad++;
  telemetry_add(TELEMETRY_BAD, datagram->tot_len, get_u32(first));
}

/* Queues an inference; false if the NPU cannot take it. */
static bool infer(enum kind kind, uint32_t id, uint16_t answer_tokens, const uint8_t *prompt, uint16_t prompt_tokens,
                  uint64_t t_rx_ns, const ip_addr_t *peer, uint16_t port) {
  struct exchange *exchange = take_exchange();

  if (exchange != NULL) {
    exchange->job = (struct npu_job){.request_id = id, .answer_tokens = answer_tokens};
    exchange->kind = kind;
    exchange->v1_sequence = (uint16_t)id;
    exchange->peer = *peer;
    exchange->peer_port = port;
    exchange->t_rx_ns = t_rx_ns;
    if (npu_infer(&exchange->job, prompt, prompt_tokens, t_rx_ns)) {
      return true;
    }
    release(exchange);
  }
  token_counters.npu_overflow++;
  telemetry_add(TELEMETRY_BUSY, id, 0);
  return false;
}

static void count_request(void) {
  token_counters.rx_requests++;
  if (measuring && variant.on_measured_request != NULL) {
    variant.on_measured_request();
  }
}

static void on_request_v1(const uint8_t *bytes, uint16_t length, uint16_t sequence, uint64_t now_ns,
                          const ip_addr_t *from, uint16_t port) {
  const uint16_t tokens = (uint16_t)((length - TOKEN_V1_HEADER_LENGTH) / 2u); /* at least 1: checked by the caller */

  count_request();
  /* The prompt of a token-v1 request is u16; no backend of today reads it. */
  infer(ANSWER_V1, sequence, get_u16(bytes + TOKEN_V1_HEADER_LENGTH), NULL, (uint16_t)(tokens - 1u), now_ns, from,
        port);
}

static bool on_request_v2(const struct token_v2_header *header, const uint8_t *payload, uint64_t now_ns,
                          const ip_addr_t *from, uint16_t port) {
  const uint16_t length = header->payload_length;

  if (length < REQUEST_PREFIX_LENGTH || length % 4u != 0 || get_u16(payload + 2) != 0) {
    return false;
  }
  count_request();
  if (!infer(ANSWER_V2, header->request_id, get_u16(payload), payload + REQUEST_PREFIX_LENGTH,
             (uint16_t)((length - REQUEST_PREFIX_LENGTH) / 4u), now_ns, from, port)) {
    send_error(header->request_id, TOKEN_V2_ERROR_BUSY, now_ns, from, port);
  }
  return true;
}

/* Mode stream: the answer names the datagram by request id and, in its payload, by the sender's sequence. */
static void on_stream(const struct token_v2_header *received, uint64_t now_ns, const ip_addr_t *from, uint16_t port) {
  const struct token_v2_header header = {.type = TOKEN_V2_ACKNOWLEDGE,
                                         .flags = received->flags,
                                         .request_id = received->request_id,
                                         .t_rx_ns = now_ns};

  token_counters.rx_stream++;
  token_counters.tx_acks += send_words(header, &received->sequence, 1, from, port);
}

static void on_sentinel(const struct token_v2_header *received, uint64_t now_ns, const ip_addr_t *from, uint16_t port) {
  const bool start = received->request_id == TOKEN_V2_SENTINEL_START;
  const bool end = received->request_id == TOKEN_V2_SENTINEL_END;
  const struct token_v2_header header = {.type = TOKEN_V2_SENTINEL,
                                         .flags = received->flags,
                                         .request_id = received->request_id,
                                         .t_rx_ns = now_ns};

  token_counters.rx_sentinels++;
  if (start || end) {
    telemetry_add(start ? TELEMETRY_START : TELEMETRY_END, received->request_id, received->sequence);
    measuring = start;
  }
  if (start && push.count > 0 && !push.running) {
    push.running = true;
    push.done = 0;
    push.next_ns = now_ns + push.every_us * (uint64_t)1000;
    push.peer = *from;
    push.peer_port = port;
  } else if (end && push.running) {
    push.running = false;
    push.count = 0;
  }

  const uint32_t counters[COUNTERS_IN_SENTINEL] = {
      token_counters.rx_requests,  token_counters.rx_bad,
      token_counters.tx_answers,   token_counters.tx_acks,
      token_counters.pushes,       token_counters.tx_err,
      token_counters.rx_sentinels, (uint32_t)(clock_ns() / 1000000u),
  };

  token_counters.tx_sentinels += send_words(header, counters, COUNTERS_IN_SENTINEL, from, port);
}

static void on_v2(const struct token_v2_header *header, const struct pbuf *datagram, uint64_t now_ns,
                  const ip_addr_t *from, uint16_t port) {
  const uint8_t *payload = (const uint8_t *)datagram->payload + TOKEN_V2_HEADER_LENGTH;
  uint32_t reason = TOKEN_V2_ERROR_TYPE;

  if (header->payload_length != datagram->tot_len - TOKEN_V2_HEADER_LENGTH) {
    reason = TOKEN_V2_ERROR_LENGTH;
  } else if (header->type == TOKEN_V2_REQUEST) {
    if (on_request_v2(header, payload, now_ns, from, port)) {
      return;
    }
    reason = TOKEN_V2_ERROR_REQUEST;
  } else if (header->type == TOKEN_V2_ANSWER) {
    on_stream(header, now_ns, from, port);
    return;
  } else if (header->type == TOKEN_V2_SENTINEL && header->request_id >= TOKEN_V2_SENTINEL_PROBE &&
             header->request_id <= TOKEN_V2_SENTINEL_START) {
    on_sentinel(header, now_ns, from, port);
    return;
  }
  refuse(datagram);
  /* Answers are not answered: two boards must not keep each other busy with errors. */
  if (header->type != TOKEN_V2_ACKNOWLEDGE && header->type != TOKEN_V2_ERROR) {
    send_error(header->request_id, reason, now_ns, from, port);
  }
}

static void on_datagram(void *argument, struct udp_pcb *socket, struct pbuf *datagram, const ip_addr_t *from,
                        u16_t port) {
  const uint64_t now_ns = clock_ns();
  struct token_v2_header header;
  uint16_t sequence;

  (void)argument;
  (void)socket;
  /* The driver receives each frame into one buffer. */
  if (datagram->next != NULL) {
    refuse(datagram);
  } else if (token_v2_decode(datagram->payload, datagram->len, &header)) {
    on_v2(&header, datagram, now_ns, from, port);
  } else if (token_v1_decode(datagram->payload, datagram->len, &sequence) && datagram->len > TOKEN_V1_HEADER_LENGTH) {
    on_request_v1(datagram->payload, datagram->len, sequence, now_ns, from, port);
  } else {
    refuse(datagram);
  }
  pbuf_free(datagram);
}

static bool send_chunk_v1(uint8_t *datagram, const struct exchange *exchange, const struct npu_chunk *chunk) {
  const uint16_t length = (uint16_t)(2u * chunk->tokens);

  for (uint16_t i = 0; i < chunk->tokens; i++) {
    put_u16(datagram + TOKEN_V1_HEADER_LENGTH + 2u * i,
            (uint16_t)npu_token(&exchange->job, (uint16_t)(chunk->first_token + i)));
  }
  const uint64_t t_send_ns = clock_ns();

  token_v1_encode(datagram, exchange->v1_sequence, length);
  return send((uint16_t)(TOKEN_V1_HEADER_LENGTH + length), &exchange->peer, exchange->peer_port,
              exchange->job.request_id, t_send_ns);
}

static bool send_chunk_v2(uint8_t *datagram, const struct exchange *exchange, const struct npu_chunk *chunk) {
  const struct token_v2_header header = {
      .type = TOKEN_V2_ANSWER,
      .flags = (uint8_t)((chunk->first ? TOKEN_V2_FIRST : 0u) | (chunk->last ? TOKEN_V2_LAST : 0u)),
      .request_id = exchange->job.request_id,
      .payload_length = (uint16_t)(4u * chunk->tokens),
      .t_rx_ns = exchange->t_rx_ns,
      .t_ready_ns = chunk->ready_ns,
  };

  for (uint16_t i = 0; i < chunk->tokens; i++) {
    put_u32(datagram + TOKEN_V2_HEADER_LENGTH + 4u * i,
            npu_token(&exchange->job, (uint16_t)(chunk->first_token + i)));
  }
  return send_v2(datagram, header, &exchange->peer, exchange->peer_port);
}

static void push_tick(void) {
  push.done++;
  infer(PUSH, push.done, push.tokens, NULL, 0, push.next_ns, &push.peer, push.peer_port);
  push.next_ns += push.every_us * (uint64_t)1000;
  if (push.done == push.count) {
    push.running = false;
    push.count = 0;
  }
}

bool token_service_init(uint16_t port, uint32_t boot_id) {
  own_boot_id = boot_id;
  for (unsigned i = 0; i < NPU_QUEUE_LENGTH; i++) {
    release(&exchanges[i]);
  }
  pcb = udp_new();
  if (pcb == NULL || udp_bind(pcb, IP_ANY_TYPE, port) != ERR_OK) {
    return false;
  }
  udp_recv(pcb, on_datagram, NULL);
  return true;
}

bool token_service_poll(void) {
  const uint64_t now_ns = clock_ns();
  struct npu_chunk chunk;
  struct exchange *exchange;
  uint8_t *datagram = NULL;

  if (push.running && push.next_ns <= now_ns) {
    push_tick();
    return true;
  }
  if (!npu_peek(now_ns, &chunk)) {
    return false;
  }
  exchange = (struct exchange *)chunk.job;
  if (!variant.mute) {
    datagram = variant.transmitter->begin();
    if (datagram == NULL) {
      if (!waits_for_buffer) {
        waits_for_buffer = true;
        token_counters.buffer_waits++;
        telemetry_add(TELEMETRY_NO_BUFFER, exchange->job.request_id, variant.transmitter->free_buffers());
      }
      return false;
    }
    waits_for_buffer = false;
    if (exchange->kind == ANSWER_V1) {
      token_counters.tx_answers += send_chunk_v1(datagram, exchange, &chunk);
    } else if (send_chunk_v2(datagram, exchange, &chunk)) {
      *(exchange->kind == PUSH ? &token_counters.pushes : &token_counters.tx_answers) += 1;
    }
  }
  npu_take();
  if (chunk.last) {
    release(exchange);
  }
  return true;
}

uint64_t token_service_next_ns(void) {
  const uint64_t npu_ns = waits_for_buffer ? CLOCK_NEVER : npu_next_ns();
  const uint64_t push_ns = push.running ? push.next_ns : CLOCK_NEVER;

  return npu_ns < push_ns ? npu_ns : push_ns;
}

bool token_service_measuring(void) {
  return measuring;
}

bool token_service_arm_push(uint32_t every_us, uint32_t count, uint16_t tokens) {
  if (every_us < PUSH_PERIOD_MIN_US || count == 0 || push.running) {
    return false;
  }
  push.every_us = every_us;
  push.count = count;
  push.tokens = tokens;
  return true;
}
