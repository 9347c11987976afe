//! AF_PACKET sockets and their options.

use crate::error::PortError;
use crate::kernel::KernelInterface;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Memory for frames that wait in a socket because they are longer than a slot of its ring, in bytes: some 400 of the largest. The
/// kernel doubles it, for what it needs itself.
const RECEIVE_MEMORY: libc::c_int = 16 << 20;
/// Memory for frames that wait for the device.
const SEND_MEMORY: libc::c_int = 8 << 20;

/// The distribution of frames over the sockets of a group: by flow, the same for both directions. The kernel does not reassemble
/// fragments, and the host's own frames are not received.
const GROUP: u32 = libc::PACKET_FANOUT_HASH | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;

/// A socket on one interface.
#[derive(Debug)]
pub(super) struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// A socket that from [`PacketSocket::start`] on receives every incoming frame of the interface, and no outgoing one.
    pub(super) fn receiving(interface: &KernelInterface) -> Result<PacketSocket, PortError> {
        let socket = PacketSocket::open()?;
        let doing = |what: &str| format!("interface {}: {what}", interface.name());
        socket
            .set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1)
            .map_err(|()| PortError::system(doing("offload headers")))?;
        socket
            .set(libc::SOL_PACKET, libc::PACKET_AUXDATA, &1)
            .map_err(|()| PortError::system(doing("VLAN tags")))?;
        socket
            .set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1)
            .map_err(|()| PortError::system(doing("leaving out sent frames")))?;
        socket
            .promiscuous(interface.index())
            .map_err(|()| PortError::system(doing("receiving for every address")))?;
        socket.memory(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, RECEIVE_MEMORY);
        Ok(socket)
    }

    /// Starts to receive.
    pub(super) fn start(&self, interface: &KernelInterface) -> Result<(), PortError> {
        let doing = || format!("interface {}: receiving", interface.name());
        let every = (libc::ETH_P_ALL as u16).to_be();
        self.bind(interface.index(), every).map_err(|()| PortError::system(doing()))
    }

    /// A socket that sends by the interface of that number and receives nothing. A `virtio_net_hdr` is in front of each frame.
    pub(super) fn sending(index: i32) -> Result<PacketSocket, PortError> {
        let socket = PacketSocket::open()?;
        let failed = |()| PortError::system("opening an interface for sending");
        socket.set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1).map_err(failed)?;
        socket.memory(libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, SEND_MEMORY);
        socket.bind(index, 0).map_err(failed)?;
        Ok(socket)
    }

    /// Joins a group of sockets that share the frames of the interface, or founds one; gives the group's number.
    pub(super) fn join_group(&self, group: Option<u16>) -> Result<u16, PortError> {
        let failed = |()| PortError::system("sharing an interface among workers");
        let (number, flags) = match group {
            Some(number) => (number, GROUP),
            None => (0, GROUP | libc::PACKET_FANOUT_FLAG_UNIQUEID),
        };
        let value = (u32::from(number) | flags << 16) as libc::c_int;
        self.set(libc::SOL_PACKET, libc::PACKET_FANOUT, &value).map_err(failed)?;
        let mut joined: libc::c_int = 0;
        self.ask(libc::PACKET_FANOUT, &mut joined).map_err(failed)?;
        Ok(joined as u16)
    }

    /// Frames that found the socket full since the last call.
    pub(super) fn take_drops(&self) -> u64 {
        // struct tpacket_stats: packets, of which dropped.
        let mut stats = [0u32; 2];
        match self.ask(libc::PACKET_STATISTICS, &mut stats) {
            Ok(()) => stats[1].into(),
            Err(()) => 0,
        }
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    fn open() -> Result<PacketSocket, PortError> {
        // SAFETY: makes a new descriptor, which then belongs to the value alone.
        unsafe {
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            if fd < 0 {
                return Err(PortError::system("opening a packet socket"));
            }
            Ok(PacketSocket(OwnedFd::from_raw_fd(fd)))
        }
    }

    fn bind(&self, index: i32, protocol: u16) -> Result<(), ()> {
        // SAFETY: all zeros is a valid value of this plain structure.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = index;
        let size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: address and size are those of one structure.
        let result = unsafe { libc::bind(self.descriptor(), (&raw const address).cast(), size) };
        if result == 0 { Ok(()) } else { Err(()) }
    }

    fn promiscuous(&self, index: i32) -> Result<(), ()> {
        // SAFETY: all zeros is a valid value of this plain structure.
        let mut request: libc::packet_mreq = unsafe { std::mem::zeroed() };
        request.mr_ifindex = index;
        request.mr_type = libc::PACKET_MR_PROMISC as u16;
        self.set(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)
    }

    /// More memory than ordinary programs may have, or as much as they may.
    fn memory(&self, force: libc::c_int, ask: libc::c_int, bytes: libc::c_int) {
        if self.set(libc::SOL_SOCKET, force, &bytes).is_err() {
            // Less memory is no failure: frames are then lost sooner under load, and counted.
            let _ = self.set(libc::SOL_SOCKET, ask, &bytes);
        }
    }

    pub(super) fn set<T>(&self, level: libc::c_int, option: libc::c_int, value: &T) -> Result<(), ()> {
        let size = size_of::<T>() as libc::socklen_t;
        // SAFETY: value and size belong together, and the kernel only reads.
        let result = unsafe {
            libc::setsockopt(self.descriptor(), level, option, std::ptr::from_ref(value).cast(), size)
        };
        if result == 0 { Ok(()) } else { Err(()) }
    }

    fn ask<T: Copy>(&self, option: libc::c_int, value: &mut T) -> Result<(), ()> {
        let mut size = size_of::<T>() as libc::socklen_t;
        // SAFETY: place and size belong together; only integers, for which any bytes will do, are asked for.
        let result = unsafe {
            let place = std::ptr::from_mut(value).cast();
            libc::getsockopt(self.descriptor(), libc::SOL_PACKET, option, place, &mut size)
        };
        if result == 0 { Ok(()) } else { Err(()) }
    }
}

/// Makes an interface receive frames for every address until it is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct Promiscuous {
    _socket: PacketSocket,
}

impl Promiscuous {
    /// # Errors
    /// A refusal by the kernel.
    pub(crate) fn new(interface: &KernelInterface) -> Result<Promiscuous, PortError> {
        let socket = PacketSocket::open()?;
        let doing = || format!("interface {}: receiving for every address", interface.name());
        socket.promiscuous(interface.index()).map_err(|()| PortError::system(doing()))?;
        Ok(Promiscuous { _socket: socket })
    }
}
