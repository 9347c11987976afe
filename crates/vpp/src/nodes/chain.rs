//! Packets in several buffers: worked on as a copy in one piece, which goes back into the buffers if it was rewritten.
//!
//! A chain that fits its first buffer is put together there for good. So is the begin of one whose first buffer is so short that
//! taking options out of its headers could use it up.

use super::buffer::{Buffer, BufferPool, PRE_DATA};
use mmb_packet::{LinkType, Packet, PortId};
use std::os::raw::c_int;
use vpp_plugin::bindings::{vlib_buffer_t, vlib_main_t};

/// More bytes than rewriting takes out of a packet's headers.
const FIRST: usize = 256;

/// Room for copies: several packets of the largest size.
const ROOM: usize = 512 << 10;

unsafe extern "C" {
    fn mmb_shim_chain_length(vm: *mut vlib_main_t, buffer: *mut vlib_buffer_t) -> u32;
    fn mmb_shim_linearize(vm: *mut vlib_main_t, buffer: *mut vlib_buffer_t) -> u32;
    fn mmb_shim_gather(vm: *mut vlib_main_t, buffer: *mut vlib_buffer_t, out: *mut u8);
    fn mmb_shim_scatter(vm: *mut vlib_main_t, buffer: *mut vlib_buffer_t, bytes: *const u8, moved: i32);
}

/// A thread's room for copies.
pub(super) struct ChainCopies(Box<[u8]>);

/// What is left of it for the packets of one vector.
pub(super) struct CopySpace<'a>(&'a mut [u8]);

/// What became of a chain.
pub(super) enum ChainView<'a> {
    /// In one piece: its copy, or it was put together in its first buffer.
    Whole(Packet<'a>),
    /// There is no room left in this vector.
    Full,
    /// It cannot be worked on: it is too large, or VPP has no buffers.
    Lost,
}

impl ChainCopies {
    pub(super) fn new() -> ChainCopies {
        ChainCopies(vec![0; ROOM].into_boxed_slice())
    }

    /// All of it, for the next vector.
    pub(super) fn free(&mut self) -> CopySpace<'_> {
        CopySpace(&mut self.0)
    }
}

impl<'a> CopySpace<'a> {
    /// Takes a packet; a chain's with as much headroom as its first buffer has.
    ///
    /// # Safety
    /// The buffer, or the chain, is the node's, and nobody else looks into it as long as the packet is used.
    pub(super) unsafe fn take(
        &mut self,
        vm: *mut vlib_main_t,
        buffer: Buffer,
        pool: BufferPool,
        port: PortId,
    ) -> ChainView<'a> {
        // SAFETY: as the caller says.
        let alone = || unsafe { buffer.packet(pool, port) }.map_or(ChainView::Lost, ChainView::Whole);
        if !buffer.is_chained() {
            return alone();
        }
        let chain = buffer.as_ptr();
        // SAFETY: VPP's own functions, on a chain that is ours.
        let len = unsafe { mmb_shim_chain_length(vm, chain) } as usize;
        let (headroom, size) = (buffer.headroom(), pool.data_end());
        if headroom + len > ROOM || headroom > size {
            return ChainView::Lost;
        }
        if headroom + len <= size || buffer.len() < FIRST {
            // SAFETY: as above.
            match unsafe { mmb_shim_linearize(vm, chain) } {
                0 => return ChainView::Lost,
                1 => return alone(),
                _ => {}
            }
        }
        if headroom + len > self.0.len() {
            return ChainView::Full;
        }
        let (mine, rest) = std::mem::take(&mut self.0).split_at_mut(headroom + len);
        self.0 = rest;
        // SAFETY: there is room for the chain's bytes behind the headroom.
        unsafe { mmb_shim_gather(vm, chain, mine[headroom..].as_mut_ptr()) };
        Packet::new(mine, headroom, len, port, LinkType::RawIp).map_or(ChainView::Lost, ChainView::Whole)
    }
}

/// Puts a copy that was rewritten back. False if the first buffer has not so many bytes as its headers lost.
///
/// # Safety
/// The packet is the copy of this chain that [`CopySpace::take`] gave.
pub(super) unsafe fn put_back(vm: *mut vlib_main_t, buffer: Buffer, packet: &Packet<'_>) -> bool {
    let moved = buffer.headroom() as isize - packet.headroom() as isize;
    if buffer.len() as isize + moved <= 0 || packet.headroom() > PRE_DATA + usize::from(u16::MAX) {
        return false;
    }
    // SAFETY: the chain has as many bytes as the copy had, and gets as many more or fewer as the packet has now.
    unsafe { mmb_shim_scatter(vm, buffer.as_ptr(), packet.bytes().as_ptr(), moved as c_int) };
    true
}
