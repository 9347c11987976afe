//! What callers see of an editor.

use crate::exchange::{Exchanges, MAX_LIVE_RULES};
use crate::memory::HttpMemory;
use crate::output::{EditOutput, HttpNote};
use crate::plan::BodyPlan;
use crate::rule::{HttpEnd, HttpRules, RuleEffect};
use crate::state::{Held, HttpEditor, HttpInput, Kit, Refusal};
use mmb_http::{HttpConnection, HttpDirection, HttpUnfit};
use mmb_policy::settings::HttpUnfit as UnfitTreatment;
use mmb_scan::{EditScratch, Scanner};

/// What an editor works with, of the worker and of the policy.
pub struct HttpTools<'t> {
    /// The policy's rules.
    pub rules: &'t HttpRules,
    /// The connection's rules by [`HttpRules::index_of`], in the order of (priority, id). The same ones at each call, or else
    /// [`HttpEditor::change_rules`] comes before.
    pub live: &'t [u32],
    /// The worker's scanner, in which [`HttpRules::sets`] are prepared.
    pub scanner: &'t mut Scanner,
    /// The worker's scratch, prepared for [`HttpRules::edit_patterns`].
    pub scratch: &'t mut EditScratch,
    /// The worker's memory.
    pub memory: &'t mut HttpMemory,
}

/// What an editor has decided. Bytes that were decided before it could not go on were told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpProgress {
    /// All bytes are decided.
    All,
    /// The bytes that are not decided are held.
    Held(Held),
    /// A rule that ends the connection is met.
    Ended(HttpEnd),
    /// All bytes are decided, and all that follow pass, in both directions; so do those that are held of the other one, when it is asked again.
    Opaque,
    /// The bytes cannot be read, and the connection must end. Either `http unfit` is `close` and some rule does more than
    /// report, or the previous message has left without its length.
    Unfit(HttpUnfit),
    /// There is no room for the state of a scan, or the connection has more than [`MAX_LIVE_RULES`] rules.
    NoRoom,
}

impl HttpEditor {
    /// The editor of a connection of which no byte has come, with that many rules on HTTP.
    #[must_use]
    pub fn new(rules: &HttpRules, live_rules: usize) -> HttpEditor {
        HttpEditor {
            connection: HttpConnection::new(rules.settings.head_kib.saturating_mul(1024)),
            exchanges: Exchanges::new(live_rules),
            bodies: [None; 2],
            scans: [None, None],
            whole: [0; 2],
            asks_to_close: false,
            ends_with_connection: false,
            has_surplus: false,
            is_opaque: false,
            gone: 0,
            awaits_end: false,
            borders: 0,
        }
    }

    /// Heads and bodies that have begun or ended in either direction: a number that wraps around. What is held for the other direction
    /// ([`Held::Other`]) is held until it has changed, or nothing is read any more.
    #[must_use]
    pub fn borders(&self) -> u32 {
        self.borders
    }

    /// Whether what is held for the other direction since this number of [borders](HttpEditor::borders) may go on.
    #[must_use]
    pub fn may_resume(&self, borders: u32) -> bool {
        self.is_opaque || self.borders != borders
    }

    /// Whether no message is under way, so that other rules may take over.
    #[must_use]
    pub fn is_between_messages(&self) -> bool {
        self.is_opaque || self.exchanges.is_empty() && self.bodies.iter().all(Option::is_none)
    }

    /// The policy has other rules now, but messages are under way: they go on with the rules that they have, except those that are `gone`, as bits
    /// by their places. With `awaits_end`, requests that follow wait until [`HttpEditor::is_between_messages`]; without, they have the same rules.
    pub fn expire(&mut self, gone: u128, awaits_end: bool) {
        self.awaits_end = awaits_end;
        if gone & !self.gone == 0 {
            return;
        }
        self.gone |= gone;
        self.exchanges.fail(gone);
        self.bodies.iter_mut().flatten().for_each(|body| body.editing &= !gone);
    }

    /// The connection has other rules, or the policy is another one. What is known of messages that have begun is forgotten: rules are about
    /// the exchanges that begin from now on. Bodies that leave in other framing go on so.
    pub fn change_rules(&mut self, live_rules: usize) {
        (self.gone, self.awaits_end, self.whole) = (0, false, [0; 2]);
        self.exchanges.change_rules(live_rules);
        self.scans = [None, None];
        for body in self.bodies.iter_mut().flatten() {
            (body.editing, body.detects, body.searched) = (0, false, 0);
        }
    }

    /// Whether a message leaves in another framing than it came in, so that bytes which are not shown would not be understood; or has left so that all
    /// that follows would be taken for its body.
    #[must_use]
    pub fn has_own_framing(&self) -> bool {
        self.ends_with_connection || self.bodies.iter().flatten().any(|body| body.plan == BodyPlan::Chunks)
    }

    /// Gives back the states of scans to the worker's scanner. They return by themselves, a little later, if the editor is dropped.
    pub fn close(&mut self, scanner: &mut Scanner) {
        for scan in &mut self.scans {
            if let Some(state) = scan.take() {
                scanner.close(state);
            }
        }
    }

    /// Decides about the undecided bytes of a direction, from the first one on. What `out` is not told remains undecided.
    pub fn edit(
        &mut self,
        tools: &mut HttpTools<'_>,
        input: HttpInput<'_>,
        out: &mut dyn EditOutput,
    ) -> HttpProgress {
        let HttpTools { rules, live, scanner, scratch, memory } = tools;
        if live.len() > MAX_LIVE_RULES {
            return HttpProgress::NoRoom;
        }
        if !self.exchanges.fits(live.len()) {
            self.change_rules(live.len());
        }
        let HttpMemory { buffer, work } = &mut **memory;
        let effect = self.effect(rules, live);
        let mut kit = Kit { rules, live, scanner, scratch, work, effect };
        let mut at = 0;
        loop {
            let rest = HttpInput { bytes: &input.bytes[at..], ..input };
            let within = self.bodies[input.direction as usize];
            if self.is_opaque && within.is_none() {
                out.pass(rest.bytes.len());
                return HttpProgress::Opaque;
            }
            let step = match within {
                None => self.head(&mut kit, buffer, (rest, at), out),
                Some(body) if body.plan == BodyPlan::Pass && (!body.detects || body.is_behind_content) => {
                    self.pass_body(&mut kit, buffer, rest, body, out)
                }
                Some(body) if body.is_behind_content => self.trailers(&mut kit, buffer, rest, out),
                Some(body) => self.body(&mut kit, buffer, (rest, at), body, out),
            };
            match step {
                Ok(step) => {
                    at += step.decided;
                    let is_border = match within {
                        None => step.decided > 0,
                        Some(_) => self.bodies[input.direction as usize].is_none(),
                    };
                    self.borders = self.borders.wrapping_add(u32::from(is_border));
                    match step.held {
                        None => {}
                        Some(_) if at == input.bytes.len() => return HttpProgress::All,
                        Some(held) => return HttpProgress::Held(held),
                    }
                }
                Err(Refusal::Ended(end)) => return HttpProgress::Ended(end),
                Err(Refusal::NoRoom) => {
                    if effect > RuleEffect::Report {
                        return HttpProgress::NoRoom;
                    }
                    out.note(HttpNote::NoRoom);
                    self.stop_reading(input.direction);
                }
                Err(Refusal::Unfit(reason)) => {
                    let closes = rules.settings.unfit == UnfitTreatment::Close;
                    // The receiver takes all later bytes as part of a body that has left without its length.
                    if self.ends_with_connection || closes && effect > RuleEffect::Report {
                        return HttpProgress::Unfit(reason);
                    }
                    if !self.is_opaque {
                        out.note(HttpNote::UnfitPassed(reason));
                    }
                    self.stop_reading(input.direction);
                }
            }
        }
    }

    /// To be called when held bytes cannot be held longer and were not read. If the rules only report, stops reading and
    /// returns true: the caller passes the held bytes. Otherwise returns false: the held bytes must not pass.
    #[must_use]
    pub fn stop_looking(
        &mut self,
        tools: &HttpTools<'_>,
        (direction, reason): (HttpDirection, HttpUnfit),
        out: &mut dyn EditOutput,
    ) -> bool {
        let looks = self.effect(tools.rules, tools.live) == RuleEffect::Report && !self.has_own_framing();
        if looks {
            out.note(HttpNote::UnfitPassed(reason));
            self.stop_reading(direction);
        }
        looks
    }
}
