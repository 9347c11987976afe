//! Sending many frames a system call: by a program that sends them without interruption (`batch`), or by a socket. Either way the
//! kernel copies each frame, so that buffers are free again when the call returns.

use super::batch::{FrameBatch, RunEnd};
use super::socket::PacketSocket;
use crate::mbuf::{BURST, Burst, Mbuf};
use crate::queue::{SendQueue, SentFrames};

/// One worker's sending side of an interface.
#[derive(Debug)]
pub(crate) struct Sender {
    socket: PacketSocket,
    /// `None` if the process may not load programs, or the kernel lacks what they need.
    batch: Option<FrameBatch>,
    vectors: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
}

// SAFETY: the pointers are filled in before each call and point to nothing between calls.
unsafe impl Send for Sender {}

impl Sender {
    /// A sender by a socket of the interface of that number.
    pub(super) fn new(socket: PacketSocket, interface: i32) -> Sender {
        let batch = FrameBatch::new(interface).ok();
        Sender { socket, batch, vectors: Vec::with_capacity(BURST), messages: Vec::with_capacity(BURST) }
    }

    /// Sends by the socket with one system call; returns the number of frames, or the errno value of the first.
    fn call(&mut self, burst: &[Mbuf]) -> Result<usize, i32> {
        self.vectors.clear();
        self.vectors.extend(burst.iter().map(|mbuf| libc::iovec {
            iov_base: mbuf.bytes().as_ptr().cast_mut().cast(),
            iov_len: mbuf.len(),
        }));
        self.messages.clear();
        let base = self.vectors.as_mut_ptr();
        self.messages.extend((0..burst.len()).map(|i| {
            // SAFETY: all zeros is a valid message; `i` is below the number of vectors.
            unsafe {
                let mut message: libc::mmsghdr = std::mem::zeroed();
                message.msg_hdr.msg_iov = base.add(i);
                message.msg_hdr.msg_iovlen = 1;
                message
            }
        }));
        let count = self.messages.len() as libc::c_uint;
        // SAFETY: every message has one vector, which is a frame of the burst; the kernel only reads them.
        let sent = unsafe {
            libc::sendmmsg(self.socket.descriptor(), self.messages.as_mut_ptr(), count, libc::MSG_DONTWAIT)
        };
        match usize::try_from(sent) {
            Ok(sent) => Ok(sent.min(burst.len())),
            Err(_) => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)),
        }
    }
}

impl SendQueue for Sender {
    /// Frames that the interface refuses for their length are dropped and counted.
    fn send(&mut self, burst: &mut Burst) -> SentFrames {
        let mut result = SentFrames::default();
        let mut batching = true;
        while !burst.is_empty() {
            let mut next = burst.len();
            if let Some(batch) = &mut self.batch
                && batching
            {
                let (sent, end) = batch.send(burst);
                result.frames += sent;
                burst.drain(..sent);
                match end {
                    RunEnd::Sent => continue,
                    RunEnd::NoRoom => break,
                    RunEnd::TooFew(few) => next = few,
                    // The socket sends the next frame, or tells why it cannot be sent.
                    RunEnd::Stopped => {
                        batching = false;
                        next = burst.len();
                    }
                }
            }
            match self.call(&burst[..next]) {
                Ok(sent) => {
                    result.frames += sent;
                    burst.drain(..sent);
                }
                Err(libc::EMSGSIZE) => {
                    result.oversized.add(burst.remove(0).len());
                }
                Err(libc::EINTR) => {}
                Err(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => {
                    result.down = true;
                    break;
                }
                Err(_) => break,
            }
        }
        result
    }
}
