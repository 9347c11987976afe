//! Packets in several buffers. Nodes work on a copy in one piece, which goes back into the buffers if it was rewritten.
//!
//! A chain that fits its first buffer is joined there for good. If the first buffer is so short that removing options from the headers
//! could use it up, the start of the chain is joined in it.

use super::buffer::{Buffer, BufferPool, PRE_DATA};
use super::thread::VppThread;
use mmb_packet::{LinkType, Packet, PortId};
use std::os::raw::c_int;
use vpp_plugin::bindings::{vlib_buffer_t, vlib_main_t};

/// More bytes than rewriting removes from a packet's headers.
const FIRST: usize = 256;

/// Bytes for copies: several packets of the largest size.
const ROOM: usize = 512 << 10;

unsafe extern "C" {
    fn mmb_shim_chain_length(vm: *mut vlib_main_t, buffer: *mut vlib_buffer_t) -> u32;
    fn mmb_shim_linearize(vm: *mut vlib_main_t, buffer: *mut vlib_buffer_t) -> u32;
    fn mmb_shim_gather(vm: *mut vlib_main_t, buffer: *mut vlib_buffer_t, out: *mut u8);
    fn mmb_shim_scatter(vm: *mut vlib_main_t, buffer: *mut vlib_buffer_t, bytes: *const u8, moved: i32);
}

/// A thread's memory for copies.
pub(crate) struct ChainCopies(Box<[u8]>);

/// The free rest of it during one vector.
pub(crate) struct CopySpace<'a>(&'a mut [u8]);

/// The view of a buffer or a chain.
pub(crate) enum ChainView<'a> {
    /// The packet in one piece: in its buffer, or a copy.
    Whole(Packet<'a>),
    /// There is no room left for a copy in this vector.
    Full,
    /// There is no view: it is too large, or VPP has no buffers.
    Lost,
}

impl ChainCopies {
    pub(crate) fn new() -> ChainCopies {
        ChainCopies(vec![0; ROOM].into_boxed_slice())
    }

    /// All of it, for the next vector.
    pub(crate) fn free(&mut self) -> CopySpace<'_> {
        CopySpace(&mut self.0)
    }
}

impl<'a> CopySpace<'a> {
    /// A view of a buffer's packet; a copy has as much headroom as the chain's first buffer. No other view of it may be in use.
    pub(crate) fn take(
        &mut self,
        thread: VppThread<'_>,
        buffer: Buffer,
        pool: BufferPool,
        port: PortId,
    ) -> ChainView<'a> {
        let vm = thread.as_ptr();
        let alone = || buffer.packet(pool, port).map_or(ChainView::Lost, ChainView::Whole);
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

/// Writes a rewritten copy back into its chain. False if the first buffer has fewer bytes than the headers lost, or if the packet is
/// shorter than the chain then is: it is not the copy of this chain that [`CopySpace::take`] made.
pub(crate) fn put_back(thread: VppThread<'_>, buffer: Buffer, packet: &Packet<'_>) -> bool {
    let moved = buffer.headroom() as isize - packet.headroom() as isize;
    if buffer.len() as isize + moved <= 0 || packet.headroom() > PRE_DATA + usize::from(u16::MAX) {
        return false;
    }
    // SAFETY: a buffer of this thread is a chain.
    let chain = unsafe { mmb_shim_chain_length(thread.as_ptr(), buffer.as_ptr()) } as isize;
    if (packet.len() as isize) < chain + moved {
        return false;
    }
    // SAFETY: that many bytes are read.
    unsafe { mmb_shim_scatter(thread.as_ptr(), buffer.as_ptr(), packet.bytes().as_ptr(), moved as c_int) };
    true
}
