//! A buffer's header, as far as the nodes look at it.

use mmb_packet::{LinkType, Packet, PortId};
use vpp_plugin::bindings::{
    VLIB_BUFFER_IS_TRACED, VLIB_BUFFER_NEXT_PRESENT, VLIB_BUFFER_PRE_DATA_SIZE, VNET_BUFFER_F_GSO,
    VNET_BUFFER_F_L3_HDR_OFFSET_VALID, VNET_BUFFER_F_L4_HDR_OFFSET_VALID, VNET_BUFFER_F_OFFLOAD,
    vlib_buffer_t, vlib_buffer_t__bindgen_ty_1, vlib_buffer_t__bindgen_ty_1__bindgen_ty_1__bindgen_ty_1,
    vlib_error_t,
};
use vpp_plugin::vlib::{BufferRef, MainRef};

/// So many buffers ahead their headers are asked for.
pub(super) const AHEAD: usize = 8;

/// Bytes in front of a buffer's data.
pub(super) const PRE_DATA: usize = VLIB_BUFFER_PRE_DATA_SIZE as usize;

/// A buffer that a node was given, and that is the node's until it is sent on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffer(*mut vlib_buffer_t);

/// How VPP finds a thread's buffers.
#[derive(Clone, Copy, Debug)]
pub(super) struct BufferPool {
    base: *mut u8,
    /// Bytes of a buffer from its pre-data to its end.
    size: usize,
}

impl BufferPool {
    pub(super) fn of(vm: &MainRef) -> BufferPool {
        // SAFETY: VPP's state of this thread; the buffers are mapped before nodes run, once for all.
        let base = unsafe { (*(*vm.as_ptr()).buffer_main).buffer_mem_start };
        BufferPool { base: base as *mut u8, size: PRE_DATA + vm.buffer_default_data_size() as usize }
    }

    /// Bytes from the begin of a buffer's pre-data to its end.
    pub(super) fn data_end(self) -> usize {
        self.size
    }

    /// Asks for a buffer's header.
    #[inline(always)]
    pub(super) fn fetch(self, index: u32) {
        let header = self.base.wrapping_add((index as usize) << 6);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: nothing is read that the program could see.
        unsafe {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(header.cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = header;
    }

    /// The buffer of an index.
    ///
    /// # Safety
    /// The index is one that VPP gave the node.
    #[inline(always)]
    pub(super) unsafe fn buffer(self, index: u32) -> Buffer {
        // VPP counts buffers in cache lines.
        // SAFETY: that is inside the mapped buffers, says the caller.
        Buffer(unsafe { self.base.add((index as usize) << 6) }.cast())
    }
}

impl Buffer {
    #[inline(always)]
    fn details<'a>(self) -> &'a mut vlib_buffer_t__bindgen_ty_1 {
        // SAFETY: the buffer is this node's, and no reference to it outlives a statement. The union is for alignment only.
        unsafe { (*self.0).__bindgen_anon_1.as_mut() }
    }

    #[inline(always)]
    fn header<'a>(self) -> &'a mut vlib_buffer_t__bindgen_ty_1__bindgen_ty_1__bindgen_ty_1 {
        // SAFETY: as in `details`.
        unsafe { self.details().__bindgen_anon_1.__bindgen_anon_1.as_mut() }
    }

    pub(super) fn as_ptr(self) -> *mut vlib_buffer_t {
        self.0
    }

    /// The same as vpp-plugin has it.
    ///
    /// # Safety
    /// No other reference to it is in use.
    pub(super) unsafe fn as_ref<'a>(self) -> &'a mut BufferRef<()> {
        // SAFETY: as the caller says.
        unsafe { BufferRef::from_ptr_mut(self.0) }
    }

    /// Where it stands on its way through VPP's features.
    #[inline(always)]
    pub(super) fn feature(self) -> u32 {
        // SAFETY: both names of this number are numbers.
        unsafe { self.header().__bindgen_anon_1.current_config_index }
    }

    /// It stands there now.
    pub(super) fn set_feature(self, place: u32) {
        self.header().__bindgen_anon_1.current_config_index = place;
    }

    /// The interface that it came in by.
    #[inline(always)]
    pub(super) fn interface(self) -> u32 {
        self.header().opaque[0]
    }

    #[inline(always)]
    fn has(self, flag: u32) -> bool {
        self.header().flags & flag != 0
    }

    #[inline(always)]
    pub(super) fn is_traced(self) -> bool {
        self.has(VLIB_BUFFER_IS_TRACED)
    }

    /// Whether there are more buffers of its packet.
    #[inline(always)]
    pub(super) fn is_chained(self) -> bool {
        self.has(VLIB_BUFFER_NEXT_PRESENT)
    }

    /// Whether it is more than one whole packet: see [`Buffer::is_chained`] and [`Buffer::is_unfinished`].
    #[inline(always)]
    pub(super) fn is_special(self) -> bool {
        self.has(VLIB_BUFFER_NEXT_PRESENT | VNET_BUFFER_F_OFFLOAD as u32)
    }

    /// Whether a sender left checksums to hardware.
    #[inline(always)]
    pub(super) fn is_unfinished(self) -> bool {
        self.has(VNET_BUFFER_F_OFFLOAD as u32)
    }

    /// Whether something beside the packet tells where its headers lie.
    #[inline(always)]
    pub(super) fn is_described(self) -> bool {
        let flags = VNET_BUFFER_F_L3_HDR_OFFSET_VALID | VNET_BUFFER_F_L4_HDR_OFFSET_VALID | VNET_BUFFER_F_GSO;
        self.has(flags as u32)
    }

    /// Bytes free in front of the packet; none if the header is wrong about it.
    #[inline(always)]
    pub(super) fn headroom(self) -> usize {
        usize::try_from(PRE_DATA as isize + isize::from(self.header().current_data)).unwrap_or(0)
    }

    /// Bytes in this buffer.
    #[inline(always)]
    pub(super) fn len(self) -> usize {
        usize::from(self.header().current_length)
    }

    /// Whether its packet of that family (0: IPv4, 1: IPv6) goes to many, by which VPP chooses the arc.
    pub(super) fn is_multicast(self, family: u32) -> bool {
        let (at, of_many): (usize, fn(u8) -> bool) =
            if family == 0 { (16, |first| first >> 4 == 0xe) } else { (24, |first| first == 0xff) };
        let destination = self.headroom() + at;
        let end = self.headroom() + self.len();
        // SAFETY: the pre-data and the data lie behind each other, and what the header says of the packet lies in them.
        destination < end && of_many(unsafe { *self.details().pre_data.as_ptr().add(destination) })
    }

    /// The packet has another place in its buffer now.
    #[inline(always)]
    pub(super) fn place(self, start: usize, len: usize) {
        let header = self.header();
        // Both lie inside a buffer, which is smaller than 32 KB.
        header.current_data = (start as isize - PRE_DATA as isize) as i16;
        header.current_length = len as u16;
    }

    /// Why it is dropped, by VPP's number.
    #[inline(always)]
    pub(super) fn set_error(self, error: vlib_error_t) {
        self.header().error = error;
    }

    /// The packet of a buffer that is alone; `None` if the header is wrong about where it lies.
    ///
    /// # Safety
    /// The buffer is of that pool, and nobody else looks into it as long as the packet is used.
    #[inline(always)]
    pub(super) unsafe fn packet<'a>(self, pool: BufferPool, port: PortId) -> Option<Packet<'a>> {
        let start = self.details().pre_data.as_mut_ptr();
        // SAFETY: the pre-data and the data lie behind each other, and have this size in all buffers of the pool.
        let bytes = unsafe { std::slice::from_raw_parts_mut(start, pool.size) };
        if isize::from(self.header().current_data) < -(PRE_DATA as isize) {
            return None;
        }
        Packet::new(bytes, self.headroom(), self.len(), port, LinkType::RawIp)
    }
}
