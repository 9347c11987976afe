//! Headers in frames: the short ways from a header to a whole packet.

use super::flow::Sctp;
use super::ip::{Ip4, Ip6, Upper};
use super::link::{Frame, Network};
use super::transport::{Icmp, Tcp, Udp};

impl Ip4 {
    /// In an Ethernet frame.
    pub fn frame(self) -> Frame {
        Frame::new(Network::Ip4(self))
    }
}

impl Ip6 {
    /// In an Ethernet frame.
    pub fn frame(self) -> Frame {
        Frame::new(Network::Ip6(self))
    }
}

impl Tcp {
    /// In an IPv4 packet in an Ethernet frame.
    pub fn over_ip4(self) -> Frame {
        Ip4::new(Upper::Tcp(self)).frame()
    }

    /// In an IPv6 packet in an Ethernet frame.
    pub fn over_ip6(self) -> Frame {
        Ip6::new(Upper::Tcp(self)).frame()
    }
}

impl Udp {
    /// In an IPv4 packet in an Ethernet frame.
    pub fn over_ip4(self) -> Frame {
        Ip4::new(Upper::Udp(self)).frame()
    }

    /// In an IPv6 packet in an Ethernet frame.
    pub fn over_ip6(self) -> Frame {
        Ip6::new(Upper::Udp(self)).frame()
    }
}

impl Icmp {
    /// In an IPv4 packet in an Ethernet frame, as ICMP.
    pub fn over_ip4(self) -> Frame {
        Ip4::new(Upper::Icmp(self)).frame()
    }

    /// In an IPv6 packet in an Ethernet frame, as ICMPv6.
    pub fn over_ip6(self) -> Frame {
        Ip6::new(Upper::Icmp(self)).frame()
    }
}

impl Sctp {
    /// As the payload of an IP packet.
    pub fn upper(&self) -> Upper {
        Upper::Raw(132, self.bytes())
    }
}
