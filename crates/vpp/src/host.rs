//! VPP as the control side's clients see it.

use crate::interfaces::{Here, Interfaces};
use crate::runtime::Runtime;
use mmb_control::{Host, PortStatus, WorkerStatus};
use mmb_policy::policy::Poll;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

/// Tells about VPP's interfaces and threads, and has interfaces enabled.
pub(crate) struct VppHost {
    interfaces: Arc<Interfaces>,
    threads: usize,
    /// By thread, once they run.
    cores: Arc<OnceLock<Vec<Option<u32>>>>,
}

impl VppHost {
    pub(crate) fn new(
        interfaces: &Arc<Interfaces>,
        threads: usize,
        cores: &Arc<OnceLock<Vec<Option<u32>>>>,
    ) -> VppHost {
        VppHost { interfaces: Arc::clone(interfaces), threads, cores: Arc::clone(cores) }
    }
}

impl Host for VppHost {
    fn ports(&self) -> Vec<PortStatus> {
        let here: HashMap<String, (u32, Here)> = self
            .interfaces
            .here()
            .into_iter()
            .map(|(number, here)| (here.facts.name.clone(), (number, here)))
            .collect();
        let status = |name: String| match here.get(&name) {
            Some((number, here)) => status(*number, here),
            None => absent(name),
        };
        self.interfaces.ports.names(0).into_iter().map(status).collect()
    }

    /// How VPP's threads wait is VPP's to say.
    fn set_poll(&self, _poll: Poll) {}

    fn set_ports(&self, said: &BTreeMap<String, bool>) {
        self.interfaces.say(said);
        // At the start, on VPP's main thread, there is nothing to wait for.
        if Runtime::running().is_some() {
            self.interfaces.await_done();
        }
    }

    fn workers(&self) -> Vec<WorkerStatus> {
        let cores = self.cores.get();
        let core = |thread| cores.and_then(|cores| cores.get(thread).copied().flatten());
        (0..self.threads).map(|thread| WorkerStatus { worker: thread as u16, core: core(thread) }).collect()
    }
}

/// An interface; VPP counts what it lost by itself.
fn status(number: u32, Here { facts, .. }: &Here) -> PortStatus {
    let mac = |mac: [u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
    PortStatus {
        name: facts.name.clone(),
        device: format!("sw_if_index {number}"),
        driver: facts.driver.clone(),
        mac: facts.mac.map_or_else(|| "-".to_owned(), mac),
        mtu: facts.mtu,
        link: facts.up,
        peer: None,
        rx_missed: 0,
        rx_errors: 0,
        tx_errors: 0,
    }
}

/// A name of which there is no interface now.
fn absent(name: String) -> PortStatus {
    let none = || "-".to_owned();
    PortStatus {
        name,
        device: none(),
        driver: none(),
        mac: none(),
        mtu: 0,
        link: false,
        peer: None,
        rx_missed: 0,
        rx_errors: 0,
        tx_errors: 0,
    }
}
