/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Looking up the flow of a packet, by a program that has it as a socket buffer or as a frame of a driver (XDP). */
#ifndef MMB_LOOKUP_H
#define MMB_LOOKUP_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "flow.h"

#define ALWAYS static __attribute__((always_inline)) inline

/* Numbers of entries are set when the programs are loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct flow_key);
	__type(value, __u32);
} flow_index SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct control);
} control SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct queue);
} queues SEC(".maps");

/* A packet, as the program has it: a constant to the compiler, which leaves out what is for the other kind. */
struct frame {
	struct __sk_buff *skb; /* one of the two is 0 */
	struct xdp_md *xdp;
};

/* What was found out about a packet. */
struct found {
	__u32 ifindex;
	__u32 length;
	__u32 flow;  /* its place, or NO_FLOW: mmb gets the packet */
	__u32 epoch; /* that of the flow */
	__u16 ip;    /* offset of the IP header */
	__u16 l4;    /* offset of the transport header */
	__u8 proto;
	__u8 family;
	__u16 reserved;
};

/* Offsets in frames of drivers have this bound, for the verifier. */
#define LARGEST_OFFSET 255

ALWAYS int load(const struct frame *frame, __u32 at, void *to, __u32 length)
{
	if (frame->skb)
		return bpf_skb_load_bytes(frame->skb, at, to, length);
	void *data = (void *)(long)frame->xdp->data, *end = (void *)(long)frame->xdp->data_end;
	if (at > LARGEST_OFFSET || data + at + length > end)
		return -1;
	__builtin_memcpy(to, data + at, length);
	return 0;
}

#define LOAD(frame, at, to) load(frame, at, &(to), sizeof(to))

/* The first bytes of a transport header that flows need. */
struct l4_start {
	__u16 sport, dport;
	__u32 seq, ack_seq;
	__u16 flags; /* data offset and flags */
	__u16 window;
};

#define TCP_ENDS 0x0007 /* FIN, SYN, RST */
#define TCP_ACK 0x0010
#define ICMP_QUERY 8
#define ICMP_ANSWER 0
#define ICMP6_QUERY 128
#define ICMP6_ANSWER 129

/* The parts of a packet, as offsets in its frame. */
struct parts {
	__u32 headers; /* the end of the transport header */
	__u32 end;     /* the end of the IP packet: padding may follow */
	__u32 needs_worker; /* mmb must see it, and later packets of its flow follow it */
};

/* A ones' complement sum in 16 bits (RFC 1071). */
ALWAYS __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* Whether the checksum of an IPv4 header without options is right. */
ALWAYS int is_sound(const struct iphdr *ip)
{
	const __u32 *words = (const __u32 *)ip;

	return fold((__u64)words[0] + words[1] + words[2] + words[3] + words[4]) == 0xffff;
}

/*
 * Whether the sender left the checksum to its device: it is the sum of the pseudo header then, as few right ones are. A driver's frame comes like this
 * from a host behind a veth.
 */
ALWAYS int is_unfinished(const struct frame *frame, const struct flow_key *key, __u32 sum_at, __u32 length)
{
	__u64 sum = bpf_htons(key->proto) + (__u64)bpf_htonl(length);
	__u16 checksum;

	if (LOAD(frame, sum_at, checksum))
		return 1;
	for (int word = 0; word < 4; word++)
		sum += (__u64)key->saddr[word] + key->daddr[word];
	return checksum == fold(sum);
}

/* Reads what identifies the flow of a packet. Returns 0 for a packet that is never in a flow. */
ALWAYS int read_packet(const struct frame *frame, struct flow_key *key, struct l4_start *l4, struct found *found, struct parts *parts)
{
	__u32 end, headers, ip_at = ETH_HLEN, gso_size = frame->skb ? frame->skb->gso_size : 0;
	__u16 type;

	if (LOAD(frame, 12, type))
		return 0;
	if (frame->skb) {
		/* A tag lies beside the frame. */
		if (frame->skb->vlan_present) {
			if (frame->skb->vlan_proto != bpf_htons(ETH_P_8021Q))
				return 0;
			key->vlan = (frame->skb->vlan_tci & 0x0fff) | VLAN_PRESENT;
		}
	} else if (type == bpf_htons(ETH_P_8021Q)) {
		__u16 tag[2];
		if (LOAD(frame, ETH_HLEN, tag))
			return 0;
		key->vlan = (bpf_ntohs(tag[0]) & 0x0fff) | VLAN_PRESENT;
		type = tag[1];
		ip_at = ETH_HLEN + 4;
	}
	if (type == bpf_htons(ETH_P_IP)) {
		struct iphdr ip;
		if (LOAD(frame, ip_at, ip) || ip.version != 4 || ip.ihl != 5 || ip.frag_off & bpf_htons(0x3fff) || !is_sound(&ip))
			return 0;
		key->family = 4;
		key->proto = ip.protocol;
		key->saddr[0] = ip.saddr;
		key->daddr[0] = ip.daddr;
		found->l4 = ip_at + sizeof(ip);
		end = ip_at + bpf_ntohs(ip.tot_len);
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr ip;
		if (LOAD(frame, ip_at, ip) || ip.version != 6)
			return 0;
		key->family = 6;
		key->proto = ip.nexthdr;
		__builtin_memcpy(key->saddr, &ip.saddr, 16);
		__builtin_memcpy(key->daddr, &ip.daddr, 16);
		found->l4 = ip_at + sizeof(ip);
		end = ip_at + sizeof(ip) + bpf_ntohs(ip.payload_len);
	} else {
		return 0;
	}
	found->ip = ip_at;
	found->proto = key->proto;
	found->family = key->family;
	/* A length that does not fit, of the datagram or of what a device merged (BIG TCP), is for mmb. */
	if (end > found->length || (gso_size && end != found->length))
		return 0;
	if (key->proto == IPPROTO_TCP) {
		if (LOAD(frame, found->l4, *l4))
			return 0;
		__u16 flags = bpf_ntohs(l4->flags);
		headers = found->l4 + (flags >> 12) * 4;
		if (headers < found->l4 + 20 || headers > end)
			return 0;
		parts->needs_worker = (flags & (TCP_ENDS | TCP_ACK)) != TCP_ACK;
		if (frame->xdp)
			parts->needs_worker |= is_unfinished(frame, key, found->l4 + 16, end - found->l4);
	} else if (key->proto == IPPROTO_UDP) {
		struct udphdr udp;
		if (LOAD(frame, found->l4, udp))
			return 0;
		__u32 length = bpf_ntohs(udp.len);
		l4->sport = udp.source;
		l4->dport = udp.dest;
		headers = found->l4 + sizeof(udp);
		if (length < sizeof(udp) || found->l4 + length > end)
			return 0;
		/* read_tunnel decides about trains and tunnels. */
		parts->needs_worker = frame->xdp && is_unfinished(frame, key, found->l4 + 6, length);
	} else if ((key->proto == IPPROTO_ICMP && key->family == 4) || (key->proto == IPPROTO_ICMPV6 && key->family == 6)) {
		struct { __u8 type, code; __u16 sum, id; } icmp;
		if (LOAD(frame, found->l4, icmp) || gso_size)
			return 0;
		if (key->family == 4 ? icmp.type != ICMP_QUERY && icmp.type != ICMP_ANSWER : icmp.type != ICMP6_QUERY && icmp.type != ICMP6_ANSWER)
			return 0;
		l4->sport = bpf_htons(icmp.type << 8 | icmp.code);
		l4->dport = icmp.id;
		headers = found->l4 + 8;
		if (headers > end)
			return 0;
	} else {
		return 0;
	}
	parts->headers = headers;
	parts->end = end;
	key->sport = l4->sport;
	key->dport = l4->dport;
	key->ifindex = found->ifindex;
	return 1;
}

/* The most bytes between a UDP header and the inner IP header: GENEVE with some options, an Ethernet header, a VLAN tag. */
#define TUNNEL_GAP 96
/* Bytes of an IP header with the version and the length. */
#define IP_LENGTHS 6

/* Whether an IPv4 packet without options, or an IPv6 packet, of this length begins here. */
ALWAYS int begins_packet(const __u8 *bytes, __u32 length)
{
	__u32 length4 = bytes[2] << 8 | bytes[3], length6 = bytes[4] << 8 | bytes[5];

	return (bytes[0] == 0x45 && length4 == length) || (bytes[0] >> 4 == 6 && length6 + sizeof(struct ipv6hdr) == length);
}

/*
 * Returns the offset of the inner packet of a tunnel over UDP, or 0 if there is none. The UDP header ends at `at`. A tunnel may use any port, so the
 * inner packet is found by its own header: it ends where the datagram ends. Tunnels::to in crates/packet/src/tunnel.rs searches in the same way, but
 * further, and also accepts IP options.
 */
ALWAYS __u32 find_inner(const struct frame *frame, __u32 at, __u32 end)
{
	if (frame->skb) {
		__u8 start[TUNNEL_GAP + IP_LENGTHS] = {};
		__u32 length = end - at;
		if (end <= at)
			return 0;
		if (length > sizeof(start))
			length = sizeof(start);
		if (length < IP_LENGTHS)
			return 0;
		if (bpf_skb_load_bytes(frame->skb, at, start, length))
			return 0;
#pragma unroll
		for (__u32 gap = 0; gap <= TUNNEL_GAP; gap += 2) {
			if (begins_packet(start + gap, end - at - gap))
				return at + gap;
		}
		return 0;
	}
	void *data = (void *)(long)frame->xdp->data, *data_end = (void *)(long)frame->xdp->data_end;
	if (at > LARGEST_OFFSET - TUNNEL_GAP)
		return 0;
#pragma unroll
	for (__u32 gap = 0; gap <= TUNNEL_GAP; gap += 2) {
		const __u8 *start = data + at + gap;
		if ((void *)(start + IP_LENGTHS) > data_end)
			return 0;
		if (begins_packet(start, end - at - gap))
			return at + gap;
	}
	return 0;
}

/* The TCP segment or UDP datagram inside a tunnel. */
struct inner {
	__u32 headers;	  /* the end of its transport header, as an offset in the frame */
	__u32 unfinished; /* the sender left its checksum to the device */
};

/* Reads the inner packet of a tunnel over UDP. Returns 0 if there is no inner TCP or UDP packet. */
ALWAYS int read_inner(const struct frame *frame, __u32 at, __u32 end, struct inner *inner)
{
	__u16 checksum, offset;
	__u32 l4, sum_at;
	__u64 sum;
	__u8 version, proto;

	at = find_inner(frame, at, end);
	if (!at || LOAD(frame, at, version))
		return 0;
	if (version >> 4 == 4) {
		struct iphdr ip;
		if (LOAD(frame, at, ip) || ip.frag_off & bpf_htons(0x3fff) || !is_sound(&ip))
			return 0;
		l4 = at + sizeof(ip);
		proto = ip.protocol;
		sum = (__u64)ip.saddr + ip.daddr;
	} else {
		struct ipv6hdr ip;
		if (LOAD(frame, at, ip))
			return 0;
		l4 = at + sizeof(ip);
		proto = ip.nexthdr;
		const __u32 *words = (const __u32 *)&ip.saddr;
		sum = 0;
		for (int word = 0; word < 8; word++)
			sum += words[word];
	}
	if (proto == IPPROTO_TCP) {
		if (LOAD(frame, l4 + 12, offset))
			return 0;
		inner->headers = l4 + (bpf_ntohs(offset) >> 12) * 4;
		sum_at = l4 + 16;
	} else if (proto == IPPROTO_UDP) {
		inner->headers = l4 + sizeof(struct udphdr);
		sum_at = l4 + 6;
	} else {
		return 0;
	}
	if (inner->headers > end || LOAD(frame, sum_at, checksum))
		return 0;
	sum += bpf_htons(proto) + (__u64)bpf_htonl(end - l4);
	inner->unfinished = checksum == fold(sum);
	return 1;
}

/*
 * Reads a UDP datagram that may be a tunnel. Two kinds of packets need a worker: a train of datagrams, which only its content tells from a tunnel's
 * frame; and, with XDP or where addresses or ports are rewritten, a packet inside whose checksum the sender left to its device.
 */
ALWAYS void read_tunnel(const struct frame *frame, const struct found *found, const struct flow *flow, struct parts *parts)
{
	__u32 size = frame->skb ? frame->skb->gso_size : 0;
	struct inner inner;

	if (found->proto != IPPROTO_UDP || (frame->skb && !size && !(flow->flags & (FLOW_ADDRESSES | FLOW_PORTS))))
		return;
	if (!read_inner(frame, parts->headers, parts->end, &inner)) {
		parts->needs_worker |= size != 0;
	} else if (size) {
		parts->headers = inner.headers;
	} else {
		parts->needs_worker |= inner.unfinished;
	}
}

/* The oldest acknowledgment is at least this old, however small windows are (crates/conn/src/tcp.rs). */
#define MIN_ACK_WINDOW 66000

/*
 * Whether a segment is in the windows of both ends, and notes how far its sender has come: ConnTracker::track_ordinary in crates/conn/src/tcp.rs.
 * Other processors may do the same for other segments; numbers that are lost thereby come again with the next ones.
 */
ALWAYS int goes_on(struct flow *flow, const struct flow *peer, const struct l4_start *l4, __u32 payload)
{
	__u32 seq = bpf_ntohl(l4->seq), end = seq + payload, ack = bpf_ntohl(l4->ack_seq);
	__u32 window = bpf_ntohs(l4->window), expected = peer->ack;
	__u32 announced = peer->window << (peer->scale & 15), age;

	if (window < flow->window)
		window = flow->window;
	age = window << (flow->scale & 15);
	if (age < MIN_ACK_WINDOW)
		age = MIN_ACK_WINDOW;
	if ((__s32)(end - (flow->end - announced)) < -1 && (__s32)(end - expected) < -1)
		return 0;
	if ((__s32)(seq - expected) > (__s32)announced || peer->end - ack > age)
		return 0;
	if ((__s32)(end - flow->end) > 0)
		flow->end = end;
	if ((__s32)(ack - flow->ack) > 0)
		flow->ack = ack;
	if (window > flow->window)
		flow->window = window;
	return 1;
}

/* Notes that mmb gets a packet of a flow. */
ALWAYS void note(struct flow *flow, struct queue *queue)
{
	flow->mark = __sync_fetch_and_add(&queue->delivered, 1) + 1;
}

ALWAYS __u32 now(void)
{
	return bpf_ktime_get_coarse_ns() >> 20;
}

/* The same for one that mmb must see. The next ones go to mmb too, until it has sent it. */
ALWAYS void deliver(struct flow *flow, struct queue *queue)
{
	flow->until = now() + flow->overtake_after;
	note(flow, queue);
}

/* Whether mmb has earlier packets of a flow, which later ones must follow. */
ALWAYS int must_follow(const struct flow *flow, const struct queue *queue)
{
	return (__s32)(queue->done - flow->mark) < 0 && (__s32)(now() - flow->until) < 0;
}

/* The flow of a packet, and as how many packets of how many bytes it counts. */
struct hit {
	struct flow *flow; /* 0: mmb gets the packet */
	struct queue *queue;
	__u32 packets;
	__u32 bytes;
};

/* Looks up the flow of a packet. `found` has the packet's length and interface. */
ALWAYS void look_up(const struct frame *frame, struct found *found, struct hit *hit)
{
	struct flow_key key = {};
	struct l4_start l4 = {};
	struct parts parts = {};
	__u32 zero = 0, size = frame->skb ? frame->skb->gso_size : 0, packets = 1, bytes = found->length, longest;

	found->flow = NO_FLOW;
	hit->flow = 0;
	if (!read_packet(frame, &key, &l4, found, &parts))
		return;
	__u32 *place = bpf_map_lookup_elem(&flow_index, &key);
	if (!place)
		return;
	__u32 at = *place;
	struct flow *flow = bpf_map_lookup_elem(&flows, &at);
	struct control *in_force = bpf_map_lookup_elem(&control, &zero);
	if (!flow || !in_force || !flow->epoch || flow->epoch != in_force->epoch)
		return;
	__u32 number = flow->queue;
	struct queue *queue = bpf_map_lookup_elem(&queues, &number);
	if (!queue)
		return;
	longest = parts.end - found->ip;
	read_tunnel(frame, found, flow, &parts);
	if (size) {
		/* Not yet cut, or merged: counted as the packets that it stands for. */
		__u32 payload = parts.end - parts.headers;
		longest = parts.headers + size - found->ip;
		packets = payload > size ? (payload + size - 1) / size : 1;
		bytes = payload + packets * parts.headers;
	}
	if (parts.needs_worker || longest > flow->longest) {
		deliver(flow, queue);
		return;
	}
	if (flow->flags & FLOW_WINDOWS) {
		__u32 other = flow->peer;
		struct flow *peer = bpf_map_lookup_elem(&flows, &other);
		if (!peer || !goes_on(flow, peer, &l4, parts.end - parts.headers)) {
			deliver(flow, queue);
			return;
		}
	}
	if (must_follow(flow, queue)) {
		note(flow, queue);
		return;
	}
	found->epoch = flow->epoch;
	found->flow = at;
	hit->flow = flow;
	hit->queue = queue;
	hit->packets = packets;
	hit->bytes = bytes + (frame->skb && frame->skb->vlan_present ? packets * 4 : 0);
}

/*
 * Orders what the processor has read before against what it reads after: `barrier` orders only the compiler. A program has no other instruction for it
 * than an atomic one whose result is used (Linux 5.12).
 */
ALWAYS void full_barrier(void)
{
	__u32 word = 0, before = __sync_fetch_and_add(&word, 1);

	asm volatile("" : : "r"(before) : "memory");
}

/* Counts a packet of a flow. */
ALWAYS void count(const struct hit *hit)
{
	hit->flow->last_ns = bpf_ktime_get_coarse_ns();
	__sync_fetch_and_add(&hit->flow->packets, hit->packets);
	__sync_fetch_and_add(&hit->flow->bytes, hit->bytes);
}

#endif
