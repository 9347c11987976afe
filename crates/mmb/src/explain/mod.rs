//! `mmb explain`: what a policy does to one packet, and why.
//!
//! The packet is made from constraints of the rule language, or read from a capture, whose packets before it make the connections. It passes an
//! engine of its own, as in `mmb replay`: the answer is that of the engine, and nothing here decides about packets.

mod report;
mod subject;

use crate::cli::{ExplainArgs, Global};
use crate::output::{self, Terminal};
use crate::trial_engine::{engine, named_ports};
use crate::tsc::Tsc;
use anyhow::{Context, ensure};
use mmb_client::policy_file;
use mmb_control::packet_line::{PacketBytes, PacketNames, traced_line};
use mmb_engine::{DropReason, Origin, PacketTrace, Verdict, Worker};
use mmb_language::Print;
use mmb_packet::{LinkType, Packet, ParserLimits, PortId};
use mmb_policy::field::FieldPlace;
use mmb_policy::rule::Target;
use mmb_policy::{Match, Policy, Rule, RuleId};
use report::{CheckedConstraint, Explanation};
use serde_json::{Value, json};
use std::process::ExitCode;
use subject::{NoConstraints, Subject, SubjectFrame};

/// Bytes in front of a packet, for rewriting.
const HEADROOM: usize = 256;
/// Bytes behind it.
const TAILROOM: usize = 256;
/// The exit status of a command line that is wrong.
const BAD_USAGE: u8 = 2;
/// The rules of a policy that asks which constraints hold: as many as a trace names.
const ASKED_AT_ONCE: usize = 16;

/// A packet in a buffer that it may grow in.
pub(super) struct Frame {
    buffer: Vec<u8>,
    headroom: usize,
    len: usize,
    link: LinkType,
    port: PortId,
}

/// The answer of an engine for a packet.
pub(super) struct Decided {
    pub(super) verdict: Verdict,
    pub(super) trace: PacketTrace,
}

/// Explains a packet.
///
/// # Errors
/// The policy or the capture cannot be used.
pub(crate) fn main(args: &ExplainArgs, global: &Global) -> anyhow::Result<ExitCode> {
    let Some(policy) = policy_file::load(&args.rules, global.json, &Terminal)? else {
        return Ok(ExitCode::FAILURE);
    };
    let subject = match Subject::new(args, &policy).map_err(anyhow::Error::downcast::<NoConstraints>) {
        Ok(subject) => subject,
        Err(Ok(wrong)) => {
            if global.json {
                output::print_json(&json!({ "error": wrong.to_string() }));
            } else {
                output::print_error(&wrong.rendered);
            }
            return Ok(ExitCode::from(BAD_USAGE));
        }
        Err(Err(error)) => return Err(error),
    };
    let names_others = named_ports(&policy).next().is_some();
    if subject.names_port() && names_others && named_ports(&policy).all(|name| name != subject.port()) {
        output::report_error(&format!("no rule names the port {}", subject.port()));
    }
    let source = args.rules.display().to_string();
    explain(policy, &source, &subject, &args.why_not, |explanation| {
        if global.json {
            output::print_json(&explanation.json());
        } else {
            output::print(&explanation.text());
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Explains a packet that satisfies constraints.
///
/// # Errors
/// There is no such packet or rule, or the policy cannot be put in force.
pub(crate) fn json(policy: Policy, constraints: &str, why_not: &[u32]) -> Result<Value, String> {
    let explained = Subject::made(constraints, None, &policy).and_then(|subject| {
        explain(policy, "the policy in force", &subject, why_not, |explanation| explanation.json())
    });
    explained.map_err(|error| format!("{error:#}"))
}

/// Shows an explanation of the last packet of a subject under a policy. `source` is where the policy comes from, in errors.
fn explain<T>(
    mut policy: Policy,
    source: &str,
    subject: &Subject,
    why_not: &[u32],
    show: impl FnOnce(&Explanation<'_>) -> T,
) -> anyhow::Result<T> {
    // A capture has the packets of both ends.
    policy.settings.connections.same_port = true;
    let ports = port_names(&policy, subject);
    // It is the first one.
    let port = PortId(0);
    let (mut engine, mut worker) = engine(&ports)?;
    crate::compile::publish(&mut engine, &policy).with_context(|| source.to_owned())?;
    let mut last = None;
    for SubjectFrame { bytes, link, time_ns } in subject.frames() {
        let mut frame = Frame::new(bytes, *link, port);
        let decided = frame.pass(&mut worker, *time_ns).context("the packet is too large")?;
        last = Some((bytes, frame, decided));
    }
    let (before, after, decided) = last.context("there is no packet")?;
    let mut asked = Vec::new();
    for &id in why_not {
        let rule = policy.rules.get(RuleId(id)).with_context(|| format!("there is no rule {id}"))?;
        asked.push(rule);
    }
    let link = after.link;
    let checked: Vec<Vec<CheckedConstraint<'_>>> = asked
        .iter()
        .map(|rule| constraints((&policy, rule), &ports, || Frame::new(before, link, port)))
        .collect::<Result<_, _>>()?;
    let names = PacketNames {
        port: &|port: PortId| ports.get(usize::from(port.0)).cloned().unwrap_or_default(),
        rule: &|id| policy.rules.get(id).map(|rule| rule.text().to_string()),
        limits: ParserLimits { ip6_headers: policy.settings.ip6_max_headers },
    };
    let bytes = PacketBytes { before, after: after.bytes(), link };
    let packet = traced_line(&names, (&decided.trace, decided.verdict), port, bytes);
    Ok(show(&Explanation { number: subject.number(), packet, asked: asked.iter().zip(checked).collect() }))
}

/// The names of all ports: that of the packet first, then the other end of its wire, then those that the policy names. Who does not say which port
/// that is gets the first other one.
fn port_names(policy: &Policy, subject: &Subject) -> Vec<String> {
    let mut names: Vec<String> =
        std::iter::once(subject.port()).chain(subject.peer()).map(str::to_owned).collect();
    for name in named_ports(policy).chain(["a", "b"].map(str::to_owned)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

impl Frame {
    fn new(bytes: &[u8], link: LinkType, port: PortId) -> Frame {
        let mut buffer = vec![0; HEADROOM + bytes.len() + TAILROOM];
        buffer[HEADROOM..HEADROOM + bytes.len()].copy_from_slice(bytes);
        Frame { buffer, headroom: HEADROOM, len: bytes.len(), link, port }
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[self.headroom..self.headroom + self.len]
    }

    /// Passes it through a worker at a time, which may rewrite it. `None`: it is larger than packets can be.
    fn pass(&mut self, worker: &mut Worker, now_ns: u64) -> Option<Decided> {
        let packet = Packet::new(&mut self.buffer, self.headroom, self.len, self.port, self.link)?;
        let mut packets = [packet];
        let (mut verdicts, mut tickets) = ([Verdict::Drop(DropReason::NoWire)], [const { None }]);
        let mut trace = PacketTrace::default();
        let mut hook = |of_packet| trace = of_packet;
        worker.decide(Origin::Wire, now_ns, &Tsc, &mut packets, &mut verdicts, &mut tickets, Some(&mut hook));
        let [ticket] = tickets;
        if let Some(ticket) = ticket {
            worker.rewrite(&Tsc, &mut packets, &[ticket], &mut verdicts);
        }
        let [packet] = packets;
        (self.headroom, self.len) = (packet.headroom(), packet.len());
        Some(Decided { verdict: verdicts[0], trace })
    }
}

/// Whether a constraint is about the packet alone.
fn is_of_header(constraint: &Match) -> bool {
    !matches!(constraint.field.info().place, FieldPlace::Connection | FieldPlace::Stream(_))
}

/// Which constraints of a rule hold for a packet: an engine is asked, with each of them as a rule by itself.
fn constraints<'r>(
    (policy, rule): (&Policy, &'r Rule),
    ports: &[String],
    frame: impl Fn() -> Frame,
) -> anyhow::Result<Vec<CheckedConstraint<'r>>> {
    let mut checked = Vec::new();
    for constraints in rule.matches.chunks(ASKED_AT_ONCE) {
        let mut asking = Policy::default();
        asking.sets.clone_from(&policy.sets);
        for (number, constraint) in (1..).zip(constraints) {
            if is_of_header(constraint) {
                let asked = Rule {
                    id: Some(RuleId(number)),
                    prio: rule.prio,
                    name: None,
                    stateful: false,
                    draining: false,
                    matches: vec![constraint.clone()],
                    targets: vec![Target::Accept],
                };
                ensure!(asking.add(&asked).is_ok(), "a constraint cannot stand alone");
            }
        }
        let (mut engine, mut worker) = engine(ports)?;
        engine.publish(&asking)?;
        let decided = frame().pass(&mut worker, 0).context("the packet is too large")?;
        let holding: Vec<RuleId> = decided.trace.rules().collect();
        checked.extend((1..).zip(constraints).map(|(number, constraint)| CheckedConstraint {
            constraint,
            holds: is_of_header(constraint).then(|| holding.contains(&RuleId(number))),
        }));
    }
    Ok(checked)
}
