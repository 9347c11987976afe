/* See dpdk.h. */
#define _GNU_SOURCE
#include "dpdk.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mbuf_pool_ops.h>

#define BURST 256

_Static_assert(sizeof(struct mmb_mbuf) == 32, "src/dpdk/ffi.rs repeats this layout");
_Static_assert(sizeof(struct mmb_port_info) == 48, "src/dpdk/ffi.rs repeats this layout");

/* The log: the newest bytes win, since the reason of a failure is logged last. */
static char log_text[8192];
static size_t log_length;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static ssize_t log_write(void *cookie, const char *text, size_t size)
{
    size_t kept = size < sizeof(log_text) ? size : sizeof(log_text);

    (void)cookie;
    text += size - kept;
    pthread_mutex_lock(&log_lock);
    if (log_length + kept > sizeof(log_text)) {
        size_t over = log_length + kept - sizeof(log_text);
        memmove(log_text, log_text + over, log_length - over);
        log_length -= over;
    }
    memcpy(log_text + log_length, text, kept);
    log_length += kept;
    pthread_mutex_unlock(&log_lock);
    return (ssize_t)size;
}

size_t mmb_log_take(char *buffer, size_t size)
{
    size_t kept;

    pthread_mutex_lock(&log_lock);
    kept = log_length < size ? log_length : size;
    memcpy(buffer, log_text + log_length - kept, kept);
    log_length = 0;
    pthread_mutex_unlock(&log_lock);
    return kept;
}

/* What libbpf and libxdp would print, as libbpf_print_fn_t has it. */
static int bpf_print(int level, const char *format, va_list arguments)
{
    char line[512];
    int length;

    if (level != 0)
        return 0;
    length = vsnprintf(line, sizeof(line), format, arguments);
    if (length > 0)
        log_write(NULL, line, (size_t)length < sizeof(line) ? (size_t)length : sizeof(line) - 1);
    return length;
}

/* The AF_XDP driver brings libbpf and libxdp along as a plugin; they print to stderr unless told otherwise. */
static void quiet(const char *library, const char *setter)
{
    void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    void (*set)(int (*)(int, const char *, va_list));

    if (handle == NULL)
        return;
    *(void **)&set = dlsym(handle, setter);
    if (set != NULL)
        set(bpf_print);
    dlclose(handle);
}

int mmb_eal_start(int argc, char **argv)
{
    static const cookie_io_functions_t functions = { .write = log_write };
    FILE *stream = fopencookie(NULL, "w", functions);

    if (stream == NULL)
        return -errno;
    setvbuf(stream, NULL, _IOLBF, BUFSIZ);
    rte_openlog_stream(stream);
    if (rte_eal_init(argc, argv) < 0)
        return -(rte_errno != 0 ? rte_errno : EINVAL);
    quiet("libbpf.so.1", "libbpf_set_print");
    quiet("libxdp.so.1", "libxdp_set_print");
    return 0;
}

int mmb_thread_register(void)
{
    return rte_thread_register() < 0 ? -rte_errno : 0;
}

void mmb_thread_unregister(void)
{
    rte_thread_unregister();
}

void *mmb_pool_create(const char *name, uint32_t count, uint16_t data_room)
{
    /* Objects one behind the other: the AF_XDP driver computes addresses as if nothing lay between them, which
     * without huge pages holds only if an object fills its page. */
    struct rte_pktmbuf_pool_private private = { .mbuf_data_room_size = data_room };
    unsigned int size = sizeof(struct rte_mbuf) + data_room;
    struct rte_mempool *pool = rte_mempool_create_empty(name, count, size, 256, sizeof(private), SOCKET_ID_ANY,
                                                        RTE_MEMPOOL_F_NO_SPREAD);

    if (pool == NULL) {
        errno = rte_errno;
        return NULL;
    }
    rte_mempool_set_ops_byname(pool, rte_mbuf_best_mempool_ops(), NULL);
    rte_pktmbuf_pool_init(pool, &private);
    if (rte_mempool_populate_default(pool) < 0) {
        rte_mempool_free(pool);
        errno = ENOMEM;
        return NULL;
    }
    rte_mempool_obj_iter(pool, rte_pktmbuf_init, NULL);
    return pool;
}

int mmb_pool_fits_xdp(const void *pool)
{
    const struct rte_mempool *mempool = pool;
    uint32_t size = mempool->header_size + mempool->elt_size + mempool->trailer_size;

    return mempool->nb_mem_chunks == 1 && size == (uint32_t)getpagesize();
}

uint16_t mmb_pool_page_room(void)
{
    struct rte_mempool_objsz size;
    uint32_t around = rte_mempool_calc_obj_size(sizeof(struct rte_mbuf), RTE_MEMPOOL_F_NO_SPREAD, &size);

    return (uint16_t)((uint32_t)getpagesize() - around);
}

static void describe(struct rte_mbuf *raw, struct mmb_mbuf *buffer)
{
    buffer->raw = raw;
    buffer->base = raw->buf_addr;
    buffer->room = raw->buf_len;
    buffer->start = raw->data_off;
    buffer->len = raw->data_len;
    buffer->tci = raw->vlan_tci;
    buffer->flags = raw->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED ? MMB_MBUF_VLAN : 0;
    buffer->whole = raw->pkt_len;
}

int mmb_pool_alloc(void *pool, struct mmb_mbuf *buffers, uint16_t n)
{
    struct rte_mbuf *raw[BURST];

    if (n > BURST || rte_pktmbuf_alloc_bulk(pool, raw, n) != 0)
        return -ENOMEM;
    for (uint16_t i = 0; i < n; i++)
        describe(raw[i], &buffers[i]);
    return 0;
}

void mmb_mbuf_free(void *raw)
{
    rte_pktmbuf_free(raw);
}

int mmb_port_attach(const char *devargs, uint16_t *port)
{
    struct rte_dev_iterator iterator;
    uint16_t found;
    int result = rte_dev_probe(devargs);

    if (result < 0)
        return result;
    RTE_ETH_FOREACH_MATCHING_DEV(found, devargs, &iterator) {
        *port = found;
        rte_eth_iterator_cleanup(&iterator);
        return 0;
    }
    return -ENODEV;
}

static void spread_flows(struct rte_eth_conf *conf, const struct rte_eth_dev_info *info)
{
    /* Both directions of a flow hash alike with this key. */
    static uint8_t key[] = {
        0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a,
        0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a,
        0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a,
    };
    uint64_t wanted = RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP;

    conf->rx_adv_conf.rss_conf.rss_hf = wanted & info->flow_type_rss_offloads;
    if (conf->rx_adv_conf.rss_conf.rss_hf == 0)
        return;
    conf->rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
    if (info->hash_key_size == sizeof(key)) {
        conf->rx_adv_conf.rss_conf.rss_key = key;
        conf->rx_adv_conf.rss_conf.rss_key_len = sizeof(key);
    }
}

int mmb_port_setup(uint16_t port, uint16_t queues, uint16_t descriptors, uint16_t mtu, void *pool)
{
    struct rte_eth_conf conf = { .rxmode.mtu = mtu };
    struct rte_eth_dev_info info;
    uint16_t rx = descriptors, tx = descriptors;
    int socket = rte_eth_dev_socket_id(port);
    int result = rte_eth_dev_info_get(port, &info);

    if (result == 0 && queues > 1)
        spread_flows(&conf, &info);
    if (result == 0)
        result = rte_eth_dev_configure(port, queues, queues, &conf);
    if (result == 0)
        result = rte_eth_dev_adjust_nb_rx_tx_desc(port, &rx, &tx);
    for (uint16_t queue = 0; result == 0 && queue < queues; queue++) {
        result = rte_eth_rx_queue_setup(port, queue, rx, socket, NULL, pool);
        if (result == 0)
            result = rte_eth_tx_queue_setup(port, queue, tx, socket, NULL);
    }
    return result;
}

int mmb_port_start(uint16_t port)
{
    return rte_eth_dev_start(port);
}

int mmb_port_promiscuous(uint16_t port)
{
    return rte_eth_promiscuous_enable(port);
}

int mmb_port_close(uint16_t port)
{
    struct rte_eth_dev_info info;
    int result = rte_eth_dev_info_get(port, &info);

    if (result != 0)
        return result;
    rte_eth_dev_stop(port);
    result = rte_eth_dev_close(port);
    rte_dev_remove(info.device);
    return result;
}

int mmb_port_info(uint16_t port, struct mmb_port_info *out)
{
    struct rte_eth_dev_info info;
    struct rte_ether_addr mac;
    struct rte_eth_link link;
    int result = rte_eth_dev_info_get(port, &info);

    if (result != 0)
        return result;
    memset(out, 0, sizeof(*out));
    snprintf(out->driver, sizeof(out->driver), "%s", info.driver_name);
    if (rte_eth_macaddr_get(port, &mac) == 0)
        memcpy(out->mac, mac.addr_bytes, sizeof(out->mac));
    out->max_queues = RTE_MIN(info.max_rx_queues, info.max_tx_queues);
    out->max_mtu = info.max_mtu;
    rte_eth_dev_get_mtu(port, &out->mtu);
    out->link = rte_eth_link_get_nowait(port, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
    return 0;
}

int mmb_port_stats(uint16_t port, struct mmb_port_stats *out)
{
    struct rte_eth_stats stats;
    int result = rte_eth_stats_get(port, &stats);

    if (result != 0)
        return result;
    out->rx_missed = stats.imissed;
    out->rx_errors = stats.ierrors;
    out->rx_nombuf = stats.rx_nombuf;
    out->tx_errors = stats.oerrors;
    return 0;
}

uint16_t mmb_port_receive(uint16_t port, uint16_t queue, struct mmb_mbuf *buffers, uint16_t n)
{
    struct rte_mbuf *raw[BURST];
    uint16_t got = rte_eth_rx_burst(port, queue, raw, RTE_MIN(n, BURST));

    for (uint16_t i = 0; i < got; i++) {
        bool whole = raw[i]->nb_segs == 1 || rte_pktmbuf_linearize(raw[i]) == 0;

        describe(raw[i], &buffers[i]);
        if (!whole)
            buffers[i].flags |= MMB_MBUF_PARTIAL;
    }
    return got;
}

uint16_t mmb_port_send(uint16_t port, uint16_t queue, const struct mmb_mbuf *buffers, uint16_t n)
{
    struct rte_mbuf *raw[BURST];

    n = RTE_MIN(n, BURST);
    for (uint16_t i = 0; i < n; i++) {
        raw[i] = buffers[i].raw;
        raw[i]->data_off = buffers[i].start;
        raw[i]->data_len = buffers[i].len;
        raw[i]->pkt_len = buffers[i].len;
        raw[i]->ol_flags = 0;
    }
    return rte_eth_tx_burst(port, queue, raw, n);
}
