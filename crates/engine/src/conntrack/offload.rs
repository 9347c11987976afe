//! Flow offload: offers flows to the host, with or without a connection, collects their counts, and ends
//! them.

use super::flow_state::FlowState;
use super::offloaded_flows::{CollectedUsage, FlowOwner, LateCount, PlacedFlow};
use super::tracking::Conntrack;
use super::verdict_cache::VerdictId;
use crate::compiled::Snapshot;
use crate::counters::Count;
use crate::drop::DropReason;
use crate::offload::{FlowKey, FlowOffload, FlowWrites, NotOffloadedReason, OffloadedFlow};
use crate::offload_writes::constant_writes;
use mmb_base::Id;
use mmb_classify::RuleSlot;
use mmb_conn::{ConnId, ConnState, Direction, OffloadedPackets, proto};
use mmb_packet::PortId;
use mmb_policy::settings::Offload;

/// A direction's flow is offered with this packet or a later one. For shorter connections the offload is not
/// worth its cost.
const OFFERED_AFTER: u64 = 3;

/// The interval between steps of the walk over all places, and the number of steps in which the walk visits
/// each place once.
const STEP_MS: u64 = 10;
const STEPS: usize = 25;

/// The idle time after which the walk ends a flow: usually, and while few places are free.
const IDLE_MS: u64 = 30_000;
const CROWDED_IDLE_MS: u64 = 1_000;

/// The UDP ports of tunnels that the kernel implements: VXLAN (RFC 7348, and Linux's earlier port),
/// VXLAN-GPE, GENEVE (RFC 8926), GUE, FOU, MPLS (RFC 7510), GRE (RFC 8086), L2TP, GTP-U, AMT (RFC 7450).
const TUNNELS: [u16; 11] = [4789, 8472, 4790, 6081, 6080, 5555, 6635, 4754, 1701, 2152, 2268];

/// Whether the flow is a UDP tunnel whose addresses or ports are rewritten. Its frames may have an unfinished
/// checksum in an inner header, and a BPF program cannot distinguish it from an unfinished checksum of the
/// outer header.
fn is_tunnel(key: &FlowKey, writes: &FlowWrites) -> bool {
    let ports = key.ports.into_iter().chain(writes.ports.into_iter().flatten());
    key.proto == proto::UDP
        && (writes.addresses.is_some() || writes.ports.is_some())
        && ports.into_iter().any(|port| TUNNELS.contains(&port))
}

/// The properties of a packet that decide whether its flow may be offloaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowSample {
    /// The ingress port of the packet.
    pub(crate) port: PortId,
    /// The VLAN identifier, if the packet is tagged.
    pub(crate) vlan: Option<u16>,
    /// The kernel could not distinguish packets of the flow from others: the packet has tags other than one
    /// of 802.1Q, IP options or extension headers, or is a fragment.
    pub(crate) is_not_plain: bool,
    /// A rule that looks at more than addresses, ports and protocol may match a packet of the flow.
    pub(crate) is_blocked: bool,
    /// A trace or a capture selects packets of the flow.
    pub(crate) is_tapped: bool,
}

impl Conntrack {
    /// Sets the host to which flows are offered.
    pub(crate) fn set_offload(&mut self, host: Box<dyn FlowOffload>) {
        self.state.flows.set_host(host);
    }

    /// Adopts a policy. Afterwards no flow of the previous policy is installed.
    pub(crate) fn configure_offload(&mut self, snapshot: &Snapshot) {
        self.collect_flows();
        let is_on = snapshot.offload == Offload::Auto;
        self.state.flows.begin_epoch(if is_on { snapshot.epoch() } else { 0 });
        self.count_flows();
    }

    fn count_flows(&self) {
        let (installed, capacity) = self.state.flows.sizes();
        self.state.cells.flows_now(installed as u64, capacity.into());
    }

    /// Whether flows are offloaded under the policy in use.
    #[inline]
    pub(crate) fn offloads(&self) -> bool {
        self.state.flows.is_on()
    }

    /// Whether the quick pass may learn the verdict of a direction of a connection. While flows are
    /// offloaded, it may only after the flow was offered.
    #[inline]
    pub(super) fn was_offered(&self, (id, direction): (ConnId, Direction)) -> bool {
        !self.offloads() || self.table.packets(id)[direction as usize] > OFFERED_AFTER
    }

    /// Whether the flow of a packet that passed by its cached verdict should be offered to the host.
    #[inline]
    pub(crate) fn offers(&self, (id, direction): (ConnId, Direction)) -> bool {
        self.offloads() && self.offers_flow(id, direction)
    }

    #[inline(never)]
    fn offers_flow(&self, id: ConnId, direction: Direction) -> bool {
        let flows = &self.state.flows;
        let is_prepared =
            || flows.place_of_connection(id, direction).is_some_and(|place| flows.is_prepared(place));
        self.table.packets(id)[direction as usize] >= OFFERED_AFTER
            && !flows.was_refused(id, self.state.now_ms)
            && !(self.table.is_offloaded(id) && is_prepared())
    }

    /// Offers the flow of a packet that passed by this cached verdict.
    #[inline(never)]
    pub(crate) fn offer(
        &mut self,
        snapshot: &Snapshot,
        (id, direction): (ConnId, Direction),
        cached: VerdictId,
        sample: FlowSample,
    ) {
        if let Err(reason) = self.try_offer(snapshot, (id, direction), cached, sample) {
            self.state.cells.flow_not_offloaded(reason);
            self.state.flows.refuse(id, self.state.now_ms);
        }
        self.count_flows();
    }

    fn try_offer(
        &mut self,
        snapshot: &Snapshot,
        (id, direction): (ConnId, Direction),
        cached: VerdictId,
        FlowSample { port, vlan, is_not_plain, is_blocked, is_tapped }: FlowSample,
    ) -> Result<(), NotOffloadedReason> {
        let Some((egress, mtu)) = snapshot.route(port).egress else { return Err(NotOffloadedReason::Device) };
        if !self.state.flows.can_forward(port, Some(egress)) {
            return Err(NotOffloadedReason::Device);
        }
        if is_not_plain || !matches!(self.table.proto(id), proto::TCP | proto::UDP) {
            return Err(NotOffloadedReason::Protocol);
        }
        if is_blocked {
            return Err(NotOffloadedReason::PerPacket);
        }
        if is_tapped {
            return Err(NotOffloadedReason::Tapped);
        }
        if let Some(extension) = self.table.ids(id).extension {
            let has_stream = self.state.extensions.get(extension).stream.is_some();
            return Err(if has_stream { NotOffloadedReason::Stream } else { NotOffloadedReason::Numbers });
        }
        if !self.table.may_be_offloaded(id) {
            // A connection that both ends have not confirmed yet, or that is closing, is not counted as kept.
            let is_one_way = self.table.state(id) == ConnState::Unreplied;
            return if is_one_way { Err(NotOffloadedReason::OneWay) } else { Ok(()) };
        }
        let tuples = self.table.tuples(id);
        let from = tuples[direction as usize];
        let key = FlowKey {
            port,
            vlan,
            family: from.family,
            proto: from.proto,
            addresses: from.addresses,
            ports: from.ports,
        };
        let leaving = tuples[direction.opposite() as usize].reversed();
        let translation = FlowWrites {
            addresses: (leaving.addresses != from.addresses).then_some(leaving.addresses),
            ports: (leaving.ports != from.ports).then_some(leaving.ports),
            ..FlowWrites::default()
        };
        let rules = self.state.cache.rules(cached);
        if rules.iter().any(|slot| snapshot.actions.at(slot.index()).drops_some()) {
            return Err(NotOffloadedReason::PerPacket);
        }
        let edits = rules.iter();
        let edits = edits.filter_map(|slot| snapshot.edit(snapshot.actions.at(slot.index()).edit()?));
        let writes = constant_writes(&key, translation, edits).ok_or(NotOffloadedReason::Rewrite)?;
        if is_tunnel(&key, &writes) {
            return Err(NotOffloadedReason::Rewrite);
        }
        let flow = OffloadedFlow {
            key,
            epoch: self.state.flows.epoch(),
            egress: Some(egress),
            max_len: mtu,
            writes,
            tcp: None,
        };
        // A flow without a connection may remain from an earlier policy.
        let other = self.state.flows.place_of_key(&key);
        // The direction's own flow may have used another port or another tag.
        let own = self.state.flows.place_of_connection(id, direction);
        let own =
            own.filter(|place| self.state.flows.get(*place).is_some_and(|placed| placed.flow.key != key));
        other.into_iter().chain(own).for_each(|place| self.end_flow(place));
        let owner = FlowOwner::Connection(id, direction, cached);
        let Some(place) = self.state.flows.prepare(flow, owner, None, self.state.now_ms) else {
            // The direction's own flow may have ended above.
            self.end_flows(id);
            return Err(NotOffloadedReason::Full);
        };
        self.table.set_offloaded(id, true);
        match self.table.numbers(id) {
            None => {
                self.install(place, None).inspect_err(|_| self.end_flows_of(id))?;
                self.state.flows.enable(place);
                Ok(())
            }
            Some(numbers) => {
                let flows = &self.state.flows;
                let other = flows
                    .place_of_connection(id, direction.opposite())
                    .filter(|other| flows.is_prepared(*other));
                // TCP needs both directions: the later one installs both flows.
                let Some(other) = other else { return Ok(()) };
                let both = self
                    .install(other, Some((numbers[direction.opposite() as usize], place)))
                    .and_then(|()| self.install(place, Some((numbers[direction as usize], other))));
                both.inspect_err(|_| self.end_flows_of(id))?;
                self.state.flows.enable(other);
                self.state.flows.enable(place);
                Ok(())
            }
        }
    }

    fn install(
        &mut self,
        place: u32,
        tcp: Option<(mmb_conn::EndNumbers, u32)>,
    ) -> Result<(), NotOffloadedReason> {
        if !self.state.flows.install(place, tcp) {
            return Err(NotOffloadedReason::Full);
        }
        self.state.cells.flow_installed();
        Ok(())
    }

    /// Offers a flow without a connection. Its packets match `rules`, in this order. `outcome` is the egress
    /// port with its MTU, or the rule that drops the packets.
    pub(crate) fn offer_by_rules(
        &mut self,
        snapshot: &Snapshot,
        key: FlowKey,
        rules: &[RuleSlot],
        outcome: Result<(PortId, u32), RuleSlot>,
    ) {
        if let Err(reason) = self.try_offer_by_rules(snapshot, key, rules, outcome) {
            self.state.cells.flow_not_offloaded(reason);
        }
        self.count_flows();
    }

    fn try_offer_by_rules(
        &mut self,
        snapshot: &Snapshot,
        key: FlowKey,
        rules: &[RuleSlot],
        outcome: Result<(PortId, u32), RuleSlot>,
    ) -> Result<(), NotOffloadedReason> {
        if self.state.flows.place_of_key(&key).is_some_and(|place| self.state.flows.is_prepared(place)) {
            // The host left this packet to the worker.
            return Ok(());
        }
        let egress = outcome.ok();
        if !self.state.flows.can_forward(key.port, egress.map(|(egress, _)| egress)) {
            return Err(NotOffloadedReason::Device);
        }
        if rules.iter().any(|slot| snapshot.actions.at(slot.index()).drops_some()) {
            return Err(NotOffloadedReason::PerPacket);
        }
        let edits = rules.iter().filter(|_| egress.is_some());
        let edits = edits.filter_map(|slot| snapshot.edit(snapshot.actions.at(slot.index()).edit()?));
        let writes =
            constant_writes(&key, FlowWrites::default(), edits).ok_or(NotOffloadedReason::Rewrite)?;
        let is_icmp = !matches!(key.proto, proto::TCP | proto::UDP);
        let is_translated = writes.addresses.is_some() || writes.ports.is_some();
        if is_tunnel(&key, &writes) || is_icmp && is_translated {
            return Err(NotOffloadedReason::Rewrite);
        }
        let (egress, max_len) = egress.map_or((None, u32::MAX), |(egress, mtu)| (Some(egress), mtu));
        let flow = OffloadedFlow { key, epoch: self.state.flows.epoch(), egress, max_len, writes, tcp: None };
        let (owner, now_ms) = (FlowOwner::Rules(rules.into()), self.state.now_ms);
        let place =
            self.state.flows.prepare(flow, owner, outcome.err(), now_ms).ok_or(NotOffloadedReason::Full)?;
        self.install(place, None)?;
        self.state.flows.enable(place);
        Ok(())
    }

    /// Ends the flows without a connection, because their packets may belong to connections from now on.
    pub(super) fn end_other_flows(&mut self) {
        for place in self.state.flows.all_places() {
            if self.state.flows.get(place).is_some_and(|placed| matches!(placed.owner, FlowOwner::Rules(_))) {
                self.end_flow(place);
            }
        }
    }

    /// Counts a packet of a flow without a connection. True if the flow should be offered.
    #[inline]
    pub(crate) fn should_offer(&mut self, key: &FlowKey) -> bool {
        self.state.flows.should_offer(key)
    }

    /// Collects the counts of the flows of all connections that the lookup found, before their packets are
    /// processed.
    #[inline]
    pub(super) fn catch_up(&mut self) {
        if self.state.flows.is_empty() {
            return;
        }
        let mut last = None;
        for index in 0..self.found.len() {
            if let Some((id, _)) = self.found[index]
                && self.table.is_offloaded(id)
                && last.replace(id) != Some(id)
            {
                self.collect_connection(id);
            }
        }
    }

    /// Whether packet `index` of the vector was left by the quick pass and belongs to no connection.
    pub(crate) fn is_untracked(&self, index: usize) -> bool {
        !self.is_taken(index) && matches!(self.flow_states[index], FlowState::Untracked | FlowState::New)
    }

    #[inline(never)]
    fn collect_connection(&mut self, id: ConnId) {
        for direction in Direction::ALL {
            if let Some(place) = self.state.flows.place_of_connection(id, direction) {
                self.collect(place);
            }
        }
    }

    /// Collects the counts of a flow. For TCP, also passes sequence numbers between the flow and its
    /// connection, both ways.
    fn collect(&mut self, place: u32) {
        let now_ms = self.state.now_ms;
        if let Some(collected) = self.state.flows.collect(place, now_ms)
            && let Some(placed) = self.state.flows.get(place)
        {
            let CollectedUsage { count, idle_ms, numbers } = collected;
            self.state.count_offloaded(placed.flow.key.port, placed.flow.egress, count);
            self.state.credit_flow(placed, count);
            if let FlowOwner::Connection(id, direction, _) = placed.owner {
                let numbers = placed.flow.tcp.map(|_| numbers);
                let last_ms = now_ms.saturating_sub(idle_ms);
                let Count { packets, bytes } = count;
                let passed = OffloadedPackets { packets, bytes, last_ms, numbers };
                self.table.follow_offloaded(id, direction, &passed);
            }
        }
        if let Some(&PlacedFlow { owner: FlowOwner::Connection(id, direction, _), .. }) =
            self.state.flows.get(place)
            && let Some(numbers) = self.table.numbers(id)
        {
            self.state.flows.update_numbers(place, numbers[direction as usize]);
        }
    }

    /// Collects the counts of all flows.
    pub(crate) fn collect_flows(&mut self) {
        if self.state.flows.is_empty() {
            return;
        }
        self.state.flows.all_places().for_each(|place| self.collect(place));
        self.collect_late(self.state.now_ms);
    }

    /// Collects all counts at the end, when no packet can arrive any more.
    pub(crate) fn collect_last_flows(&mut self) {
        self.collect_flows();
        self.collect_late(u64::MAX);
    }

    fn collect_late(&mut self, now_ms: u64) {
        while let Some(late) = self.state.flows.next_rested(now_ms) {
            self.state.count_late(&late);
        }
    }

    /// Ends a flow, and collects its last counts.
    fn end_flow(&mut self, place: u32) {
        self.state.flows.stop(place);
        self.collect(place);
        self.state.flows.end(place, self.state.now_ms);
    }

    fn count_evicted(&self, is_evicted: bool) {
        if is_evicted {
            self.state.cells.flow_evicted();
        }
    }

    /// Ends the flows of a connection, if it has any.
    #[inline]
    pub(super) fn end_flows(&mut self, id: ConnId) {
        if self.table.is_offloaded(id) {
            self.end_flows_of(id);
        }
    }

    #[inline(never)]
    fn end_flows_of(&mut self, id: ConnId) {
        for direction in Direction::ALL {
            self.state
                .flows
                .place_of_connection(id, direction)
                .into_iter()
                .for_each(|place| self.state.flows.stop(place));
        }
        self.collect_connection(id);
        self.state.end_flows(id);
        self.table.set_offloaded(id, false);
        self.count_flows();
    }

    /// Ends the flows of a connection if one of its ends has started to close it.
    #[inline]
    pub(super) fn end_flows_if_over(&mut self, id: ConnId) {
        if self.table.is_offloaded(id) && !self.table.may_be_offloaded(id) {
            self.end_flows_of(id);
        }
    }

    /// If a connection may be offloaded and is not, makes the quick pass leave its packets, so that its flows
    /// are offered again.
    pub(super) fn offer_again(&mut self, id: ConnId) {
        if self.offloads() && !self.table.is_offloaded(id) && self.table.may_be_offloaded(id) {
            Direction::ALL.iter().for_each(|direction| self.table.clear_verdict(id, *direction));
        }
    }

    /// Does a step of the walk over all flows: collects counts, and ends flows that are idle or whose
    /// connection has expired.
    #[inline]
    pub(super) fn walk_flows(&mut self) {
        if self.state.flows.is_empty() || self.state.now_ms < self.state.flows.next_ms {
            return;
        }
        self.walk();
    }

    #[inline(never)]
    fn walk(&mut self) {
        let now_ms = self.state.now_ms;
        self.state.flows.next_ms = now_ms + STEP_MS;
        let is_crowded = self.state.flows.is_crowded();
        for place in self.state.flows.next_places(STEPS) {
            self.collect(place);
            let Some(placed) = self.state.flows.get(place) else { continue };
            let idle_ms = now_ms.saturating_sub(placed.used_ms);
            let is_idle = idle_ms >= if is_crowded { CROWDED_IDLE_MS } else { IDLE_MS };
            match placed.owner {
                FlowOwner::Connection(id, ..) => {
                    let is_over = self.table.expires_ms(id, now_ms) == 0;
                    if is_over || is_idle {
                        self.end_flows_of(id);
                        self.offer_again(id);
                        self.count_evicted(is_crowded && !is_over);
                    }
                }
                FlowOwner::Rules(_) => {
                    if is_idle {
                        self.end_flow(place);
                        self.count_evicted(is_crowded);
                    }
                }
            }
        }
        self.collect_late(now_ms);
        self.count_flows();
    }
}

impl super::shared::WorkerState {
    /// Counts packets that the host forwarded or dropped.
    fn count_offloaded(&self, ingress: PortId, egress: Option<PortId>, count: Count) {
        self.cells.rx(usize::from(ingress.0), count);
        match egress {
            Some(egress) => self.cells.forwarded(usize::from(egress.0), count),
            None => self.cells.count_drop(DropReason::Rule, count.packets),
        }
        self.cells.offloaded(count);
    }

    fn count_late(&self, late: &LateCount) {
        if late.count.packets > 0 {
            self.count_offloaded(late.ingress, late.egress, late.count);
        }
    }

    /// Adds packets of a flow to the counters of the rules that it matches.
    fn credit_flow(&self, placed: &PlacedFlow, count: Count) {
        let rules = match &placed.owner {
            FlowOwner::Connection(_, _, verdict) => self.cache.rules(*verdict),
            FlowOwner::Rules(rules) => rules,
        };
        rules.iter().for_each(|slot| self.rule_cells.slot(*slot).add(count));
        placed.dropped_by.into_iter().for_each(|slot| self.rule_cells.dropped(slot).add(count));
    }

    /// Ends the flows of a connection.
    pub(super) fn end_flows(&mut self, id: ConnId) {
        for direction in Direction::ALL {
            if let Some(place) = self.flows.place_of_connection(id, direction) {
                self.flows.end(place, self.now_ms);
            }
        }
    }
}
