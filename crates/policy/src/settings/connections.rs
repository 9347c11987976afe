//! Settings of connection tracking: limits, pickup, timeouts, NAT filtering.
//!
//! Plain values, which the rooms that track connections read. [`crate::setting_table`] holds the table of names and
//! ranges.

/// `set conn …`, `set timeout …`, `set nat …`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionSettings {
    /// `conn max`: the most connections at once, over all workers.
    pub max: u32,
    /// `conn pickup`: whether a TCP connection may begin in the middle.
    pub pickup: Pickup,
    /// `conn per-source`: the most open connections that one source address has begun, over all workers.
    pub per_source: Option<u32>,
    /// `conn invalid`: the treatment of invalid packets.
    pub invalid: InvalidPackets,
    /// `conn zone`: the scope within which the tuples of connections are unique.
    pub zone: Zone,
    /// `conn same-port`: replies may come in by the port that the first packet came in by.
    pub same_port: bool,
    /// `timeout …`: how long connections without packets stay.
    pub timeouts: Timeouts,
    /// `nat filtering`: who may send to a translated address and port.
    pub nat_filtering: NatFiltering,
    /// `nat ports-per-host`: the most outside ports of a pool and protocol that one host holds.
    pub nat_ports_per_host: PortsPerHost,
    /// `nat parity`: even ports stay even and odd ones odd, where there is a choice (RFC 4787 REQ-4).
    pub nat_parity: bool,
    /// `nat contiguity`: the port beside that of a neighbouring inside port is tried before random ones.
    pub nat_contiguity: bool,
}

impl Default for ConnectionSettings {
    fn default() -> Self {
        ConnectionSettings {
            max: 1_000_000,
            pickup: Pickup::default(),
            per_source: None,
            invalid: InvalidPackets::default(),
            zone: Zone::default(),
            same_port: false,
            timeouts: Timeouts::default(),
            nat_filtering: NatFiltering::default(),
            nat_ports_per_host: PortsPerHost::default(),
            nat_parity: true,
            nat_contiguity: true,
        }
    }
}

/// The segments that may create a TCP connection whose beginning was not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Pickup {
    /// By any segment: connections from before a start of mmb go on.
    #[default]
    Loose,
    /// By a SYN only.
    Strict,
}

impl Pickup {
    /// In the order of their words in the table of settings.
    pub const ALL: [Pickup; 2] = [Pickup::Loose, Pickup::Strict];
}

/// The treatment of packets that the state of their connection does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum InvalidPackets {
    /// They pass and change no state: the ends decide.
    #[default]
    Pass,
    /// They are dropped.
    Drop,
}

impl InvalidPackets {
    /// In the order of their words in the table of settings.
    pub const ALL: [InvalidPackets; 2] = [InvalidPackets::Pass, InvalidPackets::Drop];
}

/// The scope within which two packets with the same addresses and ports are of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Zone {
    /// The wire and its packets' outermost two VLAN tags.
    #[default]
    Vlan,
    /// The wire alone.
    Wire,
}

impl Zone {
    /// In the order of their words in the table of settings.
    pub const ALL: [Zone; 2] = [Zone::Vlan, Zone::Wire];
}

/// The remote hosts that may send to an outside address and port of a translation (RFC 4787 section 5). REQ-8 recommends the
/// first where applications are to work whatever they do, and the second where strangers are to stay outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum NatFiltering {
    /// Anybody.
    EndpointIndependent,
    /// Hosts that something was sent to from there.
    #[default]
    AddressDependent,
    /// Addresses and ports that something was sent to from there.
    AddressAndPortDependent,
}

impl NatFiltering {
    /// In the order of their words in the table of settings.
    pub const ALL: [NatFiltering; 3] = [
        NatFiltering::EndpointIndependent,
        NatFiltering::AddressDependent,
        NatFiltering::AddressAndPortDependent,
    ];
}

/// The limit of outside ports of a pool and protocol for one inside address (RFC 6888 REQ-4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PortsPerHost {
    /// 64, or a 256th of the ports that its rule allows, whichever is more; beyond that another one only while it holds fewer than
    /// are still free: the dynamic threshold of Choudhury and Hahne (IEEE/ACM Transactions on Networking 6(2), 1998). So one
    /// address alone gets half of the ports, and something is left for others whatever a few of them do.
    #[default]
    Share,
    /// A fixed number of ports.
    AtMost(u32),
}

/// The timeouts of connections without packets, in seconds, by state.
///
/// The defaults are the shortest that the RFCs on NAT allow or recommend. RFC 5382 REQ-5 counts everything before and
/// after the established state as transitory, four minutes at least; RFC 7857 section 2.2 wants the same after a RST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// TCP that is being opened: 240 (RFC 5382 REQ-5, RFC 7857 section 2.1).
    pub tcp_syn: u32,
    /// TCP that is open: 7440, two hours and four minutes, so that the keep-alives of RFC 1122 arrive in time (RFC 5382
    /// REQ-5).
    pub tcp_established: u32,
    /// TCP that one end or both are closing: 240 (RFC 5382 REQ-5).
    pub tcp_fin: u32,
    /// TCP that both ends have closed: 240, also twice the maximum segment lifetime of RFC 9293.
    pub tcp_time_wait: u32,
    /// TCP that was reset: 240, because the RST may be lost behind us, and its receiver goes on (RFC 7857 section 2.2).
    pub tcp_reset: u32,
    /// UDP answered by the other end: 300 (RFC 4787 REQ-5: 120 at least, 300 recommended).
    pub udp: u32,
    /// UDP without an answer yet: 120, the least that RFC 4787 REQ-5 allows.
    pub udp_unreplied: u32,
    /// ICMP and ICMPv6 queries: 60 (RFC 5508 REQ-2).
    pub icmp: u32,
    /// Any other protocol: 600.
    pub other: u32,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            tcp_syn: 240,
            tcp_established: 7440,
            tcp_fin: 240,
            tcp_time_wait: 240,
            tcp_reset: 240,
            udp: 300,
            udp_unreplied: 120,
            icmp: 60,
            other: 600,
        }
    }
}
