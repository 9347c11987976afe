//! The packet buffers of all ports: pools by size.

use crate::dpdk::Eal;
use crate::error::PortError;
use crate::kernel::MAX_MTU;
use crate::mbuf::{HEADROOM, MbufPool};

/// The most bytes around an Ethernet frame's IP packet: its header and four VLAN tags.
pub(crate) const LINK_HEADER: u32 = 14 + 16;
/// Descriptors of a queue.
pub(crate) const DESCRIPTORS: u16 = 2048;
/// Room that the kernel wants in front of frames that it receives into our buffers (XDP_PACKET_HEADROOM).
const XDP_HEADROOM: u32 = 256;
/// Room for a packet to grow at its end.
const TAILROOM: u32 = 64;
/// Buffers that a queue pair may hold: those being received, those to be sent, and with AF_XDP those that were sent
/// and not yet taken back.
const QUEUE_BUFFERS: u32 = 3 * DESCRIPTORS as u32;

/// Size of a buffer that holds any frame of a port with that MTU, with room to grow at both ends.
fn data_room(mtu: u32) -> u16 {
    let room = HEADROOM as u32 + XDP_HEADROOM + LINK_HEADER + mtu + TAILROOM;
    room.next_multiple_of(64).min(u16::MAX.into()) as u16
}

/// The largest MTU whose frames fit in the buffers of a pool.
pub(crate) fn largest_mtu(pool: &MbufPool) -> u32 {
    let around = HEADROOM as u32 + XDP_HEADROOM + LINK_HEADER + TAILROOM;
    u32::from(pool.data_room()).saturating_sub(around).min(MAX_MTU)
}

/// The number of buffers by size: pages for ports whose frames fit in them, larger ones for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolSizes {
    pages: u32,
    large: u32,
    large_room: u16,
}

/// The buffers of all ports.
#[derive(Debug)]
pub(crate) struct MbufPools {
    pages: Option<MbufPool>,
    large: Option<MbufPool>,
}

impl PoolSizes {
    /// The sizes for ports of these MTUs.
    pub(crate) fn for_mtus(mtus: &[u32], workers: u16) -> PoolSizes {
        let (large, small): (Vec<u32>, Vec<u32>) =
            mtus.iter().partition(|mtu| data_room(**mtu) > MbufPool::page_room());
        // Buffers in the rings of the queues, then those that the workers process and cache.
        let workers = u32::from(workers);
        let count = |ports: usize| match ports as u32 {
            0 => 0,
            ports => ports * workers * QUEUE_BUFFERS + workers * 1024,
        };
        PoolSizes {
            pages: count(small.len()),
            large: count(large.len()),
            large_room: large.iter().map(|mtu| data_room(*mtu)).max().unwrap_or_default(),
        }
    }

    /// Bytes of memory for the pools and what the drivers themselves need.
    pub(crate) fn memory(&self) -> usize {
        MbufPool::memory(self.pages, 0) + MbufPool::memory(self.large, self.large_room) + (24 << 20)
    }

    /// Creates the pools.
    ///
    /// # Errors
    /// There is not enough memory.
    pub(crate) fn create(&self, eal: &Eal) -> Result<MbufPools, PortError> {
        let pool =
            |name, count, room| (count > 0).then(|| MbufPool::create(eal, name, count, room)).transpose();
        Ok(MbufPools {
            pages: pool("mmb_pages", self.pages, MbufPool::page_room())?,
            large: pool("mmb_large", self.large, self.large_room)?,
        })
    }
}

impl MbufPools {
    /// The largest MTU for which there are buffers.
    pub(crate) fn largest_mtu(&self) -> u32 {
        self.pages.iter().chain(&self.large).map(largest_mtu).max().unwrap_or_default()
    }

    /// The pool for a port of that MTU.
    pub(crate) fn for_mtu(&self, mtu: u32) -> &MbufPool {
        let fits = |pool: &&MbufPool| data_room(mtu) <= pool.data_room();
        let fitting = self.pages.iter().filter(fits).chain(self.large.iter()).next();
        // `PoolSizes::for_mtus` counted every port.
        fitting.unwrap_or_else(|| unreachable!("a pool for every port"))
    }
}
