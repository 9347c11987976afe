//! The daemon's state: the policy in force, the engine that carries it out, the host that moves the packets.

use crate::host::Host;
use mmb_engine::{Engine, PublishError};
use mmb_policy::Policy;

/// The state that every client looks at and changes, one at a time.
pub struct Daemon {
    engine: Engine,
    policy: Policy,
    host: Box<dyn Host>,
}

impl Daemon {
    /// Puts a policy in force.
    ///
    /// # Errors
    /// What makes the policy impossible here.
    pub fn new(mut engine: Engine, policy: Policy, host: Box<dyn Host>) -> Result<Daemon, PublishError> {
        engine.publish(&policy)?;
        host.set_poll(policy.settings.poll);
        Ok(Daemon { engine, policy, host })
    }

    /// The policy in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The control side of the engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The packet side.
    pub fn host(&self) -> &dyn Host {
        &*self.host
    }
}
