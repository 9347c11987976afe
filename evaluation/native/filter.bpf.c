// The simplest firewall in XDP: a packet whose five-tuple is in the map is counted there and dropped, any other goes on to the kernel,
// which routes it.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct tuple {
    __be32 source, destination;
    __be16 source_port, destination_port;
    __u8 protocol, unused[3];
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1 << 20);
    __type(key, struct tuple);
    __type(value, __u64);
} rules SEC(".maps");

SEC("xdp")
int filter(struct xdp_md *context) {
    void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
    struct ethhdr *link = data;
    struct iphdr *ip = (void *)(link + 1);
    if ((void *)(ip + 1) > end || link->h_proto != bpf_htons(ETH_P_IP) || ip->ihl < 5) return XDP_PASS;
    if (ip->protocol != IPPROTO_TCP && ip->protocol != IPPROTO_UDP) return XDP_PASS;
    __be16 *ports = (void *)ip + 4 * ip->ihl;
    if ((void *)(ports + 2) > end) return XDP_PASS;
    struct tuple tuple = {ip->saddr, ip->daddr, ports[0], ports[1], ip->protocol};
    __u64 *dropped = bpf_map_lookup_elem(&rules, &tuple);
    if (!dropped) return XDP_PASS;
    __sync_fetch_and_add(dropped, 1);
    return XDP_DROP;
}

char terms[] SEC("license") = "GPL";
