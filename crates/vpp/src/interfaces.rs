//! VPP's interfaces: their ports, and the state that the policy wants them in.
//!
//! mmb's nodes see an interface's packets only once it is enabled. A policy may enable a name before there is an interface of that name, and
//! the setting stays when the interface goes. An enabled interface keeps the name that rules know when VPP renames it: it must not lose its
//! rules by that. [`Interfaces::reconcile`] enables and disables in VPP whenever the wanted or the actual state changes. Clients' threads
//! set the wanted state and read, VPP's main thread does the rest; the locks are held for a few lines each.

use crate::ports::{InterfacePorts, NO_PORT};
use crate::sys::{LogLevel, MainThread, VppInterface};
use mmb_base::lock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The longest wait of a client until VPP is in the wanted state. VPP looks twenty times a second.
const PATIENCE: Duration = Duration::from_secs(1);

/// The reason for which an interface of a bridge is not enabled.
pub(crate) const BRIDGED: &str = "its packets are bridged by VPP, and rules see only packets that VPP routes; enable the bridge's BVI, \
                                  or take the interface out of the bridge";

/// VPP's interfaces as last seen, and the wanted state.
pub(crate) struct Interfaces {
    /// The ports of interfaces.
    pub(crate) ports: InterfacePorts,
    here: Mutex<BTreeMap<u32, PresentInterface>>,
    desired: Mutex<DesiredState>,
    /// VPP is in the wanted state.
    applied: Condvar,
    /// VPP's main thread looks after interfaces now.
    running: AtomicBool,
}

/// An existing interface.
#[derive(Clone, Debug)]
pub(crate) struct PresentInterface {
    /// VPP's facts when it was last seen.
    pub(crate) facts: VppInterface,
    /// Its name in rules: VPP's name, or the one that it had when it was enabled.
    pub(crate) name: String,
    /// Rules mean another interface by that name, which VPP has renamed. Rules see no packet of this one.
    shadowed: bool,
    /// mmb's nodes see its packets.
    on: bool,
}

/// The state that the policy wants.
#[derive(Default)]
struct DesiredState {
    /// The names in the policy; true for those to enable.
    wanted: BTreeMap<String, bool>,
    /// Counts the changes of `wanted` and of the interfaces.
    requested: u64,
    /// The number of these changes that VPP has followed.
    applied: u64,
}

impl Interfaces {
    /// No interfaces.
    pub(crate) fn new() -> Interfaces {
        Interfaces {
            ports: InterfacePorts::new(),
            here: Mutex::default(),
            desired: Mutex::default(),
            applied: Condvar::new(),
            running: AtomicBool::new(false),
        }
    }

    /// Reads all interfaces from VPP.
    pub(crate) fn poll(&self, main: MainThread) {
        for number in main.interfaces() {
            self.on_add(main, number);
        }
    }

    /// The existing interfaces, by VPP's number.
    pub(crate) fn here(&self) -> BTreeMap<u32, PresentInterface> {
        lock(&self.here).clone()
    }

    /// True if the interface of that name in rules is bridged.
    pub(crate) fn is_bridged(&self, name: &str) -> bool {
        lock(&self.here).values().any(|here| here.name == name && here.facts.bridged)
    }

    /// Sets which interfaces are to be enabled.
    pub(crate) fn set_desired(&self, wanted: &BTreeMap<String, bool>) {
        let mut desired = lock(&self.desired);
        desired.wanted.clone_from(wanted);
        desired.requested += 1;
    }

    /// VPP's main thread looks after interfaces from now on.
    pub(crate) fn set_running(&self) {
        self.running.store(true, Ordering::Relaxed);
    }

    /// Waits until VPP is in the wanted state; returns at once before the start. VPP's main thread must not call it.
    pub(crate) fn await_applied(&self) {
        if !self.running.load(Ordering::Relaxed) {
            return;
        }
        let desired = lock(&self.desired);
        let change = desired.requested;
        let waited = self.applied.wait_timeout_while(desired, PATIENCE, |desired| desired.applied < change);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Enables and disables interfaces in VPP, if something changed; returns VPP's refusals.
    pub(crate) fn reconcile(&self, main: MainThread) -> Vec<String> {
        let (wanted, change) = {
            let desired = lock(&self.desired);
            if desired.applied == desired.requested {
                return Vec::new();
            }
            (desired.wanted.clone(), desired.requested)
        };
        let mut refused = Vec::new();
        for (&number, here) in lock(&self.here).iter_mut() {
            let on = !here.shadowed && wanted.get(&here.name) == Some(&true);
            if on == here.on {
                continue;
            }
            match main.switch(number, on) {
                Ok(()) => here.on = on,
                Err(why) => {
                    let what = if on { "enable" } else { "disable" };
                    refused.push(format!("{what} {}: {why}", here.name));
                }
            }
        }
        lock(&self.desired).applied = change;
        self.applied.notify_all();
        refused
    }

    /// [`Interfaces::reconcile`] without a waiting client: VPP's refusals go to its log.
    pub(crate) fn reconcile_logged(&self, main: MainThread) {
        self.reconcile(main).iter().for_each(|refused| main.log(LogLevel::Error, refused));
    }

    /// An interface exists, perhaps under another name than before.
    pub(crate) fn on_add(&self, main: MainThread, number: u32) {
        let Some(facts) = main.interface(number) else { return };
        let mut here = lock(&self.here);
        let known = here.get(&number).cloned();
        let on = known.as_ref().is_some_and(|known| known.on);
        let name = known.as_ref().filter(|known| known.on).map_or(&facts.name, |known| &known.name).clone();
        let shadowed = here.iter().any(|(&other, there)| other != number && there.name == name && there.on);
        let now = PresentInterface { facts, name, shadowed, on };
        let is_new =
            known.as_ref().is_none_or(|known| (&known.name, known.shadowed) != (&now.name, shadowed));
        if shadowed {
            self.ports.on_delete(number);
        } else if is_new || self.ports.port_of(number) == NO_PORT {
            let port = self.ports.on_add(number, &now.name);
            if port.is_none() && is_new {
                let what = format!("{}: too many interfaces; rules cannot name this one yet", now.name);
                main.log(LogLevel::Warning, &what);
            }
        }
        now.changes(known.as_ref()).iter().for_each(|change| main.log(LogLevel::Warning, change));
        if is_new {
            lock(&self.desired).requested += 1;
        }
        here.insert(number, now);
    }

    /// An interface was deleted.
    pub(crate) fn on_delete(&self, number: u32) {
        // VPP disables the nodes by itself.
        lock(&self.here).remove(&number);
        self.ports.on_delete(number);
    }
}

impl PresentInterface {
    /// True if rules mean another interface by its name.
    pub(crate) fn shadowed(&self) -> bool {
        self.shadowed
    }

    /// Warnings about changes since `before`.
    fn changes(&self, before: Option<&PresentInterface>) -> Vec<String> {
        let PresentInterface { facts, name, shadowed, on } = self;
        let mut changes = Vec::new();
        let was = |of: fn(&PresentInterface) -> bool| before.is_some_and(of);
        if *shadowed && !was(|before| before.shadowed) {
            changes.push(format!("{name}: rules mean an interface by this name that was renamed; they see no packet of this one"));
        }
        if facts.name != *name && before.is_none_or(|before| before.facts.name != facts.name) {
            changes.push(format!(
                "{name} is called {} in VPP now; it stays enabled, and {name} in rules",
                facts.name
            ));
        }
        if *on && facts.bridged && !was(|before| before.on && before.facts.bridged) {
            changes.push(format!("{name} is enabled, but {BRIDGED}"));
        }
        changes
    }
}
