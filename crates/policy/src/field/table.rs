//! The table of fields: the only place where a field is described.
//!
//! The parser, the checker, the printer, completion, help, the masks of the classifier, the edits of the
//! rewriter and the reference page are all made from [`FIELDS`]. To add a field, add a row;
//! CONTRIBUTING.md lists the other places.

use super::columns::{
    BareMeaning, FieldGroup, FieldPlace, Implies, MappedPart, Payload, StatefulUses, ValueKind, Writable,
    ones,
};
use crate::names::{
    CT_STATES, DSCP, ECN, ETH_TYPES, FAMILIES, HEX, ICMP_TYPES, ICMP6_TYPES, IP_FLAGS, NEXT_HEADERS, NONE,
    PROTOCOLS, SERVICES, TCP_FLAGS, ValueNames,
};
use crate::stream_part::StreamPart;
use mmb_packet::key::{self, eh};

/// One row of the table.
#[derive(Debug)]
pub struct FieldInfo {
    /// The identifier of the field.
    pub id: FieldId,
    /// Its name in the language.
    pub name: &'static str,
    /// Its group in the reference.
    pub group: FieldGroup,
    /// Its place in packets.
    pub place: FieldPlace,
    /// The packets that naming it implies.
    pub implies: Implies,
    /// The kind of its values.
    pub values: ValueKind,
    /// Its meaning without a value.
    pub alone: BareMeaning,
    /// The way in which `mod` writes it.
    pub writable: Writable,
    /// The stateful targets that take it.
    pub bindings: StatefulUses,
    /// Names of values, and how values are printed.
    pub names: ValueNames,
    /// One line of help, with the unit.
    pub help: &'static str,
}

const fn meta(byte: usize, width: u8) -> FieldPlace {
    FieldPlace::Key { bit: byte as u16 * 8, width }
}
const fn ip(bit: u16, width: u8) -> FieldPlace {
    FieldPlace::Key { bit: key::IP as u16 * 8 + bit, width }
}
const fn l4(bit: u16, width: u8) -> FieldPlace {
    FieldPlace::Key { bit: key::L4 as u16 * 8 + bit, width }
}
/// The single bit `mask` of the key's big-endian word of extension headers.
const fn eh_bit(mask: u16) -> FieldPlace {
    FieldPlace::Key { bit: key::EH as u16 * 8 + mask.leading_zeros() as u16, width: 1 }
}

const NO_BINDING: StatefulUses = StatefulUses { part: None, map: false, shuffle: false, lb: false };
const fn map(part: MappedPart) -> StatefulUses {
    StatefulUses { part: Some(part), map: true, ..NO_BINDING }
}
const fn shuffle(part: MappedPart) -> StatefulUses {
    StatefulUses { part: Some(part), shuffle: true, ..NO_BINDING }
}
const fn map_shuffle(part: MappedPart) -> StatefulUses {
    StatefulUses { shuffle: true, ..map(part) }
}
const fn map_lb(part: MappedPart) -> StatefulUses {
    StatefulUses { lb: true, ..map(part) }
}
const fn map_shuffle_lb(part: MappedPart) -> StatefulUses {
    StatefulUses { lb: true, ..map_shuffle(part) }
}

const PORT_RO: Writable = Writable::No("the port a packet uses is decided by the wiring");
const ECN_RO: Writable = Writable::No("write ip-ecn instead");
const SNI_RO: Writable = Writable::No("TLS protects its handshake, and another name would break it");
const HTTP_RO: Writable =
    Writable::No("name the part that changes, such as `http-header \"Server\"` or `http-body`");
const METHOD_RO: Writable = Writable::No("a request keeps its method");
const STATUS_RO: Writable = Writable::No("a response keeps its status");
const EH_RO: Writable = Writable::No("extension headers are matched, not written");

macro_rules! fields {
    ($($id:ident $name:literal $group:ident $place:expr, $implies:ident, $values:expr, $alone:expr, $writable:expr,
       $bindings:expr, $names:expr, $help:literal;)*) => {
        /// Every field, in the order of the reference.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum FieldId {
            $(#[doc = $help] $id,)*
        }

        /// The table, indexed by [`FieldId`].
        pub static FIELDS: &[FieldInfo] = &[
            $(FieldInfo {
                id: FieldId::$id,
                name: $name,
                group: FieldGroup::$group,
                place: $place,
                implies: Implies::$implies,
                values: $values,
                alone: $alone,
                writable: $writable,
                bindings: $bindings,
                names: $names,
                help: $help,
            },)*
        ];
    };
}

use BareMeaning::{Equals, Optional, Protocol};
use MappedPart::{
    AckNumber, DestinationAddress, DestinationPort, FlowLabel, SequenceNumber, SourceAddress, SourcePort,
};
use ValueKind::{
    Bytes, Header, Ip4 as Ip4Value, Ip6 as Ip6Value, Method, Nothing, Number, OptionData, Pattern,
    Port as PortValue, ServerName, State,
};
use Writable::{InPlace, Raw};

fields! {
    In "in" Port meta(key::IN_PORT, 16), Frame, PortValue, Protocol, PORT_RO, NO_BINDING, NONE,
        "name of the port that the packet came in by";
    Out "out" Port meta(key::OUT_PORT, 16), Frame, PortValue, Protocol, PORT_RO, NO_BINDING, NONE,
        "name of the port that the packet leaves by";
    Ct "ct" Connection FieldPlace::Connection, Ip, State, Protocol,
        Writable::No("connection tracking determines the state of a packet"), NO_BINDING, CT_STATES,
        "state of the packet in connection tracking";
    EthType "eth-type" Link meta(key::ETH_TYPE, 16), Frame, Number, Protocol,
        Writable::No("a frame keeps its ether type"), NO_BINDING, ETH_TYPES,
        "ether type behind all VLAN tags; the only field that matches frames which are not IP";
    VlanId "vlan-id" Link FieldPlace::Key { bit: key::VLAN as u16 * 8 + 4, width: 12 }, Frame, Number, Optional,
        InPlace, NO_BINDING, NONE,
        "VLAN id of the outermost 802.1Q or 802.1ad tag, 0-4095; alone: the frame is tagged";

    NetProto "net-proto" Ip meta(key::FAMILY, 8), Ip, Number, Protocol,
        Writable::No("a packet keeps its IP version"), NO_BINDING, FAMILIES, "network protocol: ip4 or ip6";
    IpProto "ip-proto" Ip meta(key::PROTO, 8), Ip, Number, Protocol, InPlace, NO_BINDING, PROTOCOLS,
        "IP protocol; on IPv6 the upper-layer protocol behind all extension headers";

    IpVer "ip-ver" Ip4 ip(0, 4), Ip4, Number, Protocol, Raw, NO_BINDING, NONE, "IPv4 version";
    IpIhl "ip-ihl" Ip4 ip(4, 4), Ip4, Number, Protocol, Raw, NO_BINDING, NONE, "IPv4 header length in 4-byte words";
    IpDscp "ip-dscp" Ip4 ip(8, 6), Ip4, Number, Protocol, InPlace, NO_BINDING, DSCP,
        "differentiated services codepoint, 0-63";
    IpEcn "ip-ecn" Ip4 ip(14, 2), Ip4, Number, Protocol, InPlace, NO_BINDING, ECN,
        "explicit congestion notification, 0-3";
    IpNonEct "ip-non-ect" Ip4 ip(14, 2), Ip4, Nothing, Equals(0), ECN_RO, NO_BINDING, NONE, "ECN codepoint 0: Not-ECT";
    IpEct0 "ip-ect0" Ip4 ip(14, 2), Ip4, Nothing, Equals(2), ECN_RO, NO_BINDING, NONE, "ECN codepoint 2: ECT(0)";
    IpEct1 "ip-ect1" Ip4 ip(14, 2), Ip4, Nothing, Equals(1), ECN_RO, NO_BINDING, NONE, "ECN codepoint 1: ECT(1)";
    IpCe "ip-ce" Ip4 ip(14, 2), Ip4, Nothing, Equals(3), ECN_RO, NO_BINDING, NONE, "ECN codepoint 3: CE";
    IpLen "ip-len" Ip4 ip(16, 16), Ip4, Number, Protocol, Raw, NO_BINDING, NONE, "IPv4 total length in bytes";
    IpId "ip-id" Ip4 ip(32, 16), Ip4, Number, Protocol, InPlace, map_shuffle(MappedPart::IpId), NONE, "IPv4 identification";
    IpFlags "ip-flags" Ip4 ip(48, 3), Ip4, Number, Protocol, InPlace, NO_BINDING, IP_FLAGS,
        "the three IPv4 flags as one number: reserved 4, DF 2, MF 1";
    IpRes "ip-res" Ip4 ip(48, 1), Ip4, Number, Equals(1), InPlace, NO_BINDING, NONE, "IPv4 reserved flag";
    IpDf "ip-df" Ip4 ip(49, 1), Ip4, Number, Equals(1), InPlace, NO_BINDING, NONE, "IPv4 don't fragment flag";
    IpMf "ip-mf" Ip4 ip(50, 1), Ip4, Number, Equals(1), InPlace, NO_BINDING, NONE, "IPv4 more fragments flag";
    IpFragOffset "ip-frag-offset" Ip4 ip(51, 13), Ip4, Number, Protocol, InPlace, NO_BINDING, NONE,
        "IPv4 fragment offset in 8-byte units";
    IpTtl "ip-ttl" Ip4 ip(64, 8), Ip4, Number, Protocol, InPlace, NO_BINDING, NONE, "IPv4 time to live";
    IpChecksum "ip-checksum" Ip4 ip(80, 16), Ip4, Number, Protocol, Raw, NO_BINDING, HEX, "IPv4 header checksum";
    IpSaddr "ip-saddr" Ip4 ip(96, 32), Ip4, Ip4Value, Protocol, InPlace, map(SourceAddress), NONE, "IPv4 source address or prefix";
    IpDaddr "ip-daddr" Ip4 ip(128, 32), Ip4, Ip4Value, Protocol, InPlace, map_lb(DestinationAddress), NONE,
        "IPv4 destination address or prefix";
    IpPayload "ip-payload" Ip4 FieldPlace::Payload(Payload::Ip), Ip4, Bytes, Optional, Writable::Payload, NO_BINDING, NONE,
        "the bytes behind the IPv4 header, compared as a prefix";

    Ip6Ver "ip6-ver" Ip6 ip(0, 4), Ip6, Number, Protocol, Raw, NO_BINDING, NONE, "IPv6 version";
    Ip6TrafficClass "ip6-traffic-class" Ip6 ip(4, 8), Ip6, Number, Protocol, InPlace, NO_BINDING, NONE,
        "IPv6 traffic class: DSCP and ECN in one byte";
    Ip6FlowLabel "ip6-flow-label" Ip6 ip(12, 20), Ip6, Number, Protocol, InPlace, map_shuffle(FlowLabel), NONE, "IPv6 flow label";
    Ip6Len "ip6-len" Ip6 ip(32, 16), Ip6, Number, Protocol, Raw, NO_BINDING, NONE,
        "IPv6 payload length in bytes, extension headers included";
    Ip6Next "ip6-next" Ip6 ip(48, 8), Ip6, Number, Protocol, InPlace, NO_BINDING, NEXT_HEADERS,
        "next header of the fixed IPv6 header";
    Ip6HopLimit "ip6-hop-limit" Ip6 ip(56, 8), Ip6, Number, Protocol, InPlace, NO_BINDING, NONE, "IPv6 hop limit";
    Ip6Saddr "ip6-saddr" Ip6 ip(64, 128), Ip6, Ip6Value, Protocol, InPlace, map(SourceAddress), NONE, "IPv6 source address or prefix";
    Ip6Daddr "ip6-daddr" Ip6 ip(192, 128), Ip6, Ip6Value, Protocol, InPlace, map_lb(DestinationAddress), NONE,
        "IPv6 destination address or prefix";
    Ip6Payload "ip6-payload" Ip6 FieldPlace::Payload(Payload::Ip), Ip6, Bytes, Optional, Writable::Payload, NO_BINDING, NONE,
        "the bytes behind the fixed IPv6 header, extension headers included, compared as a prefix";

    Ip6Eh "ip6-eh" Ip6Extension eh_bit(eh::ANY), Ip6, Nothing, Equals(1), EH_RO, NO_BINDING, NONE,
        "any IPv6 extension header";
    Ip6EhHopByHop "ip6-eh-hopbyhop" Ip6Extension eh_bit(eh::HOP_BY_HOP), Ip6, Nothing, Equals(1), EH_RO, NO_BINDING,
        NONE, "hop-by-hop options header (0)";
    Ip6EhRouting "ip6-eh-routing" Ip6Extension eh_bit(eh::ROUTING), Ip6, Nothing, Equals(1), EH_RO, NO_BINDING, NONE,
        "routing header (43)";
    Ip6EhFragment "ip6-eh-fragment" Ip6Extension eh_bit(eh::FRAGMENT), Ip6, Nothing, Equals(1), EH_RO, NO_BINDING, NONE,
        "fragment header (44)";
    Ip6EhEsp "ip6-eh-esp" Ip6Extension eh_bit(eh::ESP), Ip6, Nothing, Equals(1), EH_RO, NO_BINDING, NONE,
        "encapsulating security payload header (50)";
    Ip6EhAh "ip6-eh-ah" Ip6Extension eh_bit(eh::AH), Ip6, Nothing, Equals(1), EH_RO, NO_BINDING, NONE,
        "authentication header (51)";
    Ip6EhDestOpt "ip6-eh-destopt" Ip6Extension eh_bit(eh::DEST_OPT), Ip6, Nothing, Equals(1), EH_RO, NO_BINDING, NONE,
        "destination options header (60)";
    Ip6EhMobility "ip6-eh-mobility" Ip6Extension eh_bit(eh::MOBILITY), Ip6, Nothing, Equals(1), EH_RO, NO_BINDING, NONE,
        "mobility header (135)";
    Ip6EhHip "ip6-eh-hip" Ip6Extension eh_bit(eh::HIP), Ip6, Nothing, Equals(1), EH_RO, NO_BINDING, NONE,
        "host identity protocol header (139)";
    Ip6EhShim6 "ip6-eh-shim6" Ip6Extension eh_bit(eh::SHIM6), Ip6, Nothing, Equals(1), EH_RO, NO_BINDING, NONE,
        "shim6 header (140)";

    IcmpType "icmp-type" Icmp l4(0, 8), Icmp, Number, Protocol, InPlace, NO_BINDING, ICMP_TYPES, "ICMP type";
    IcmpCode "icmp-code" Icmp l4(8, 8), Icmp, Number, Protocol, InPlace, NO_BINDING, NONE, "ICMP code";
    IcmpChecksum "icmp-checksum" Icmp l4(16, 16), Icmp, Number, Protocol, Raw, NO_BINDING, HEX, "ICMP checksum";
    IcmpPayload "icmp-payload" Icmp FieldPlace::Payload(Payload::Transport), Icmp, Bytes, Optional, Writable::Payload,
        NO_BINDING, NONE, "the bytes behind the 8-byte ICMP header, compared as a prefix";

    Icmp6Type "icmp6-type" Icmp6 l4(0, 8), Icmp6, Number, Protocol, InPlace, NO_BINDING, ICMP6_TYPES, "ICMPv6 type";
    Icmp6Code "icmp6-code" Icmp6 l4(8, 8), Icmp6, Number, Protocol, InPlace, NO_BINDING, NONE, "ICMPv6 code";
    Icmp6Checksum "icmp6-checksum" Icmp6 l4(16, 16), Icmp6, Number, Protocol, Raw, NO_BINDING, HEX, "ICMPv6 checksum";
    Icmp6Payload "icmp6-payload" Icmp6 FieldPlace::Payload(Payload::Transport), Icmp6, Bytes, Optional, Writable::Payload,
        NO_BINDING, NONE, "the bytes behind the 8-byte ICMPv6 header, compared as a prefix";

    UdpSport "udp-sport" Udp l4(0, 16), Udp, Number, Protocol, InPlace, map_shuffle(SourcePort), SERVICES, "UDP source port";
    UdpDport "udp-dport" Udp l4(16, 16), Udp, Number, Protocol, InPlace, map_shuffle_lb(DestinationPort), SERVICES,
        "UDP destination port";
    UdpLen "udp-len" Udp l4(32, 16), Udp, Number, Protocol, Raw, NO_BINDING, NONE,
        "UDP length in bytes, header included";
    UdpChecksum "udp-checksum" Udp l4(48, 16), Udp, Number, Protocol, Raw, NO_BINDING, HEX,
        "UDP checksum; 0 over IPv4 means none";
    UdpPayload "udp-payload" Udp FieldPlace::Payload(Payload::Transport), Udp, Bytes, Optional, Writable::Payload,
        NO_BINDING, NONE, "the bytes behind the UDP header, compared as a prefix";

    TcpSport "tcp-sport" Tcp l4(0, 16), Tcp, Number, Protocol, InPlace, map_shuffle(SourcePort), SERVICES, "TCP source port";
    TcpDport "tcp-dport" Tcp l4(16, 16), Tcp, Number, Protocol, InPlace, map_shuffle_lb(DestinationPort), SERVICES,
        "TCP destination port";
    TcpSeqNum "tcp-seq-num" Tcp l4(32, 32), Tcp, Number, Protocol, InPlace, shuffle(SequenceNumber), NONE, "TCP sequence number";
    TcpAckNum "tcp-ack-num" Tcp l4(64, 32), Tcp, Number, Protocol, InPlace, shuffle(AckNumber), NONE, "TCP acknowledgment number";
    TcpOffset "tcp-offset" Tcp l4(96, 4), Tcp, Number, Protocol, Raw, NO_BINDING, NONE,
        "TCP data offset in 4-byte words";
    TcpReserved "tcp-reserved" Tcp l4(100, 4), Tcp, Number, Protocol, InPlace, NO_BINDING, NONE,
        "the four reserved bits above the TCP flags";
    TcpFlags "tcp-flags" Tcp l4(104, 8), Tcp, Number, Protocol, InPlace, NO_BINDING, TCP_FLAGS,
        "the eight TCP flags as one number, CWR 128 to FIN 1";
    TcpCwr "tcp-cwr" Tcp l4(104, 1), Tcp, Number, Equals(1), InPlace, NO_BINDING, NONE,
        "TCP CWR flag: congestion window reduced";
    TcpEce "tcp-ece" Tcp l4(105, 1), Tcp, Number, Equals(1), InPlace, NO_BINDING, NONE, "TCP ECE flag: ECN echo";
    TcpUrg "tcp-urg" Tcp l4(106, 1), Tcp, Number, Equals(1), InPlace, NO_BINDING, NONE, "TCP URG flag";
    TcpAck "tcp-ack" Tcp l4(107, 1), Tcp, Number, Equals(1), InPlace, NO_BINDING, NONE, "TCP ACK flag";
    TcpPush "tcp-push" Tcp l4(108, 1), Tcp, Number, Equals(1), InPlace, NO_BINDING, NONE, "TCP PSH flag";
    TcpRst "tcp-rst" Tcp l4(109, 1), Tcp, Number, Equals(1), InPlace, NO_BINDING, NONE, "TCP RST flag";
    TcpSyn "tcp-syn" Tcp l4(110, 1), Tcp, Number, Equals(1), InPlace, NO_BINDING, NONE, "TCP SYN flag";
    TcpFin "tcp-fin" Tcp l4(111, 1), Tcp, Number, Equals(1), InPlace, NO_BINDING, NONE, "TCP FIN flag";
    TcpWin "tcp-win" Tcp l4(112, 16), Tcp, Number, Protocol, InPlace, NO_BINDING, NONE,
        "TCP window in units of the connection's scale";
    TcpChecksum "tcp-checksum" Tcp l4(128, 16), Tcp, Number, Protocol, Raw, NO_BINDING, HEX, "TCP checksum";
    TcpUrgPtr "tcp-urg-ptr" Tcp l4(144, 16), Tcp, Number, Protocol, InPlace, NO_BINDING, NONE, "TCP urgent pointer";
    TcpPayload "tcp-payload" Tcp FieldPlace::Payload(Payload::Transport), Tcp, Bytes, Optional, Writable::Payload,
        NO_BINDING, NONE, "the bytes behind the TCP header and its options, compared as a prefix";

    TcpOpt "tcp-opt" TcpOption FieldPlace::AnyOption, Tcp, Nothing, Optional, Writable::No("name the option"), NO_BINDING,
        NONE, "any TCP option but padding; followed by a number: the option of that kind";
    TcpOptMss "tcp-opt-mss" TcpOption FieldPlace::Option(2), Tcp, OptionData(Some(2)), Optional, Writable::Option,
        NO_BINDING, NONE, "maximum segment size in bytes (kind 2, RFC 9293)";
    TcpOptWscale "tcp-opt-wscale" TcpOption FieldPlace::Option(3), Tcp, OptionData(Some(1)), Optional, Writable::Option,
        NO_BINDING, NONE, "window scale, a shift count (kind 3, RFC 7323)";
    TcpOptSackp "tcp-opt-sackp" TcpOption FieldPlace::Option(4), Tcp, OptionData(Some(0)), Optional, Writable::Option,
        NO_BINDING, NONE, "SACK permitted (kind 4, RFC 2018)";
    TcpOptSack "tcp-opt-sack" TcpOption FieldPlace::Option(5), Tcp, OptionData(None), Optional, Writable::Option,
        NO_BINDING, NONE, "SACK blocks, 8 bytes each (kind 5, RFC 2018)";
    TcpOptTimestamp "tcp-opt-timestamp" TcpOption FieldPlace::Option(8), Tcp, OptionData(Some(8)), Optional,
        Writable::Option, NO_BINDING, NONE, "timestamps: TSval and TSecr as one 8-byte number (kind 8, RFC 7323)";
    TcpOptFastOpen "tcp-opt-fast-open" TcpOption FieldPlace::Option(34), Tcp, OptionData(None), Optional, Writable::Option,
        NO_BINDING, NONE, "fast open cookie (kind 34, RFC 7413)";
    TcpOptMptcp "tcp-opt-mptcp" TcpOption FieldPlace::Option(30), Tcp, OptionData(None), Optional, Writable::Option,
        NO_BINDING, NONE, "multipath TCP (kind 30, RFC 8684)";
    TcpOptKind "tcp-opt KIND" TcpOption FieldPlace::NamedOption, Tcp, OptionData(None), Optional, Writable::Option,
        NO_BINDING, NONE, "the TCP option of that kind, 0-255";

    Payload "payload" Payload FieldPlace::Payload(Payload::Transport), Transport, Bytes, Optional, Writable::Payload,
        NO_BINDING, NONE, "the bytes behind the transport header, compared as a prefix";

    Stream "stream" Stream FieldPlace::Stream(StreamPart::Both), TcpOrUdp, Pattern, Protocol, Writable::Stream, NO_BINDING, NONE,
        "the bytes of a connection in either direction, searched anywhere, also across packets";
    StreamForward "stream-forward" Stream FieldPlace::Stream(StreamPart::Forward), TcpOrUdp, Pattern, Protocol, Writable::Stream, NO_BINDING,
        NONE, "the bytes that the connection's initiator sends, searched anywhere";
    StreamReply "stream-reply" Stream FieldPlace::Stream(StreamPart::Reply), TcpOrUdp, Pattern, Protocol, Writable::Stream, NO_BINDING, NONE,
        "the bytes that the connection's other end sends, searched anywhere";
    TlsSni "tls-sni" Stream FieldPlace::Stream(StreamPart::ServerName), Tcp, ServerName, Protocol, SNI_RO, NO_BINDING, NONE,
        "server name that a TLS client asks for; with a leading dot: the domain and all below it";
    Http "http" Stream FieldPlace::Stream(StreamPart::Http), Tcp, Nothing, Protocol, HTTP_RO, NO_BINDING, NONE,
        "a request of HTTP/1.x and its response";
    HttpMethod "http-method" Stream FieldPlace::Stream(StreamPart::HttpMethod), Tcp, Method, Protocol, METHOD_RO, NO_BINDING, NONE,
        "method of a request; a text is the whole method";
    HttpHost "http-host" Stream FieldPlace::Stream(StreamPart::HttpHost), Tcp, ServerName, Protocol, Writable::Whole, NO_BINDING, NONE,
        "host that a request is for, without port; with a leading dot: the domain and all below it";
    HttpUri "http-uri" Stream FieldPlace::Stream(StreamPart::HttpUri), Tcp, Pattern, Protocol, Writable::Whole, NO_BINDING, NONE,
        "target of a request, without scheme and authority; a text is its beginning";
    HttpStatus "http-status" Stream FieldPlace::Stream(StreamPart::HttpStatus), Tcp, Number, Protocol, STATUS_RO, NO_BINDING, NONE,
        "status code of a response, 100-999";
    HttpHeader "http-header" Stream FieldPlace::Stream(StreamPart::HttpHeader), Tcp, Header, Protocol, Writable::Header, NO_BINDING,
        NONE, "header field of that name, in a request or a response; a text is its whole value";
    HttpBody "http-body" Stream FieldPlace::Stream(StreamPart::HttpBody), Tcp, Pattern, Protocol, Writable::Stream, NO_BINDING, NONE,
        "body of a request or a response, searched anywhere";
}

/// The invariants on which readers of the table rely without a check of their own.
const _: () = {
    let mut at = 0;
    while at < FIELDS.len() {
        let info = &FIELDS[at];
        assert!(info.id as usize == at, "rows are in the order of FieldId");
        if let FieldPlace::Key { bit, width } = info.place {
            let ip6 = matches!(info.implies, Implies::Ip6);
            assert!(width >= 1 && width <= 128, "numbers have at most 128 bits");
            assert!(
                bit as usize + width as usize <= if ip6 { 80 * 8 } else { 64 * 8 },
                "fields are in the key"
            );
        }
        let StatefulUses { part, map, shuffle, lb } = info.bindings;
        assert!(part.is_some() == (map || shuffle || lb), "a field that a stateful target takes is a part");
        assert!(part.is_none() || matches!(info.writable, Writable::InPlace), "a part is written in place");
        at += 1;
    }
};

/// A hash table of the names: a field's number plus one in the first free slot behind that of its name. Every word of a
/// policy file is looked up, most of them in vain.
static BY_NAME: [u8; 512] = {
    let mut slots = [0; 512];
    let mut field = 0;
    while field < FIELDS.len() {
        let mut slot = slot(FIELDS[field].name.as_bytes());
        while slots[slot] != 0 {
            slot = (slot + 1) % slots.len();
        }
        field += 1;
        slots[slot] = field as u8;
    }
    slots
};

/// The slot where the search for a name begins.
const fn slot(name: &[u8]) -> usize {
    let (mut hash, mut at) = (0u32, 0);
    while at < name.len() {
        hash = (hash ^ name[at] as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    (hash >> 8) as usize % 512
}

impl FieldId {
    /// The field of that name. `tcp-opt` is the field of any option; the kind behind it is the parser's matter.
    pub fn named(name: &str) -> Option<FieldId> {
        // Most words asked for are numbers and addresses, which no field is named like.
        if !name.starts_with(|c: char| c.is_ascii_lowercase()) {
            return None;
        }
        let mut slot = slot(name.as_bytes());
        while let Some(field) = usize::from(BY_NAME[slot]).checked_sub(1) {
            if FIELDS[field].name == name {
                return Some(FIELDS[field].id);
            }
            slot = (slot + 1) % BY_NAME.len();
        }
        None
    }

    /// The field's row.
    #[inline]
    pub fn info(self) -> &'static FieldInfo {
        &FIELDS[self as usize]
    }
}

impl FieldInfo {
    /// The width in bits of the numbers that the field holds; `None` if they have no fixed width or it holds none.
    pub fn width(&self) -> Option<u8> {
        match (self.values, self.place) {
            (ValueKind::OptionData(bytes), _) => bytes.filter(|&n| n > 0).map(|n| n * 8),
            (ValueKind::Port, _) => None,
            (_, FieldPlace::Key { width, .. }) => Some(width),
            (_, FieldPlace::Connection) => Some(3),
            (ValueKind::Number, FieldPlace::Stream(_)) => Some(10),
            (_, FieldPlace::AnyOption | FieldPlace::Option(_) | FieldPlace::NamedOption) => None,
            (_, FieldPlace::Payload(_) | FieldPlace::Stream(_)) => None,
        }
    }

    /// The greatest number that can be compared with the field or written to it; `None` if it takes no number.
    pub fn max(&self) -> Option<u128> {
        match self.values {
            // Three digits (RFC 9110, section 15).
            ValueKind::Number if matches!(self.place, FieldPlace::Stream(_)) => Some(999),
            ValueKind::Number | ValueKind::Ip4 | ValueKind::Ip6 => self.width().map(ones),
            ValueKind::State => self.names.list.last().map(|(_, last)| u128::from(*last)),
            ValueKind::OptionData(Some(0)) => None,
            ValueKind::OptionData(_) => Some(ones(self.width().unwrap_or(64))),
            ValueKind::Port | ValueKind::Bytes | ValueKind::Nothing => None,
            ValueKind::Pattern | ValueKind::ServerName | ValueKind::Method | ValueKind::Header => None,
        }
    }
}
