//! A port as one packet thread holds it: queues of its own for receiving and sending.

use crate::condition::{Condition, Health};
use crate::dpdk::queues::{EthReceive, EthSend};
use crate::mbuf::{Burst, Mbuf, MbufPool};
use crate::packet::{Receiver, Sender};
use crate::queue::{ClosedQueue, ReceiveQueue, ReceivedFrames, SendQueue, SentFrames};
use crate::wait::Waiter;
use std::os::fd::RawFd;
use std::sync::Arc;

/// Makes enums of the queue types, so that calls are direct and a thread can hold queues of several drivers.
macro_rules! queue_kinds {
    ($($(#[$doc:meta])* $name:ident($receive:ty, $send:ty),)*) => {
        /// One worker's receiving queues of a port.
        #[derive(Debug)]
        pub(crate) enum ReceiveQueues {
            $($(#[$doc])* $name($receive),)*
        }

        /// One worker's sending queue of a port.
        #[derive(Debug)]
        pub(crate) enum SendQueues {
            $($(#[$doc])* $name($send),)*
        }

        impl ReceiveQueues {
            #[inline]
            fn receive(&mut self, burst: &mut Burst) -> ReceivedFrames {
                match self {
                    $(ReceiveQueues::$name(queues) => queues.receive(burst),)*
                }
            }

            #[inline]
            fn sent(&mut self) {
                match self {
                    $(ReceiveQueues::$name(queues) => queues.sent(),)*
                }
            }

            #[inline]
            fn is_urgent(&self) -> bool {
                match self {
                    $(ReceiveQueues::$name(queues) => queues.is_urgent(),)*
                }
            }

            fn queues(&self) -> usize {
                match self {
                    $(ReceiveQueues::$name(queues) => queues.queues(),)*
                }
            }
        }

        impl SendQueues {
            #[inline]
            fn send(&mut self, burst: &mut Burst) -> SentFrames {
                match self {
                    $(SendQueues::$name(queue) => queue.send(burst),)*
                }
            }

            fn send_last(&mut self, burst: &mut Burst) -> SentFrames {
                match self {
                    $(SendQueues::$name(queue) => queue.send_last(burst),)*
                }
            }
        }
    };
}

queue_kinds! {
    /// Queues of a DPDK port.
    Eth(EthReceive, EthSend),
    /// Packet sockets of a kernel interface.
    Packet(Box<Receiver>, Box<Sender>),
    /// A port whose interface is gone.
    Closed(ClosedQueue, ClosedQueue),
}

/// One worker's end of a port.
#[derive(Debug)]
pub struct PortLink {
    pub(crate) receive: ReceiveQueues,
    pub(crate) send: SendQueues,
    /// Descriptors that become readable when frames arrive.
    pub(crate) descriptors: Vec<RawFd>,
    /// The port is a kernel interface, which reports when it is down.
    pub(crate) kernel: bool,
    /// The pool of its buffers.
    pub(crate) pool: MbufPool,
    pub(crate) condition: Arc<Condition>,
}

impl PortLink {
    /// The waiter of a thread with these links.
    pub fn waiter(links: &[PortLink]) -> Waiter {
        let blind = |link: &PortLink| link.descriptors.len() < link.receive.queues();
        Waiter::new(links.iter().flat_map(|link| link.descriptors.iter().copied()), links.iter().any(blind))
    }

    /// Closes the queues: nothing is received, and what is sent counts as sent to a device that is down. The port can then be closed.
    pub fn close(&mut self) {
        self.receive = ReceiveQueues::Closed(ClosedQueue);
        self.send = SendQueues::Closed(ClosedQueue);
        self.descriptors.clear();
    }

    /// The state of the device.
    #[inline]
    pub fn health(&self) -> Health {
        self.condition.health()
    }

    /// The longest frame that may be sent, in bytes.
    #[inline]
    pub fn largest(&self) -> usize {
        self.condition.largest()
    }

    /// A copy of a frame that came in by the port, in a buffer of its own; `None` if there is no buffer for it.
    pub fn copy(&self, frame: &[u8]) -> Option<Mbuf> {
        self.pool.copy(frame)
    }

    /// Appends frames that have arrived to the burst, as many as fit. Each frame is as a wire would carry it: with its tags, with finished
    /// checksums, no longer than the sender's MTU.
    #[inline]
    pub fn receive(&mut self, burst: &mut Burst) -> ReceivedFrames {
        if self.health() == Health::Gone {
            return ReceivedFrames::default();
        }
        self.receive.receive(burst)
    }

    /// Tells that all frames that [`PortLink::receive`] has returned have been sent or dropped: later ones of their flows may overtake nothing.
    #[inline]
    pub fn sent(&mut self) {
        self.receive.sent();
    }

    /// Whether the thread should look for frames again soon, before it sleeps.
    #[inline]
    pub fn is_urgent(&self) -> bool {
        self.receive.is_urgent()
    }

    /// Sends the burst from its front, and removes the frames that are sent or can never be. The others found no room; another try soon
    /// may succeed.
    #[inline]
    pub fn send(&mut self, burst: &mut Burst) -> SentFrames {
        // Some drivers would keep the frames until the device is up again.
        if self.kernel && self.health() != Health::Up {
            return SentFrames { down: true, ..SentFrames::default() };
        }
        self.send.send(burst)
    }

    /// As [`PortLink::send`], as the last try. Frames that find no room are dropped where the driver knows which ones they are; the
    /// others stay in the burst.
    pub fn send_last(&mut self, burst: &mut Burst) -> SentFrames {
        self.send.send_last(burst)
    }
}
