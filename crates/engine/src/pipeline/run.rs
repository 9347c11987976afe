//! The stages of a vector, each a loop over its packets. Between stages, the verdicts show which packets are
//! still to be sent.

use super::forward::forward;
use super::limits::PacketLimiter;
use super::resolver::{VerdictResolver, first_dropping_rule, resolve_in_order};
use super::state::Pipeline;
use super::tickets::RewriteTicket;
use super::trace::PacketTrace;
use super::work::{EditList, PacketEdits, RewriteWork};
use crate::cells::Stage;
use crate::compiled::{ActionMark, Snapshot};
use crate::counters::Count;
use crate::drop::DropReason;
use crate::verdict::{Cycles, Origin, TranslatedPackets, Verdict};
use mmb_base::Id;
use mmb_classify::{BypassReason, FlowCounts};
use mmb_packet::parse::vector::ParseVector;
use mmb_packet::{Class, Layout, Packet};
use mmb_policy::settings::FlowCacheUse;

/// The result of deciding on a vector.
struct Decided {
    /// Number of packets that were parsed without error.
    sound: usize,
    /// The cycle count at the end of the last stage.
    end_cycles: u64,
    /// Connections were looked up.
    tracked: bool,
}

impl Pipeline {
    /// Processes a vector in all stages. `verdicts` is as long as `packets`.
    pub(crate) fn run(
        &mut self,
        origin: Origin,
        snapshot: &Snapshot,
        cycles: &impl Cycles,
        packets: &mut [Packet<'_>],
        verdicts: &mut [Verdict],
    ) {
        let is_tapped = self.is_tapped() && self.begin_taps(snapshot, origin, packets);
        if origin == Origin::Answer {
            return self.pass_answers((snapshot, cycles), packets, verdicts, is_tapped);
        }
        let Decided { sound, end_cycles, tracked } =
            self.decide_on((origin, is_tapped), snapshot, cycles, packets, verdicts);
        if self.may_exceed_mtu {
            self.prepare_mtu_errors(snapshot, packets, verdicts);
        }
        let end_cycles = self.streams(snapshot, cycles, end_cycles, packets, verdicts);
        let tools = (&mut self.editor, &mut self.not_applied);
        self.work.apply(snapshot, packets, tools, |packet| Some(usize::from(packet)));
        let rewritten = cycles.now();
        self.cells.stage(Stage::Rewrite, sound, rewritten.wrapping_sub(end_cycles));
        self.finish(snapshot, cycles, rewritten, packets, verdicts, |_| false);
        if is_tapped {
            self.end_taps(snapshot, (origin, tracked), packets, verdicts);
        }
    }

    /// Processes a vector in all stages except rewriting, for which it issues tickets. `verdicts` and
    /// `tickets` are as long as `packets`. `trace_hook` receives each packet's trace. Taps do not see the
    /// packets.
    ///
    /// Packets that only need the translation of the quick pass are rewritten at once. Returns these packets,
    /// and those that their streams may have changed.
    pub(crate) fn run_to_tickets(
        &mut self,
        (origin, snapshot): (Origin, &Snapshot),
        cycles: &impl Cycles,
        packets: &mut [Packet<'_>],
        verdicts: &mut [Verdict],
        tickets: &mut [Option<RewriteTicket>],
        trace_hook: Option<&mut dyn FnMut(PacketTrace)>,
    ) -> TranslatedPackets {
        if origin == Origin::Answer {
            self.pass_answers((snapshot, cycles), packets, verdicts, false);
            tickets.fill(None);
            trace_hook.into_iter().for_each(|hook| packets.iter().for_each(|_| hook(PacketTrace::default())));
            return TranslatedPackets::default();
        }
        let Decided { sound, end_cycles, tracked } =
            self.decide_on((origin, trace_hook.is_some()), snapshot, cycles, packets, verdicts);
        let end_cycles = self.streams(snapshot, cycles, end_cycles, packets, verdicts);
        let translated = self.work.translate_at_once(packets);
        let batch = self.issue_tickets(tickets);
        if let Some(hook) = trace_hook {
            (0..packets.len()).for_each(|index| hook(self.trace(snapshot, index, tracked, verdicts[index])));
        }
        let issued = cycles.now();
        self.cells.stage(Stage::Rewrite, sound, issued.wrapping_sub(end_cycles));
        self.finish(snapshot, cycles, issued, packets, verdicts, |index| tickets[index].is_some());
        if let Some(batch) = batch {
            self.park(batch, tickets);
        }
        translated
    }

    /// Runs the streams stage. Returns the cycle count at its end.
    #[inline]
    fn streams(
        &mut self,
        snapshot: &Snapshot,
        cycles: &impl Cycles,
        start: u64,
        packets: &mut [Packet<'_>],
        verdicts: &mut [Verdict],
    ) -> u64 {
        let count = self.work.streamed.len();
        if count == 0 {
            return start;
        }
        self.follow_streams(snapshot, packets, verdicts);
        let followed = cycles.now();
        self.cells.stage(Stage::Streams, count, followed.wrapping_sub(start));
        followed
    }

    /// Decides on a vector, and leaves the pending rewrites in `work`.
    fn decide_on(
        &mut self,
        (origin, is_traced): (Origin, bool),
        snapshot: &Snapshot,
        cycles: &impl Cycles,
        packets: &[Packet<'_>],
        verdicts: &mut [Verdict],
    ) -> Decided {
        self.is_traced = is_traced;
        let start = cycles.now();
        let sound = self.parse(snapshot, packets, verdicts, origin);
        let parsed = cycles.now();
        self.cells.stage(Stage::Parse, packets.len(), parsed.wrapping_sub(start));

        let is_generated = origin == Origin::Generated;
        if origin == Origin::Wire {
            self.count_missed(packets.len());
        }
        let tracked = self.conntrack.is_needed(snapshot);
        let mut looked_up = parsed;
        if tracked {
            self.match_per_packet_rules(snapshot, packets);
            let parsed = (&self.keys.ip4, &*self.work.layouts);
            let matched = if snapshot.per_packet.is_some() { self.per_packet.matched() } else { &[] };
            let some_cached =
                self.conntrack.lookup(snapshot, packets, parsed, matched, verdicts, (origin, is_traced));
            if some_cached && !is_generated {
                let conntrack = &self.conntrack;
                if conntrack.quick().count() == self.keys.count() {
                    self.keys.clear();
                } else {
                    self.keys.retain(|packet| !conntrack.needs_no_rules(usize::from(packet)));
                }
            }
            looked_up = cycles.now();
        }
        let count = self.keys.count();
        self.classify(snapshot, cycles, packets);
        let classified = cycles.now();
        self.cells.stage(Stage::Classify, count, classified.wrapping_sub(looked_up));

        let mut decided = classified;
        if tracked {
            match is_generated {
                true => self.pass_generated(snapshot, packets, verdicts),
                false => self.decide_by_connection(snapshot, packets, verdicts),
            }
            if origin == Origin::Wire && self.conntrack.offloads() {
                self.count_untracked(packets, verdicts);
            }
            decided = cycles.now();
            let spent = looked_up.wrapping_sub(parsed).wrapping_add(decided.wrapping_sub(classified));
            self.cells.stage(Stage::Connections, sound, spent);
        } else {
            self.decide(snapshot, packets, verdicts);
            if snapshot.log_rules > 0 {
                self.log_vector(snapshot, packets, verdicts);
            }
            if origin == Origin::Wire && self.conntrack.offloads() {
                self.offer_flows(snapshot, packets, verdicts);
            }
        }
        Decided { sound, end_cycles: decided, tracked }
    }

    /// Finds the rules that the packets with keys match. May remove keys.
    pub(super) fn classify(&mut self, snapshot: &Snapshot, cycles: &impl Cycles, packets: &[Packet<'_>]) {
        let Pipeline { keys, work, scratch, .. } = self;
        let layouts = &work.layouts[..packets.len()];
        let counts = match snapshot.flow_cache {
            FlowCacheUse::Auto => {
                let classifier = (snapshot.generation, &snapshot.classifier);
                self.flow_cache.classify(classifier, keys, (packets, layouts), scratch, || cycles.now())
            }
            FlowCacheUse::Off => {
                snapshot.classifier.classify(keys, packets, layouts, scratch);
                FlowCounts::bypassed(keys.count(), BypassReason::Off)
            }
        };
        self.cells.flow_cache(counts);
    }

    /// If verdicts are cached, finds the per-packet rules that each packet of the vector matches, and leaves
    /// them in `per_packet`. Most packets need no other rules then. In a policy without per-packet rules,
    /// `per_packet` has no matches.
    fn match_per_packet_rules(&mut self, snapshot: &Snapshot, packets: &[Packet<'_>]) {
        if let Some(classifier) = &snapshot.per_packet {
            let layouts = &self.work.layouts[..packets.len()];
            classifier.classify(&self.keys, packets, layouts, &mut self.per_packet);
        }
    }

    /// Forwards and counts a vector, except packets that wait to be rewritten.
    fn finish(
        &mut self,
        snapshot: &Snapshot,
        cycles: &impl Cycles,
        start: u64,
        packets: &[Packet<'_>],
        verdicts: &mut [Verdict],
        waits: impl Fn(usize) -> bool,
    ) {
        let counters = (&*self.cells, &mut self.drops);
        forward(snapshot, counters, packets, &*self.work.layouts, verdicts, waits);
        if self.may_exceed_mtu {
            let exceeds = |index: usize| verdicts[index] == Verdict::Drop(DropReason::MtuExceeded);
            self.answers.queue_prepared(exceeds, &mut self.not_applied);
        }
        self.flush();
        self.cells.stage(Stage::Forward, packets.len(), cycles.now().wrapping_sub(start));
    }

    /// Parses headers, fills classifier keys, and sets every packet's initial verdict from its port's route.
    /// Returns the number of packets that were parsed without error.
    fn parse(
        &mut self,
        snapshot: &Snapshot,
        packets: &[Packet<'_>],
        verdicts: &mut [Verdict],
        origin: Origin,
    ) -> usize {
        let Pipeline { keys, work: RewriteWork { layouts, .. }, .. } = self;
        keys.clear();
        let mut may_exceed_mtu = false;
        let mut start = 0;
        for run in packets.chunk_by(|a, b| a.port == b.port) {
            let port = run[0].port;
            if origin == Origin::Wire {
                let bytes = run.iter().map(|packet| packet.len() as u64).sum();
                self.cells.rx(usize::from(port.0), Count { packets: run.len() as u64, bytes });
            }
            let route = snapshot.route(port);
            may_exceed_mtu |= origin != Origin::Generated && Pipeline::may_exceed_mtu(snapshot, &route, run);
            let verdict = match route.egress {
                Some((to, _)) => Verdict::Send(to),
                None => Verdict::Drop(DropReason::NoWire),
            };
            let end = start + run.len();
            verdicts[start..end].fill(verdict);
            if route.enabled {
                // The index of a packet in a vector fits in a byte.
                keys.take(start as u8, run);
            } else {
                layouts[start..end].fill(unparsed());
            }
            start = end;
        }
        self.may_exceed_mtu = may_exceed_mtu;
        keys.parse(ParseVector {
            wanted: snapshot.classifier.wanted(),
            limits: snapshot.parser_limits,
            packets,
            layouts,
            out: |index: usize| snapshot.route(packets[index].port).out_port,
            malformed: |index: usize, why| verdicts[index] = Verdict::Drop(DropReason::Malformed(why)),
        })
    }

    /// Counts the matched rules, and applies accept, drop and reject rules. A later stage may still drop a
    /// packet that passes.
    fn decide(&mut self, snapshot: &Snapshot, packets: &[Packet<'_>], verdicts: &mut [Verdict]) {
        self.work.clear();
        self.prefetch_rules(snapshot);
        self.prefetch_limits(snapshot, packets, false);
        let cells = &snapshot.cells[self.worker];
        for number in 0..self.scratch.matched().len() {
            let index = self.scratch.matched()[number];
            let packet = usize::from(index);
            let count = Count { packets: 1, bytes: packets[packet].len() as u64 };
            let slots = self.scratch.slots_mut(packet);
            if let [slot] = *slots
                && let mark @ (ActionMark::Accepts | ActionMark::Drops) = ActionMark::from_slot(slot)
            {
                cells.slot(slot).add(count);
                if mark == ActionMark::Drops {
                    cells.dropped(slot).add(count);
                    verdicts[packet] = Verdict::Drop(DropReason::Rule);
                }
                continue;
            }
            let mut resolver = VerdictResolver::default();
            let (mut edits, mut edit, mut draws) = (0, None, false);
            for &slot in &*slots {
                let action = snapshot.actions.at(slot.index());
                cells.slot(slot).add(count);
                draws |= !resolver.resolve(slot, action, || None);
                if action.edit().is_some() {
                    edits += 1;
                    edit = action.edit();
                }
            }
            if draws || edits > 1 {
                let parsed = (&packets[packet], &self.work.layouts[packet]);
                let mut limiter =
                    PacketLimiter::new(parsed, &self.conntrack, (None, false), &mut self.not_applied);
                resolver = resolve_in_order(snapshot, slots, &mut self.random, &mut limiter);
            }
            if let Some(first) = resolver.dropped_by() {
                let is_first = slots.len() == 1 || draws || edits > 1;
                let slot =
                    if is_first { first } else { first_dropping_rule(snapshot, slots).unwrap_or(first) };
                cells.dropped(slot).add(count);
                verdicts[packet] = self.dropped_by(snapshot, slot, packet, &packets[packet]);
            } else if let Some(edit) = edit {
                let edits = if edits == 1 {
                    EditList::Alone(edit)
                } else {
                    let start = self.work.listed.len() as u32;
                    let listed = slots.iter().map(|&slot| snapshot.actions.at(slot.index()).edit());
                    self.work.listed.extend(listed);
                    EditList::Listed(start, self.work.listed.len() as u32)
                };
                self.work.rewrites.push(PacketEdits { packet: index, edits });
            }
        }
    }
}

/// The layout of a packet that is not parsed: length 0 for the MTU check.
fn unparsed() -> Layout {
    Layout { class: Class::Ip4, ..Layout::default() }
}
