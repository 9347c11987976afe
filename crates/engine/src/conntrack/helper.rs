//! Helpers: they follow control connections that announce data connections.
//!
//! # How it works
//!
//! A rule with `helper NAME` has the bytes of its connections followed, like a rule on streams, and edited
//! where necessary. `stream_search` sees all bytes in order, each once. `stream_editor` asks for the next
//! command in the undecided bytes, and holds a line that may become a command. `helper_ftp` recognizes the
//! commands of FTP. `helper_control` turns an announcement into an expected connection (`expectations`). If
//! the control connection is translated, it also allocates an outside port and returns the address and port
//! that the command must contain instead. The first packet that matches creates the connection
//! (`create_expected`), which has the rules of the control connection and the inverse translation. The worker
//! of the control connection owns it, whatever its hash; `owner_map` leads its packets there.
//!
//! # How to add a helper
//!
//! 1. Add a variant of `mmb_policy::rule::Helper`, and its word in `language/src/target/helper.rs`.
//! 2. Add a parser of its messages beside [`FtpStep`](mmb_http::FtpStep) in the crate `http`. It finds where
//!    a message starts, where one may start, and what it announces. It bounds the bytes of a message, and
//!    returns the address and the port as a range that can be rewritten. It has no state beyond the bytes
//!    that it is given.
//! 3. Add the directions that it follows and edits to `StreamRule::levels_of`.
//! 4. Add a file beside `helper_ftp` that gives the editor its steps. Whatever the helper reads, the
//!    connections that it admits must be bound to the ends of the control connection: only the end that
//!    announces, only ports that clients choose, only from the other end.
//! 5. Where the protocol expects other connections than "TCP from the responder to a port of the initiator",
//!    extend [`Expectation`](super::expectations::Expectation): more unknown fields than the source port, and
//!    the protocol in its tuples. SIP announces UDP connections in both directions and from any address. PPTP
//!    announces GRE with the call identifier as key. TFTP has no control connection, but a first datagram
//!    whose answer comes from another port.
//!
//! Life-cycle of a [`HelperState`]: that of the stream of its control connection. Its expectations are
//! cancelled when it ends.

use super::expectations::{Expectations, ExpectedRef};
use arrayvec::ArrayVec;
use mmb_base::{Chunks, Slab, id_types};
use mmb_http::MAX_FIRST_LINE_BYTES;
use mmb_random::Seed;
use std::collections::TryReserveError;

/// The most announcements of a control connection that are kept. A further one replaces the oldest, whose
/// connection is no longer expected.
const MAX_ANNOUNCED: usize = 8;

id_types! {
    /// A control connection that a helper follows.
    pub(super) struct HelperId;
}

/// The state of a helper for one control connection.
#[derive(Clone, Debug, Default)]
pub(super) struct HelperState {
    /// The first bytes of the initiator. They show whether the connection has the protocol of the helper.
    pub(super) first_bytes: ArrayVec<u8, MAX_FIRST_LINE_BYTES>,
    /// The latest announcements. The connections of some have begun or expired.
    announced: ArrayVec<ExpectedRef, MAX_ANNOUNCED>,
}

/// The helpers of a worker.
#[derive(Debug)]
pub(super) struct Helpers {
    pub(super) states: Slab<HelperId, HelperState, Chunks<HelperState, 16>>,
    pub(super) expectations: Expectations,
}

impl Helpers {
    pub(super) fn new(seed: Seed) -> Helpers {
        Helpers { states: Slab::default(), expectations: Expectations::new(seed) }
    }

    /// Reserves memory for one more control connection.
    pub(super) fn reserve(&mut self) -> Result<(), TryReserveError> {
        self.states.try_reserve()
    }

    /// Adds the state of a control connection. Memory must be reserved.
    pub(super) fn begin(&mut self) -> HelperId {
        self.states.insert(HelperState::default())
    }

    /// Removes the state of a control connection, and cancels its expectations.
    pub(super) fn end(&mut self, id: HelperId) {
        let HelperState { announced, .. } = self.states.remove(id);
        announced.into_iter().for_each(|reference| self.expectations.cancel(reference));
    }

    /// Records an announcement of a control connection.
    pub(super) fn note(&mut self, id: HelperId, reference: ExpectedRef) {
        let announced = &mut self.states[id].announced;
        if announced.is_full() {
            self.expectations.cancel(announced.remove(0));
        }
        announced.push(reference);
    }
}
