/*
 * A ring of events in RAM, printed on request after the traffic. Datagrams carry their own stamps; the ring holds what
 * the wire cannot show. When it is full the oldest event goes and is counted.
 */
#ifndef TELEMETRY_H
#define TELEMETRY_H

#include <stdint.h>

enum telemetry_event {
  TELEMETRY_START,     /* id= request id of the sentinel, seq= its sequence */
  TELEMETRY_END,       /* same */
  TELEMETRY_LINK,      /* up= */
  TELEMETRY_BAD,       /* bytes= of a datagram that was refused, first= its first four bytes */
  TELEMETRY_BUSY,      /* id= of a request that the NPU's queue had no place for */
  TELEMETRY_TX_ERR,    /* id= of a datagram that lwIP did not take, err= lwIP's error, positive */
  TELEMETRY_NO_BUFFER, /* id= of an answer that had to wait for a transmit buffer, free= buffers */
  TELEMETRY_ARP_WAIT,  /* id= of an answer that lwIP holds until ARP is answered */
};

void telemetry_add(enum telemetry_event event, uint32_t a, uint32_t b);
/* Prints and removes all events, then the number of events lost since the last call. */
void telemetry_drain(void);

#endif
