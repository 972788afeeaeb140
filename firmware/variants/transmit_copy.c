/* A scratch buffer that is copied into a PBUF_RAM for each datagram: what most examples of lwIP do. */
#include "lwip/pbuf.h"
#include "variant.h"

static uint32_t scratch[DATAGRAM_MAX / 4u];

static uint8_t *begin(void) {
  return (uint8_t *)scratch;
}

static err_t send(struct udp_pcb *pcb, uint16_t length, const ip_addr_t *to, uint16_t port) {
  struct pbuf *datagram = pbuf_alloc(PBUF_TRANSPORT, length, PBUF_RAM);
  err_t error;

  if (datagram == NULL) {
    return ERR_MEM;
  }
  error = pbuf_take(datagram, scratch, length);
  if (error == ERR_OK) {
    error = udp_sendto(pcb, datagram, to, port);
  }
  pbuf_free(datagram);
  return error;
}

static uint32_t free_buffers(void) {
  return 1;
}

const struct transmitter transmit_copy = {begin, send, free_buffers};
