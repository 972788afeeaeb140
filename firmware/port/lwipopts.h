/* lwIP 2.2.1 options: raw API without an operating system, IPv4, UDP, ICMP, ARP. */
#ifndef LWIPOPTS_H
#define LWIPOPTS_H

#define NO_SYS 1
#define SYS_LIGHTWEIGHT_PROT 0 /* lwIP runs in the main loop only; interrupts never call it */
#define LWIP_NETCONN 0
#define LWIP_SOCKET 0
#define LWIP_TCP 0
#define LWIP_RAW 0
#define LWIP_DHCP 0
#define LWIP_ACD 0
#define LWIP_IPV6 0
#define LWIP_ICMP 1
#define IP_FORWARD 0
#define IP_REASSEMBLY 0 /* no datagram of the token service is longer than a frame */
#define IP_FRAG 0
#define LWIP_NETIF_LINK_CALLBACK 0
#define LWIP_NETIF_TX_SINGLE_PBUF 0
#define LWIP_SUPPORT_CUSTOM_PBUF 1

#ifndef MEM_ALIGNMENT /* the host tests have wider pointers */
#define MEM_ALIGNMENT 4
#endif
#define ETH_PAD_SIZE 2 /* aligns the IP header; the LAN9118 skips and adds the two bytes itself */

/*
 * Bursts of 64 requests: received frames take one pool buffer each; answers wait in the heap (`copy`) or in the buffer
 * pool (`zero_copy`) while ARP is pending.
 */
#define MEM_SIZE (160 * 1024)
#define PBUF_POOL_SIZE 72
#define PBUF_POOL_BUFSIZE 1536 /* a whole frame with pad and FCS */
#define MEMP_NUM_PBUF 32
#define MEMP_NUM_UDP_PCB 4

/* A pending entry keeps a burst of answers, in order; with ARP_QUEUEING 0 only the newest would survive. */
#define ARP_QUEUEING 1
#define ARP_QUEUE_LEN 64
#define MEMP_NUM_ARP_QUEUE 64
#define ARP_TABLE_SIZE 16
#define ETHARP_SUPPORT_STATIC_ENTRIES 0

#define LWIP_CHECKSUM_ON_COPY 0
#define LWIP_CHKSUM_ALGORITHM 3 /* 32 bits at a time: the checksum costs more than the copy does */
#define LWIP_STATS 1
#define LWIP_STATS_LARGE 1
#define LWIP_STATS_DISPLAY 0
#define TCP_STATS 0

#endif
