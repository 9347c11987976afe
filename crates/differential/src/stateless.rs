//! One worker of the engine beside the oracle.
//!
//! Life-cycle: a [`DifferentialTest`] starts with an empty policy; policies are published and vectors of packets run in any order.
//! It keeps the counters that the oracle's verdicts add up to, and compares them with the engine's after each run.

use crate::oracle::{OraclePacket, OracleVerdict, evaluate};
use crate::two_steps;
use mmb_engine::{
    ConnectionWatch, Count, DropRandom, DropReason, Engine, Forward, NoCycles, Origin, PacketTrace,
    PortCount, PortSpec, PortTable, PublishError, RuleCount, Verdict, WatchedEvent, Worker,
};
use mmb_language::{Print, ShadowedRule, shadowed};
use mmb_packet::{LinkType, Packet, PortId};
use mmb_policy::{Policy, Rule, RuleId, Target};
use mmb_random::{Purpose, SeedTree};
use mmb_rewrite::NotApplied;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

/// Bytes behind each packet in its buffer, to see that nobody writes there.
const TAILROOM: usize = 16;
const GUARD: u8 = 0x5a;
/// Events of one run, at most.
const EVENTS: usize = 4096;
/// Packets whose answers find room in a worker's queue.
const MAX_ANSWERED: usize = 64;

/// A packet that engine and oracle process.
#[derive(Clone, PartialEq, Eq)]
pub struct Incoming {
    /// The port that it comes in by.
    pub port: PortId,
    /// What it begins with.
    pub link: LinkType,
    /// Bytes free in front of it.
    pub headroom: usize,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Incoming { port, link, headroom, .. } = self;
        write!(f, "port {} {link:?} headroom {headroom}: {}", port.0, hex(&self.bytes))
    }
}

/// Where engine and oracle do not agree, with all that is needed to see it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference(pub String);

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The expected counters of the engine.
#[derive(Debug, Default)]
struct Tally {
    rules: BTreeMap<RuleId, RuleCount>,
    drops: HashMap<DropReason, u64>,
    not_applied: HashMap<NotApplied, u64>,
    ports: Vec<PortCount>,
}

/// An engine with one worker, and the oracle.
pub struct DifferentialTest {
    engine: Engine,
    worker: Worker,
    ports: PortTable,
    policy: Policy,
    /// The policy for the oracle: no rule is stateful.
    stateless: Policy,
    /// The rules of the policy that the language takes for shadowed.
    shadowed: Vec<ShadowedRule>,
    random: DropRandom,
    tally: Tally,
    /// What rules with `log` tell, once there is one.
    told: Option<ConnectionWatch>,
}

/// The ports of a differential test: `a` and `b` are a wire, `b` with an MTU; `c` has no other end.
pub fn ports(mtu: u32) -> PortTable {
    let port = |name: &str, mtu, peer| PortSpec { name: name.to_owned(), mtu, forward: Forward::from(peer) };
    PortTable(vec![
        port("a", None, Some(PortId(1))),
        port("b", Some(mtu), Some(PortId(0))),
        port("c", Some(1500), None),
    ])
}

impl DifferentialTest {
    /// Both with an empty policy.
    pub fn new(ports: PortTable, seed: u64) -> DifferentialTest {
        let (engine, mut workers) = Engine::new(ports.clone(), 1, &SeedTree::repeatable(seed));
        let worker = workers.remove(0);
        let tally = Tally { ports: vec![PortCount::default(); ports.0.len()], ..Tally::default() };
        DifferentialTest {
            engine,
            worker,
            ports,
            policy: Policy::default(),
            stateless: Policy::default(),
            shadowed: Vec::new(),
            random: DropRandom::new(SeedTree::repeatable(seed).of_worker(Purpose::DropShares, 0)),
            tally,
            told: None,
        }
    }

    /// Puts a policy in force on both sides. The oracle takes stateful rules for stateless ones: no target of theirs may map, and packets must
    /// match those of their connection. Rules with `log` tell of all packets.
    ///
    /// # Errors
    /// Why the engine refuses it; the old policy stays in force on both sides.
    pub fn publish(&mut self, policy: &Policy) -> Result<(), PublishError> {
        let mut unlimited = policy.clone();
        unlimited.settings.log.rate = 0;
        // The oracle has no time.
        unlimited.settings.answers.rate = None;
        self.engine.publish(&unlimited)?;
        if self.told.is_none() && policy.rules.iter().any(|rule| tells(&rule)) {
            self.told = Some(watched(&self.engine, &mut self.worker));
        }
        self.tally.rules.retain(|id, _| self.policy.rules.agree(&policy.rules, *id));
        self.policy = policy.clone();
        self.stateless = without_state(policy);
        self.shadowed = shadowed(&policy.rules, 1 << 12);
        Ok(())
    }

    /// Runs packets through both, so many at a time that all answers to them find room.
    ///
    /// # Errors
    /// The first difference.
    pub fn run(&mut self, incoming: &[Incoming]) -> Result<(), Difference> {
        incoming.chunks(MAX_ANSWERED).try_for_each(|incoming| self.run_some(incoming))
    }

    fn run_some(&mut self, incoming: &[Incoming]) -> Result<(), Difference> {
        let mut buffers: Vec<Vec<u8>> = incoming.iter().map(Incoming::buffer).collect();
        let mut packets: Vec<Packet<'_>> = buffers
            .iter_mut()
            .zip(incoming)
            .filter_map(|(buffer, i)| Packet::new(buffer, i.headroom, i.bytes.len(), i.port, i.link))
            .collect();
        let mut verdicts = vec![Verdict::Drop(DropReason::NoBuffer); packets.len()];
        let mut traces = Vec::new();
        // A host may have packets rewritten in a stage of its own.
        let mut stateless = self.stateless.clone();
        if incoming.len().is_multiple_of(2) {
            self.worker.process(0, &NoCycles, &mut packets, &mut verdicts);
        } else {
            // Hosts that do so know no MTUs, and nobody is told one.
            stateless.settings.answers.mtu_errors = false;
            let origin = (Origin::Wire, 0);
            traces = two_steps::process(&mut self.worker, origin, &mut packets, &mut verdicts);
        }
        let sent: Vec<Vec<u8>> = packets.iter().map(|packet| packet.bytes().to_vec()).collect();
        let mut answers = self.take_answers();

        let mut expected = Vec::new();
        for one in incoming {
            let random = &mut self.random;
            let verdict = evaluate(&stateless, &self.ports, &one.received(), &mut || random.draw());
            self.tally.count(one, &verdict);
            expected.push(verdict);
        }
        for (i, ((verdict, sent), oracle)) in verdicts.iter().zip(&sent).zip(&expected).enumerate() {
            self.compare(&incoming[i], *verdict, sent, oracle)?;
        }
        self.compare_told(incoming, &expected)?;
        let answer = |(one, oracle): (&Incoming, &OracleVerdict)| Some((one.port, oracle.answer.clone()?));
        let mut known: Vec<_> = incoming.iter().zip(&expected).filter_map(answer).collect();
        answers.sort();
        known.sort();
        if answers != known {
            let what = format!("answers: the engine's {answers:02x?}, the oracle's {known:02x?}");
            return Err(self.difference(&what, &format!("{incoming:#?}")));
        }
        for ((trace, oracle), one) in traces.iter().zip(&expected).zip(incoming) {
            self.compare_trace(trace, oracle, one)?;
        }
        if buffers.iter().any(|buffer| !buffer.ends_with(&[GUARD; TAILROOM])) {
            return Err(self.difference("bytes behind a packet were written", &format!("{incoming:#?}")));
        }
        self.compare_counters().map_err(|what| self.difference(&what, &format!("{incoming:#?}")))
    }

    /// The answers of the last vector, with the ports by which they leave.
    fn take_answers(&mut self) -> Vec<(PortId, Vec<u8>)> {
        let mut answers = Vec::new();
        loop {
            let mut given = Vec::new();
            let origin = self.worker.return_packets(|returned| {
                given.push((returned.port, returned.link, returned.bytes.to_vec()));
                true
            });
            let Some(origin) = origin else { return answers };
            for (port, link, mut bytes) in given {
                let len = bytes.len();
                let packet = Packet::new(&mut bytes, 0, len, port, link);
                let mut packet = [packet.expect("it has all of its buffer")];
                let mut verdict = [Verdict::Drop(DropReason::NoBuffer)];
                self.worker.process_from(origin, 0, &NoCycles, &mut packet, &mut verdict);
                if let [Verdict::Send(to)] = verdict {
                    answers.push((to, bytes));
                }
            }
        }
    }

    fn compare(
        &self,
        incoming: &Incoming,
        verdict: Verdict,
        sent: &[u8],
        oracle: &OracleVerdict,
    ) -> Result<(), Difference> {
        let packet = || format!("{incoming:?}\nmatched by the oracle: {:?}", oracle.matched);
        if verdict != oracle.verdict {
            let what = format!("verdicts: the engine's {verdict:?}, the oracle's {:?}", oracle.verdict);
            return Err(self.difference(&what, &packet()));
        }
        let matches = |id: &RuleId| oracle.matched.contains(id);
        if let Some(wrong) =
            self.shadowed.iter().find(|shadowed| matches(&shadowed.id) && !matches(&shadowed.by))
        {
            return Err(self.difference(&format!("a rule decides that should not: {wrong:?}"), &packet()));
        }
        if matches!(verdict, Verdict::Send(_)) && sent != oracle.bytes {
            let what = format!("bytes: \nengine {}\noracle {}", hex(sent), hex(&oracle.bytes));
            return Err(self.difference(&what, &packet()));
        }
        Ok(())
    }

    /// Compares the packets that rules tell of: each that the oracle matches, and no other.
    fn compare_told(&self, incoming: &[Incoming], expected: &[OracleVerdict]) -> Result<(), Difference> {
        let Some(watch) = &self.told else { return Ok(()) };
        let mut told: Vec<_> = watch
            .try_iter()
            .filter_map(|event| match event {
                WatchedEvent::Packet(event) => Some(event),
                WatchedEvent::Connection(_) | WatchedEvent::Stream(_) | WatchedEvent::Suppressed(_) => None,
            })
            .filter(|event| self.policy.rules.get(event.rule).is_some_and(|rule| !rule.stateful))
            .map(|event| {
                let by_rule = DropReason::OF_RULES.map(Verdict::Drop);
                let is_dropped = by_rule.contains(&event.verdict);
                (event.rule, event.port.0, event.len as usize, is_dropped)
            })
            .collect();
        if watch.take_lost() > 0 {
            return Ok(());
        }
        let of_packet = |(one, oracle): (&Incoming, &OracleVerdict)| {
            let rules = oracle.matched.iter().filter_map(|id| self.policy.rules.get(*id));
            let rules = rules.filter(|rule| tells(rule) && !rule.stateful).filter_map(|rule| rule.id);
            let (port, len, is_dropped) = (one.port.0, one.bytes.len(), oracle.dropped_by.is_some());
            rules.map(move |id| (id, port, len, is_dropped)).collect::<Vec<_>>()
        };
        let mut matched: Vec<_> = incoming.iter().zip(expected).flat_map(of_packet).collect();
        told.sort_unstable();
        matched.sort_unstable();
        if told == matched {
            return Ok(());
        }
        let what = format!("told: the engine's {told:?}, the oracle's {matched:?}");
        Err(self.difference(&what, &format!("{incoming:#?}")))
    }

    fn compare_trace(
        &self,
        trace: &PacketTrace,
        oracle: &OracleVerdict,
        incoming: &Incoming,
    ) -> Result<(), Difference> {
        let named: BTreeSet<RuleId> = trace.rules().collect();
        let matched: BTreeSet<RuleId> = oracle.matched.iter().copied().collect();
        let complete = trace.count as usize == matched.len() && named.is_subset(&matched);
        if !complete || (named.len() != matched.len() && named.len() < 16) {
            let what = format!("trace: the engine's {trace:?}, the oracle's {matched:?}");
            return Err(self.difference(&what, &format!("{incoming:?}")));
        }
        Ok(())
    }

    fn compare_counters(&self) -> Result<(), String> {
        for id in self.policy.rules.keys() {
            let expected = self.tally.rules.get(&id).copied().unwrap_or_default();
            let counted = self.engine.rule_count(id);
            if counted != expected {
                return Err(format!("rule {}: the engine's {counted:?}, the oracle's {expected:?}", id.0));
            }
        }
        let drops: HashMap<DropReason, u64> = self.engine.drops().into_iter().collect();
        if drops != self.tally.drops {
            return Err(format!("drops: the engine's {drops:?}, the oracle's {:?}", self.tally.drops));
        }
        let not_applied: HashMap<NotApplied, u64> = self.engine.not_applied().into_iter().collect();
        if not_applied != self.tally.not_applied {
            let expected = &self.tally.not_applied;
            return Err(format!("not applied: the engine's {not_applied:?}, the oracle's {expected:?}"));
        }
        let ports = self.engine.port_counts();
        if ports != self.tally.ports {
            return Err(format!("ports: the engine's {ports:?}, the oracle's {:?}", self.tally.ports));
        }
        Ok(())
    }

    fn difference(&self, what: &str, packets: &str) -> Difference {
        let policy = self.policy.text().to_string();
        Difference(format!("{what}\n--- policy\n{policy}--- packets\n{packets}\n"))
    }
}

impl Incoming {
    /// The packet as the oracle takes it.
    pub fn received(&self) -> OraclePacket<'_> {
        OraclePacket { bytes: &self.bytes, headroom: self.headroom, port: self.port, link: self.link }
    }

    fn buffer(&self) -> Vec<u8> {
        let mut buffer = vec![GUARD; self.headroom];
        buffer.extend(&self.bytes);
        buffer.extend([GUARD; TAILROOM]);
        buffer
    }
}

impl Tally {
    fn count(&mut self, incoming: &Incoming, expected: &OracleVerdict) {
        let one = |bytes: &[u8]| Count { packets: 1, bytes: bytes.len() as u64 };
        for id in &expected.matched {
            add(&mut self.rules.entry(*id).or_default().matched, one(&incoming.bytes));
        }
        if let Some(id) = expected.dropped_by {
            add(&mut self.rules.entry(id).or_default().dropped, one(&incoming.bytes));
        }
        for reason in &expected.not_applied {
            *self.not_applied.entry(*reason).or_default() += 1;
        }
        add(&mut self.ports[usize::from(incoming.port.0)].rx, one(&incoming.bytes));
        if let Some(answer) = &expected.answer {
            add(&mut self.ports[usize::from(incoming.port.0)].tx, one(answer));
        }
        match expected.verdict {
            Verdict::Drop(reason) => *self.drops.entry(reason).or_default() += 1,
            // There is one worker, and fragments of connections are not sent.
            Verdict::Hand(_) | Verdict::Held(_) | Verdict::Absorbed => {}
            Verdict::Send(port) => add(&mut self.ports[usize::from(port.0)].tx, one(&expected.bytes)),
        }
    }
}

/// Watches the events of a worker, which answers on this thread.
fn watched(engine: &Engine, worker: &mut Worker) -> ConnectionWatch {
    let connections = engine.connections();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| connections.watch_with_capacity(EVENTS).expect("the worker answers"));
        while !asking.is_finished() {
            worker.process(0, &NoCycles, &mut [], &mut []);
            std::thread::yield_now();
        }
        asking.join().expect("it does not panic")
    })
}

/// Whether a rule tells of packets.
fn tells(rule: &Rule) -> bool {
    rule.targets.iter().any(|target| matches!(target, Target::Log(_)))
}

/// A policy without state.
fn without_state(policy: &Policy) -> Policy {
    let mut stateless = policy.clone();
    for rule in policy.rules.iter().filter(|rule| rule.stateful) {
        let replaced = rule.id.and_then(|id| stateless.delete(id).ok());
        let added = stateless.add(&Rule { stateful: false, ..rule });
        debug_assert!(replaced.is_some() && added.is_ok());
    }
    stateless
}

fn add(count: &mut Count, more: Count) {
    count.packets += more.packets;
    count.bytes += more.bytes;
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
