//! Kernel interfaces through AF_PACKET sockets: what works on every interface at every MTU.
//!
//! The frames are those that the kernel's own stack would get, with its metadata: VLAN tags beside the
//! frame, unfinished checksums, segments that were merged on receipt or never cut by the sender. Each frame has
//! headers that say so (`virtio_net_hdr`, `tpacket2_hdr`, `tpacket_auxdata`), and this module completes it, so that a queue
//! delivers frames as a wire would carry them. Frames arrive in rings (`ring`) and leave in batches (`batch`).
//!
//! DPDK has a driver for the same sockets, which is not used: it has the kernel reassemble IP fragments, sees
//! what the kernel's stack sends itself, loses which kind of tag it was, and cannot tell merged segments from large
//! frames. The frames that it sends lie in memory that a receiver behind a veth may still be reading.
//!
//! Life-cycle: [`PacketPort::open`] makes the sockets; each worker gets a receiver and a sender; all share the
//! sockets' life, so that closing is dropping.

mod batch;
mod encapsulate;
mod finish;
mod receive;
mod ring;
mod send;
mod socket;

use crate::error::PortError;
use crate::flows::{Attachment, FlowHook, FlowPrograms, FlowQueue};
use crate::kernel::KernelInterface;
use crate::mbuf::MbufPool;
use crate::pools::LINK_HEADER;
use encapsulate::Encapsulator;
pub(crate) use receive::Receiver;
use ring::FrameRing;
pub(crate) use send::Sender;
use socket::PacketSocket;
pub(crate) use socket::Promiscuous;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The driver's name in `show ports`.
pub(crate) const DRIVER: &str = "af_packet";

/// A worker's ring, and the queue of its flows if the kernel forwards some.
type WorkerRing = (FrameRing, Option<FlowQueue>);

/// One interface with a receiving socket for every worker.
#[derive(Debug)]
pub(crate) struct PacketPort {
    receiving: Vec<Arc<PacketSocket>>,
    /// The ring of each socket, and the queue of its flows, until its receiver has them.
    rings: Mutex<Vec<Option<WorkerRing>>>,
    index: i32,
    pool: MbufPool,
    missed: Arc<AtomicU64>,
    /// The program at tc ingress that belongs to the filters of the sockets.
    attachment: Option<Attachment>,
    /// `None` if the process may not load programs, or the kernel lacks what they need.
    encapsulator: Option<Arc<Encapsulator>>,
}

impl PacketPort {
    /// Where the program that forwards flows is attached, if there is one.
    pub(crate) fn flow_hook(&self) -> Option<FlowHook> {
        self.attachment.as_ref().map(Attachment::hook)
    }

    /// Opens sockets on an interface, which from then on receives frames for every address.
    ///
    /// # Errors
    /// A refusal by the kernel, mostly without CAP_NET_RAW.
    pub(crate) fn open(
        interface: &KernelInterface,
        workers: u16,
        mtu: u32,
        pool: &MbufPool,
        flows: Option<(&mut FlowPrograms, Attachment)>,
    ) -> Result<PacketPort, PortError> {
        let (mut programs, attachment) = flows.unzip();
        let (mut receiving, mut rings) = (Vec::new(), Vec::new());
        let mut group = None;
        for worker in 0..workers {
            let socket = PacketSocket::receiving(interface)?;
            let ring = FrameRing::new(&socket, (mtu + LINK_HEADER) as usize)?;
            let mut queue = None;
            if let Some(programs) = &mut programs {
                queue = programs.flow_queue(interface.name(), worker);
                programs.filter(socket.as_fd()).map_err(|why| PortError::Device {
                    device: interface.name().to_owned(),
                    why,
                    remedy: "`set offload off` in the policy file leaves the filter out",
                })?;
            }
            socket.start(interface)?;
            if workers > 1 {
                group = Some(socket.join_group(group)?);
            }
            receiving.push(Arc::new(socket));
            rings.push(Some((ring, queue)));
        }
        let (rings, missed) = (Mutex::new(rings), Arc::new(AtomicU64::new(0)));
        let encapsulator = Encapsulator::new(interface.index()).ok().map(Arc::new);
        Ok(PacketPort {
            receiving,
            rings,
            index: interface.index(),
            pool: pool.clone(),
            missed,
            attachment,
            encapsulator,
        })
    }

    /// The receiver of a worker.
    ///
    /// # Panics
    /// If it was asked for before: frames of one socket have one receiver.
    pub(crate) fn receiver(&self, worker: u16) -> Receiver {
        let number = usize::from(worker);
        let ring = self.rings.lock().unwrap_or_else(PoisonError::into_inner)[number].take();
        let (ring, queue) = ring.unwrap_or_else(|| panic!("worker {worker} has its receiver already"));
        let socket = Arc::clone(&self.receiving[number]);
        Receiver::new(socket, (ring, queue), Arc::clone(&self.missed), self.pool.clone())
    }

    /// A sender; there may be any number.
    ///
    /// # Errors
    /// A refusal by the kernel.
    pub(crate) fn sender(&self) -> Result<Sender, PortError> {
        let slot = self.encapsulator.as_ref().and_then(Encapsulator::slot);
        Ok(Sender::new(PacketSocket::sending(self.index)?, self.index, slot))
    }

    /// The descriptor that becomes readable when frames arrive for a worker.
    pub(crate) fn descriptor(&self, worker: u16) -> RawFd {
        self.receiving[usize::from(worker)].descriptor()
    }

    /// Frames that arrived when the rings or the sockets were full.
    pub(crate) fn missed(&self) -> u64 {
        // The kernel starts again from zero each time that it is asked.
        let new: u64 = self.receiving.iter().map(|socket| socket.take_drops()).sum();
        self.missed.fetch_add(new, Ordering::Relaxed) + new
    }
}
