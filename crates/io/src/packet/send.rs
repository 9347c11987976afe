//! Sending through a socket, many frames a system call. The kernel copies each frame, so that buffers are free again
//! when the call returns.

use super::socket::PacketSocket;
use crate::mbuf::{BURST, Burst};
use crate::queue::{SendQueue, SentFrames};

/// One worker's sending side of an interface.
#[derive(Debug)]
pub(crate) struct Sender {
    socket: PacketSocket,
    vectors: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
}

// SAFETY: the pointers are filled in before each call and point to nothing between calls.
unsafe impl Send for Sender {}

impl Sender {
    pub(super) fn new(socket: PacketSocket) -> Sender {
        Sender { socket, vectors: Vec::with_capacity(BURST), messages: Vec::with_capacity(BURST) }
    }

    /// Sends with one system call; returns the number of frames, or the errno value of the first.
    fn call(&mut self, burst: &Burst) -> Result<usize, i32> {
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
        while !burst.is_empty() {
            match self.call(burst) {
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
