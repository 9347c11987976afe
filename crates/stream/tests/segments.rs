//! The treatment of each kind of segment at each level: one test for each case of the design.

mod bytes;
mod handshakes;
mod limits;
mod windows;

use crate::support::{Conn, LIMITS, ack, seg, syn, syn_ack};
use mmb_stream::Level::{self, Guard, Watch};

/// Both directions watched.
const WATCH: [Level; 2] = [Watch; 2];
/// Both directions guarded.
const GUARD: [Level; 2] = [Guard; 2];
