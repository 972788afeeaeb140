/*
 * SMSC LAN9118 (datasheet revision 1.5): sections 3.12 and 3.13 (transmit and receive data path), 5.3 (system
 * registers), 5.4 (MAC registers), 5.5 (PHY registers).
 *
 * The MAC has no DMA: frames pass through FIFO windows of eight words, so that ldm and stm move eight words at once.
 */
#include "lan9118.h"

#include <string.h>

#include "clock.h"
#include "lwip/etharp.h"
#include "lwip/stats.h"
#include "mps3_an547.h"
#include "netif/ethernet.h"
#include "tx_ring.h"

#define RX_FIFO_PORT (LAN9118_BASE + 0x00u) /* 0x00..0x1C are one port */
#define TX_FIFO_PORT (LAN9118_BASE + 0x20u) /* 0x20..0x3C are one port */
#define RX_STATUS REG32(LAN9118_BASE + 0x40u)
#define TX_STATUS REG32(LAN9118_BASE + 0x48u)
#define IRQ_CFG REG32(LAN9118_BASE + 0x54u)
#define INT_STS REG32(LAN9118_BASE + 0x58u)
#define INT_EN REG32(LAN9118_BASE + 0x5Cu)
#define FIFO_INT REG32(LAN9118_BASE + 0x68u)
#define RX_CFG REG32(LAN9118_BASE + 0x6Cu)
#define TX_CFG REG32(LAN9118_BASE + 0x70u)
#define HW_CFG REG32(LAN9118_BASE + 0x74u)
#define RX_DP_CTRL REG32(LAN9118_BASE + 0x78u)
#define RX_FIFO_INF REG32(LAN9118_BASE + 0x7Cu)
#define TX_FIFO_INF REG32(LAN9118_BASE + 0x80u)
#define MAC_CSR_CMD REG32(LAN9118_BASE + 0xA4u)
#define MAC_CSR_DATA REG32(LAN9118_BASE + 0xA8u)

#define IRQ_CFG_ENABLE_PUSH_PULL_HIGH 0x00000111u
#define INT_PHY (1u << 18)
#define INT_TSFL (1u << 7)
#define INT_RSFL (1u << 3)
#define FIFO_INT_TDFA_LEVEL_MAX 0x48000000u /* TX status and RX status levels 0: interrupt from the first entry */
#define RX_CFG_DATA_OFFSET(bytes) ((uint32_t)(bytes) << 8)
#define TX_CFG_TXSAO (1u << 2)
#define TX_CFG_TX_ON (1u << 1)
#define HW_CFG_MUST_BE_ONE (1u << 20)
#define HW_CFG_TX_FIFO_KIB(kib) ((uint32_t)(kib) << 16)
#define HW_CFG_SRST (1u << 0)
#define RX_DP_CTRL_FFWD (1u << 31)
#define RX_STATUS_ERROR (1u << 15)
#define RX_STATUS_LENGTH(status) ((status) >> 16 & 0x3FFFu)
#define TX_STATUS_ERROR (1u << 15)
#define TX_STATUS_TAG(status) ((status) >> 16)
#define FIFO_INF_STATUS_USED(inf) ((inf) >> 16 & 0xFFu)
#define FIFO_INF_TX_DATA_FREE(inf) ((inf)&0xFFFFu)

#define TX_CMD_A_OFFSET(bytes) ((uint32_t)(bytes) << 16)
#define TX_CMD_A_FIRST (1u << 13)
#define TX_CMD_A_LAST (1u << 12)
#define TX_CMD_B_TAG(tag) ((uint32_t)(tag) << 16)

#define MAC_CSR_BUSY (1u << 31)
#define MAC_CSR_READ (1u << 30)
#define MAC_CR 1u
#define MAC_CR_FULL_DUPLEX (1u << 20)
#define MAC_CR_TXEN (1u << 3)
#define MAC_CR_RXEN (1u << 2)
#define MAC_ADDRH 2u
#define MAC_ADDRL 3u
#define MAC_MII_ACC 6u
#define MAC_MII_DATA 7u
#define MII_ACC_PHY_INTERNAL (1u << 11)
#define MII_ACC_REGISTER(reg) ((uint32_t)(reg) << 6)
#define MII_ACC_WRITE (1u << 1)
#define MII_ACC_BUSY (1u << 0)
#define PHY_BSR 1u
#define PHY_BSR_LINK (1u << 2)
#define PHY_INT_SOURCE 29u
#define PHY_INT_MASK 30u
#define PHY_INT_AUTONEGOTIATED (1u << 6)
#define PHY_INT_LINK_DOWN (1u << 4)

#define FCS_LENGTH 4u
#define FRAME_MAX 1518u /* with FCS */

struct lan9118_counters lan9118_counters;
uint64_t lan9118_ip_queued_ns;

static struct tx_ring ring;
static const struct lan9118_hooks *hooks;
static volatile bool interrupted;
static bool phy_event;

static uint32_t mac_read(uint32_t reg) {
  MAC_CSR_CMD = MAC_CSR_BUSY | MAC_CSR_READ | reg;
  while ((MAC_CSR_CMD & MAC_CSR_BUSY) != 0) {
  }
  return MAC_CSR_DATA;
}

static void mac_write(uint32_t reg, uint32_t value) {
  MAC_CSR_DATA = value;
  MAC_CSR_CMD = MAC_CSR_BUSY | reg;
  while ((MAC_CSR_CMD & MAC_CSR_BUSY) != 0) {
  }
}

static uint16_t phy_read(uint32_t reg) {
  mac_write(MAC_MII_ACC, MII_ACC_PHY_INTERNAL | MII_ACC_REGISTER(reg) | MII_ACC_BUSY);
  while ((mac_read(MAC_MII_ACC) & MII_ACC_BUSY) != 0) {
  }
  return (uint16_t)mac_read(MAC_MII_DATA);
}

static void phy_write(uint32_t reg, uint16_t value) {
  mac_write(MAC_MII_DATA, value);
  mac_write(MAC_MII_ACC, MII_ACC_PHY_INTERNAL | MII_ACC_REGISTER(reg) | MII_ACC_WRITE | MII_ACC_BUSY);
  while ((mac_read(MAC_MII_ACC) & MII_ACC_BUSY) != 0) {
  }
}

/* The eight registers move to or from the window's eight addresses, which are one port. */
static void fifo_write(const uint32_t *words, uint32_t count) {
  for (; count >= 8; count -= 8) {
    __asm volatile(
        "ldmia %0!, {r3-r6, r8-r10, r12}\n\t"
        "stmia %1, {r3-r6, r8-r10, r12}"
        : "+r"(words)
        : "r"(TX_FIFO_PORT)
        : "r3", "r4", "r5", "r6", "r8", "r9", "r10", "r12", "memory");
  }
  while (count-- > 0) {
    REG32(TX_FIFO_PORT) = *words++;
  }
}

static void fifo_read(uint32_t *words, uint32_t count) {
  for (; count >= 8; count -= 8) {
    __asm volatile(
        "ldmia %1, {r3-r6, r8-r10, r12}\n\t"
        "stmia %0!, {r3-r6, r8-r10, r12}"
        : "+r"(words)
        : "r"(RX_FIFO_PORT)
        : "r3", "r4", "r5", "r6", "r8", "r9", "r10", "r12", "memory");
  }
  while (count-- > 0) {
    *words++ = REG32(RX_FIFO_PORT);
  }
}

/* Words that a segment takes in the FIFO beside its two command words. */
static uint32_t segment_words(const struct pbuf *segment, uint32_t skip) {
  const uintptr_t start = (uintptr_t)segment->payload + skip;

  return ((start % 4u) + (segment->len - skip) + 3u) / 4u;
}

/* Writes one frame as one buffer per pbuf, each from its own alignment (section 3.12.2, data start offset). */
static void transmit(const struct pbuf *frame, uint16_t tag) {
  const uint32_t frame_length = frame->tot_len - ETH_PAD_SIZE;
  uint32_t skip = ETH_PAD_SIZE;
  uint32_t flags = TX_CMD_A_FIRST;

  for (const struct pbuf *segment = frame; segment != NULL; segment = segment->next) {
    const uintptr_t start = (uintptr_t)segment->payload + skip;

    if (segment->next == NULL) {
      flags |= TX_CMD_A_LAST;
    }
    REG32(TX_FIFO_PORT) = TX_CMD_A_OFFSET(start % 4u) | flags | (segment->len - skip);
    REG32(TX_FIFO_PORT) = TX_CMD_B_TAG(tag) | frame_length;
    fifo_write((const uint32_t *)(start & ~(uintptr_t)3), segment_words(segment, skip));
    skip = 0;
    flags = 0;
  }
}

static bool fits(const struct pbuf *frame) {
  uint32_t words = segment_words(frame, ETH_PAD_SIZE) + 2u;

  for (const struct pbuf *segment = frame->next; segment != NULL; segment = segment->next) {
    words += segment_words(segment, 0) + 2u;
  }
  return words * 4u <= FIFO_INF_TX_DATA_FREE(TX_FIFO_INF);
}

static void kick(void) {
  const struct pbuf *frame;

  while ((frame = tx_ring_next(&ring)) != NULL && fits(frame)) {
    transmit(frame, tx_ring_tag(&ring));
    tx_ring_kick(&ring);
  }
}

static void complete(void) {
  while (FIFO_INF_STATUS_USED(TX_FIFO_INF) > 0) {
    const uint32_t status = TX_STATUS;
    struct pbuf *frame = tx_ring_complete(&ring, TX_STATUS_TAG(status));

    if ((status & TX_STATUS_ERROR) != 0 || frame == NULL) {
      lan9118_counters.tx_errors++;
    } else {
      lan9118_counters.tx_frames++;
    }
    if (frame != NULL && (hooks == NULL || hooks->after_complete == NULL || hooks->after_complete(frame))) {
      pbuf_free(frame);
    }
  }
}

static bool is_ip(const struct pbuf *frame) {
  const struct eth_hdr *header = frame->payload;

  return header->type == PP_HTONS(ETHTYPE_IP);
}

static err_t link_output(struct netif *netif, struct pbuf *frame) {
  (void)netif;
  if (hooks != NULL && hooks->before_queue != NULL && !hooks->before_queue(frame)) {
    return ERR_OK;
  }
  if (tx_ring_used(&ring) == TX_RING_LENGTH) {
    complete();
  }
  if (!tx_ring_queue(&ring, frame)) {
    lan9118_counters.tx_ring_full++;
    LINK_STATS_INC(link.drop);
    return ERR_MEM;
  }
  pbuf_ref(frame); /* until complete() */
  if (is_ip(frame)) { /* not the ARP request that may precede a datagram */
    lan9118_counters.tx_ip_queued++;
    lan9118_ip_queued_ns = clock_ns();
  }
  LINK_STATS_INC(link.xmit);
  if (hooks == NULL || hooks->before_kick == NULL || hooks->before_kick()) {
    kick();
  }
  return ERR_OK;
}

static struct pbuf *receive(void) {
  const uint32_t status = RX_STATUS;
  const uint32_t length = RX_STATUS_LENGTH(status);
  const uint32_t words = (ETH_PAD_SIZE + length + 3u) / 4u;
  struct pbuf *frame = NULL;

  if ((status & RX_STATUS_ERROR) != 0 || length <= FCS_LENGTH || length > FRAME_MAX) {
    lan9118_counters.rx_errors++;
  } else {
    frame = pbuf_alloc(PBUF_RAW, (u16_t)(ETH_PAD_SIZE + length), PBUF_POOL);
    if (frame == NULL) {
      lan9118_counters.rx_no_buffer++;
      LINK_STATS_INC(link.memerr);
    }
  }
  if (frame == NULL) {
    RX_DP_CTRL = RX_DP_CTRL_FFWD; /* section 3.13.1.1: needs at least four words, which every frame has */
    while ((RX_DP_CTRL & RX_DP_CTRL_FFWD) != 0) {
    }
    return NULL;
  }
  fifo_read(frame->payload, words); /* PBUF_POOL_BUFSIZE holds any frame in one aligned buffer */
  pbuf_realloc(frame, (u16_t)(ETH_PAD_SIZE + length - FCS_LENGTH));
  lan9118_counters.rx_frames++;
  LINK_STATS_INC(link.recv);
  return frame;
}

void lan9118_irq_handler(void) {
  INT_EN = 0; /* lan9118_poll() unmasks */
  interrupted = true;
}

bool lan9118_pending(void) {
  return interrupted;
}

void lan9118_poll(struct netif *netif) {
  if (!interrupted) {
    return;
  }
  interrupted = false;
  const uint32_t sources = INT_STS;

  INT_STS = sources; /* before the FIFOs are looked at: what arrives later raises it again */
  if ((sources & INT_PHY) != 0) {
    (void)phy_read(PHY_INT_SOURCE);
    phy_event = true;
  }
  complete();
  kick();
  while (FIFO_INF_STATUS_USED(RX_FIFO_INF) > 0) {
    struct pbuf *frame = receive();

    if (frame != NULL && netif->input(frame, netif) != ERR_OK) {
      pbuf_free(frame);
    }
    complete();
    kick();
  }
  INT_EN = INT_RSFL | INT_TSFL | INT_PHY;
}

bool lan9118_link_up(void) {
  (void)phy_read(PHY_BSR); /* the link bit latches low */
  return (phy_read(PHY_BSR) & PHY_BSR_LINK) != 0;
}

bool lan9118_link_changed(void) {
  const bool changed = phy_event;

  phy_event = false;
  return changed;
}

uint32_t lan9118_tx_high_water(void) {
  return ring.high_water;
}

err_t lan9118_init(struct netif *netif) {
  const uint8_t *mac = netif->hwaddr;

  hooks = netif->state;
  netif->name[0] = 'e';
  netif->name[1] = 'n';
  netif->mtu = 1500;
  netif->hwaddr_len = ETH_HWADDR_LEN;
  netif->flags = NETIF_FLAG_BROADCAST | NETIF_FLAG_ETHARP | NETIF_FLAG_ETHERNET;
  netif->output = etharp_output;
  netif->linkoutput = link_output;

  HW_CFG = HW_CFG_SRST;
  while ((HW_CFG & HW_CFG_SRST) != 0) {
  }
  HW_CFG = HW_CFG_MUST_BE_ONE | HW_CFG_TX_FIFO_KIB(4); /* of 16 KiB; the larger rest receives */
  IRQ_CFG = IRQ_CFG_ENABLE_PUSH_PULL_HIGH;
  FIFO_INT = FIFO_INT_TDFA_LEVEL_MAX;
  RX_CFG = RX_CFG_DATA_OFFSET(ETH_PAD_SIZE);
  TX_CFG = TX_CFG_TXSAO | TX_CFG_TX_ON;
  mac_write(MAC_ADDRH, mac[4] | (uint32_t)mac[5] << 8);
  mac_write(MAC_ADDRL, mac[0] | (uint32_t)mac[1] << 8 | (uint32_t)mac[2] << 16 | (uint32_t)mac[3] << 24);
  mac_write(MAC_CR, MAC_CR_FULL_DUPLEX | MAC_CR_TXEN | MAC_CR_RXEN);
  (void)phy_read(PHY_INT_SOURCE);
  phy_write(PHY_INT_MASK, PHY_INT_AUTONEGOTIATED | PHY_INT_LINK_DOWN);
  INT_STS = 0xFFFFFFFFu;
  INT_EN = INT_RSFL | INT_TSFL | INT_PHY;
  NVIC_ISER(IRQ_ETHERNET) = NVIC_BIT(IRQ_ETHERNET);
  return ERR_OK;
}
