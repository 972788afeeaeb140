/*
 * The token service on the real lwIP, with a MAC in memory that may hold frames as long as it likes. Linked once with
 * each way to transmit: what is checked holds for both.
 */
#include <string.h>

#include "check.h"
#include "clock.h"
#include "lan9118.h"
#include "lwip/etharp.h"
#include "lwip/init.h"
#include "lwip/timeouts.h"
#include "lwip/udp.h"
#include "netif/ethernet.h"
#include "npu.h"
#include "telemetry.h"
#include "token_service.h"
#include "token_v1.h"
#include "token_v2.h"
#include "uart.h"
#include "variant.h"

#define PORT 5005u
#define BOOT_ID 0xB007B007u
#define FRAMES_MAX 256u
#define UDP_PAYLOAD (ETH_PAD_SIZE + 42u)

static const uint8_t board_mac[6] = {2, 0x52, 0x49, 0x47, 0, 0x10}, peer_mac[6] = {2, 0x52, 0x49, 0x47, 0, 0x20};
static struct netif netif;
static uint64_t now_ns = 1000000;
static char console[65536];
static size_t console_length;

/* What the MAC was given: each frame's bytes at that time, and the frame itself while it is held. */
static struct sent {
  uint8_t bytes[1600];
  uint16_t length;
  struct pbuf *held;
} sent[FRAMES_MAX];
static unsigned sent_count;
static bool mac_holds, mac_refuses;

/* What the service needs of the platform. */
struct lan9118_counters lan9118_counters;
uint64_t lan9118_ip_queued_ns;
uint64_t clock_ns(void) {
  return now_ns;
}
u32_t sys_now(void) {
  return (u32_t)(now_ns / 1000000u);
}
uint32_t platform_random(void) {
  return 4;
}
void platform_assert(const char *message, const char *file, int line) {
  fprintf(stderr, "%s:%d: %s\n", file, line, message);
  exit(1);
}
void uart_text(const char *text) {
  console_length += (size_t)snprintf(console + console_length, sizeof(console) - console_length, "%s", text);
}
void uart_decimal(uint64_t value) {
  console_length += (size_t)snprintf(console + console_length, sizeof(console) - console_length, "%llu",
                                     (unsigned long long)value);
}
void uart_field(const char *key, uint64_t value) {
  console_length += (size_t)snprintf(console + console_length, sizeof(console) - console_length, " %s=%llu", key,
                                     (unsigned long long)value);
}
void uart_end_line(void) {
  uart_text("\n");
}

static bool is_ip(const uint8_t *frame) {
  return frame[ETH_PAD_SIZE + 12] == 8 && frame[ETH_PAD_SIZE + 13] == 0;
}

static err_t link_output(struct netif *output, struct pbuf *frame) {
  struct sent *slot = &sent[sent_count];

  (void)output;
  if (mac_refuses) {
    return ERR_MEM;
  }
  CHECK(sent_count < FRAMES_MAX);
  slot->length = pbuf_copy_partial(frame, slot->bytes, sizeof(slot->bytes), 0);
  if (mac_holds) {
    pbuf_ref(frame);
    slot->held = frame;
  }
  if (is_ip(slot->bytes)) {
    lan9118_counters.tx_ip_queued++;
    lan9118_ip_queued_ns = now_ns + 250;
  }
  sent_count++;
  return ERR_OK;
}

static err_t netif_setup(struct netif *added) {
  memcpy(added->hwaddr, board_mac, 6);
  added->hwaddr_len = 6;
  added->mtu = 1500;
  added->flags = NETIF_FLAG_BROADCAST | NETIF_FLAG_ETHARP | NETIF_FLAG_ETHERNET | NETIF_FLAG_LINK_UP;
  added->output = etharp_output;
  added->linkoutput = link_output;
  return ERR_OK;
}

/* The MAC is done with all frames; none of them was changed while it had them. */
static void mac_completes(void) {
  for (unsigned i = 0; i < sent_count; i++) {
    uint8_t now[1600];

    if (sent[i].held != NULL) {
      CHECK_EQUAL(pbuf_copy_partial(sent[i].held, now, sizeof(now), 0), sent[i].length);
      CHECK(memcmp(now, sent[i].bytes, sent[i].length) == 0);
      pbuf_free(sent[i].held);
      sent[i].held = NULL;
    }
  }
}

static void forget_sent(void) {
  mac_completes();
  sent_count = 0;
}

static void poll_all(void) {
  while (token_service_poll()) {
  }
}

/* No known peer, no frames, no counts left over from the test before. */
static void start(uint32_t first_us, uint32_t token_us, uint16_t chunk) {
  mac_holds = mac_refuses = false;
  forget_sent();
  etharp_cleanup_netif(&netif);
  console_length = 0;
  telemetry_drain();
  console_length = 0;
  npu_configure(&(struct npu_settings){first_us, token_us, chunk});
  memset(&token_counters, 0, sizeof(token_counters));
}

static void receive_frame(const uint8_t *bytes, uint16_t length) {
  struct pbuf *frame = pbuf_alloc(PBUF_RAW, length, PBUF_POOL);

  CHECK(frame != NULL && frame->next == NULL);
  pbuf_take(frame, bytes, length);
  CHECK_EQUAL(netif.input(frame, &netif), ERR_OK);
}

static void arp(uint8_t operation) {
  static const uint8_t common[] = {8, 6, 0, 1, 8, 0, 6, 4, 0};
  uint8_t frame[ETH_PAD_SIZE + 42] = {0};
  uint8_t *at = frame + ETH_PAD_SIZE;

  memcpy(at, board_mac, 6);
  memcpy(at + 6, peer_mac, 6);
  memcpy(at + 12, common, sizeof(common));
  at[21] = operation;
  memcpy(at + 22, peer_mac, 6);
  memcpy(at + 28, "\x0a\x4d\x00\x14", 4);
  memcpy(at + 32, board_mac, 6);
  memcpy(at + 38, "\x0a\x4d\x00\x0a", 4);
  receive_frame(frame, sizeof(frame));
}

/* The peer says hello, so that its address is known. */
static void known_peer(void) {
  arp(1);
  forget_sent();
}

/* A UDP datagram without checksum, which IPv4 allows. */
static void receive(const uint8_t *payload, uint16_t length) {
  uint8_t frame[1600] = {0};
  uint8_t *ip = frame + ETH_PAD_SIZE + 14;
  uint32_t sum = 0;

  memcpy(frame + ETH_PAD_SIZE, board_mac, 6);
  memcpy(frame + ETH_PAD_SIZE + 6, peer_mac, 6);
  memcpy(ip - 2, "\x08\x00\x45", 3);
  ip[2] = (uint8_t)((28 + length) >> 8);
  ip[3] = (uint8_t)(28 + length);
  ip[8] = 64;
  ip[9] = 17;
  memcpy(ip + 12, "\x0a\x4d\x00\x14\x0a\x4d\x00\x0a", 8);
  for (int i = 0; i < 20; i += 2) {
    sum += (uint32_t)(ip[i] << 8 | ip[i + 1]);
  }
  sum = ~((sum & 0xFFFF) + (sum >> 16));
  ip[10] = (uint8_t)(sum >> 8);
  ip[11] = (uint8_t)sum;
  memcpy(ip + 20, (const uint8_t[]){40000 >> 8, 40000 & 255, PORT >> 8, PORT & 255}, 4);
  ip[24] = (uint8_t)((8 + length) >> 8);
  ip[25] = (uint8_t)(8 + length);
  memcpy(ip + 28, payload, length);
  receive_frame(frame, (uint16_t)(UDP_PAYLOAD + length));
}

static void receive_v2(uint8_t type, uint8_t flags, uint32_t id, uint32_t sequence, const void *payload,
                       uint16_t length) {
  uint8_t datagram[1472];
  const struct token_v2_header header = {
      .type = type, .flags = flags, .request_id = id, .sequence = sequence, .boot_id = 9, .payload_length = length};

  token_v2_encode(&header, datagram);
  if (length > 0) {
    memcpy(datagram + TOKEN_V2_HEADER_LENGTH, payload, length);
  }
  receive(datagram, (uint16_t)(TOKEN_V2_HEADER_LENGTH + length));
}

static void request_v2(uint32_t id, uint16_t answer_tokens) {
  uint8_t payload[12] = {0};

  put_u16(payload, answer_tokens);
  receive_v2(TOKEN_V2_REQUEST, 3, id, id, payload, sizeof(payload));
}

static struct token_v2_header sent_v2(unsigned index) {
  struct token_v2_header header;

  CHECK(index < sent_count);
  CHECK(is_ip(sent[index].bytes));
  CHECK(token_v2_decode(sent[index].bytes + UDP_PAYLOAD, sent[index].length - UDP_PAYLOAD, &header));
  CHECK_EQUAL(header.payload_length, sent[index].length - UDP_PAYLOAD - TOKEN_V2_HEADER_LENGTH);
  CHECK_EQUAL(header.boot_id, BOOT_ID);
  return header;
}

static uint32_t sent_word(unsigned index, unsigned word) {
  return get_u32(sent[index].bytes + UDP_PAYLOAD + TOKEN_V2_HEADER_LENGTH + 4 * word);
}

static void test_a_request_is_answered_when_the_npu_is_ready(void) {
  start(100, 10, 355);
  known_peer();
  request_v2(77, 3);
  const uint64_t received_ns = now_ns;

  poll_all();
  CHECK_EQUAL(sent_count, 0);
  CHECK_EQUAL(token_service_next_ns(), received_ns + 120000);
  now_ns += 125000;
  poll_all();
  CHECK_EQUAL(sent_count, 1);
  const struct token_v2_header header = sent_v2(0);

  CHECK_EQUAL(header.type, TOKEN_V2_ANSWER);
  CHECK_EQUAL(header.flags, TOKEN_V2_FIRST | TOKEN_V2_LAST);
  CHECK_EQUAL(header.request_id, 77);
  CHECK_EQUAL(header.t_rx_ns, received_ns);
  CHECK_EQUAL(header.t_ready_ns, received_ns + 120000);
  CHECK_EQUAL(header.t_send_ns, received_ns + 125000);
  CHECK_EQUAL(header.payload_length, 12);
  CHECK_EQUAL(sent_word(0, 2), 77u * 2654435761u + 2u);
  CHECK_EQUAL(token_counters.rx_requests, 1);
  CHECK_EQUAL(token_counters.tx_answers, 1);
}

static void test_a_long_answer_keeps_to_the_frame_and_counts_on(void) {
  start(0, 0, 355);
  known_peer();
  request_v2(1, 356);
  poll_all();
  CHECK_EQUAL(sent_count, 2);
  CHECK_EQUAL(sent[0].length, ETH_PAD_SIZE + 14 + 20 + 8 + 1472);
  CHECK_EQUAL(sent_v2(0).flags, TOKEN_V2_FIRST);
  CHECK_EQUAL(sent_v2(1).flags, TOKEN_V2_LAST);
  CHECK_EQUAL(sent_v2(1).sequence, sent_v2(0).sequence + 1);
  CHECK_EQUAL(sent_v2(1).prev_queued_ns, 250);
  CHECK_EQUAL(sent_word(1, 0), 1u * 2654435761u + 355u);
}

static void test_frames_do_not_change_while_the_mac_holds_them(void) {
  start(0, 0, 355);
  known_peer();
  mac_holds = true;
  for (uint32_t id = 0; id < 40; id++) {
    request_v2(id, 355);
    poll_all();
  }
  CHECK_EQUAL(sent_count, 40);
  mac_completes();
  for (uint32_t id = 0; id < 40; id++) {
    CHECK_EQUAL(sent_v2(id).request_id, id);
  }
  for (int round = 0; round < 10; round++) { /* and buffers come back */
    sent_count = 0;
    for (uint32_t id = 0; id < 40; id++) {
      request_v2(id, 355);
      poll_all();
    }
    CHECK_EQUAL(sent_count, 40);
    mac_completes();
  }
  CHECK_EQUAL(token_counters.tx_err, 0);
}

static void test_a_burst_before_arp_is_resolved_arrives_whole_and_in_order(void) {
  start(0, 0, 355);
  for (uint32_t id = 0; id < 64; id++) {
    request_v2(id, 200);
    poll_all();
  }
  CHECK_EQUAL(sent_count, 1); /* who-has */
  CHECK(!is_ip(sent[0].bytes));
  sent_count = 0;
  mac_holds = true;
  arp(2);
  CHECK_EQUAL(sent_count, 64);
  for (uint32_t id = 0; id < 64; id++) {
    CHECK_EQUAL(sent_v2(id).request_id, id);
    CHECK_EQUAL(sent_word(id, 199), id * 2654435761u + 199u);
    if (id > 0) {
      CHECK_EQUAL(sent_v2(id).prev_queued_ns, TOKEN_V2_QUEUED_UNKNOWN); /* etharp had the one before */
    }
  }
  mac_completes();
  CHECK_EQUAL(token_counters.tx_answers, 64);
}

static void test_an_unresolved_peer_costs_no_buffer_for_ever(void) {
  const uint32_t free_before = variant.transmitter->free_buffers();

  start(0, 0, 355);
  for (uint32_t id = 0; id < 10; id++) {
    request_v2(id, 4);
    poll_all();
  }
  for (int second = 0; second < 20; second++) {
    etharp_tmr();
  }
  CHECK_EQUAL(variant.transmitter->free_buffers(), free_before);
}

static void test_v1_answers_repeat_the_sequence(void) {
  uint8_t datagram[11] = {0};
  const uint8_t *answer = sent[0].bytes + UDP_PAYLOAD;
  uint16_t sequence;

  start(0, 0, 2);
  known_peer();
  put_u16(datagram + 5, 3);
  token_v1_encode(datagram, 0x3254, 6); /* begins with 'T2' and is token-v1 all the same */
  receive(datagram, sizeof(datagram));
  poll_all();
  CHECK_EQUAL(sent_count, 2);
  CHECK(token_v1_decode(answer, sent[0].length - UDP_PAYLOAD, &sequence));
  CHECK_EQUAL(sequence, 0x3254);
  CHECK_EQUAL(get_u16(answer + 2), 4);
  CHECK_EQUAL(get_u16(answer + 7), (uint16_t)(0x3254u * 2654435761u + 1u));
  CHECK_EQUAL(get_u16(sent[1].bytes + UDP_PAYLOAD + 2), 2);
  CHECK_EQUAL(token_counters.rx_requests, 1);
  CHECK_EQUAL(token_counters.tx_answers, 2);
}

static void expect_error(uint32_t id, uint32_t reason) {
  CHECK_EQUAL(sent_count, 1);
  CHECK_EQUAL(sent_v2(0).type, TOKEN_V2_ERROR);
  CHECK_EQUAL(sent_v2(0).request_id, id);
  CHECK_EQUAL(sent_word(0, 0), reason);
  sent_count = 0;
}

static void test_bad_datagrams_are_counted_and_told_only_under_a_sound_header(void) {
  uint8_t datagram[60] = {0};
  const struct token_v2_header header = {.type = TOKEN_V2_REQUEST, .request_id = 5, .payload_length = 4};

  start(0, 0, 355);
  known_peer();
  receive((const uint8_t *)"x", 1);
  receive(datagram, 60);
  token_v2_encode(&header, datagram);
  datagram[48] ^= 1; /* CRC */
  receive(datagram, 56);
  CHECK_EQUAL(sent_count, 0);
  datagram[48] ^= 1;
  receive(datagram, 60); /* four bytes more than the header says */
  expect_error(5, TOKEN_V2_ERROR_LENGTH);
  receive_v2(TOKEN_V2_REQUEST, 3, 6, 1, "\1\0\1\0", 4);
  expect_error(6, TOKEN_V2_ERROR_REQUEST);
  receive_v2(TOKEN_V2_REQUEST, 3, 7, 1, "\1\0\0\0\0", 5);
  expect_error(7, TOKEN_V2_ERROR_REQUEST);
  receive_v2(TOKEN_V2_REQUEST, 3, 8, 1, NULL, 0);
  expect_error(8, TOKEN_V2_ERROR_REQUEST);
  receive_v2(9, 0, 9, 1, NULL, 0);
  expect_error(9, TOKEN_V2_ERROR_TYPE);
  receive_v2(TOKEN_V2_SENTINEL, 0, 1, 1, NULL, 0);
  expect_error(1, TOKEN_V2_ERROR_TYPE);
  receive_v2(TOKEN_V2_ERROR, 0, 9, 1, NULL, 0); /* never answered */
  receive_v2(TOKEN_V2_ACKNOWLEDGE, 0, 9, 1, NULL, 0);
  CHECK_EQUAL(sent_count, 0);
  CHECK_EQUAL(token_counters.rx_bad, 11);
  CHECK_EQUAL(token_counters.tx_errors, 6);
  CHECK_EQUAL(token_counters.rx_requests, 0);
}

static void test_streamed_tokens_are_acknowledged(void) {
  start(0, 0, 355);
  known_peer();
  receive_v2(TOKEN_V2_ANSWER, TOKEN_V2_FIRST, 12, 3456, "\1\0\0\0", 4);
  CHECK_EQUAL(sent_count, 1);
  CHECK_EQUAL(sent_v2(0).type, TOKEN_V2_ACKNOWLEDGE);
  CHECK_EQUAL(sent_v2(0).request_id, 12);
  CHECK_EQUAL(sent_v2(0).flags, TOKEN_V2_FIRST);
  CHECK_EQUAL(sent_word(0, 0), 3456);
  CHECK_EQUAL(token_counters.tx_acks, 1);
}

static void sentinel(uint32_t id) {
  receive_v2(TOKEN_V2_SENTINEL, id == TOKEN_V2_SENTINEL_START ? TOKEN_V2_FIRST : TOKEN_V2_LAST, id, 1, NULL, 0);
}

static void test_sentinels_bound_the_measurement_and_carry_the_counters(void) {
  start(0, 0, 355);
  known_peer();
  request_v2(1, 1);
  poll_all();
  receive((const uint8_t *)"x", 1);
  sent_count = 0;
  sentinel(TOKEN_V2_SENTINEL_START);
  CHECK(token_service_measuring());
  CHECK_EQUAL(sent_count, 1);
  CHECK_EQUAL(sent_v2(0).type, TOKEN_V2_SENTINEL);
  CHECK_EQUAL(sent_v2(0).request_id, TOKEN_V2_SENTINEL_START);
  CHECK_EQUAL(sent_v2(0).flags, TOKEN_V2_FIRST);
  CHECK_EQUAL(sent_v2(0).payload_length, 32);
  const uint32_t expected[8] = {1, 1, 1, 0, 0, 0, 1, (uint32_t)(now_ns / 1000000)};

  for (unsigned i = 0; i < 8; i++) {
    CHECK_EQUAL(sent_word(0, i), expected[i]);
  }
  sentinel(TOKEN_V2_SENTINEL_END);
  CHECK(!token_service_measuring());
  CHECK_EQUAL(sent_v2(1).flags, TOKEN_V2_LAST);
}

static void test_pushes_start_with_the_start_sentinel_and_keep_the_period(void) {
  start(50, 0, 355);
  known_peer();
  CHECK(token_service_arm_push(1000, 3, 4));
  now_ns += 5000000;
  poll_all();
  CHECK_EQUAL(sent_count, 0);
  const uint64_t start_ns = now_ns;

  sentinel(TOKEN_V2_SENTINEL_START);
  now_ns += 50000;
  sentinel(TOKEN_V2_SENTINEL_START); /* repeated, its answer was lost: the first one counts */
  sent_count = 0;
  for (int i = 0; i < 6; i++) {
    now_ns += 1050000;
    poll_all();
  }
  CHECK_EQUAL(sent_count, 3);
  for (unsigned i = 0; i < 3; i++) {
    CHECK_EQUAL(sent_v2(i).type, TOKEN_V2_ANSWER);
    CHECK_EQUAL(sent_v2(i).request_id, i + 1);
    CHECK_EQUAL(sent_v2(i).t_rx_ns, start_ns + 1000000 * (i + 1));
  }
  CHECK_EQUAL(token_counters.pushes, 3);
  CHECK_EQUAL(token_counters.tx_answers, 0);
  sentinel(TOKEN_V2_SENTINEL_END);
  sentinel(TOKEN_V2_SENTINEL_START); /* not armed again */
  CHECK_EQUAL(token_service_next_ns(), CLOCK_NEVER);
  sentinel(TOKEN_V2_SENTINEL_END);
}

static void test_the_end_sentinel_ends_pushing(void) {
  start(0, 0, 355);
  known_peer();
  CHECK(token_service_arm_push(1000, 1000000, 4));
  sentinel(TOKEN_V2_SENTINEL_START);
  CHECK(!token_service_arm_push(1000, 1, 4)); /* one runs */
  now_ns += 1000000;
  poll_all();
  sentinel(TOKEN_V2_SENTINEL_END);
  sent_count = 0;
  now_ns += 100000000;
  poll_all();
  CHECK_EQUAL(sent_count, 0);
}

static void test_requests_beyond_the_queue_are_refused_and_counted(void) {
  start(1000, 0, 355);
  known_peer();
  for (uint32_t id = 0; id < NPU_QUEUE_LENGTH + 2; id++) {
    request_v2(id, 1);
  }
  CHECK_EQUAL(sent_count, 2);
  CHECK_EQUAL(sent_v2(0).type, TOKEN_V2_ERROR);
  CHECK_EQUAL(sent_v2(0).request_id, NPU_QUEUE_LENGTH);
  CHECK_EQUAL(sent_word(0, 0), TOKEN_V2_ERROR_BUSY);
  CHECK_EQUAL(token_counters.npu_overflow, 2);
  sent_count = 0;
  now_ns += 1000000000;
  poll_all();
  CHECK_EQUAL(sent_count, NPU_QUEUE_LENGTH);
}

static void test_a_datagram_that_was_not_sent_leaves_no_sequence_gap(void) {
  start(0, 0, 355);
  known_peer();
  request_v2(1, 1);
  poll_all();
  mac_refuses = true;
  request_v2(2, 1);
  poll_all();
  mac_refuses = false;
  request_v2(3, 1);
  poll_all();
  CHECK_EQUAL(sent_count, 2);
  CHECK_EQUAL(sent_v2(1).request_id, 3);
  CHECK_EQUAL(sent_v2(1).sequence, sent_v2(0).sequence + 1);
  CHECK_EQUAL(token_counters.tx_err, 1);
  CHECK_EQUAL(token_counters.tx_answers, 2);
}

static void test_telemetry_tells_what_the_wire_cannot(void) {
  start(0, 0, 355);
  known_peer();
  sentinel(TOKEN_V2_SENTINEL_START);
  receive((const uint8_t *)"\1\2\3\4\5", 5);
  sentinel(TOKEN_V2_SENTINEL_END);
  telemetry_drain();
  CHECK(strstr(console, " start id=4294967294 seq=1\nt ") != NULL);
  CHECK(strstr(console, " bad bytes=5 first=67305985\nt ") != NULL);
  CHECK(strstr(console, " end id=4294967293 seq=1\ndropped=0\n") != NULL);
}

static void test_a_full_telemetry_ring_keeps_the_newest_and_counts_the_rest(void) {
  start(0, 0, 355);
  for (uint32_t i = 0; i < 600; i++) {
    telemetry_add(TELEMETRY_BUSY, i, 0);
  }
  telemetry_drain();
  CHECK(strstr(console, " id=87\n") == NULL);
  CHECK(strstr(console, " id=88\n") != NULL);
  CHECK(strstr(console, " id=599\ndropped=88\n") != NULL);
}

#if ZERO_COPY
static void test_an_answer_waits_for_a_buffer_instead_of_being_lost(void) {
  const uint32_t buffers = variant.transmitter->free_buffers();

  start(0, 0, 355);
  known_peer();
  mac_holds = true;
  for (uint32_t id = 0; id < buffers + 5; id++) {
    request_v2(id, 1);
  }
  poll_all();
  CHECK_EQUAL(sent_count, buffers);
  CHECK_EQUAL(token_service_next_ns(), CLOCK_NEVER); /* the main loop may sleep: a completed frame wakes it */
  mac_completes();
  poll_all();
  CHECK_EQUAL(sent_count, buffers + 5);
  mac_completes();
  CHECK_EQUAL(sent_v2(buffers + 4).request_id, buffers + 4);
  CHECK_EQUAL(token_counters.buffer_waits, 1);
  CHECK_EQUAL(token_counters.tx_err, 0);
  CHECK_EQUAL(variant.transmitter->free_buffers(), buffers);
}

static void test_a_sent_datagram_is_the_buffer_it_was_written_to(void) {
  start(0, 0, 355);
  known_peer();
  mac_holds = true;
  const uint8_t *written = variant.transmitter->begin();

  request_v2(1, 8);
  poll_all();
  CHECK(sent[0].held->next == NULL);
  CHECK((const uint8_t *)sent[0].held->payload + UDP_PAYLOAD == written);
  mac_completes();
}
#endif

int main(void) {
  ip4_addr_t ip, mask, gateway;

  IP4_ADDR(&ip, 10, 77, 0, 10);
  IP4_ADDR(&mask, 255, 255, 255, 0);
  IP4_ADDR(&gateway, 0, 0, 0, 0);
  lwip_init();
  npu_init();
  CHECK(netif_add(&netif, &ip, &mask, &gateway, NULL, netif_setup, ethernet_input) != NULL);
  netif_set_up(&netif);
  CHECK(token_service_init(PORT, BOOT_ID));
  RUN(test_a_request_is_answered_when_the_npu_is_ready);
  RUN(test_a_long_answer_keeps_to_the_frame_and_counts_on);
  RUN(test_frames_do_not_change_while_the_mac_holds_them);
  RUN(test_a_burst_before_arp_is_resolved_arrives_whole_and_in_order);
  RUN(test_an_unresolved_peer_costs_no_buffer_for_ever);
  RUN(test_v1_answers_repeat_the_sequence);
  RUN(test_bad_datagrams_are_counted_and_told_only_under_a_sound_header);
  RUN(test_streamed_tokens_are_acknowledged);
  RUN(test_sentinels_bound_the_measurement_and_carry_the_counters);
  RUN(test_pushes_start_with_the_start_sentinel_and_keep_the_period);
  RUN(test_the_end_sentinel_ends_pushing);
  RUN(test_requests_beyond_the_queue_are_refused_and_counted);
  RUN(test_a_datagram_that_was_not_sent_leaves_no_sequence_gap);
  RUN(test_telemetry_tells_what_the_wire_cannot);
  RUN(test_a_full_telemetry_ring_keeps_the_newest_and_counts_the_rest);
#if ZERO_COPY
  RUN(test_an_answer_waits_for_a_buffer_instead_of_being_lost);
  RUN(test_a_sent_datagram_is_the_buffer_it_was_written_to);
#endif
  return 0;
}
