/*
 * A pool of buffers that go to the MAC as they are. Each is a custom pbuf with the payload behind it and room for the
 * headers in between, so that lwIP prepends them in place: no second pbuf, no copy, also while ARP is pending (the type
 * is PBUF_RAM, which etharp queues by reference; PBUF_REF would be copied there, and has no header room at all).
 *
 * A buffer returns to the pool when the last reference goes: the driver's after the MAC has sent, or etharp's when it
 * gives up. Only then may it be written again.
 */
#include "lwip/pbuf.h"
#include "variant.h"

#define BUFFERS 80u /* a burst of 64 answers that waits for ARP, and some in the driver's ring */
#define HEADER_ROOM LWIP_MEM_ALIGN_SIZE(PBUF_TRANSPORT)

struct buffer {
  struct pbuf_custom pbuf; /* first: the free function gets a pointer to it */
  struct buffer *next;
  uint32_t room[(HEADER_ROOM + DATAGRAM_MAX) / 4u];
};

static struct buffer buffers[BUFFERS];
static struct buffer *free_list;
static uint32_t never_used = BUFFERS; /* buffers that have not been in the list yet */
static uint32_t free_count = BUFFERS;

static void give_back(struct pbuf *pbuf) {
  struct buffer *buffer = (struct buffer *)pbuf;

  buffer->next = free_list;
  free_list = buffer;
  free_count++;
}

static uint8_t *begin(void) {
  if (free_list == NULL && never_used > 0) {
    free_list = &buffers[--never_used];
    free_list->next = NULL;
  }
  return free_list == NULL ? NULL : (uint8_t *)free_list->room + HEADER_ROOM;
}

static err_t send(struct udp_pcb *pcb, uint16_t length, const ip_addr_t *to, uint16_t port) {
  struct buffer *buffer = free_list;
  struct pbuf *datagram;
  err_t error;

  free_list = buffer->next;
  free_count--;
  buffer->pbuf.custom_free_function = give_back;
  datagram = pbuf_alloced_custom(PBUF_TRANSPORT, length, PBUF_RAM, &buffer->pbuf, buffer->room, sizeof(buffer->room));
  LWIP_ASSERT("a datagram fits its buffer", datagram != NULL);
  error = udp_sendto(pcb, datagram, to, port);
  pbuf_free(datagram);
  return error;
}

static uint32_t free_buffers(void) {
  return free_count;
}

const struct transmitter transmit_zero_copy = {begin, send, free_buffers};
