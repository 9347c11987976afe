//! Packets built field by field.
//!
//! Every header is a plain value with public fields and usable defaults: lengths, offsets and checksums are correct unless a
//! field of the value says otherwise. [`Frame::bytes`] builds the packet. Wrong values are explicit: a length of `Some(n)` is
//! written unchanged, a [`Checksum`] can be wrong.

mod checksum;
mod flow;
mod ip;
mod link;
mod nest;
mod transport;

pub use checksum::Checksum;
pub(crate) use checksum::internet_checksum;
pub use flow::{Dccp, Sctp, UdpLite};
pub use ip::{Extension, FragmentHeader, Ip4, Ip6, Upper, gre};
pub use link::{Frame, Network, VlanTag};
pub use transport::{Icmp, Tcp, Udp, pad_options, tcp_option};
