//! Ports: DPDK through a C shim and a safe wrapper, kernel interfaces, and capture files.
//!
//! Purpose: receives and sends packets, as [`Mbuf`]s in vectors. [`Device`] is a parsed `--port NAME=DEVICE`, [`OpenPorts`]
//! opens a set of them, and each port gives every packet thread a [`PortLink`] with queues of its own. Received frames are as a wire would
//! carry them: tags that the kernel delivers beside a frame are inserted, checksums are finished, merged segments are cut. [`pcap`] needs none
//! of this.
//!
//! Life-cycle: [`OpenPorts::open`] in the control thread; links to the packet threads; dropping the [`OpenPorts`] when these
//! have ended closes them.
//!
//! `unsafe` is allowed in the modules that call C or the kernel; the header of each names its preconditions.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod bpf;
mod claim;
pub mod condition;
pub mod cycles;
pub mod device;
#[allow(unsafe_code)]
pub mod dpdk;
mod driver;
pub mod error;
#[allow(unsafe_code)]
pub mod flows;
pub mod kernel;
pub mod link;
#[allow(unsafe_code)]
mod mapping;
#[allow(unsafe_code)]
pub mod mbuf;
pub mod nearest;
pub mod netlink;
pub mod open;
#[allow(unsafe_code)]
mod packet;
pub mod pcap;
mod pools;
pub mod port;
pub mod queue;
mod unix_diag;
pub mod wait;
#[allow(unsafe_code)]
mod xdp;

pub use condition::Health;
pub use device::Device;
pub use error::PortError;
pub use link::PortLink;
pub use mbuf::{BURST, Burst, Mbuf, MbufPool};
pub use netlink::LinkWatch;
pub use open::{OpenOptions, OpenPorts};
pub use port::Port;
pub use queue::{LostFrames, ReceivedFrames, SentFrames};
pub use wait::Waiter;
