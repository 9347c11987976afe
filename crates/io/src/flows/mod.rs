//! Flows that the kernel forwards: BPF programs on the packet sockets and at tc ingress of kernel interfaces (`bpf/flow.bpf.c`), or in their drivers
//! (`bpf/flow_xdp.bpf.c`), and the maps that they share with this process.
//!
//! A packet of an interface with packet sockets first meets mmb's packet socket, whose filter looks its flow up, and then tc ingress, where the packet is
//! rewritten and redirected if there is a flow, and discarded if the socket has got it. The programs work as long as the sockets are open: when
//! the process ends, however it ends, no filter runs, and a program at tc ingress leaves every packet to the kernel. With AF_XDP sockets one program in the driver
//! does both (`bpf/flow_xdp.bpf.c`).
//!
//! Life-cycle: [`FlowPrograms::load`] once; [`FlowPrograms::attach`] for each interface, before its sockets are opened; a [`FlowTable`] for each
//! worker, with places of its own. The programs go with the last of them.
//!
//! `unsafe` maps the memory of a map: plain words, which both sides read and write as atomics.

#[cfg(not(flows))]
mod absent;
mod hook;
#[cfg(flows)]
mod loaded;
mod raw;
#[cfg_attr(not(flows), expect(dead_code, reason = "there are no programs that read it"))]
mod table;

#[cfg(not(flows))]
pub use absent::{Attachment, FlowPrograms};
pub use hook::FlowHook;
#[cfg(flows)]
pub use loaded::{Attachment, FlowPrograms};
pub use raw::{NO_FLOW, RawFlow, RawKey, VLAN_PRESENT, flags};
pub(crate) use table::FlowQueue;
pub use table::{FlowTable, RawUsage};
