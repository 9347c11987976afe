/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The layout that the BPF programs and crates/io/src/flows share. Both sides assert it. */
#ifndef MMB_FLOW_H
#define MMB_FLOW_H

#include <linux/types.h>

/* What identifies the packets of a flow. Addresses and ports are as in the packet. */
struct flow_key {
	__u32 ifindex; /* the ingress interface */
	__u16 vlan;    /* VLAN id with VLAN_PRESENT, 0 for an untagged packet */
	__u8 family;   /* 4 or 6 */
	__u8 proto;
	__u32 saddr[4]; /* the last three words are 0 for IPv4 */
	__u32 daddr[4];
	__u16 sport; /* type and code of an ICMP query, whose identifier is in dport */
	__u16 dport;
};

#define VLAN_PRESENT 0x1000

/* Bits of flow.flags: what becomes of packets. */
#define FLOW_DROP 1	    /* packets are dropped */
#define FLOW_ADDRESSES 2    /* saddr and daddr are written */
#define FLOW_PORTS 4	    /* sport and dport are written */
#define FLOW_TTL 8	    /* TTL or hop limit */
#define FLOW_TRAFFIC_CLASS 16 /* bits of the traffic class: traffic_mask, traffic_class */
#define FLOW_LABEL 32	    /* the flow label of IPv6 */
#define FLOW_WINDOWS 64	    /* TCP windows are checked, by the numbers of both directions */
#define FLOW_WRITES 0x3e

/* No flow, or no flow of the other direction. */
#define NO_FLOW 0xffffffff

/* One flow: what becomes of its packets, and what has become of them. */
struct flow {
	__u32 epoch;  /* that of the policy by which it was decided; 0: not in use */
	__u32 egress; /* interface number */
	__u16 flags;
	__u16 longest; /* the longest IP packet that may leave, in bytes */
	__u8 ttl;
	__u8 traffic_class;
	__u8 traffic_mask;
	__u8 scale; /* TCP: the shift of the sender's windows */
	__u32 saddr[4];
	__u32 daddr[4];
	__u16 sport;
	__u16 dport;
	__u32 reserved[3];
	/* The second cache line: what the programs write, and what only few packets need. */
	__u64 packets; /* those that a frame stands for are counted one by one */
	__u64 bytes;
	__u64 last_ns; /* CLOCK_MONOTONIC, to some milliseconds */
	__u32 end;     /* TCP: the highest number after a segment */
	__u32 ack;     /* TCP: the highest acknowledgment */
	__u32 window;  /* TCP: the largest window, not scaled */
	/* Not written by the programs. */
	__u32 peer;  /* TCP: the flow of the other direction */
	__u32 label; /* flow label, as a number */
	__u32 queue; /* that of the socket which gets its other packets */
	/* Written by the programs, and set when the flow is installed. */
	__u32 mark; /* as many packets had been delivered to its queue with the last one of this flow */
	__u32 until; /* when its packets pass even if mmb has earlier ones: units of 2^20 ns */
	/* Not written by the programs. */
	__u32 overtake_after; /* so long at most packets go to mmb because it has earlier ones: the same units */
	__u32 reserved2;
};

_Static_assert(sizeof(struct flow_key) == 44 && sizeof(struct flow) == 128 && __builtin_offsetof(struct flow, packets) == 64,
	       "crates/io/src/flows lays it out in the same way");

/*
 * The packets of flows that a socket gets. Packets of a flow stay in order: after one that mmb gets, the next ones go there too, until mmb has sent
 * it.
 */
struct queue {
	__u32 delivered; /* packets of flows, by the programs */
	__u32 done;	 /* of these, so many have been sent */
	__u32 reserved[14];
};

/* What user space tells all programs. */
struct control {
	__u32 epoch; /* flows of another epoch are not used */
	__u32 reserved;
};

_Static_assert(sizeof(struct queue) == 64 && sizeof(struct control) == 8, "crates/io/src/flows/table.rs has the same sizes");

#endif
