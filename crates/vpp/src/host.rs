//! VPP as the host of the control side: its interfaces, threads, and limits of the language.

use crate::interfaces::{self, Interfaces, PresentInterface};
use crate::unsupported;
use mmb_control::{Host, PortLosses, PortStatus, UnsupportedRule, WorkerStatus};
use mmb_policy::settings::Poll;
use mmb_policy::{Policy, RuleChange, RuleStore};
use mmb_protocol::answer::LinkLine;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Reports VPP's interfaces and threads, and sets which interfaces are to be enabled.
pub(crate) struct VppHost {
    interfaces: Arc<Interfaces>,
    workers: usize,
    /// By worker, once they run.
    cores: Arc<OnceLock<Vec<Option<u32>>>>,
    started: Instant,
}

impl VppHost {
    pub(crate) fn new(
        interfaces: &Arc<Interfaces>,
        workers: usize,
        cores: &Arc<OnceLock<Vec<Option<u32>>>>,
        started: Instant,
    ) -> VppHost {
        VppHost { interfaces: Arc::clone(interfaces), workers, cores: Arc::clone(cores), started }
    }
}

impl Host for VppHost {
    fn time_origin(&self) -> Option<Instant> {
        Some(self.started)
    }

    fn ports(&self) -> Vec<PortStatus> {
        let here: HashMap<String, (u32, PresentInterface)> = self
            .interfaces
            .here()
            .into_iter()
            .filter(|(_, here)| !here.shadowed())
            .map(|(number, here)| (here.name.clone(), (number, here)))
            .collect();
        let status = |name: String| match here.get(&name) {
            Some((number, here)) => status(*number, here),
            None => absent(name),
        };
        self.interfaces.ports.names(0).into_iter().map(status).collect()
    }

    /// Does nothing: VPP decides how its threads wait.
    fn set_poll(&self, _poll: Poll) {}

    fn set_ports(&self, wanted: &BTreeMap<String, bool>) {
        self.interfaces.set_desired(wanted);
        self.interfaces.await_applied();
    }

    fn check(&self, before: &Policy, after: &Policy) -> Result<(), UnsupportedRule> {
        if let Some((why, word)) = unsupported::setting(&before.settings, &after.settings) {
            return Err(UnsupportedRule { what: format!("set {word}: {why}"), word: word.to_owned() });
        }
        for change in RuleStore::diff(&before.rules, &after.rules) {
            if let RuleChange::Added(rule) = change
                && let Some((why, word)) = unsupported::rule(&rule)
            {
                let number = rule.id.map_or(0, |id| id.0);
                return Err(UnsupportedRule {
                    what: format!("rule {number}: `{word}` means nothing in VPP: {why}"),
                    word: word.to_owned(),
                });
            }
        }
        let enabled = |policy: &Policy, name: &str| policy.ports.get(name) == Some(&true);
        let new = |name: &&String| enabled(after, name) && !enabled(before, name);
        match after.ports.keys().filter(new).find(|name| self.interfaces.is_bridged(name)) {
            Some(name) => Err(UnsupportedRule {
                what: format!("enable {name}: {}", interfaces::BRIDGED),
                word: name.clone(),
            }),
            None => Ok(()),
        }
    }

    fn tap_refusal(&self) -> Option<&'static str> {
        Some(
            "VPP shows packets by itself: `trace add` tells what mmb's nodes do to them, and `pcap trace` captures them",
        )
    }

    fn workers(&self) -> Vec<WorkerStatus> {
        let cores = self.cores.get();
        let core = |worker| cores.and_then(|cores| cores.get(worker).copied().flatten());
        (0..self.workers).map(|worker| WorkerStatus { worker: worker as u16, core: core(worker) }).collect()
    }
}

/// The status of an interface; VPP itself counts its losses.
fn status(number: u32, PresentInterface { facts, name, .. }: &PresentInterface) -> PortStatus {
    let mac = |mac: [u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
    let mut device = format!("sw_if_index {number}");
    if facts.name != *name {
        device.push_str(&format!(", {} in VPP", facts.name));
    }
    if facts.bridged {
        device.push_str(", bridged: no rule sees it");
    }
    PortStatus {
        name: name.clone(),
        device,
        driver: facts.driver.clone(),
        mac: facts.mac.map_or_else(|| "-".to_owned(), mac),
        mtu: facts.mtu,
        link: if facts.up { LinkLine::Up } else { LinkLine::Down },
        peer: None,
        losses: PortLosses::default(),
    }
}

/// The status of a name without an interface.
fn absent(name: String) -> PortStatus {
    let none = || "-".to_owned();
    PortStatus {
        name,
        device: none(),
        driver: none(),
        mac: none(),
        mtu: 0,
        link: LinkLine::Down,
        peer: None,
        losses: PortLosses::default(),
    }
}
