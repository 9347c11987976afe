//! What the daemon asks of whoever moves the packets: the state of ports and workers, and how idle workers
//! wait.
//!
//! `mmb run` implements [`Host`] over DPDK; tests have one that invents its ports.

use crate::memory::{self, AvailableMemory};
use mmb_policy::Policy;
use mmb_policy::settings::Poll;
use std::collections::BTreeMap;

/// The packet side of the daemon, as the control side sees it.
pub trait Host: Send {
    /// The ports by number, as in the engine's port table.
    fn ports(&self) -> Vec<PortStatus>;

    /// Changes how an idle worker waits; takes effect on the workers' next turn.
    fn set_poll(&self, poll: Poll);

    /// What a policy now says about ports, by name; a host that hands all packets to the engine need not care.
    fn set_ports(&self, _said: &BTreeMap<String, bool>) {}

    /// The memory that the process may still take.
    fn memory(&self) -> Option<AvailableMemory> {
        memory::available()
    }

    /// Whether a policy that comes after another fits this host, whatever the engine says.
    ///
    /// # Errors
    /// What does not.
    fn check(&self, _before: &Policy, _after: &Policy) -> Result<(), UnsupportedRule> {
        Ok(())
    }

    /// The packet threads by number.
    fn workers(&self) -> Vec<WorkerStatus>;
}

/// Something of a policy that cannot be, or would mean nothing, where the packets come from here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct UnsupportedRule {
    /// What, and why.
    pub what: String,
    /// The word that it is about.
    pub word: String,
}

/// One port as its driver sees it. Packets and bytes are counted by the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortStatus {
    /// Its name in rules.
    pub name: String,
    /// The device as given to `--port`.
    pub device: String,
    /// What drives it, for instance `net_af_xdp`.
    pub driver: String,
    /// Its Ethernet address, `02:00:00:00:00:01`.
    pub mac: String,
    /// The largest IP packet that may leave by it, in bytes.
    pub mtu: u32,
    /// The link is up.
    pub link: bool,
    /// The name of the port at the other end of its wire.
    pub peer: Option<String>,
    /// Packets that arrived when no room was free for them.
    pub rx_missed: u64,
    /// Packets that arrived broken.
    pub rx_errors: u64,
    /// Packets that the device failed to send.
    pub tx_errors: u64,
}

/// One packet thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerStatus {
    /// Its number.
    pub worker: u16,
    /// The core that it is pinned to.
    pub core: Option<u32>,
}
