//! Which queue of an interface an AF_XDP socket serves.
//!
//! The driver of DPDK made the sockets, and the kernel does not tell. But a second socket may share the buffers of a socket without rings for
//! buffers of its own only if it is bound to the same queue (kernel documentation, `networking/af_xdp.rst`, XDP_SHARED_UMEM).

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// The sockets of all queues of an interface, from queue 0 on.
///
/// # Errors
/// They serve other queues, or the kernel does not show which.
pub(super) fn in_order(sockets: &[RawFd], interface: i32) -> Result<Vec<RawFd>, String> {
    let of_queue = |queue: u32| sockets.iter().copied().find(|&socket| serves(socket, interface, queue));
    let ordered: Option<Vec<RawFd>> = (0..sockets.len() as u32).map(of_queue).collect();
    ordered.ok_or_else(|| "the queues of its AF_XDP sockets are not known".to_owned())
}

fn serves(socket: RawFd, interface: i32, queue: u32) -> bool {
    let Ok(probe) = probe() else { return false };
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: libc::XDP_SHARED_UMEM,
        sxdp_ifindex: interface as u32,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: socket as u32,
    };
    let size = size_of_val(&address) as libc::socklen_t;
    // SAFETY: address and size are those of one structure.
    unsafe { libc::bind(probe.as_raw_fd(), (&raw const address).cast(), size) == 0 }
}

/// A socket with a ring for received frames, which nothing is sent to.
fn probe() -> std::io::Result<OwnedFd> {
    let entries: libc::c_int = 64;
    // SAFETY: makes a new descriptor, which then belongs to the value alone; value and size of the option belong together.
    unsafe {
        let fd = libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        let probe = OwnedFd::from_raw_fd(fd);
        let (value, size) = ((&raw const entries).cast(), size_of::<libc::c_int>() as libc::socklen_t);
        match libc::setsockopt(fd, libc::SOL_XDP, libc::XDP_RX_RING, value, size) {
            0 => Ok(probe),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}
