//! The functions of `shim/dpdk.h`, which documents them, and their structures.
//!
//! Built without DPDK the same functions exist, and the one that everything else follows, [`mmb_eal_start`], fails.

use std::ffi::{c_char, c_int, c_void};

/// The driver took a VLAN tag out of the frame.
pub(crate) const MBUF_VLAN: u32 = 1;
/// The frame lies in several buffers.
pub(crate) const MBUF_PARTIAL: u32 = 2;
/// The frame was cut from a superframe: of TCP, of UDP, or of a packet in a tunnel. Only this side sets these.
pub(crate) const MBUF_CUT_TCP: u32 = 4;
pub(crate) const MBUF_CUT_UDP: u32 = 8;
pub(crate) const MBUF_CUT_TUNNEL: u32 = 16;

/// `struct mmb_mbuf`
#[repr(C)]
#[derive(Debug)]
pub(crate) struct RawMbuf {
    pub(crate) raw: *mut c_void,
    pub(crate) base: *mut u8,
    pub(crate) room: u16,
    pub(crate) start: u16,
    pub(crate) len: u16,
    pub(crate) tci: u16,
    pub(crate) flags: u32,
    pub(crate) whole: u32,
}

const _: () = assert!(size_of::<RawMbuf>() == 32);

/// `struct mmb_port_info`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RawPortInfo {
    pub(crate) driver: [u8; 32],
    pub(crate) mac: [u8; 6],
    pub(crate) max_queues: u16,
    pub(crate) max_mtu: u32,
    pub(crate) mtu: u16,
    pub(crate) link: u8,
}

const _: () = assert!(size_of::<RawPortInfo>() == 48);

/// `struct mmb_port_stats`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RawPortStats {
    pub(crate) rx_missed: u64,
    pub(crate) rx_errors: u64,
    pub(crate) rx_nombuf: u64,
    pub(crate) tx_errors: u64,
}

macro_rules! shim {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)? = $absent:expr;)*) => {
        #[cfg(dpdk)]
        unsafe extern "C" {
            $(pub(crate) fn $name($($arg: $type),*) $(-> $result)?;)*
        }
        $(
            #[cfg(not(dpdk))]
            pub(crate) unsafe fn $name($($arg: $type),*) $(-> $result)? {
                $(let _ = $arg;)*
                $absent
            }
        )*
    };
}

// Behind `=`: what the function gives in a build without DPDK. All but `mmb_eal_start` are only called after it
// succeeded, so that there their results are never seen.
shim! {
    fn mmb_eal_start(argc: c_int, argv: *mut *mut c_char) -> c_int = -libc::ENOSYS;
    fn mmb_log_take(buffer: *mut u8, size: usize) -> usize = 0;
    fn mmb_thread_register() -> c_int = -libc::ENOSYS;
    fn mmb_thread_unregister() = ();
    fn mmb_pool_create(name: *const c_char, count: u32, data_room: u16) -> *mut c_void = std::ptr::null_mut();
    fn mmb_pool_page_room() -> u16 = 0;
    fn mmb_pool_fits_xdp(pool: *const c_void) -> c_int = 0;
    fn mmb_pool_alloc(pool: *mut c_void, buffers: *mut RawMbuf, n: u16) -> c_int = -libc::ENOSYS;
    fn mmb_mbuf_free(raw: *mut c_void) = ();
    fn mmb_port_attach(devargs: *const c_char, port: *mut u16) -> c_int = -libc::ENOSYS;
    fn mmb_port_setup(port: u16, queues: u16, descriptors: u16, mtu: u16, pool: *mut c_void) -> c_int = -libc::ENOSYS;
    fn mmb_port_start(port: u16) -> c_int = -libc::ENOSYS;
    fn mmb_port_promiscuous(port: u16) -> c_int = -libc::ENOSYS;
    fn mmb_port_close(port: u16) -> c_int = -libc::ENOSYS;
    fn mmb_port_info(port: u16, info: *mut RawPortInfo) -> c_int = -libc::ENOSYS;
    fn mmb_port_stats(port: u16, stats: *mut RawPortStats) -> c_int = -libc::ENOSYS;
    fn mmb_port_receive(port: u16, queue: u16, buffers: *mut RawMbuf, n: u16) -> u16 = 0;
    fn mmb_port_send(port: u16, queue: u16, buffers: *const RawMbuf, n: u16) -> u16 = 0;
}
