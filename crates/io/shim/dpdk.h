/*
 * What mmb needs of DPDK, as plain functions over plain structures.
 *
 * Purpose: DPDK's hot paths are inline functions over structures whose layout changes between releases. This shim is
 * compiled against the headers that are installed, so that the Rust side knows only what is declared here
 * (src/dpdk/ffi.rs repeats it) and no generated bindings are needed.
 *
 * Errors: functions that return int give 0 or a negated errno value. What DPDK logs is kept, not printed;
 * mmb_log_take() hands it over.
 *
 * Threads: receive and send may be called by one thread a queue at a time; everything else by the thread that
 * started the environment.
 */
#ifndef MMB_DPDK_H
#define MMB_DPDK_H

#include <stddef.h>
#include <stdint.h>

/* The driver took a VLAN tag out of the frame; it is in tci. */
#define MMB_MBUF_VLAN 1u
/* The frame lies in several buffers and fits in none: only its first part can be looked at. */
#define MMB_MBUF_PARTIAL 2u

/* One packet buffer: base[0..room) is its memory, the frame is base[start..start+len), and was whole bytes long as it
 * came in. */
struct mmb_mbuf {
    void *raw;
    uint8_t *base;
    uint16_t room;
    uint16_t start;
    uint16_t len;
    uint16_t tci;
    uint32_t flags;
    uint32_t whole;
};

struct mmb_port_info {
    char driver[32];
    uint8_t mac[6];
    uint16_t max_queues;
    uint32_t max_mtu;
    uint16_t mtu;
    uint8_t link;
};

struct mmb_port_stats {
    uint64_t rx_missed;
    uint64_t rx_errors;
    uint64_t rx_nombuf;
    uint64_t tx_errors;
};

/* Starts the environment; argv as documented for any DPDK program. */
int mmb_eal_start(int argc, char **argv);

/* Copies what was logged since the last call into buffer, as one string, and returns its length. */
size_t mmb_log_take(char *buffer, size_t size);

/* Makes the calling thread known to DPDK, which gives it caches of its own. */
int mmb_thread_register(void);
void mmb_thread_unregister(void);

/* A pool of count buffers of data_room bytes; NULL and errno where it cannot be had. */
void *mmb_pool_create(const char *name, uint32_t count, uint16_t data_room);
/* The data_room with which a buffer and all around it fill a page. */
uint16_t mmb_pool_page_room(void);
/* The pool's memory is one piece, and its buffers fill a page each: what the AF_XDP driver relies on. */
int mmb_pool_fits_xdp(const void *pool);
/* All n buffers, or none and -ENOMEM. */
int mmb_pool_alloc(void *pool, struct mmb_mbuf *buffers, uint16_t n);
void mmb_mbuf_free(void *raw);

/* Adds a device ("net_af_xdp0,iface=eth0", "0000:01:00.0") and says which port it became. */
int mmb_port_attach(const char *devargs, uint16_t *port);
/* One port more with receive and send queues in pairs. */
int mmb_port_setup(uint16_t port, uint16_t queues, uint16_t descriptors, uint16_t mtu, void *pool);
int mmb_port_start(uint16_t port);
int mmb_port_promiscuous(uint16_t port);
/* Stops, closes and removes the port. */
int mmb_port_close(uint16_t port);
int mmb_port_info(uint16_t port, struct mmb_port_info *info);
int mmb_port_stats(uint16_t port, struct mmb_port_stats *stats);

uint16_t mmb_port_receive(uint16_t port, uint16_t queue, struct mmb_mbuf *buffers, uint16_t n);
/* Returns how many of the n were taken; the others still belong to the caller. */
uint16_t mmb_port_send(uint16_t port, uint16_t queue, const struct mmb_mbuf *buffers, uint16_t n);

#endif
