// SPDX-License-Identifier: Apache-2.0
/*
 * Flow offload: settled flows are forwarded in the kernel.
 *
 * A packet of an interface passes two programs. `find_flow` filters what the packet socket of mmb gets: it looks up
 * the packet's flow, and keeps the packet from mmb if there is one. `forward_flow`, at tc ingress, comes right after
 * it on the same processor: it rewrites and redirects a packet that has a flow, and discards one for another host that
 * mmb has got. Without mmb there is no socket, no look-up, and `forward_flow` leaves every packet to the kernel.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
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

/* What find_flow tells forward_flow about the packet at hand. */
struct found {
	__u32 ifindex; /* 0: nothing was told */
	__u32 length;
	__u32 flow;  /* its place, or NO_FLOW: mmb has the packet */
	__u32 epoch; /* that of the flow */
	__u16 l4;   /* offset of the transport header */
	__u8 proto;
	__u8 family;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct found);
} at_hand SEC(".maps");

#define LOAD(skb, at, to) bpf_skb_load_bytes(skb, at, &(to), sizeof(to))

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
	__u32 is_for_mmb; /* mmb must see it, and later packets of its flow follow it */
};

/* Whether the checksum of an IPv4 header without options is right. */
ALWAYS int is_sound(const struct iphdr *ip)
{
	const __u32 *words = (const __u32 *)ip;
	__u64 sum = (__u64)words[0] + words[1] + words[2] + words[3] + words[4];

	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16) == 0xffff;
}

/* Reads what identifies the flow of a packet. Returns 0 for a packet that is never in a flow. */
ALWAYS int read_packet(struct __sk_buff *skb, struct flow_key *key, struct l4_start *l4, struct found *found, struct parts *parts)
{
	__u16 type;
	__u32 end, headers;

	if (LOAD(skb, 12, type))
		return 0;
	if (type == bpf_htons(ETH_P_IP)) {
		struct iphdr ip;
		if (LOAD(skb, ETH_HLEN, ip) || ip.version != 4 || ip.ihl != 5 || ip.frag_off & bpf_htons(0x3fff) || !is_sound(&ip))
			return 0;
		key->family = 4;
		key->proto = ip.protocol;
		key->saddr[0] = ip.saddr;
		key->daddr[0] = ip.daddr;
		found->l4 = ETH_HLEN + sizeof(ip);
		end = ETH_HLEN + bpf_ntohs(ip.tot_len);
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr ip;
		if (LOAD(skb, ETH_HLEN, ip) || ip.version != 6)
			return 0;
		key->family = 6;
		key->proto = ip.nexthdr;
		__builtin_memcpy(key->saddr, &ip.saddr, 16);
		__builtin_memcpy(key->daddr, &ip.daddr, 16);
		found->l4 = ETH_HLEN + sizeof(ip);
		end = ETH_HLEN + sizeof(ip) + bpf_ntohs(ip.payload_len);
	} else {
		return 0;
	}
	found->proto = key->proto;
	found->family = key->family;
	/* A length that does not fit, of the datagram or of what a device merged (BIG TCP), is for mmb. */
	if (end > skb->len || (skb->gso_size && end != skb->len))
		return 0;
	if (key->proto == IPPROTO_TCP) {
		if (LOAD(skb, found->l4, *l4))
			return 0;
		__u16 flags = bpf_ntohs(l4->flags);
		headers = found->l4 + (flags >> 12) * 4;
		if (headers < found->l4 + 20 || headers > end)
			return 0;
		parts->is_for_mmb = (flags & (TCP_ENDS | TCP_ACK)) != TCP_ACK;
	} else if (key->proto == IPPROTO_UDP) {
		struct udphdr udp;
		if (LOAD(skb, found->l4, udp))
			return 0;
		__u32 length = bpf_ntohs(udp.len);
		l4->sport = udp.source;
		l4->dport = udp.dest;
		headers = found->l4 + sizeof(udp);
		if (length < sizeof(udp) || found->l4 + length > end)
			return 0;
		/* A train of datagrams, or one frame of a tunnel that stands for several: a program cannot tell which. */
		parts->is_for_mmb = skb->gso_size != 0;
	} else if ((key->proto == IPPROTO_ICMP && key->family == 4) || (key->proto == IPPROTO_ICMPV6 && key->family == 6)) {
		struct { __u8 type, code; __u16 sum, id; } icmp;
		if (LOAD(skb, found->l4, icmp) || skb->gso_size)
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
	key->ifindex = skb->ifindex;
	if (skb->vlan_present) {
		if (skb->vlan_proto != bpf_htons(ETH_P_8021Q))
			return 0;
		key->vlan = (skb->vlan_tci & 0x0fff) | VLAN_PRESENT;
	}
	return 1;
}

/* The oldest acknowledgment is at least this old, however small windows are (crates/conn/src/tcp.rs). */
#define LEAST_ACK_WINDOW 66000

/*
 * Whether a segment is in the windows of both ends, and notes how far its sender has come: TcpTracker::goes_on in crates/conn/src/tcp.rs.
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
	if (age < LEAST_ACK_WINDOW)
		age = LEAST_ACK_WINDOW;
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
ALWAYS __u32 note(struct flow *flow, struct queue *queue)
{
	flow->mark = __sync_fetch_and_add(&queue->delivered, 1) + 1;
	return NO_FLOW;
}

ALWAYS __u32 now(void)
{
	return bpf_ktime_get_coarse_ns() >> 20;
}

/* The same for one that mmb must see. The next ones go to mmb too, until it has sent it. */
ALWAYS __u32 deliver(struct flow *flow, struct queue *queue)
{
	flow->until = now() + flow->patience;
	return note(flow, queue);
}

/* Whether mmb has earlier packets of a flow, which later ones must follow. */
ALWAYS int must_follow(const struct flow *flow, const struct queue *queue)
{
	return (__s32)(queue->done - flow->mark) < 0 && (__s32)(now() - flow->until) < 0;
}

/* Looks up the flow of a packet, and counts it. Returns NO_FLOW for a packet that mmb must see. */
ALWAYS __u32 look_up(struct __sk_buff *skb, struct found *found)
{
	struct flow_key key = {};
	struct l4_start l4 = {};
	struct parts parts = {};
	__u32 zero = 0, size = skb->gso_size, packets = 1, bytes = skb->len, longest;

	/* Sent to this interface itself: the kernel's stack gets it beside mmb. */
	if (skb->pkt_type == PACKET_HOST || !read_packet(skb, &key, &l4, found, &parts))
		return NO_FLOW;
	__u32 *place = bpf_map_lookup_elem(&flow_index, &key);
	if (!place)
		return NO_FLOW;
	__u32 at = *place;
	struct flow *flow = bpf_map_lookup_elem(&flows, &at);
	struct control *in_force = bpf_map_lookup_elem(&control, &zero);
	if (!flow || !in_force || !flow->epoch || flow->epoch != in_force->epoch)
		return NO_FLOW;
	__u32 number = flow->queue;
	struct queue *queue = bpf_map_lookup_elem(&queues, &number);
	if (!queue)
		return NO_FLOW;
	longest = parts.end - ETH_HLEN;
	if (size) {
		/* Not yet cut, or merged: counted as the packets that it stands for. */
		__u32 payload = parts.end - parts.headers;
		longest = parts.headers + size - ETH_HLEN;
		packets = payload > size ? (payload + size - 1) / size : 1;
		bytes = payload + packets * parts.headers;
	}
	if (parts.is_for_mmb || longest > flow->longest)
		return deliver(flow, queue);
	if (flow->flags & FLOW_WINDOWS) {
		__u32 other = flow->peer;
		struct flow *peer = bpf_map_lookup_elem(&flows, &other);
		if (!peer || !goes_on(flow, peer, &l4, parts.end - parts.headers))
			return deliver(flow, queue);
	}
	if (must_follow(flow, queue))
		return note(flow, queue);
	if (skb->vlan_present)
		bytes += packets * 4;
	found->epoch = flow->epoch;
	flow->last_ns = bpf_ktime_get_coarse_ns();
	__sync_fetch_and_add(&flow->packets, packets);
	__sync_fetch_and_add(&flow->bytes, bytes);
	return at;
}

SEC("socket")
int find_flow(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct found *found = bpf_map_lookup_elem(&at_hand, &zero);

	if (!found)
		return -1;
	found->flow = look_up(skb, found);
	found->length = skb->len;
	found->ifindex = skb->ifindex;
	/* The bytes that the socket gets. */
	return found->flow == NO_FLOW ? -1 : 0;
}

#define IP_SUM (ETH_HLEN + 10)
#define IP_SADDR (ETH_HLEN + 12)
#define IP6_SADDR (ETH_HLEN + 8)

/* Rewrites a packet, with its checksums. Returns 0 if that failed. */
ALWAYS int rewrite(struct __sk_buff *skb, const struct found *found, const struct flow *flow)
{
	int sum_at = found->proto == IPPROTO_TCP ? found->l4 + 16 : found->l4 + 6;
	__u64 zero_means_none = found->proto == IPPROTO_UDP ? BPF_F_MARK_MANGLED_0 : 0;
	__u16 flags = flow->flags;

	if (flags & FLOW_ADDRESSES) {
		if (found->family == 4) {
			__u32 before[2], after[2] = { flow->saddr[0], flow->daddr[0] };
			if (LOAD(skb, IP_SADDR, before))
				return 0;
			__s64 change = bpf_csum_diff(before, sizeof(before), after, sizeof(after), 0);
			if (bpf_l4_csum_replace(skb, sum_at, 0, change, BPF_F_PSEUDO_HDR | zero_means_none) ||
			    bpf_l3_csum_replace(skb, IP_SUM, 0, change, 0) ||
			    bpf_skb_store_bytes(skb, IP_SADDR, after, sizeof(after), 0))
				return 0;
		} else {
			__u32 before[8], after[8];
			if (LOAD(skb, IP6_SADDR, before))
				return 0;
			__builtin_memcpy(after, flow->saddr, 16);
			__builtin_memcpy(after + 4, flow->daddr, 16);
			__s64 change = bpf_csum_diff(before, sizeof(before), after, sizeof(after), 0);
			if (bpf_l4_csum_replace(skb, sum_at, 0, change, BPF_F_PSEUDO_HDR | zero_means_none))
				return 0;
			/*
			 * The call takes the change out of a sum that the device made of the whole packet (CHECKSUM_COMPLETE), as is right for IPv4, whose
			 * header has a checksum too. In an IPv6 packet the addresses and the one checksum cancel: it is put back. Fails without such a sum.
			 */
			bpf_csum_update(skb, change);
			if (bpf_skb_store_bytes(skb, IP6_SADDR, after, sizeof(after), 0))
				return 0;
		}
	}
	if (flags & FLOW_PORTS) {
		__u32 before, after = (__u32)flow->dport << 16 | flow->sport;
		if (LOAD(skb, found->l4, before) || bpf_l4_csum_replace(skb, sum_at, before, after, 4 | zero_means_none) ||
		    bpf_skb_store_bytes(skb, found->l4, &after, sizeof(after), 0))
			return 0;
	}
	if (flags & (FLOW_TTL | FLOW_TRAFFIC_CLASS | FLOW_LABEL)) {
		__u32 before, after;
		if (found->family == 4) {
			__u8 head[12];
			if (LOAD(skb, ETH_HLEN, head))
				return 0;
			if (flags & FLOW_TTL) {
				__u16 old = *(__u16 *)(head + 8);
				head[8] = flow->ttl;
				if (bpf_l3_csum_replace(skb, IP_SUM, old, *(__u16 *)(head + 8), 2) ||
				    bpf_skb_store_bytes(skb, ETH_HLEN + 8, head + 8, 1, 0))
					return 0;
			}
			if (flags & FLOW_TRAFFIC_CLASS) {
				__u16 old = *(__u16 *)head;
				head[1] = (head[1] & ~flow->traffic_mask) | flow->traffic_class;
				if (bpf_l3_csum_replace(skb, IP_SUM, old, *(__u16 *)head, 2) ||
				    bpf_skb_store_bytes(skb, ETH_HLEN + 1, head + 1, 1, 0))
					return 0;
			}
		} else {
			if (LOAD(skb, ETH_HLEN, before))
				return 0;
			after = bpf_ntohl(before);
			if (flags & FLOW_TRAFFIC_CLASS)
				after = (after & ~((__u32)flow->traffic_mask << 20)) | (__u32)flow->traffic_class << 20;
			if (flags & FLOW_LABEL)
				after = (after & ~0xfffff) | flow->label;
			after = bpf_htonl(after);
			if (after != before && bpf_skb_store_bytes(skb, ETH_HLEN, &after, sizeof(after), BPF_F_RECOMPUTE_CSUM))
				return 0;
			if (flags & FLOW_TTL && bpf_skb_store_bytes(skb, ETH_HLEN + 7, &flow->ttl, 1, BPF_F_RECOMPUTE_CSUM))
				return 0;
		}
	}
	return 1;
}

SEC("classifier")
int forward_flow(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct found *told = bpf_map_lookup_elem(&at_hand, &zero);

	if (!told)
		return TC_ACT_UNSPEC;
	struct found found = *told;
	told->ifindex = 0;
	if (found.ifindex != skb->ifindex || found.length != skb->len)
		return TC_ACT_UNSPEC;
	/* mmb has it. The kernel's stack would drop what is sent to another host, and gets what is sent to this one, or to all. */
	if (found.flow == NO_FLOW)
		return skb->pkt_type == PACKET_OTHERHOST ? TC_ACT_SHOT : TC_ACT_UNSPEC;
	struct flow *place = bpf_map_lookup_elem(&flows, &found.flow);
	if (!place)
		return TC_ACT_SHOT;
	struct flow flow = *place;
	/* It may have ended since, and another one may be about to be written to its place. */
	barrier();
	if (flow.epoch != found.epoch || *(volatile __u32 *)&place->epoch != found.epoch || flow.flags & FLOW_DROP)
		return TC_ACT_SHOT;
	if (flow.flags & FLOW_WRITES && !rewrite(skb, &found, &flow))
		return TC_ACT_SHOT;
	return bpf_redirect(flow.egress, 0);
}

char LICENSE[] SEC("license") = "Apache-2.0";
