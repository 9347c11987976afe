// blast: sends small UDP frames on an interface as fast as it can, over many flows, until it is stopped.
//
// blast INTERFACE DESTINATION_MAC SOURCE_MAC SOURCE_IP DESTINATION_IP FLOWS FRAME_BYTES [there|back]
//
// Frames are made before the first is sent: flow N has source port 1024 + N and destination port 9. Checksums are whole. They leave
// through a packet socket without a queueing discipline, 64 to a system call. SIGTERM or SIGINT ends it; it then prints how many
// frames the kernel took and how many it refused.
//
// `there` sends one frame of each flow, so slowly that none needs to wait, and ends; `back` sends the answers, with the ports exchanged.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/ether.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BATCH = 64, MOST_FLOWS = 60000, LARGEST = 1514, FIRST_PORT = 1024, DISCARD = 9, PAUSE_US = 2000 };

static volatile sig_atomic_t ending;

static void end(int number) {
    (void)number;
    ending = 1;
}

static void die(const char *what) {
    fprintf(stderr, "blast: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint32_t sum(const void *data, size_t length) {
    const uint8_t *bytes = data;
    uint32_t total = 0;
    for (size_t i = 0; i < length; i++) total += i % 2 ? bytes[i] : (uint32_t)bytes[i] << 8;
    return total;
}

static uint16_t folded(uint32_t total) {
    while (total >> 16) total = (total & 0xffff) + (total >> 16);
    return htons((uint16_t)~total);
}

static void make(uint8_t *frame, size_t size, uint8_t *const macs[2], const uint32_t ends[2], int flow, int back) {
    struct iphdr ip = {.version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_UDP, .saddr = ends[0], .daddr = ends[1]};
    size_t datagram = size - ETH_HLEN - sizeof ip;
    ip.tot_len = htons((uint16_t)(size - ETH_HLEN));
    ip.check = folded(sum(&ip, sizeof ip));
    uint16_t near = htons((uint16_t)(FIRST_PORT + flow)), far = htons(DISCARD);
    struct udphdr udp = {.source = back ? far : near, .dest = back ? near : far, .len = htons((uint16_t)datagram)};
    // The payload is zeros and adds nothing; the pseudo-header is addresses, protocol and length.
    uint16_t check = folded(sum(&udp, sizeof udp) + sum(ends, 8) + IPPROTO_UDP + (uint32_t)datagram);
    udp.check = check ? check : 0xffff;
    memset(frame, 0, size);
    memcpy(frame, macs[0], ETH_ALEN);
    memcpy(frame + ETH_ALEN, macs[1], ETH_ALEN);
    frame[12] = ETH_P_IP >> 8;
    memcpy(frame + ETH_HLEN, &ip, sizeof ip);
    memcpy(frame + ETH_HLEN + sizeof ip, &udp, sizeof udp);
}

static int opened(const char *interface) {
    int made = socket(AF_PACKET, SOCK_RAW, 0);
    if (made < 0) die("socket");
    struct sockaddr_ll there = {.sll_family = AF_PACKET, .sll_ifindex = (int)if_nametoindex(interface)};
    if (there.sll_ifindex == 0 || bind(made, (struct sockaddr *)&there, sizeof there) < 0) die(interface);
    int on = 1;
    if (setsockopt(made, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof on) < 0) die("PACKET_QDISC_BYPASS");
    return made;
}

static uint8_t *mac(const char *text) {
    uint8_t *made = malloc(ETH_ALEN);
    struct ether_addr *read = ether_aton(text);
    if (!made || !read) {
        errno = EINVAL;
        die(text);
    }
    return memcpy(made, read, ETH_ALEN);
}

int main(int argc, char **argv) {
    int once = argc == 9, back = once && !strcmp(argv[8], "back");
    if (argc != 8 && !(once && (back || !strcmp(argv[8], "there")))) {
        fprintf(stderr, "usage: blast INTERFACE DESTINATION_MAC SOURCE_MAC SOURCE_IP DESTINATION_IP FLOWS FRAME_BYTES [there|back]\n");
        return 2;
    }
    uint8_t *macs[2] = {mac(argv[2]), mac(argv[3])};
    uint32_t ends[2] = {inet_addr(argv[4]), inet_addr(argv[5])};
    int flows = atoi(argv[6]), size = atoi(argv[7]);
    errno = EINVAL;
    if (flows < 1 || flows > MOST_FLOWS || size < 60 || size > LARGEST) die("FLOWS or FRAME_BYTES");
    uint8_t *frames = calloc((size_t)flows, (size_t)size);
    struct iovec *parts = calloc((size_t)flows, sizeof *parts);
    struct mmsghdr *messages = calloc((size_t)flows + BATCH, sizeof *messages);
    if (!frames || !parts || !messages) die("memory");
    for (int i = 0; i < flows + BATCH; i++) {
        int flow = i % flows;
        parts[flow] = (struct iovec){.iov_base = frames + (size_t)flow * (size_t)size, .iov_len = (size_t)size};
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &parts[flow], .msg_iovlen = 1};
        make(parts[flow].iov_base, (size_t)size, macs, ends, flow, back);
    }
    int out = opened(argv[1]);
    signal(SIGTERM, end);
    signal(SIGINT, end);
    unsigned long long sent = 0, refused = 0;
    for (int next = 0, left = flows; !ending && left > 0;) {
        int taken = sendmmsg(out, messages + next, once && left < BATCH ? (unsigned)left : BATCH, 0);
        if (taken < 0 && errno != ENOBUFS && errno != EAGAIN && errno != EINTR) die("sendmmsg");
        // A full queue behind the interface refuses one frame at a time: go on with the one after it.
        if (taken <= 0) refused++;
        else sent += (unsigned)taken;
        next = (next + (taken > 0 ? taken : 1)) % flows;
        if (once) {
            left -= taken > 0 ? taken : 1;
            usleep(PAUSE_US);
        }
    }
    printf("{\"sent\": %llu, \"refused\": %llu}\n", sent, refused);
    return 0;
}
