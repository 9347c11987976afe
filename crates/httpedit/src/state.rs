//! The state of one connection, and what its steps return.

use crate::exchange::{ExchangeId, Exchanges};
use crate::memory::Work;
use crate::plan::{BodyPlan, RuleBits};
use crate::rule::{HttpEnd, HttpRule, HttpRules, RuleEffect};
use mmb_http::{HttpConnection, HttpDirection, HttpUnfit};
use mmb_scan::{EditScratch, ScanState, Scanner};

/// The editor of one connection: its reader, and what is known of its exchanges.
#[derive(Debug)]
pub struct HttpEditor {
    pub(crate) connection: HttpConnection,
    pub(crate) exchanges: Exchanges,
    pub(crate) bodies: [Option<Body>; 2],
    pub(crate) scans: [Option<ScanState>; 2],
    /// A message is held until it has so many bytes.
    pub(crate) whole: [usize; 2],
    /// The server was asked to close behind the newest request, and has not answered otherwise: further ones wait.
    pub(crate) asks_to_close: bool,
    /// A response has left without its length: to the client, all bytes that follow are of its body.
    pub(crate) ends_with_connection: bool,
    /// Bytes came after the response that ends the connection.
    pub(crate) has_surplus: bool,
    pub(crate) is_opaque: bool,
    /// Its rules are no longer those of the policy. These of them, by their places, do nothing any more.
    pub(crate) gone: RuleBits,
    /// Requests wait until no exchange is under way.
    pub(crate) awaits_end: bool,
    /// Heads and bodies that have begun or ended.
    pub(crate) borders: u32,
}

/// A message whose head has passed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body {
    pub(crate) plan: BodyPlan,
    /// The rules that edit it.
    pub(crate) editing: RuleBits,
    /// Whether patterns are searched that are not edited.
    pub(crate) detects: bool,
    /// Its framing and its trailer section are mended.
    pub(crate) mends: bool,
    /// It has no length: its end is the connection's.
    pub(crate) is_until_close: bool,
    /// The content is over, and the trailer section follows.
    pub(crate) is_behind_content: bool,
    /// The exchange is over with the response; of requests nothing.
    pub(crate) is_final: bool,
    /// The byte of content before the undecided ones.
    pub(crate) before: Option<u8>,
    /// Bytes of undecided content that were searched.
    pub(crate) searched: usize,
    /// All bytes of content that were searched.
    pub(crate) searched_before: u64,
}

impl Body {
    /// A body that passes as it comes.
    pub(crate) fn passes(is_final: bool) -> Body {
        Body {
            plan: BodyPlan::Pass,
            editing: 0,
            detects: false,
            mends: false,
            is_until_close: false,
            is_behind_content: false,
            is_final,
            before: None,
            searched: 0,
            searched_before: 0,
        }
    }
}

/// What steps work with: the parts of [`HttpTools`](crate::HttpTools).
pub(crate) struct Kit<'k> {
    pub(crate) rules: &'k HttpRules,
    pub(crate) live: &'k [u32],
    pub(crate) scanner: &'k mut Scanner,
    pub(crate) scratch: &'k mut EditScratch,
    pub(crate) work: &'k mut Work,
    /// The strongest effect of the connection's rules.
    pub(crate) effect: RuleEffect,
}

impl<'k> Kit<'k> {
    /// Whether messages of a direction are mended. Requests never are: those that the grammar forbids are unfit.
    pub(crate) fn mends(&self, direction: HttpDirection) -> bool {
        self.effect == RuleEffect::Edit && direction == HttpDirection::Responses
    }

    /// The connection's rules, in their order.
    pub(crate) fn live_rules(&self) -> impl Iterator<Item = &'k HttpRule> + use<'k> {
        let rules = self.rules;
        self.live.iter().filter_map(move |index| rules.rules.get(*index as usize))
    }
}

/// The undecided bytes of a direction.
#[derive(Clone, Copy, Debug)]
pub struct HttpInput<'b> {
    /// The direction.
    pub direction: HttpDirection,
    /// The bytes: those that were left undecided before, and new ones behind them.
    pub bytes: &'b [u8],
    /// No bytes follow.
    pub is_end: bool,
    /// What was [held](Held) may be held no longer.
    pub release: bool,
}

/// What the first undecided byte is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// The rest of a head, of a line of the framing or of a trailer section: up to 5 s, then it is unfit.
    Head,
    /// The rest of a match that has begun: for `stream hold`; then it passes if it is released.
    Match,
    /// The last byte so far of a body without a length, which what is added at the end needs: for `stream hold`, then it passes.
    Last,
    /// The rest of a message whose length must be known before it leaves: up to 5 s, then it passes unedited.
    Whole,
    /// What the other direction brings: this one is to be asked again after that. There is no limit of time.
    Other,
}

/// What comes of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// Bytes that are decided.
    pub(crate) decided: usize,
    /// No further byte can be decided: what is left, if anything, is held for this.
    pub(crate) held: Option<Held>,
}

impl Step {
    /// So many bytes are decided, and it goes on.
    pub(crate) fn decided(decided: usize) -> Step {
        Step { decided, held: None }
    }

    /// Nothing is decided.
    pub(crate) fn held(held: Held) -> Step {
        Step { decided: 0, held: Some(held) }
    }
}

/// Why a connection does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    NoRoom,
    /// A rule ends it.
    Ended(HttpEnd),
    Unfit(HttpUnfit),
}

impl HttpEditor {
    /// The strongest effect of the connection's rules.
    pub(crate) fn effect(&self, rules: &HttpRules, live: &[u32]) -> RuleEffect {
        let is_gone = |place: usize| self.gone >> place & 1 != 0;
        let rule =
            |(place, index): (usize, &u32)| rules.rules.get(*index as usize).filter(|_| !is_gone(place));
        live.iter().enumerate().filter_map(rule).map(HttpRule::effect).max().unwrap_or(RuleEffect::Report)
    }

    /// Stops reading both directions, except a body of the other direction that leaves in changed framing: its framing is
    /// written to the end of the body.
    pub(crate) fn stop_reading(&mut self, direction: HttpDirection) {
        self.is_opaque = true;
        self.bodies[direction as usize] = None;
        for body in &mut self.bodies {
            *body = body.filter(|body| body.plan == BodyPlan::Chunks);
            if let Some(body) = body {
                (body.editing, body.detects) = (0, false);
            }
        }
    }

    /// Nothing of the connection is HTTP/1.x from here on.
    pub(crate) fn become_opaque(&mut self) {
        (self.is_opaque, self.bodies) = (true, [None; 2]);
    }

    /// The exchange of the message in a direction; `None` if nothing is known of it.
    pub(crate) fn exchange(&self, direction: HttpDirection) -> Option<ExchangeId> {
        match direction {
            HttpDirection::Requests => self.exchanges.newest(),
            HttpDirection::Responses => self.exchanges.oldest(),
        }
    }

    /// A message has ended.
    pub(crate) fn message_ends(&mut self, direction: HttpDirection) {
        let body = self.bodies[direction as usize].take();
        match direction {
            HttpDirection::Requests => self.exchanges.asked(),
            HttpDirection::Responses if body.is_some_and(|body| body.is_final) => {
                self.exchanges.answered(self.bodies[HttpDirection::Requests as usize].is_none());
            }
            HttpDirection::Responses => {}
        }
    }
}
