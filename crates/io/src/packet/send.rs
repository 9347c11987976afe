//! Sending many frames a system call: by a program that sends them without interruption (`batch`), or by a socket. Either way the
//! kernel copies each frame, so that buffers are free again when the call returns.
//!
//! Frames that were cut from one when they were received are joined again if they still go together, and leave as a superframe, which the
//! kernel or the device cuts only if its receiver needs that. What a receiver gets is the same, byte for byte. Those in a tunnel leave by `encapsulate`.

use super::batch::{FrameBatch, Run, RunEnd};
use super::encapsulate::{Encapsulated, EncapsulatorSlot};
use super::finish::VirtioNetHdr;
use super::socket::PacketSocket;
use crate::mbuf::{BURST, Burst, CutFrom, Mbuf};
use crate::queue::{SendQueue, SentFrames};
use mmb_packet::proto::UDP;
use mmb_packet::{Joinable, Superframe};
use std::os::fd::RawFd;

/// One worker's sending side of an interface.
#[derive(Debug)]
pub(crate) struct Sender {
    socket: PacketSocket,
    /// `None` if the process may not load programs, or the kernel lacks what they need.
    batch: Option<FrameBatch>,
    /// The superframes that the kernel takes. Those of UDP need Linux 6.2.
    joinable: Joinable,
    /// `None` if superframes in tunnels cannot be sent.
    tunnels: Option<EncapsulatorSlot>,
    /// Superframes in tunnels that failed, one after the other.
    failures: u32,
    /// For so many bursts more, no superframes in tunnels are tried.
    pause: u32,
    /// The last frame found no room.
    is_stuck: bool,
    /// Frames that find no room are lost.
    is_last: bool,
    vectors: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
}

/// After so many failures, one after the other, no superframes in tunnels are tried for a while: each one costs a system call for nothing.
const MAX_FAILURES: u32 = 16;
/// That while, in bursts.
const PAUSE: u32 = 10_000;

// SAFETY: the pointers are filled in before each call and point to nothing between calls.
unsafe impl Send for Sender {}

/// What leaves next from the front of a burst.
struct SendPlan {
    /// Frames that leave one by one.
    single: usize,
    /// The superframe after them.
    superframe: Option<Superframe>,
}

fn vector(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

impl Sender {
    /// A sender by a socket of the interface of that number.
    pub(super) fn new(socket: PacketSocket, interface: i32, tunnels: Option<EncapsulatorSlot>) -> Sender {
        let batch = FrameBatch::new(interface).ok();
        let joinable = Joinable { tcp: true, udp: true, tunnels: tunnels.is_some() };
        // Each frame has a header, a superframe one or two more.
        let vectors = Vec::with_capacity(2 * BURST);
        Sender {
            socket,
            batch,
            joinable,
            tunnels,
            failures: 0,
            pause: 0,
            is_stuck: false,
            is_last: false,
            vectors,
            messages: Vec::with_capacity(BURST),
        }
    }

    /// Finds the first frames that go together.
    fn plan(&self, burst: &[Mbuf]) -> SendPlan {
        let joined = (0..burst.len()).find_map(|at| {
            let from = burst[at].cut_from()?;
            let cut = burst[at..].iter().take_while(|mbuf| mbuf.cut_from() == Some(from));
            Some((at, Superframe::join(cut.map(Mbuf::bytes), self.joinable(from))?))
        });
        match joined {
            Some((single, superframe)) => SendPlan { single, superframe: Some(superframe) },
            None => SendPlan { single: burst.len(), superframe: None },
        }
    }

    /// What frames may become that were cut from a superframe of some kind. A host delivers a superframe in a tunnel whole, also to a program that reads
    /// datagrams from a socket: only what came so may leave so.
    fn joinable(&self, from: CutFrom) -> Joinable {
        let Joinable { tcp, udp, tunnels } = self.joinable;
        let tunnels = tunnels && self.pause == 0;
        match from {
            CutFrom::Tcp => Joinable { tcp, udp: false, tunnels: false },
            CutFrom::Udp => Joinable { tcp: false, udp, tunnels: false },
            CutFrom::Tunnel => Joinable { tcp: false, udp, tunnels },
        }
    }

    /// Sends frames one by one by the socket with one system call; returns their number, or the errno value of the first.
    fn call(&mut self, frames: &[Mbuf]) -> Result<usize, i32> {
        let header = VirtioNetHdr::default();
        self.vectors.clear();
        self.vectors.extend(frames.iter().flat_map(|mbuf| [vector(header.bytes()), vector(mbuf.bytes())]));
        self.call_vectors(self.socket.descriptor(), 2)
    }

    /// Sends a superframe from the front of a burst by the socket; returns the errno value otherwise.
    fn call_superframe(&mut self, superframe: &Superframe, burst: &[Mbuf]) -> Result<(), i32> {
        let header = VirtioNetHdr::of(superframe);
        let headers = superframe.headers();
        self.vectors.clear();
        self.vectors.push(vector(header.bytes()));
        let ethernet;
        let socket = match superframe.tunnel().zip(self.tunnels.as_mut()) {
            Some((tunnel, slot)) => {
                ethernet = slot.prepare(superframe, &tunnel);
                let inner = &headers[ethernet.len() + usize::from(tunnel.len)..];
                self.vectors.extend([vector(&ethernet), vector(inner)]);
                slot.socket().descriptor()
            }
            None => {
                self.vectors.push(vector(headers));
                self.socket.descriptor()
            }
        };
        let frames = &burst[..superframe.frames()];
        self.vectors.extend(frames.iter().map(|mbuf| vector(&mbuf.bytes()[headers.len()..])));
        self.call_vectors(socket, self.vectors.len()).map(drop)
    }

    /// Sends messages by a socket, each of so many of the vectors; returns their number, or the errno value of the first.
    fn call_vectors(&mut self, socket: RawFd, each: usize) -> Result<usize, i32> {
        self.messages.clear();
        self.messages.extend(self.vectors.chunks_exact_mut(each).map(|vectors| {
            // SAFETY: all zeros is a valid message.
            let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
            message.msg_hdr.msg_iov = vectors.as_mut_ptr();
            message.msg_hdr.msg_iovlen = each;
            message
        }));
        let count = self.messages.len();
        // SAFETY: the vectors of every message are memory that the caller borrows; the kernel only reads it.
        let sent = unsafe {
            let messages = self.messages.as_mut_ptr();
            libc::sendmmsg(socket, messages, count as libc::c_uint, libc::MSG_DONTWAIT)
        };
        match usize::try_from(sent) {
            Ok(sent) => Ok(sent.min(count)),
            Err(_) => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)),
        }
    }

    /// Sends so many frames one by one from the front of a burst. False if the next one finds no room.
    fn send_single(&mut self, burst: &mut Burst, mut single: usize, result: &mut SentFrames) -> bool {
        // After a frame that found no room, that one is tried alone.
        let mut batching = !self.is_stuck || self.is_last;
        while single > 0 {
            let mut frames = if self.is_stuck && !self.is_last { 1 } else { single };
            if let Some(batch) = &mut self.batch
                && batching
            {
                let Run { done, lost, end } = batch.send(&burst[..single], self.is_last);
                result.frames += done - lost.frames as usize;
                result.lost.and(lost);
                burst.drain(..done);
                single -= done;
                match end {
                    RunEnd::Sent => continue,
                    RunEnd::NoRoom => return false,
                    RunEnd::TooFew(few) => frames = few,
                    // The socket sends the next frame, or tells why it cannot be sent.
                    RunEnd::Stopped => {
                        batching = false;
                        frames = single;
                    }
                }
            }
            match self.call(&burst[..frames]) {
                Ok(sent) => {
                    result.frames += sent;
                    burst.drain(..sent);
                    single -= sent;
                    (self.is_stuck, batching) = (false, batching || self.is_stuck);
                }
                Err(libc::EMSGSIZE) => {
                    result.oversized.add(burst.remove(0).len());
                    single -= 1;
                }
                Err(libc::EINTR) => {}
                Err(errno) if self.is_last && !is_down(errno) => {
                    result.lost.add(burst.remove(0).len());
                    single -= 1;
                }
                Err(errno) => {
                    result.down = is_down(errno);
                    return false;
                }
            }
        }
        true
    }

    /// Sends a superframe from the front of a burst. False if it finds no room.
    fn send_superframe(
        &mut self,
        burst: &mut Burst,
        superframe: &Superframe,
        result: &mut SentFrames,
    ) -> bool {
        loop {
            let called = self.call_superframe(superframe, burst);
            let encapsulated = match superframe.tunnel() {
                Some(_) => self.tunnels.as_mut().map_or(Encapsulated::Failed, EncapsulatorSlot::finish),
                None => Encapsulated::Done,
            };
            match (called, encapsulated) {
                (Ok(()), Encapsulated::Done) => {
                    result.frames += superframe.frames();
                    burst.drain(..superframe.frames());
                    if superframe.tunnel().is_some() {
                        self.failures = 0;
                    }
                    return true;
                }
                // Somebody detached the program. The inner packet left without its tunnel, and its receiver drops it. The frames are sent one by one.
                (Ok(()), _) => {
                    self.leave_out(superframe);
                    return true;
                }
                (Err(libc::EINTR), _) => {}
                // The kernel takes none of this kind: they leave one by one from now on.
                (Err(libc::EINVAL), _) if superframe.tunnel().is_none() => {
                    self.leave_out(superframe);
                    return true;
                }
                (Err(errno), Encapsulated::Not | Encapsulated::Done)
                    if is_down(errno) || is_no_room(errno) =>
                {
                    if self.is_last && !is_down(errno) {
                        burst.drain(..superframe.frames()).for_each(|mbuf| result.lost.add(mbuf.len()));
                        return true;
                    }
                    result.down = is_down(errno);
                    return false;
                }
                // It refuses this one.
                (Err(_), _) => {
                    self.failures += u32::from(superframe.tunnel().is_some());
                    if self.failures == MAX_FAILURES {
                        (self.failures, self.pause) = (0, PAUSE);
                    }
                    return self.send_single(burst, superframe.frames(), result);
                }
            }
        }
    }

    /// Joins no more frames of this kind.
    fn leave_out(&mut self, superframe: &Superframe) {
        match (superframe.tunnel(), superframe.transport()) {
            (Some(_), _) => self.joinable.tunnels = false,
            (None, UDP) => self.joinable.udp = false,
            (None, _) => self.joinable.tcp = false,
        }
    }
}

/// Whether this error of sending means that another try soon may succeed.
fn is_no_room(errno: i32) -> bool {
    matches!(errno, libc::EAGAIN | libc::ENOBUFS)
}

/// Whether this error of sending means that another try soon does not help.
fn is_down(errno: i32) -> bool {
    matches!(errno, libc::ENETDOWN | libc::ENXIO | libc::ENODEV)
}

impl SendQueue for Sender {
    /// Frames that the interface refuses for their length are dropped and counted.
    fn send(&mut self, burst: &mut Burst) -> SentFrames {
        let mut result = SentFrames::default();
        self.pause = self.pause.saturating_sub(1);
        while !burst.is_empty() {
            let SendPlan { single, superframe } = self.plan(burst);
            let goes_on = self.send_single(burst, single, &mut result)
                && superframe.is_none_or(|superframe| self.send_superframe(burst, &superframe, &mut result));
            if !goes_on {
                self.is_stuck = true;
                break;
            }
        }
        result
    }

    fn send_last(&mut self, burst: &mut Burst) -> SentFrames {
        self.is_last = true;
        let result = self.send(burst);
        (self.is_last, self.is_stuck) = (false, false);
        result
    }
}
