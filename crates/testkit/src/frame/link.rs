//! Link headers: Ethernet with VLAN tags, Linux cooked captures, none.

use super::ip::{Ip4, Ip6};
use mmb_packet::LinkType;

/// The payload of the link header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// IPv4.
    Ip4(Ip4),
    /// IPv6.
    Ip6(Ip6),
    /// Another protocol, by its ether type.
    Other(u16, Vec<u8>),
}

/// A VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanTag {
    /// The ether type that announces it.
    pub tpid: u16,
    /// Priority, drop eligibility and VLAN id.
    pub tci: u16,
}

/// A whole packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The link header.
    pub link: LinkType,
    /// VLAN tags, outermost first (not for raw IP).
    pub tags: Vec<VlanTag>,
    /// The payload of the link header.
    pub network: Network,
    /// Bytes after the IP packet, such as Ethernet padding.
    pub trailer: Vec<u8>,
}

impl Frame {
    /// An Ethernet frame without tags and trailer.
    pub fn new(network: Network) -> Frame {
        Frame { link: LinkType::Ethernet, tags: Vec::new(), network, trailer: Vec::new() }
    }

    /// An ARP request for 10.0.0.2 from 10.0.0.1.
    pub fn arp() -> Frame {
        let mut bytes = vec![0, 1, 8, 0, 6, 4, 0, 1];
        bytes.extend([2, 0, 0, 0, 0, 1, 10, 0, 0, 1]);
        bytes.extend([0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
        Frame::new(Network::Other(0x0806, bytes))
    }

    /// A link layer discovery announcement with empty mandatory values.
    pub fn lldp() -> Frame {
        Frame::new(Network::Other(0x88cc, vec![2, 2, 7, b'a', 4, 2, 7, b'b', 6, 2, 0, 120, 0, 0]))
    }

    /// The same with another link header.
    pub fn link(mut self, link: LinkType) -> Frame {
        self.link = link;
        self
    }

    /// The same inside one more 802.1Q tag with this id.
    pub fn vlan(mut self, id: u16) -> Frame {
        self.tags.insert(0, VlanTag { tpid: 0x8100, tci: id & 0x0fff });
        self
    }

    /// The same inside one more 802.1ad tag with this id.
    pub fn service_vlan(mut self, id: u16) -> Frame {
        self.tags.insert(0, VlanTag { tpid: 0x88a8, tci: id & 0x0fff });
        self
    }

    /// The same with bytes after the IP packet.
    pub fn trailer(mut self, bytes: &[u8]) -> Frame {
        self.trailer = bytes.to_vec();
        self
    }

    /// The packet as it is on the wire.
    pub fn bytes(&self) -> Vec<u8> {
        let (eth_type, inner) = match &self.network {
            Network::Ip4(ip) => (0x0800, ip.bytes()),
            Network::Ip6(ip) => (0x86dd, ip.bytes()),
            Network::Other(eth_type, bytes) => (*eth_type, bytes.clone()),
        };
        let mut bytes = self.link_header(eth_type);
        bytes.extend(inner);
        bytes.extend(&self.trailer);
        bytes
    }

    fn link_header(&self, eth_type: u16) -> Vec<u8> {
        // The type field before a tag announces it.
        let types: Vec<u16> = self.tags.iter().map(|tag| tag.tpid).chain([eth_type]).collect();
        let first = types[0].to_be_bytes();
        let mut bytes = match self.link {
            LinkType::RawIp => return Vec::new(),
            LinkType::Ethernet => {
                let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
                bytes.extend(first);
                bytes
            }
            // Packet type, ARPHRD_ETHER, address length, address, protocol.
            LinkType::Sll => {
                let mut bytes = vec![0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0];
                bytes.extend(first);
                bytes
            }
            // Protocol, reserved, interface, ARPHRD_ETHER, packet type, address length, address.
            LinkType::Sll2 => {
                let mut bytes = first.to_vec();
                bytes.extend([0, 0, 0, 0, 0, 1, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0]);
                bytes
            }
        };
        for (tag, next_type) in self.tags.iter().zip(&types[1..]) {
            bytes.extend(tag.tci.to_be_bytes());
            bytes.extend(next_type.to_be_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Tcp, Udp, internet_checksum};

    #[test]
    fn tags_are_announced_by_the_type_before_them() {
        let bytes = Frame::arp().vlan(5).service_vlan(7).bytes();
        assert_eq!(bytes[12..22], [0x88, 0xa8, 0, 7, 0x81, 0, 0, 5, 0x08, 0x06]);
    }

    #[test]
    fn cooked_headers_have_their_lengths() {
        let udp = || Udp::default().over_ip4();
        let ip_len = udp().link(LinkType::RawIp).bytes().len();
        assert_eq!(udp().link(LinkType::Sll).bytes().len(), ip_len + 16);
        assert_eq!(udp().link(LinkType::Sll2).bytes().len(), ip_len + 20);
    }

    #[test]
    fn checksums_verify() {
        let bytes = Tcp::default().payload(b"odd").over_ip4().link(LinkType::RawIp).bytes();
        assert_eq!(internet_checksum(&bytes[..20]), 0);
        let mut covered = bytes[20..].to_vec();
        covered.push(0);
        covered.extend(&bytes[12..20]);
        covered.extend([0, 6, 0, 23]);
        assert_eq!(internet_checksum(&covered), 0);
    }
}
