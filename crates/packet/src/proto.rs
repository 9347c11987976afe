//! IP protocol numbers, as IANA assigns them.

/// ICMP.
pub const ICMP: u8 = 1;
/// IPv4 in IP.
pub const IP_IN_IP: u8 = 4;
/// TCP.
pub const TCP: u8 = 6;
/// UDP.
pub const UDP: u8 = 17;
/// DCCP.
pub const DCCP: u8 = 33;
/// IPv6 in IP.
pub const IP6_IN_IP: u8 = 41;
/// GRE.
pub const GRE: u8 = 47;
/// ICMPv6.
pub const ICMP6: u8 = 58;
/// SCTP.
pub const SCTP: u8 = 132;
/// UDP-Lite.
pub const UDP_LITE: u8 = 136;
