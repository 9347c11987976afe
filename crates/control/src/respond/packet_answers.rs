//! Answers about packets: `trace` and `capture`. The client's thread takes from the tap's queue what the workers have put there. A client that reads
//! slowly delays only itself: what finds no room in the queue is left out and counted.

use super::{AnswerResult, Responder};
use crate::memory::TAP_BYTES;
use crate::packet_line::{PacketBytes, PacketNames, link_name, origin_name, outcome_line, traced_line};
use mmb_base::lock;
use mmb_engine::{DropReason, MAX_TAPPED_BYTES, PacketTap, TapOptions, TappedBytes, TappedPacket, Verdict};
use mmb_language::command::{CapturePoints, CaptureRequest, TraceRequest};
use mmb_language::{Print, nearest};
use mmb_log::WorkerClock;
use mmb_packet::{ParserLimits, PortId};
use mmb_policy::{PacketFilter, RuleId};
use mmb_protocol::answer::{Answer, CapturedLine, TapLine};
use mmb_protocol::hex;
use std::io;
use std::time::{Duration, Instant, UNIX_EPOCH};

/// How long the client's thread sleeps if there are no packets.
const PAUSE: Duration = Duration::from_millis(5);
/// Packets that are written before the client is checked again.
const PACKETS_AT_ONCE: usize = 256;
/// The packets of a `trace` and of a `capture` that say no number, and the longest time of either: who forgets one keeps flows from being offloaded.
const TRACED: u32 = 1_000;
const CAPTURED: u32 = 10_000_000;
const LONGEST: Duration = Duration::from_secs(3600);

/// Two readings of the clocks differ by less than this, unless the time of day was set.
const CLOCKS_APART_NS: u64 = 1_000_000;

/// What is looked at.
struct Look<'r> {
    filter: &'r PacketFilter,
    options: TapOptions,
    count: u32,
}

impl Responder<'_> {
    /// Writes what becomes of live packets, until there are enough, or until the client sends something or disconnects.
    pub(super) fn trace(&mut self, request: &TraceRequest) -> io::Result<AnswerResult> {
        let options = TapOptions {
            received: true,
            sent: true,
            dropped: true,
            all: true,
            reason: None,
            snaplen: MAX_TAPPED_BYTES,
        };
        let look = Look { filter: &request.filter, options, count: request.count.unwrap_or(TRACED) };
        self.look(&look, |responder, clock_ns, packet| responder.traced(clock_ns, packet).map(|()| 1))
    }

    /// Writes live packets at points of their way, likewise.
    pub(super) fn capture(&mut self, request: &CaptureRequest) -> io::Result<AnswerResult> {
        let reason = match request.reason.as_deref().map(reason_named).transpose() {
            Ok(reason) => reason,
            Err(message) => return Ok(Err(message)),
        };
        let CapturePoints { rx, tx, drop } = request.points();
        let snaplen = request.snaplen.map_or(MAX_TAPPED_BYTES, |snaplen| snaplen as usize);
        let options = TapOptions { received: rx, sent: tx, dropped: drop, all: false, reason, snaplen };
        let look = Look { filter: &request.filter, options, count: request.count.unwrap_or(CAPTURED) };
        self.look(&look, |responder, clock_ns, packet| responder.captured(clock_ns, packet))
    }

    /// Looks at packets. `write` writes the lines of one, and returns how many.
    fn look(
        &mut self,
        look: &Look<'_>,
        write: impl Fn(&mut Self, u64, &TappedPacket) -> io::Result<u32>,
    ) -> io::Result<AnswerResult> {
        let mut share = self.context.taps.share();
        if !share.grow_to(1) {
            let message = "the limit of clients that run `trace` or `capture` is reached; end one of them";
            return Ok(Err(message.to_owned()));
        }
        let tap = match self.tap(look) {
            Ok(tap) => tap,
            Err(message) => return Ok(Err(message)),
        };
        // Flows that the host forwards are decided again, and those that the tap is about are not forwarded.
        self.daemon().renew_flows();
        let written = self.watch_packets(look, &tap, write);
        drop(tap);
        let mut daemon = self.daemon();
        daemon.renew_flows();
        daemon.request_trim();
        drop(daemon);
        written.map(Ok)
    }

    fn tap(&mut self, look: &Look<'_>) -> Result<PacketTap, String> {
        let (selector, connections) = {
            let mut daemon = lock(self.context.daemon);
            if let Some(why) = daemon.host().tap_refusal() {
                return Err(why.to_owned());
            }
            // The whole queue of packets is reserved at once.
            daemon.check_memory_now(TAP_BYTES).map_err(|shortage| shortage.to_string())?;
            let selector = daemon.selector(look.filter)?;
            (selector, daemon.engine().connections())
        };
        connections.tap(selector, look.options).map_err(|error| error.to_string())
    }

    fn watch_packets(
        &mut self,
        look: &Look<'_>,
        tap: &PacketTap,
        write: impl Fn(&mut Self, u64, &TappedPacket) -> io::Result<u32>,
    ) -> io::Result<()> {
        let ports = self.daemon().engine().ports().0.iter().map(|port| port.name.clone()).collect();
        let (snaplen, count) = (look.options.snaplen as u32, look.count);
        self.send(&Answer::Tap(TapLine { ports, snaplen, count, seconds: LONGEST.as_secs() }))?;
        // Tells the client that it misses no packet from now on.
        self.out.flush()?;
        let (begun, mut left) = (Instant::now(), look.count);
        let clock = WorkerClock::new(self.daemon().time_origin());
        let mut clock_ns = 0u64;
        while left > 0 && begun.elapsed() < LONGEST && !self.others_wait && !self.following.has_arrived() {
            let zero = clock.time_of_day(0).duration_since(UNIX_EPOCH).unwrap_or_default();
            // The clocks are read one after the other: what differs by less is no change of the time of day.
            if clock_ns.abs_diff(zero.as_nanos() as u64) > CLOCKS_APART_NS {
                clock_ns = zero.as_nanos() as u64;
            }
            let mut taken = 0;
            while left > 0
                && taken < PACKETS_AT_ONCE
                && let Some(packet) = tap.take()
            {
                left = left.saturating_sub(write(self, clock_ns, &packet)?);
                taken += 1;
            }
            let left_out = tap.take_left_out();
            if left_out > 0 {
                self.send(&Answer::Lost(left_out))?;
            }
            self.out.flush()?;
            if taken == 0 {
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }

    fn traced(&mut self, clock_ns: u64, packet: &TappedPacket) -> io::Result<()> {
        let (policy, names) = {
            let daemon = self.daemon();
            (daemon.policy().clone(), port_names(&daemon))
        };
        let rule = |id: RuleId| policy.rules.get(id).map(|rule| rule.text().to_string());
        let port = |id: PortId| names.get(usize::from(id.0)).cloned().unwrap_or_default();
        let limits = ParserLimits { ip6_headers: policy.settings.ip6_max_headers };
        let lines = PacketNames { port: &port, rule: &rule, limits };
        let bytes =
            |tapped: &'_ Option<TappedBytes>| tapped.as_ref().map_or(Vec::new(), |of| of.bytes.clone());
        let (before, after) = (bytes(&packet.received), bytes(&packet.last));
        let bytes = PacketBytes { before: &before, after: &after, link: packet.link };
        let mut line = traced_line(&lines, (&packet.trace, packet.verdict), packet.port, bytes);
        line.time_ns = Some(clock_ns + packet.time_ns);
        line.outcome.worker = packet.worker;
        origin_name(packet.origin).clone_into(&mut line.outcome.origin);
        self.send(&Answer::Traced(Box::new(line)))
    }

    /// Writes a line for each point of a packet's way that is wanted.
    fn captured(&mut self, clock_ns: u64, packet: &TappedPacket) -> io::Result<u32> {
        let names = port_names(&self.daemon());
        let port = |id: PortId| names.get(usize::from(id.0)).cloned().unwrap_or_default();
        let lines = PacketNames { port: &port, rule: &|_| None, limits: ParserLimits::default() };
        let mut outcome = outcome_line(&lines, (&packet.trace, packet.verdict), false);
        outcome.worker = packet.worker;
        origin_name(packet.origin).clone_into(&mut outcome.origin);
        let (at, egress) = match packet.verdict {
            Verdict::Send(to) => ("tx", to),
            Verdict::Drop(_) | Verdict::Hand(_) | Verdict::Held(_) | Verdict::Absorbed => {
                ("drop", packet.port)
            }
        };
        let points = [("rx", packet.port, &packet.received), (at, egress, &packet.last)];
        let mut written = 0;
        for (at, port_id, tapped) in points {
            let Some(TappedBytes { bytes, len }) = tapped else { continue };
            let line = CapturedLine {
                at: at.to_owned(),
                time_ns: clock_ns + packet.time_ns,
                port: port(port_id),
                ingress: port(packet.port),
                link: link_name(packet.link).to_owned(),
                len: *len as u64,
                bytes: hex::encode(bytes),
                outcome: outcome.clone(),
            };
            self.send(&Answer::Captured(Box::new(line)))?;
            written += 1;
        }
        Ok(written)
    }
}

fn port_names(daemon: &crate::Daemon) -> Vec<String> {
    daemon.engine().ports().0.iter().map(|port| port.name.clone()).collect()
}

/// The drop reason of that name.
fn reason_named(name: &str) -> Result<DropReason, String> {
    let names = || DropReason::ALL.into_iter().map(DropReason::name);
    DropReason::ALL.into_iter().find(|reason| reason.name() == name).ok_or_else(|| {
        match nearest(name, names()) {
            Some(meant) => format!("unknown drop reason '{name}'; did you mean '{meant}'?"),
            None => {
                format!("unknown drop reason '{name}'; `show errors` and docs/operations.md have their names")
            }
        }
    })
}
