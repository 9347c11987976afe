//! The outside address of an inside address, and the ports that the inside address and its network use.

use crate::bindings::TargetId;
use crate::inside_host::InsideHost;
use mmb_base::Id;
use mmb_conn::{Wire, proto};

/// The outside address of an inside address.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct PairedAddress {
    pub(super) address: u128,
    /// The index of the outside address in the target.
    pub(super) index: u64,
    /// Number of ports that it holds, by column.
    pub(super) ports: [u32; COLUMNS],
    pub(super) target: TargetId,
    pub(super) wire: Wire,
    pub(super) family: u8,
}

const _: () = assert!(size_of::<PairedAddress>() == 64);

impl PairedAddress {
    #[inline]
    pub(super) fn inside(&self) -> InsideHost {
        let PairedAddress { address, target, wire, family, .. } = *self;
        InsideHost { address, target, wire, family }
    }
}

/// The value of an unused slot of the slab.
impl Default for PairedAddress {
    fn default() -> PairedAddress {
        PairedAddress {
            address: 0,
            index: 0,
            ports: NONE,
            target: TargetId::FIRST,
            wire: Wire::default(),
            family: 0,
        }
    }
}

/// The ports that an IPv6 network holds, by column.
pub(super) struct NetworkUsage {
    pub(super) prefix: InsideHost,
    pub(super) ports: [u32; COLUMNS],
}

/// The number of counters of an inside address's ports: two columns per kind of protocol, the second one for
/// privileged ports, and one column for ICMP.
pub(super) const COLUMNS: usize = 7;
/// No ports are held.
pub(super) const NONE: [u32; COLUMNS] = [0; COLUMNS];

/// The column that counts ports of a protocol and a class of ranges.
pub(super) fn column(proto: u8, class: u8) -> u8 {
    let column = match proto {
        proto::TCP => 0,
        proto::UDP => 2,
        proto::ICMP | proto::ICMP6 => return 6,
        _ => 4,
    };
    column + u8::from(class == 1)
}
