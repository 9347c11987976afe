//! The interface of a host, the part of the program that moves the packets: the state of ports and workers, and the settings that concern it.
//!
//! `mmb run` implements [`Host`] over DPDK, the plugin over VPP; tests have one with invented ports.

use crate::memory::{self, AvailableMemory};
use mmb_log::SinkStatus;
use mmb_policy::Policy;
use mmb_policy::settings::Poll;
use mmb_protocol::answer::LinkLine;
use std::collections::BTreeMap;
use std::time::Instant;

/// A host, as the control side sees it.
pub trait Host: Send {
    /// Returns the ports by number, as in the engine's port table.
    fn ports(&self) -> Vec<PortStatus>;

    /// Sets how an idle worker waits, from its next iteration on.
    fn set_poll(&self, poll: Poll);

    /// Sets which ports a policy enables and disables, by name. A host that hands all packets to the engine ignores it.
    fn set_ports(&self, _switches: &BTreeMap<String, bool>) {}

    /// Returns the memory that the process may still take.
    fn memory(&self) -> Option<AvailableMemory> {
        memory::available()
    }

    /// Checks that this host supports a policy that follows another one.
    ///
    /// # Errors
    /// The part that it does not support.
    fn check(&self, _before: &Policy, _after: &Policy) -> Result<(), UnsupportedRule> {
        Ok(())
    }

    /// Returns the state of the flow offload of each port; nothing if this host never forwards packets by itself.
    fn offload(&self) -> Vec<PortOffload> {
        Vec::new()
    }

    /// When the time that workers are given was zero; none if it is not the time that passes.
    fn time_origin(&self) -> Option<Instant> {
        None
    }

    /// Returns what the clock says now by which the packet threads measure their stages; nothing if they measure none.
    fn cycles(&self) -> Option<u64> {
        None
    }

    /// Returns why packets of this host cannot be traced and captured, if they cannot.
    fn tap_refusal(&self) -> Option<&'static str> {
        None
    }

    /// Returns the state of each sink of the log.
    fn log_sinks(&self) -> Vec<SinkStatus> {
        Vec::new()
    }

    /// Returns the packet threads by number.
    fn workers(&self) -> Vec<WorkerStatus>;
}

/// A part of a policy that a host does not support, or that has no meaning there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct UnsupportedRule {
    /// The part and the reason.
    pub what: String,
    /// The word of the policy that is not supported.
    pub word: String,
}

/// One port as its driver sees it. Packets and bytes are counted by the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortStatus {
    /// Its name in rules.
    pub name: String,
    /// The device as given to `--port`.
    pub device: String,
    /// Its driver, for instance `net_af_xdp`.
    pub driver: String,
    /// Its Ethernet address, `02:00:00:00:00:01`.
    pub mac: String,
    /// The largest IP packet that may leave by it, in bytes.
    pub mtu: u32,
    /// The state of its link.
    pub link: LinkLine,
    /// The name of the port at the other end of its wire.
    pub peer: Option<String>,
    /// The packets that its device lost.
    pub losses: PortLosses,
}

/// The packets that the device of a port lost since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortLosses {
    /// Packets that were lost because the receive queue was full, or no packet buffer was free.
    pub rx_missed: u64,
    /// Packets that arrived damaged.
    pub rx_errors: u64,
    /// Packets that the device failed to send.
    pub tx_errors: u64,
}

impl PortLosses {
    /// Subtracts earlier values. A counter that has become smaller began at zero since: its device was opened again.
    pub(crate) fn since(self, before: PortLosses) -> PortLosses {
        let since = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        PortLosses {
            rx_missed: since(self.rx_missed, before.rx_missed),
            rx_errors: since(self.rx_errors, before.rx_errors),
            tx_errors: since(self.tx_errors, before.tx_errors),
        }
    }
}

/// The flow offload of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortOffload {
    /// The port's name in rules.
    pub port: String,
    /// Where its device has the programs, for instance `tcx`; or why it has none.
    pub state: Result<String, String>,
}

/// One packet thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerStatus {
    /// Its number.
    pub worker: u16,
    /// The core that it is pinned to.
    pub core: Option<u32>,
}
