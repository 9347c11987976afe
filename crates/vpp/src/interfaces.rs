//! The interfaces that VPP has: which ports they are, and whether mmb's nodes are in the way of their packets.
//!
//! In VPP an interface is mmb's only once it is enabled. What a policy says of names may be said before there is an interface of
//! that name, and stays when it goes. An interface that is enabled keeps the name that rules know it by when VPP calls it otherwise: it
//! must not lose its rules by that. [`Interfaces::reconcile`] has VPP do what is said, whenever either changes. Clients' threads
//! say and look, VPP's main thread does the rest; the locks are held for a few lines each.

use crate::ports::{InterfacePorts, NO_PORT};
use crate::runtime::Runtime;
use crate::sys::{LogLevel, MainThread, VppInterface};
use mmb_base::lock;
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How long whoever says something waits until VPP has done it. VPP looks twenty times a second.
const PATIENCE: Duration = Duration::from_secs(1);

/// Why an interface of a bridge is not enabled.
pub(crate) const BRIDGED: &str = "its packets are bridged by VPP, and rules see only packets that VPP routes; enable the bridge's BVI, \
                                  or take the interface out of the bridge";

/// What is known of VPP's interfaces.
pub(crate) struct Interfaces {
    /// Which port each of them is.
    pub(crate) ports: InterfacePorts,
    here: Mutex<BTreeMap<u32, PresentInterface>>,
    desired: Mutex<DesiredState>,
    /// VPP has done what was said.
    done: Condvar,
}

/// An interface that is there.
#[derive(Clone, Debug)]
pub(crate) struct PresentInterface {
    /// How VPP saw it last.
    pub(crate) facts: VppInterface,
    /// What rules call it: VPP's name for it, or the one that it had when it was enabled.
    pub(crate) name: String,
    /// Rules mean another interface by that name, which VPP calls otherwise now. This one is none of theirs.
    shadowed: bool,
    /// mmb's nodes are in its packets' way.
    on: bool,
}

/// What VPP is to do.
#[derive(Default)]
struct DesiredState {
    /// The names of which a policy says something, and whether they are to be enabled.
    said: BTreeMap<String, bool>,
    /// Counts what was said and which interfaces came.
    given: u64,
    /// Of these, VPP has done so many.
    done: u64,
}

impl Interfaces {
    /// None.
    pub(crate) fn new() -> Interfaces {
        Interfaces {
            ports: InterfacePorts::new(),
            here: Mutex::default(),
            desired: Mutex::default(),
            done: Condvar::new(),
        }
    }

    /// Takes note of the interfaces that are there, and of how they are.
    pub(crate) fn poll(&self, main: MainThread) {
        for number in main.interfaces() {
            self.on_add(main, number);
        }
    }

    /// Those that are there, by VPP's number.
    pub(crate) fn here(&self) -> BTreeMap<u32, PresentInterface> {
        lock(&self.here).clone()
    }

    /// Whether there is an interface that rules call so, and that is bridged.
    pub(crate) fn is_bridged(&self, name: &str) -> bool {
        lock(&self.here).values().any(|here| here.name == name && here.facts.bridged)
    }

    /// Says which interfaces are to be enabled.
    pub(crate) fn set_desired(&self, said: &BTreeMap<String, bool>) {
        let mut desired = lock(&self.desired);
        desired.said.clone_from(said);
        desired.given += 1;
    }

    /// Waits until VPP has done what was said. Not on VPP's main thread, which does it.
    pub(crate) fn await_done(&self) {
        let desired = lock(&self.desired);
        let turn = desired.given;
        let waited = self.done.wait_timeout_while(desired, PATIENCE, |desired| desired.done < turn);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Has VPP do what was said, if something was; returns what VPP refuses.
    pub(crate) fn reconcile(&self, main: MainThread) -> Vec<String> {
        let (wanted, turn) = {
            let desired = lock(&self.desired);
            if desired.done == desired.given {
                return Vec::new();
            }
            (desired.said.clone(), desired.given)
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
        lock(&self.desired).done = turn;
        self.done.notify_all();
        refused
    }

    /// [`Interfaces::reconcile`] where nobody waits for it: what VPP refuses is told in its log.
    pub(crate) fn keep_up(&self, main: MainThread) {
        self.reconcile(main).iter().for_each(|refused| main.log(LogLevel::Error, refused));
    }

    /// An interface is there, perhaps under another name than before.
    fn on_add(&self, main: MainThread, number: u32) {
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
            lock(&self.desired).given += 1;
        }
        here.insert(number, now);
    }

    fn on_delete(&self, number: u32) {
        // VPP takes the nodes out of the way by itself.
        lock(&self.here).remove(&number);
        self.ports.on_delete(number);
    }
}

impl PresentInterface {
    /// Rules mean another interface by its name.
    pub(crate) fn shadowed(&self) -> bool {
        self.shadowed
    }

    /// What is remarkable about how an interface is now, beside how it was.
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

/// An interface came or goes.
pub(crate) fn changed(main: MainThread, number: u32, is_there: bool) {
    // Before the start everything is looked at anyway.
    let Some(runtime) = Runtime::running() else { return };
    let interfaces = &runtime.interfaces;
    if is_there {
        interfaces.on_add(main, number);
        interfaces.keep_up(main);
    } else {
        interfaces.on_delete(number);
    }
}
