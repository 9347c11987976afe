//! Packet buffers: pools of them, and single ones that are moved, never copied.
//!
//! The owner of an [`Mbuf`] owns its buffer: sending gives it to a device, dropping returns it to its pool.
//! Pools live as long as the process, since devices and buffers in flight refer to them.

use crate::dpdk::eal::{Eal, refused};
use crate::dpdk::ffi::{self, RawMbuf};
use crate::error::PortError;
use arrayvec::ArrayVec;
use mmb_packet::{LinkType, Packet, PortId};
use std::ffi::{CString, c_void};
use std::ptr::NonNull;

/// The most packets of one vector.
pub const BURST: usize = 256;

/// Some packet buffers.
pub type Burst = ArrayVec<Mbuf, BURST>;

/// Free bytes in front of a frame in a fresh buffer.
pub const HEADROOM: usize = 128;

/// A pool of buffers of one size.
#[derive(Clone, Debug)]
pub struct MbufPool {
    raw: NonNull<c_void>,
    data_room: u16,
}

// SAFETY: DPDK's pools are made for use by many threads at once; the handle is never freed.
unsafe impl Send for MbufPool {}
// SAFETY: as above.
unsafe impl Sync for MbufPool {}

impl MbufPool {
    /// A pool of `count` buffers of `data_room` bytes each, headroom included.
    ///
    /// # Errors
    /// [`PortError::NoMemory`] if there is not enough memory.
    pub fn create(_eal: &Eal, name: &str, count: u32, data_room: u16) -> Result<MbufPool, PortError> {
        let bytes = MbufPool::memory(count, data_room);
        let name = CString::new(name).map_err(|_| refused("naming a pool", libc::EINVAL))?;
        // SAFETY: a C string; the environment runs, as `Eal` shows.
        let raw = unsafe { ffi::mmb_pool_create(name.as_ptr(), count, data_room) };
        match NonNull::new(raw) {
            Some(raw) => Ok(MbufPool { raw, data_room }),
            None => Err(PortError::NoMemory { mib: bytes.div_ceil(1 << 20) }),
        }
    }

    /// Bytes of memory that such a pool takes, rounded up generously: without huge pages, buffers below the size of
    /// a page take one.
    pub fn memory(count: u32, data_room: u16) -> usize {
        count as usize * (usize::from(data_room) + 256).max(4096 + 64)
    }

    /// The data room of buffers that fill a page, which AF_XDP needs.
    pub fn page_room() -> u16 {
        // SAFETY: computes a number from constants.
        unsafe { ffi::mmb_pool_page_room() }
    }

    /// The size of each buffer, headroom included.
    pub fn data_room(&self) -> u16 {
        self.data_room
    }

    /// True if the AF_XDP driver can use the pool.
    pub fn fits_xdp(&self) -> bool {
        // SAFETY: the pool lives as long as the process.
        unsafe { ffi::mmb_pool_fits_xdp(self.raw.as_ptr()) != 0 }
    }

    /// Appends `n` empty buffers, or none. False if the pool has run out or the burst has no room for them.
    #[inline]
    pub fn alloc(&self, burst: &mut Burst, n: usize) -> bool {
        if n > burst.remaining_capacity() {
            return false;
        }
        let length = burst.len();
        // SAFETY: `n` places lie behind the burst's elements, and on success each of them is a buffer that belongs
        // to us; `Mbuf` is transparent over `RawMbuf`.
        unsafe {
            let places = burst.as_mut_ptr().add(length).cast();
            if ffi::mmb_pool_alloc(self.raw.as_ptr(), places, n as u16) != 0 {
                return false;
            }
            burst.set_len(length + n);
        }
        true
    }

    /// A buffer with a copy of a frame in it; `None` if the pool has run out or the frame does not fit.
    pub fn copy(&self, frame: &[u8]) -> Option<Mbuf> {
        let mut burst = Burst::new();
        if HEADROOM + frame.len() > usize::from(self.data_room) || !self.alloc(&mut burst, 1) {
            return None;
        }
        let mut mbuf = burst.pop()?;
        mbuf.place(HEADROOM, frame.len());
        mbuf.frame_mut().copy_from_slice(frame);
        Some(mbuf)
    }

    pub(crate) fn raw(&self) -> *mut c_void {
        self.raw.as_ptr()
    }
}

/// The kind of a superframe, as its sender described it to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutFrom {
    /// TCP segments.
    Tcp,
    /// A train of UDP datagrams.
    Udp,
    /// A packet in a tunnel.
    Tunnel,
}

/// One packet buffer with a frame in it.
///
/// Invariant: `start + len <= room`, and `base` points to `room` bytes without another reference.
#[repr(transparent)]
#[derive(Debug)]
pub struct Mbuf(RawMbuf);

// SAFETY: the buffer belongs to this value alone, and DPDK takes buffers back from any thread.
unsafe impl Send for Mbuf {}

impl Mbuf {
    /// The frame as the engine sees it.
    #[inline]
    pub fn packet(&mut self, port: PortId) -> Packet<'_> {
        let (start, len) = (usize::from(self.0.start), usize::from(self.0.len));
        match Packet::new(self.buffer(), start, len, port, LinkType::Ethernet) {
            Some(packet) => packet,
            // The frame lies inside its buffer: DPDK says so of what it hands out, `place` checks the rest.
            None => unreachable!("start + len <= room"),
        }
    }

    /// Sets the place of the frame in its buffer.
    ///
    /// # Panics
    /// If the place is not inside the buffer.
    #[inline]
    pub fn place(&mut self, start: usize, len: usize) {
        assert!(start + len <= usize::from(self.0.room), "{start} + {len} > {}", self.0.room);
        self.0.start = start as u16;
        self.0.len = len as u16;
    }

    /// The whole buffer.
    #[inline]
    pub fn buffer(&mut self) -> &mut [u8] {
        // SAFETY: by the invariant; the memory was written at least once when it was mapped.
        unsafe { std::slice::from_raw_parts_mut(self.0.base, usize::from(self.0.room)) }
    }

    /// The frame.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: by the invariant.
        unsafe {
            std::slice::from_raw_parts(self.0.base.add(usize::from(self.0.start)), usize::from(self.0.len))
        }
    }

    /// The frame, to be written.
    #[inline]
    pub fn frame_mut(&mut self) -> &mut [u8] {
        let (start, len) = (usize::from(self.0.start), usize::from(self.0.len));
        &mut self.buffer()[start..start + len]
    }

    /// Length of the frame in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.0.len)
    }

    /// Length in bytes of the received frame, of which this may be only the first part.
    #[inline]
    pub fn whole_len(&self) -> usize {
        self.0.whole as usize
    }

    /// True if the frame has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// True if this is only the first part of a frame that did not fit in one buffer.
    #[inline]
    pub fn is_partial(&self) -> bool {
        self.0.flags & ffi::MBUF_PARTIAL != 0
    }

    /// Notes that the frame was cut from a superframe of this kind.
    #[inline]
    pub(crate) fn note_cut(&mut self, from: CutFrom) {
        self.0.flags |= match from {
            CutFrom::Tcp => ffi::MBUF_CUT_TCP,
            CutFrom::Udp => ffi::MBUF_CUT_UDP,
            CutFrom::Tunnel => ffi::MBUF_CUT_TUNNEL,
        };
    }

    /// The kind of superframe that the frame was cut from when it was received; `None` if it arrived as it is.
    #[inline]
    pub(crate) fn cut_from(&self) -> Option<CutFrom> {
        match self.0.flags & (ffi::MBUF_CUT_TCP | ffi::MBUF_CUT_UDP | ffi::MBUF_CUT_TUNNEL) {
            ffi::MBUF_CUT_TCP => Some(CutFrom::Tcp),
            ffi::MBUF_CUT_UDP => Some(CutFrom::Udp),
            ffi::MBUF_CUT_TUNNEL => Some(CutFrom::Tunnel),
            _ => None,
        }
    }

    /// Inserts bytes at an offset of the frame and moves the bytes in front of it. False, without a change, if the frame is shorter or
    /// there is no room in front.
    pub fn insert(&mut self, at: usize, bytes: &[u8]) -> bool {
        let (start, len) = (usize::from(self.0.start), self.len());
        let Some(front) = start.checked_sub(bytes.len()) else { return false };
        if at > len {
            return false;
        }
        let buffer = self.buffer();
        buffer.copy_within(start..start + at, front);
        buffer[front + at..start + at].copy_from_slice(bytes);
        self.place(front, len + bytes.len());
        true
    }

    /// Takes the VLAN tag that the driver removed from the frame.
    #[inline]
    pub(crate) fn take_vlan(&mut self) -> Option<u16> {
        let tagged = self.0.flags & ffi::MBUF_VLAN != 0;
        self.0.flags &= !ffi::MBUF_VLAN;
        tagged.then_some(self.0.tci)
    }
}

impl Drop for Mbuf {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the buffer belongs to us and is not used again.
        unsafe { ffi::mmb_mbuf_free(self.0.raw) }
    }
}

/// Buffers for the tests of this crate: DPDK starts once a process.
#[cfg(all(test, dpdk))]
pub(crate) mod testing {
    use super::*;
    use crate::dpdk::eal::EalOptions;
    use std::sync::OnceLock;

    pub(crate) fn pool() -> &'static MbufPool {
        static POOL: OnceLock<MbufPool> = OnceLock::new();
        POOL.get_or_init(|| {
            let eal =
                Eal::start(&EalOptions { memory: 64 << 20, ..EalOptions::default() }).expect("DPDK starts");
            MbufPool::create(&eal, "tests", 4096, MbufPool::page_room()).expect("enough memory")
        })
    }

    /// A buffer with that frame in it.
    pub(crate) fn mbuf(frame: &[u8]) -> Mbuf {
        pool().copy(frame).expect("one buffer")
    }
}

#[cfg(all(test, dpdk))]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_inserted_where_there_is_room_in_front() {
        let mut mbuf = testing::mbuf(b"abcdef");
        assert!(mbuf.insert(2, b"XY"));
        assert_eq!(mbuf.bytes(), b"abXYcdef");
        assert!(!mbuf.insert(9, b"Z"), "behind the end");
        assert!(!mbuf.insert(0, &[0; HEADROOM]), "more than the headroom");
        assert_eq!(mbuf.bytes(), b"abXYcdef");
        assert!(mbuf.insert(8, b"Z"));
        assert_eq!(mbuf.bytes(), b"abXYcdefZ");
    }

    #[test]
    fn the_view_and_the_buffer_are_the_same_bytes() {
        let mut mbuf = testing::mbuf(b"abcdef");
        let mut packet = mbuf.packet(PortId(3));
        assert_eq!((packet.bytes(), packet.port, packet.headroom()), (&b"abcdef"[..], PortId(3), HEADROOM));
        assert!(packet.shrink_front(2));
        packet.bytes_mut()[0] = b'C';
        let (start, len) = (packet.headroom(), packet.len());
        mbuf.place(start, len);
        assert_eq!(mbuf.bytes(), b"Cdef");
    }

    #[test]
    fn a_frame_is_copied_if_it_fits() {
        let room = usize::from(MbufPool::page_room()) - HEADROOM;
        assert_eq!(testing::pool().copy(&vec![7; room]).expect("it fits").bytes(), vec![7; room]);
        assert!(testing::pool().copy(&vec![7; room + 1]).is_none());
    }

    #[test]
    #[should_panic(expected = "> 3")]
    fn a_frame_is_never_placed_outside_its_buffer() {
        let mut mbuf = testing::mbuf(b"abc");
        let room = mbuf.buffer().len();
        mbuf.place(room - 2, 3);
    }

    #[test]
    fn a_pool_gives_all_buffers_or_none_and_gets_them_back() {
        let mut bursts = Vec::new();
        loop {
            let mut burst = Burst::new();
            if !testing::pool().alloc(&mut burst, BURST) {
                assert!(burst.is_empty());
                break;
            }
            bursts.push(burst);
        }
        assert!(bursts.len() >= 4096 / BURST - 2, "{}", bursts.len());
        drop(bursts);
        let mut burst = Burst::new();
        assert!(testing::pool().alloc(&mut burst, BURST));
        assert!(!testing::pool().alloc(&mut burst, 1), "a full burst");
    }
}
