/* Console. See console.h. */
#include "console.h"

#include <stdbool.h>
#include <stddef.h>

#include "boot.h"
#include "command.h"
#include "lan9118.h"
#include "lwip/init.h"
#include "lwip/memp.h"
#include "lwip/stats.h"
#include "npu.h"
#include "telemetry.h"
#include "token_service.h"
#include "uart.h"
#include "variant.h"

static enum identity_state identity_state;
static const struct identity *identity;
static char line[COMMAND_LENGTH_MAX + 1];
static unsigned used;
static bool too_long;

void console_init(enum identity_state state, const struct identity *block) {
  identity_state = state;
  identity = block;
}

static void print_mac(const uint8_t mac[6]) {
  for (unsigned i = 0; i < 6; i++) {
    if (i > 0) {
      uart_text(":");
    }
    uart_hex(mac[i], 2);
  }
}

static void print_address(const uint8_t address[4]) {
  for (unsigned i = 0; i < 4; i++) {
    if (i > 0) {
      uart_text(".");
    }
    uart_decimal(address[i]);
  }
}

void console_banner(void) {
  static const char *const states[] = {
      [IDENTITY_OK] = "ok", [IDENTITY_MISSING] = "missing", [IDENTITY_CORRUPT] = "corrupt"};
  static const char *const causes[] = {[BOOT_COLD] = "cold", [BOOT_PIN] = "pin", [BOOT_SOFTWARE] = "software"};
  const uint8_t *build_id = boot_build_id();

  uart_text("rig-fw variant=");
  uart_text(variant.name);
  uart_text(" build=");
  for (unsigned i = 0; i < BUILD_ID_LENGTH; i++) {
    uart_hex(build_id[i], 2);
  }
  uart_text(" boot_id=");
  uart_hex(boot_id(), 8);
  uart_text(" reset=");
  uart_text(causes[boot_cause()]);
  uart_text(" identity=");
  uart_text(states[identity_state]);
  if (identity_state == IDENTITY_OK) {
    uart_text(" name=");
    uart_text(identity->name);
    uart_text(" mac=");
    print_mac(identity->mac);
    uart_text(" ip=");
    print_address(identity->address);
    uart_field("port", identity->port);
  } else {
    uart_text(" name=- mac=- ip=- port=0");
  }
  uart_text(" lwip=" LWIP_VERSION_STRING " npu=");
  uart_text(npu_name());
  uart_end_line();
}

static void print_ok(void) {
  uart_text("ok\r\n");
}

static void print_error(const char *sentence) {
  uart_text("error: ");
  uart_text(sentence);
  uart_end_line();
}

static void print_counter(const char *name, uint32_t value) {
  uart_text("counter ");
  uart_text(name);
  uart_text("=");
  uart_decimal(value);
  uart_end_line();
}

static void command_npu(const char *words) {
  const struct npu_settings now = npu_settings();
  struct command_field fields[] = {
      {"first_us", now.first_us, false}, {"token_us", now.token_us, false}, {"chunk", now.chunk, false}};

  if (!command_fields(words, fields, 3)) {
    print_error("npu takes first_us=N token_us=N chunk=N.");
    return;
  }
  const struct npu_settings wanted = {fields[0].value, fields[1].value, (uint16_t)fields[2].value};

  if (fields[2].value > UINT16_MAX || !npu_configure(&wanted)) {
    print_error("chunk must be 1 to 355, first_us and token_us at most 60000000.");
    return;
  }
  print_ok();
}

static void command_push(const char *words) {
  struct command_field fields[] = {{"every_us", 0, false}, {"count", 0, false}, {"tokens", 0, false}};

  if (!command_fields(words, fields, 3) || !fields[0].given || !fields[1].given || !fields[2].given) {
    print_error("push takes every_us=N count=N tokens=N.");
  } else if (fields[2].value > UINT16_MAX ||
             !token_service_arm_push(fields[0].value, fields[1].value, (uint16_t)fields[2].value)) {
    print_error("every_us must be at least 10, count at least 1, tokens at most 65535, and no push may be running.");
  } else {
    print_ok();
  }
}

static void command_counters(void) {
  const struct {
    const char *name;
    uint32_t value;
  } counters[] = {
      {"rx_requests", token_counters.rx_requests},
      {"rx_bad", token_counters.rx_bad},
      {"rx_stream", token_counters.rx_stream},
      {"rx_sentinels", token_counters.rx_sentinels},
      {"tx_answers", token_counters.tx_answers},
      {"tx_acks", token_counters.tx_acks},
      {"tx_sentinels", token_counters.tx_sentinels},
      {"tx_errors", token_counters.tx_errors},
      {"pushes", token_counters.pushes},
      {"tx_err", token_counters.tx_err},
      {"npu_overflow", token_counters.npu_overflow},
      {"npu_high_water", npu_high_water()},
      {"buffer_waits", token_counters.buffer_waits},
      {"free_buffers", variant.transmitter->free_buffers()},
      {"mac_rx_frames", lan9118_counters.rx_frames},
      {"mac_rx_errors", lan9118_counters.rx_errors},
      {"mac_rx_no_buffer", lan9118_counters.rx_no_buffer},
      {"mac_tx_frames", lan9118_counters.tx_frames},
      {"mac_tx_errors", lan9118_counters.tx_errors},
      {"mac_tx_ring_full", lan9118_counters.tx_ring_full},
      {"mac_tx_ring_high_water", lan9118_tx_high_water()},
      {"arp_drop", lwip_stats.etharp.drop},
      {"arp_memerr", lwip_stats.etharp.memerr},
      {"ip_drop", lwip_stats.ip.drop},
      {"icmp_recv", lwip_stats.icmp.recv},
      {"udp_recv", lwip_stats.udp.recv},
      {"udp_xmit", lwip_stats.udp.xmit},
      {"udp_drop", lwip_stats.udp.drop},
      {"udp_chkerr", lwip_stats.udp.chkerr},
      {"heap_max", (uint32_t)lwip_stats.mem.max},
      {"heap_err", (uint32_t)lwip_stats.mem.err},
      {"rx_pool_max", (uint32_t)lwip_stats.memp[MEMP_PBUF_POOL]->max},
      {"rx_pool_err", (uint32_t)lwip_stats.memp[MEMP_PBUF_POOL]->err},
      {"arp_queue_err", (uint32_t)lwip_stats.memp[MEMP_ARP_QUEUE]->err},
  };

  for (unsigned i = 0; i < sizeof(counters) / sizeof(counters[0]); i++) {
    print_counter(counters[i].name, counters[i].value);
  }
  print_ok();
}

static void execute(void) {
  const char *words;

  if (command_is(line, "info", &words) && *words == '\0') {
    console_banner();
    print_ok();
  } else if (command_is(line, "npu", &words)) {
    command_npu(words);
  } else if (command_is(line, "push", &words)) {
    command_push(words);
  } else if (command_is(line, "counters", &words) && *words == '\0') {
    command_counters();
  } else if (command_is(line, "telemetry", &words) && *words == '\0') {
    telemetry_drain();
    print_ok();
  } else {
    print_error("unknown command; there are info, npu, push, counters, telemetry.");
  }
}

static void end_line(void) {
  if (too_long) {
    print_error("the line is longer than 120 characters.");
  } else if (used > 0) {
    line[used] = '\0';
    execute();
  }
  used = 0;
  too_long = false;
}

void console_poll(void) {
  char character;

  while (uart_receive(&character)) {
    if (character == '\n' || character == '\r') {
      end_line();
    } else if (used < COMMAND_LENGTH_MAX) {
      line[used++] = character;
    } else {
      too_long = true;
    }
  }
}
