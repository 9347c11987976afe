// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/*
 * Flow offload in the driver (XDP): a packet that has a flow is rewritten and redirected before the kernel makes a socket buffer of it. Every other
 * frame goes to the AF_XDP socket of its queue, which mmb reads.
 *
 * The program uses the maps that flow.bpf.c has made. Each interface has a copy of its own, with the map of its sockets; a veth's begins
 * with instructions that put VLAN tags into the frames (src/xdp/tags.rs).
 */
#include "lookup.h"

/* The sockets of the interface, by queue. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

/* The interfaces to which frames may be redirected (NDO_XMIT), by number. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} egress SEC(".maps");

/* The sum of words without those before a change, and with those after it. */
ALWAYS __u64 changed(__u64 sum, __u32 before, __u32 after)
{
	return sum + (__u32)~before + after;
}

/* Applies a change to a checksum (RFC 1624, equation 3). */
ALWAYS void apply(__u16 *checksum, __u64 change)
{
	*checksum = ~fold((__u16)~*checksum + change);
}

/* Rewrites a packet in its frame, with its checksums. Returns 0 if that failed. */
ALWAYS int rewrite(struct xdp_md *xdp, const struct found *found, const struct flow *flow)
{
	void *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	__u32 ip_at = found->ip, l4_at = found->l4;
	__u64 change = 0;

	if (ip_at > LARGEST_OFFSET || l4_at > LARGEST_OFFSET)
		return 0;
	if (found->family == 4) {
		struct iphdr *ip = data + ip_at;
		if ((void *)(ip + 1) > end)
			return 0;
		if (flow->flags & FLOW_ADDRESSES) {
			change = changed(changed(change, ip->saddr, flow->saddr[0]), ip->daddr, flow->daddr[0]);
			ip->saddr = flow->saddr[0];
			ip->daddr = flow->daddr[0];
		}
		if (flow->flags & FLOW_TTL)
			ip->ttl = flow->ttl;
		if (flow->flags & FLOW_TRAFFIC_CLASS)
			ip->tos = (ip->tos & ~flow->traffic_mask) | flow->traffic_class;
		ip->check = 0;
		const __u32 *words = (const __u32 *)ip;
		ip->check = ~fold((__u64)words[0] + words[1] + words[2] + words[3] + words[4]);
	} else {
		struct ipv6hdr *ip = data + ip_at;
		if ((void *)(ip + 1) > end)
			return 0;
		if (flow->flags & FLOW_ADDRESSES) {
			__u32 *saddr = (__u32 *)&ip->saddr, *daddr = (__u32 *)&ip->daddr;
			for (int word = 0; word < 4; word++) {
				change = changed(changed(change, saddr[word], flow->saddr[word]), daddr[word], flow->daddr[word]);
				saddr[word] = flow->saddr[word];
				daddr[word] = flow->daddr[word];
			}
		}
		if (flow->flags & FLOW_TTL)
			ip->hop_limit = flow->ttl;
		__u32 first = bpf_ntohl(*(__u32 *)ip);
		if (flow->flags & FLOW_TRAFFIC_CLASS)
			first = (first & ~((__u32)flow->traffic_mask << 20)) | (__u32)flow->traffic_class << 20;
		if (flow->flags & FLOW_LABEL)
			first = (first & ~0xfffff) | flow->label;
		*(__u32 *)ip = bpf_htonl(first);
	}
	if (found->proto != IPPROTO_TCP && found->proto != IPPROTO_UDP)
		return 1;
	if (data + l4_at + sizeof(struct udphdr) > end)
		return 0;
	__u32 *ports = data + l4_at;
	if (flow->flags & FLOW_PORTS) {
		__u32 after = (__u32)flow->dport << 16 | flow->sport;
		change = changed(change, *ports, after);
		*ports = after;
	}
	if (!change)
		return 1;
	if (found->proto == IPPROTO_UDP) {
		struct udphdr *udp = data + l4_at;
		if (udp->check) {
			apply(&udp->check, change);
			/* 0 would mean that there is none (RFC 768). */
			if (!udp->check)
				udp->check = 0xffff;
		}
	} else {
		struct tcphdr *tcp = data + l4_at;
		if ((void *)(tcp + 1) > end)
			return 0;
		apply(&tcp->check, change);
	}
	return 1;
}

SEC("xdp")
int forward_frame(struct xdp_md *xdp)
{
	struct frame frame = { .xdp = xdp };
	struct found found = { .length = xdp->data_end - xdp->data, .ifindex = xdp->ingress_ifindex };
	struct hit hit;

	look_up(&frame, &found, &hit);
	if (!hit.flow)
		return bpf_redirect_map(&sockets, xdp->rx_queue_index, XDP_PASS);
	struct flow flow = *hit.flow;
	/* It may have ended since, and another one may be about to be written to its place. */
	full_barrier();
	if (flow.epoch != found.epoch || *(volatile __u32 *)&hit.flow->epoch != found.epoch)
		return bpf_redirect_map(&sockets, xdp->rx_queue_index, XDP_PASS);
	if (!(flow.flags & FLOW_DROP) && bpf_redirect_map(&egress, flow.egress, XDP_PASS) != XDP_REDIRECT) {
		deliver(hit.flow, hit.queue);
		return bpf_redirect_map(&sockets, xdp->rx_queue_index, XDP_PASS);
	}
	count(&hit);
	if (flow.flags & FLOW_DROP)
		return XDP_DROP;
	if (flow.flags & FLOW_WRITES && !rewrite(xdp, &found, &flow))
		return XDP_DROP;
	return XDP_REDIRECT;
}

/* The kernel lets programs call its functions, as a veth's does, only under a licence that is compatible with its own. */
char LICENSE[] SEC("license") = "GPL v2";
