//! Helpers: control connections that announce data connections.
//!
//! # How it works
//!
//! A rule with `helper NAME` has the bytes of its connections followed, as rules on streams do, and so edited if need be: `stream_search` passes
//! all bytes by, in order and once each, `stream_editor` asks for the next command among those that are undecided, and holds a line back
//! that may become one. `helper_ftp` says what is a command of FTP. `helper_control` turns what a command announces into an expected connection
//! (`expectations`), with an outside port where the control connection is translated, and gives the end that the command has to say then. The
//! first packet that fits makes the connection (`expected`), which has the rules of the control connection and the inverse translation. It
//! is owned by the worker of its control connection, whatever its hash; `owner_map` leads its packets there.
//!
//! # How another helper follows
//!
//! 1. A variant of `mmb_policy::rule::Helper` and its word in `language/src/target/helper.rs`.
//! 2. A parser of its messages beside [`FtpStep`](mmb_http::FtpStep) in the room `http`: where a message begins, is begun, and what it announces,
//!    bounded in bytes, with the address and the port as a place that can be rewritten. It owns no state beyond what the bytes at hand tell.
//! 3. The directions that it follows and edits: `StreamRule::levels_of`.
//! 4. A file beside `helper_ftp` that gives the editor its steps. Whatever it reads, what it lets in must be bound to the ends of the control
//!    connection: only the end that announces, only ports that clients choose, only from the other end.
//! 5. Where the protocol differs in what is expected: SIP announces connections of UDP in both directions and from any address; PPTP GRE
//!    with the call identifier as key; TFTP has no control connection but a first datagram, whose answer comes from another port. These
//!    need another [`Expectation`](super::expectations::Expectation) than "TCP from the responder to a port of the initiator": more that is not
//!    known than the source port, and the protocol in its tuples.
//!
//! Life-cycle of a [`HelperState`]: with the stream of its control connection. What it has announced ends with it.

use super::expectations::{Expectations, ExpectedRef};
use arrayvec::ArrayVec;
use mmb_base::{Chunks, Slab, id_types};
use mmb_http::MOST_FIRST_LINE;
use mmb_random::Seed;
use std::collections::TryReserveError;

/// Connections that a control connection announces and that have not begun, at most: the next one takes the place of the first.
const MOST_ANNOUNCED: usize = 8;

id_types! {
    /// A control connection that a helper follows.
    pub(super) struct HelperId;
}

/// What a helper knows of one control connection.
#[derive(Clone, Debug, Default)]
pub(super) struct HelperState {
    /// The first bytes of the initiator, by which a connection of another protocol is known.
    pub(super) first: ArrayVec<u8, MOST_FIRST_LINE>,
    /// What it has announced last; some of it has begun or expired.
    announced: ArrayVec<ExpectedRef, MOST_ANNOUNCED>,
}

/// The helpers of a worker.
#[derive(Debug)]
pub(super) struct Helpers {
    pub(super) states: Slab<HelperId, HelperState, Chunks<HelperState, 16>>,
    pub(super) expected: Expectations,
}

impl Helpers {
    pub(super) fn new(seed: Seed) -> Helpers {
        Helpers { states: Slab::default(), expected: Expectations::new(seed) }
    }

    /// Reserves memory for one more control connection.
    pub(super) fn reserve(&mut self) -> Result<(), TryReserveError> {
        self.states.try_reserve()
    }

    /// Begins with a control connection; memory was reserved.
    pub(super) fn begin(&mut self) -> HelperId {
        self.states.insert(HelperState::default())
    }

    /// Ends with a control connection, and with what it has announced.
    pub(super) fn end(&mut self, id: HelperId) {
        let HelperState { announced, .. } = self.states.remove(id);
        announced.into_iter().for_each(|of| self.expected.cancel(of));
    }

    /// Notes what a control connection has announced.
    pub(super) fn note(&mut self, id: HelperId, of: ExpectedRef) {
        let announced = &mut self.states[id].announced;
        if announced.is_full() {
            self.expected.cancel(announced.remove(0));
        }
        announced.push(of);
    }
}
