// SPDX-License-Identifier: Apache-2.0
/*
 * Flow offload: settled flows are forwarded in the kernel.
 *
 * A packet of an interface passes two programs. `find_flow` filters what the packet socket of mmb gets: it looks up
 * the packet's flow, and keeps the packet from mmb if there is one. `forward_flow`, at tc ingress, comes right after
 * it on the same processor: it rewrites and redirects a packet that has a flow, and discards one for another host that
 * mmb has got. Without mmb there is no socket, no look-up, and `forward_flow` leaves every packet to the kernel.
 */
#include <linux/if_packet.h>
#include <linux/pkt_cls.h>
#include "lookup.h"

/* What find_flow tells forward_flow about the packet at hand. An ifindex of 0: nothing. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct found);
} last_lookup SEC(".maps");

SEC("socket")
int find_flow(struct __sk_buff *skb)
{
	struct frame frame = { .skb = skb };
	__u32 zero = 0;
	struct found *last = bpf_map_lookup_elem(&last_lookup, &zero);
	struct found found = { .flow = NO_FLOW, .length = skb->len, .ifindex = skb->ifindex };

	if (!last)
		return -1;
	/* What is sent to this interface itself, or to many, the kernel's stack gets beside mmb. */
	if (skb->pkt_type == PACKET_OTHERHOST) {
		struct hit hit;
		look_up(&frame, &found, &hit);
		if (hit.flow)
			count(&hit);
	}
	*last = found;
	/* The bytes that the socket gets. */
	return found.flow == NO_FLOW ? -1 : 0;
}

#define IP_SUM (ETH_HLEN + 10)
#define IP_SADDR (ETH_HLEN + 12)
#define IP6_SADDR (ETH_HLEN + 8)

/* Rewrites a packet, with its checksums. Returns 0 if that failed. */
ALWAYS int rewrite(struct __sk_buff *skb, const struct found *found, const struct flow *flow)
{
	/* ICMP has its checksum elsewhere: flows of it have neither addresses nor ports to write. */
	int sum_at = found->proto == IPPROTO_TCP ? found->l4 + 16 : found->l4 + 6;
	__u64 zero_means_none = found->proto == IPPROTO_UDP ? BPF_F_MARK_MANGLED_0 : 0;
	__u16 flags = flow->flags;

	if (flags & FLOW_ADDRESSES) {
		if (found->family == 4) {
			__u32 before[2], after[2] = { flow->saddr[0], flow->daddr[0] };
			if (bpf_skb_load_bytes(skb, IP_SADDR, before, sizeof(before)))
				return 0;
			__s64 change = bpf_csum_diff(before, sizeof(before), after, sizeof(after), 0);
			if (bpf_l4_csum_replace(skb, sum_at, 0, change, BPF_F_PSEUDO_HDR | zero_means_none) ||
			    bpf_l3_csum_replace(skb, IP_SUM, 0, change, 0) ||
			    bpf_skb_store_bytes(skb, IP_SADDR, after, sizeof(after), 0))
				return 0;
		} else {
			__u32 before[8], after[8];
			if (bpf_skb_load_bytes(skb, IP6_SADDR, before, sizeof(before)))
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
		if (bpf_skb_load_bytes(skb, found->l4, &before, sizeof(before)) || bpf_l4_csum_replace(skb, sum_at, before, after, 4 | zero_means_none) ||
		    bpf_skb_store_bytes(skb, found->l4, &after, sizeof(after), 0))
			return 0;
	}
	if (flags & (FLOW_TTL | FLOW_TRAFFIC_CLASS | FLOW_LABEL)) {
		__u32 before, after;
		if (found->family == 4) {
			__u8 head[12];
			if (bpf_skb_load_bytes(skb, ETH_HLEN, head, sizeof(head)))
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
			if (bpf_skb_load_bytes(skb, ETH_HLEN, &before, sizeof(before)))
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
	struct found *last = bpf_map_lookup_elem(&last_lookup, &zero);

	if (!last)
		return TC_ACT_UNSPEC;
	struct found found = *last;
	last->ifindex = 0;
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
	full_barrier();
	if (flow.epoch != found.epoch || *(volatile __u32 *)&place->epoch != found.epoch || flow.flags & FLOW_DROP)
		return TC_ACT_SHOT;
	if (flow.flags & FLOW_WRITES && !rewrite(skb, &found, &flow))
		return TC_ACT_SHOT;
	return bpf_redirect(flow.egress, 0);
}

char LICENSE[] SEC("license") = "Apache-2.0";
