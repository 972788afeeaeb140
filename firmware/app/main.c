/* The application: brings the board up, then one loop that does what interrupts and the clock ask for, and sleeps. */
#include <stdbool.h>
#include <string.h>

#include "boot.h"
#include "clock.h"
#include "console.h"
#include "identity.h"
#include "lan9118.h"
#include "lwip/init.h"
#include "lwip/netif.h"
#include "lwip/timeouts.h"
#include "mps3_an547.h"
#include "netif/ethernet.h"
#include "npu.h"
#include "telemetry.h"
#include "token_service.h"
#include "uart.h"
#include "variant.h"

static struct netif netif;
static struct identity identity;

uint32_t platform_random(void) {
  return boot_id() ^ (uint32_t)clock_ns();
}

static err_t netif_setup(struct netif *added) {
  memcpy(added->hwaddr, identity.mac, sizeof(identity.mac));
  return lan9118_init(added);
}

static ip4_addr_t address(const uint8_t bytes[4]) {
  ip4_addr_t result;

  memcpy(&result.addr, bytes, 4); /* both are in network byte order */
  return result;
}

/* The netif follows the PHY at once; the console hears of it when nothing is being timed. */
static void follow_link(void) {
  static enum { SAID_NOTHING, SAID_DOWN, SAID_UP } said;

  if (lan9118_link_changed()) {
    const bool up = lan9118_link_up();

    if (up != (netif_is_link_up(&netif) != 0)) {
      telemetry_add(TELEMETRY_LINK, up, 0);
      if (up) {
        netif_set_link_up(&netif); /* sends a gratuitous ARP */
      } else {
        netif_set_link_down(&netif);
      }
    }
  }
  if (!token_service_measuring()) {
    const bool up = netif_is_link_up(&netif) != 0;

    if (said != (up ? SAID_UP : SAID_DOWN)) {
      said = up ? SAID_UP : SAID_DOWN;
      uart_text(up ? "link up\r\n" : "link down\r\n");
    }
  }
}

static bool network_up(void) {
  const ip4_addr_t ip = address(identity.address);
  const ip4_addr_t mask = address(identity.netmask);
  const ip4_addr_t gateway = address(identity.gateway);

  if (netif_add(&netif, &ip, &mask, &gateway, (void *)variant.hooks, netif_setup, ethernet_input) == NULL) {
    return false;
  }
  netif_set_default(&netif);
  netif_set_up(&netif);
  if (lan9118_link_up()) {
    netif_set_link_up(&netif);
  }
  follow_link();
  return token_service_init(identity.port, boot_id());
}

static void sleep_until(uint64_t when_ns) {
  clock_wake_at(when_ns);
  irq_disable();
  /* An interrupt since the last look stays pending while masked and ends the wait at once. */
  if (!lan9118_pending() && !uart_received() && clock_ns() < when_ns) {
    wait_for_interrupt();
  }
  irq_enable();
}

int main(void) {
  enum identity_state state;
  bool network;

  clock_init();
  boot_init();
  uart_init();
  npu_init();
  state = identity_parse((const uint8_t *)IDENTITY_ADDRESS, &identity);
  console_init(state, &identity);
  console_banner();
  lwip_init();
  network = state == IDENTITY_OK && network_up();
  if (network) {
    uart_text("ready\r\n");
  }
  for (;;) {
    uint64_t wake_ns = CLOCK_NEVER;

    if (network) {
      lan9118_poll(&netif);
      follow_link();
      sys_check_timeouts();
      if (token_service_poll()) {
        continue; /* there may be more, but received frames go first */
      }
      wake_ns = clock_ns() + sys_timeouts_sleeptime() * (uint64_t)1000000;
      if (token_service_next_ns() < wake_ns) {
        wake_ns = token_service_next_ns();
      }
    }
    console_poll();
    sleep_until(wake_ns);
  }
}
