//! Buffers: their headers as far as nodes read them, and the operations that VPP has only as inline functions (`buffers.c`).

use super::thread::VppThread;
use mmb_packet::{LinkType, Packet, PortId};
use std::mem::offset_of;
use std::os::raw::c_int;
use vpp_plugin::bindings::{
    VLIB_BUFFER_IS_TRACED, VLIB_BUFFER_NEXT_PRESENT, VLIB_BUFFER_PRE_DATA_SIZE, VNET_BUFFER_F_GSO,
    VNET_BUFFER_F_L3_HDR_OFFSET_VALID, VNET_BUFFER_F_L4_HDR_OFFSET_VALID, VNET_BUFFER_F_OFFLOAD,
    vlib_buffer_t, vlib_buffer_t__bindgen_ty_1, vlib_buffer_t__bindgen_ty_1__bindgen_ty_1__bindgen_ty_1,
    vlib_error_t, vlib_main_t,
};
use vpp_plugin::vlib::BufferRef;

/// The distance in a frame at which nodes prefetch headers.
pub(crate) const AHEAD: usize = 8;

/// Bytes in front of a buffer's data.
pub(super) const PRE_DATA: usize = VLIB_BUFFER_PRE_DATA_SIZE as usize;

/// VPP counts buffers in cache lines: shifting an index by this gives its offset in bytes.
const INDEX_SHIFT: usize = 6;

// buffers.c asserts the same of VPP's headers.
const _: () = assert!(size_of::<vlib_buffer_t>() == 128 + PRE_DATA);
const _: () = assert!(size_of::<BufferMetadata>() == 100);
const _: () = assert!(offset_of!(BufferMetadata, flags) == 0);
const _: () = assert!(offset_of!(BufferMetadata, opaque) == 4);
const _: () = assert!(offset_of!(BufferMetadata, opaque2) == 44);

unsafe extern "C" {
    fn mmb_shim_finish_checksums(vm: *mut vlib_main_t, buffer: *mut vlib_buffer_t);
    fn mmb_shim_save_metadata(buffer: *mut vlib_buffer_t, metadata: *mut BufferMetadata);
    fn mmb_shim_moved(buffer: *mut vlib_buffer_t, moved: i32, grown: i32);
    fn mmb_shim_alloc_copy(
        vm: *mut vlib_main_t,
        metadata: *const BufferMetadata,
        bytes: *const u8,
        count: u32,
        index: *mut u32,
    ) -> c_int;
    fn mmb_shim_alloc_made(
        vm: *mut vlib_main_t,
        family: u32,
        interface: u32,
        bytes: *const u8,
        count: u32,
        index: *mut u32,
    ) -> c_int;
}

/// The index of a buffer that VPP gave to a node.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BufferIndex(pub(super) u32);

/// A buffer of a node, until the node sends it on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer(*mut vlib_buffer_t);

/// The metadata of a packet whose buffer is freed; `mmb_buffer_metadata_t` in buffers.c.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BufferMetadata {
    flags: u32,
    opaque: [u32; 10],
    opaque2: [u32; 14],
}

impl BufferIndex {
    /// A buffer with a copy of these bytes that seems to have come in by an interface; `None` if VPP has no buffer.
    pub(crate) fn alloc_made(
        thread: VppThread<'_>,
        family: u32,
        interface: u32,
        bytes: &[u8],
    ) -> Option<BufferIndex> {
        let mut index = 0;
        let (start, count) = (bytes.as_ptr(), bytes.len() as u32);
        // SAFETY: VPP copies the bytes to a buffer that it allocates.
        let done =
            unsafe { mmb_shim_alloc_made(thread.as_ptr(), family, interface, start, count, &mut index) };
        (done != 0).then_some(BufferIndex(index))
    }
}

/// The memory of a thread's buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BufferPool {
    base: *mut u8,
    /// Bytes of a buffer from its pre-data to its end.
    size: usize,
}

impl BufferMetadata {
    /// A buffer, or a chain, with a copy of these bytes and this metadata; `None` if VPP has no buffer.
    pub(crate) fn alloc_copy(&self, thread: VppThread<'_>, bytes: &[u8]) -> Option<BufferIndex> {
        let mut index = 0;
        let (start, count) = (bytes.as_ptr(), bytes.len() as u32);
        // SAFETY: VPP copies the bytes to buffers that it allocates; the layout of the metadata is asserted above.
        let done = unsafe { mmb_shim_alloc_copy(thread.as_ptr(), self, start, count, &mut index) };
        (done != 0).then_some(BufferIndex(index))
    }
}

impl BufferPool {
    #[inline(always)]
    pub(crate) fn of(thread: VppThread<'_>) -> BufferPool {
        let vm = thread.as_ref();
        // SAFETY: VPP's state of this thread; the buffers are mapped before nodes run, once for all.
        let base = unsafe { (*(*vm.as_ptr()).buffer_main).buffer_mem_start };
        BufferPool { base: base as *mut u8, size: PRE_DATA + vm.buffer_default_data_size() as usize }
    }

    /// Bytes from the start of a buffer's pre-data to its end.
    pub(super) fn data_end(self) -> usize {
        self.size
    }

    /// Prefetches a buffer's header.
    #[inline(always)]
    pub(crate) fn prefetch(self, index: BufferIndex) {
        let header = self.base.wrapping_add((index.0 as usize) << INDEX_SHIFT);
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
    #[inline(always)]
    pub(crate) fn buffer(self, index: BufferIndex) -> Buffer {
        // SAFETY: VPP made the index, so that the place lies inside the mapped buffers.
        Buffer(unsafe { self.base.add((index.0 as usize) << INDEX_SHIFT) }.cast())
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

    /// The buffer as a type of vpp-plugin.
    ///
    /// # Safety
    /// No other reference to it is in use.
    pub(super) unsafe fn as_ref<'a>(self) -> &'a mut BufferRef<()> {
        // SAFETY: as the caller says.
        unsafe { BufferRef::from_ptr_mut(self.0) }
    }

    /// Its position in the configuration of VPP's features.
    #[inline(always)]
    pub(crate) fn feature(self) -> u32 {
        // SAFETY: both names of this number are numbers.
        unsafe { self.header().__bindgen_anon_1.current_config_index }
    }

    /// Sets its position in the configuration of VPP's features.
    pub(crate) fn set_feature(self, position: u32) {
        self.header().__bindgen_anon_1.current_config_index = position;
    }

    /// The interface that it came in by.
    #[inline(always)]
    pub(crate) fn interface(self) -> u32 {
        self.header().opaque[0]
    }

    #[inline(always)]
    fn has(self, flag: u32) -> bool {
        self.header().flags & flag != 0
    }

    #[inline(always)]
    pub(crate) fn is_traced(self) -> bool {
        self.has(VLIB_BUFFER_IS_TRACED)
    }

    /// True if its packet continues in another buffer.
    #[inline(always)]
    pub(crate) fn is_chained(self) -> bool {
        self.has(VLIB_BUFFER_NEXT_PRESENT)
    }

    /// True if it is chained or unfinished: see [`Buffer::is_chained`] and [`Buffer::is_unfinished`].
    #[inline(always)]
    pub(crate) fn is_special(self) -> bool {
        self.has(VLIB_BUFFER_NEXT_PRESENT | VNET_BUFFER_F_OFFLOAD as u32)
    }

    /// True if the sender left checksums to hardware.
    #[inline(always)]
    pub(crate) fn is_unfinished(self) -> bool {
        self.has(VNET_BUFFER_F_OFFLOAD as u32)
    }

    /// True if metadata beside the packet says where its headers lie.
    #[inline(always)]
    pub(crate) fn is_described(self) -> bool {
        let flags = VNET_BUFFER_F_L3_HDR_OFFSET_VALID | VNET_BUFFER_F_L4_HDR_OFFSET_VALID | VNET_BUFFER_F_GSO;
        self.has(flags as u32)
    }

    /// Free bytes in front of the packet; zero if the header is wrong.
    #[inline(always)]
    pub(crate) fn headroom(self) -> usize {
        usize::try_from(PRE_DATA as isize + isize::from(self.header().current_data)).unwrap_or(0)
    }

    /// Bytes in this buffer.
    #[inline(always)]
    pub(crate) fn len(self) -> usize {
        usize::from(self.header().current_length)
    }

    /// True if its packet of that family (0: IPv4, 1: IPv6) has a multicast destination, by which VPP chooses the arc.
    pub(crate) fn is_multicast(self, family: u32) -> bool {
        let (at, is_multicast): (usize, fn(u8) -> bool) =
            if family == 0 { (16, |first| first >> 4 == 0xe) } else { (24, |first| first == 0xff) };
        let destination = self.headroom() + at;
        let end = self.headroom() + self.len();
        // SAFETY: the data follow the pre-data, and the packet lies in both, says the header.
        destination < end && is_multicast(unsafe { *self.details().pre_data.as_ptr().add(destination) })
    }

    /// Moves the packet to another place in its buffer.
    #[inline(always)]
    pub(crate) fn place(self, start: usize, len: usize) {
        let header = self.header();
        // Both lie inside a buffer, which is smaller than 32 KB.
        header.current_data = (start as isize - PRE_DATA as isize) as i16;
        header.current_length = len as u16;
    }

    /// Sets VPP's error number of the drop.
    #[inline(always)]
    pub(crate) fn set_error(self, error: vlib_error_t) {
        self.header().error = error;
    }

    /// The packet of a buffer without a chain; `None` if the header is wrong about its place. No other view of the buffer may be in use.
    #[inline(always)]
    pub(crate) fn packet<'a>(self, pool: BufferPool, port: PortId) -> Option<Packet<'a>> {
        let start = self.details().pre_data.as_mut_ptr();
        // SAFETY: the data follow the pre-data, and both together have this size in all buffers of the pool. The nodes make one view of
        // each buffer, and drop it before they send the buffer on.
        let bytes = unsafe { std::slice::from_raw_parts_mut(start, pool.size) };
        if isize::from(self.header().current_data) < -(PRE_DATA as isize) {
            return None;
        }
        Packet::new(bytes, self.headroom(), self.len(), port, LinkType::RawIp)
    }

    /// Computes the checksums that the sender left to hardware, so that rules see what a wire would carry.
    pub(crate) fn finish_checksums(self, thread: VppThread<'_>) {
        // SAFETY: VPP's own function, on a buffer of the node.
        unsafe { mmb_shim_finish_checksums(thread.as_ptr(), self.0) }
    }

    /// Copies its metadata.
    pub(crate) fn save_metadata(self, metadata: &mut BufferMetadata) {
        // SAFETY: the buffer is the node's; the layout of the copy is asserted above.
        unsafe { mmb_shim_save_metadata(self.0, metadata) }
    }

    /// Adjusts metadata about the headers: they moved `moved` bytes towards the start of the buffer, and the packet grew by `grown` bytes.
    pub(crate) fn moved(self, moved: i32, grown: i32) {
        // SAFETY: the buffer is the node's.
        unsafe { mmb_shim_moved(self.0, moved, grown) }
    }
}
