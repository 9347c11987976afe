//! Prepares interfaces for AF_XDP, so that every frame comes as it was on the wire, and that their drivers forward flows.

mod btf;
#[cfg(flows)]
pub(crate) mod features;
mod program;
mod queues;
mod tags;

use program::{LoadedProgram, XdpProgram};

use crate::flows::FlowPrograms;
use crate::kernel::KernelInterface;
use crate::mbuf::BURST;
use crate::packet::Promiscuous;
use std::os::fd::RawFd;

/// Devices on top of others: the devices below remove VLAN tags, which these cannot turn off.
const STACKED: [&str; 6] = ["macvlan", "ipvlan", "bridge", "bonding", "team", "802.1Q VLAN Support"];

/// Lets the kernel send a whole vector in one system call instead of 32 frames. The option exists
/// since Linux 6.18; older kernels need more calls.
fn send_whole_vectors(socket: RawFd) {
    const MAX_TX_SKB_BUDGET: libc::c_int = 9;
    let frames = BURST as u32;
    // SAFETY: value and size belong together, and the kernel only reads.
    unsafe {
        let value = (&raw const frames).cast();
        libc::setsockopt(socket, libc::SOL_XDP, MAX_TX_SKB_BUDGET, value, size_of::<u32>() as libc::socklen_t)
    };
}

/// Frames that found a socket's ring full: DPDK's driver leaves them out of what it
/// counts.
pub(crate) fn no_room(socket: RawFd) -> u64 {
    // struct xdp_statistics: dropped, invalid descriptors received and sent, ring full, no buffers, nothing to send.
    let mut statistics = [0u64; 6];
    let mut size = size_of_val(&statistics) as libc::socklen_t;
    // SAFETY: place and size belong together; the kernel fills in counters.
    let result = unsafe {
        libc::getsockopt(
            socket,
            libc::SOL_XDP,
            libc::XDP_STATISTICS,
            statistics.as_mut_ptr().cast(),
            &mut size,
        )
    };
    if result == 0 { statistics[3] } else { 0 }
}

/// The reason for which AF_XDP cannot be used with some devices.
const BESIDE: &str = "hands VLAN tags over beside the frame, where AF_XDP does not see them";

/// The capabilities that AF_XDP needs, by number and name. CAP_SYS_ADMIN is needed to look up loaded programs.
const CAPABILITIES: [(u32, &str); 4] =
    [(12, "CAP_NET_ADMIN"), (13, "CAP_NET_RAW"), (14, "CAP_IPC_LOCK"), (21, "CAP_SYS_ADMIN")];

/// Checks that the process may use AF_XDP.
///
/// # Errors
/// The missing capabilities, in words.
pub(crate) fn permitted() -> Result<(), String> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let Some(held) = effective_capabilities(&status) else { return Ok(()) };
    let lacking: Vec<&str> =
        CAPABILITIES.iter().filter(|(bit, _)| (held >> bit) & 1 == 0).map(|&(_, name)| name).collect();
    if lacking.is_empty() { Ok(()) } else { Err(format!("the program lacks {}", lacking.join(", "))) }
}

fn effective_capabilities(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// The number of queues that AF_XDP must serve to receive every frame.
///
/// # Errors
/// The reason for which it cannot, in words.
pub(crate) fn queues(interface: &KernelInterface) -> Result<u16, String> {
    let channels = interface.channels();
    // The driver of DPDK serves combined queues only, or else the first one.
    if channels.receive > 1 || (channels.receive > 0 && channels.combined > 0) {
        return Err(format!(
            "it cannot serve {} receive queues beside {} combined ones",
            channels.receive, channels.combined
        ));
    }
    Ok(channels.combined.clamp(1, 64) as u16)
}

/// Keeps an interface in the state that AF_XDP needs. Dropping it restores the interface.
#[derive(Debug)]
pub(crate) struct InterfaceGuard {
    _promiscuous: Promiscuous,
    _program: Option<XdpProgram>,
    forwards_flows: bool,
    _offload: Option<TagOffloadGuard>,
}

/// The handling of VLAN tags that keeps them in the frames of an interface; without either field they are there anyway.
#[derive(Debug)]
pub(crate) struct VlanTagHandling {
    offload: Option<TagOffloadGuard>,
    /// A program must insert them.
    restored: bool,
}

/// An interface that leaves VLAN tags in frames until the value is dropped.
#[derive(Debug)]
struct TagOffloadGuard(KernelInterface);

impl Drop for TagOffloadGuard {
    fn drop(&mut self) {
        // Another interface may have its name by now.
        if self.0.exists() {
            self.0.set_strips_vlan(true);
        }
    }
}

impl VlanTagHandling {
    /// Makes VLAN tags stay in the frames, as far as that is possible before there are sockets.
    ///
    /// # Errors
    /// The reason for which they do not, in words.
    pub(crate) fn keep(interface: &KernelInterface) -> Result<VlanTagHandling, String> {
        let driver = interface.driver();
        if STACKED.contains(&driver.as_str()) {
            return Err(format!("a device of kind '{driver}' {BESIDE}"));
        }
        let restored = driver == "veth";
        let offload = if restored || !interface.strips_vlan() {
            None
        } else {
            let again = KernelInterface::find(interface.name()).map_err(|error| error.to_string())?;
            if !again.set_strips_vlan(false) {
                return Err(format!("the device {BESIDE}"));
            }
            Some(TagOffloadGuard(again))
        };
        Ok(VlanTagHandling { offload, restored })
    }
}

impl InterfaceGuard {
    /// Prepares an interface with these sockets, and has it forward flows if there are programs for it. Otherwise a note says why it does not.
    ///
    /// # Errors
    /// The reason for which frames do not come as they were on the wire, in words.
    pub(crate) fn new(
        interface: &KernelInterface,
        tags: VlanTagHandling,
        sockets: &[RawFd],
        flows: Option<&FlowPrograms>,
    ) -> Result<(InterfaceGuard, Option<String>), String> {
        let inserts_tags = tags.restored;
        if inserts_tags && sockets.len() != 1 {
            return Err(format!("a veth with {} queues {BESIDE}", sockets.len()));
        }
        let load = |sockets: &[RawFd], flows: Option<&FlowPrograms>| {
            LoadedProgram::load(interface, sockets, inserts_tags, flows)
        };
        let forwarder = flows.map(|flows| {
            let in_order = queues::in_order(sockets, interface.index())?;
            load(&in_order, Some(flows))
        });
        let (program, why) = match forwarder.transpose() {
            Ok(program) => (program, None),
            Err(why) => (None, Some(why)),
        };
        let forwards_flows = program.is_some();
        let program = match program {
            None if inserts_tags => Some(load(sockets, None)?),
            program => program,
        };
        let program = program.map(LoadedProgram::replace).transpose()?;
        sockets.iter().for_each(|&socket| send_whole_vectors(socket));
        let promiscuous = Promiscuous::new(interface).map_err(|error| error.to_string())?;
        let guard = InterfaceGuard {
            _promiscuous: promiscuous,
            _program: program,
            forwards_flows,
            _offload: tags.offload,
        };
        Ok((guard, why))
    }

    /// Whether its program forwards flows.
    pub(crate) fn forwards_flows(&self) -> bool {
        self.forwards_flows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read() {
        let status = "Name:\tx\nCapEff:\t000001ffffffffff\nCapBnd:\t0\n";
        assert_eq!(effective_capabilities(status), Some(0x1ff_ffff_ffff));
        assert_eq!(effective_capabilities("CapEff:\tnonsense\n"), None);
        assert_eq!(effective_capabilities(""), None);
    }
}
