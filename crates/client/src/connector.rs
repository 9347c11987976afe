//! The caller's way to the daemon.

use mmb_protocol::{Client, ClientError};

/// Connects to the daemon; called anew for each command.
pub type Connector<'a> = dyn Fn() -> Result<Client, ClientError> + 'a;
