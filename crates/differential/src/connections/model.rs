//! The invariants of connections, checked after every step by plain searches in lists.

use super::ensure::ensure;
use super::harness::Harness;
use super::packets::{DCCP, ICMP, ICMP6, LINK, SCTP, Seen, TCP, UDP, UDP_LITE, sums_up};
use mmb_engine::Endpoints;
use mmb_engine::{ConnectionInfo, DropReason, Side, Verdict};
use mmb_policy::Policy;
use mmb_policy::settings::Timeouts;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

/// Milliseconds of a slot of the timing wheel.
const SLOT_MS: u64 = 1024;

/// How long a fragment waits for its datagram's first one.
const HELD_MS: u64 = 15_000;

/// The identity of a connection: protocol and key, ends, and the port that its first packet came in by.
pub(super) type Name = ((u8, u32), Endpoints, Side);

pub(super) fn name(info: &ConnectionInfo) -> Name {
    (flow(info), info.arrived, info.sides[0])
}

/// What both tuples of a connection have in common: its protocol, and the key of GRE or the type of an ICMP request.
fn flow(info: &ConnectionInfo) -> (u8, u32) {
    (info.proto, if info.icmp_type == 0 { info.key } else { info.icmp_type.into() })
}

fn is_over(info: &ConnectionInfo) -> bool {
    matches!(info.state, "time-wait" | "reset")
}

pub(super) fn reversed(ends: Endpoints) -> Endpoints {
    Endpoints { src: ends.dst, sport: ends.dport, dst: ends.src, dport: ends.sport }
}

/// Checks every list.
pub(super) fn check(list: &[ConnectionInfo], policy: &Policy) -> Result<(), String> {
    // What one worker's replies look like another worker does not know when it makes a connection.
    let (mut arrivals, mut tuples) = (HashSet::new(), HashSet::new());
    let mut outside: HashMap<_, (IpAddr, u16)> = HashMap::new();
    for info in list {
        let ConnectionInfo { proto, arrived, sent, sides: [from, to], .. } = *info;
        ensure!(arrivals.insert(name(info)), "two connections begin with {arrived:?}");
        let turned = arrived.dst != sent.dst && arrived.src != sent.src;
        ensure!(from != to || turned, "both ends send from {from:?}, and nothing turns back: {info:?}");
        for tuple in [(arrived, from), (reversed(sent), to)] {
            ensure!(
                tuples.insert((info.worker, flow(info), tuple)),
                "two connections have packets like {tuple:?}"
            );
        }
        let inside = (arrived.src, arrived.sport);
        // Where ports are not mapped, packets are told apart by both addresses and what they have. What is over may have lent its
        // outside end to a connection towards another destination (docs/nat.md).
        let may_share = is_over(info);
        if maps_ports(proto) && !may_share && inside != (sent.src, sent.sport) {
            let owner = *outside.entry((proto, sent.src, sent.sport)).or_insert(inside);
            ensure!(owner == inside, "{:?} {} stands for {owner:?} and {inside:?}", sent.src, sent.sport);
        }
        let max_ms = u64::from(timeout_s(&policy.settings.connections.timeouts, info)) * 1000;
        ensure!(info.idle_ms <= max_ms + 2 * SLOT_MS, "idle for longer than {max_ms} ms: {info:?}");
        ensure!(info.idle_ms <= info.age_ms, "idle before it was made: {info:?}");
    }
    Ok(())
}

/// Whether no two connections have packets alike, whichever worker has them.
pub(super) fn have_distinct_tuples(list: &[ConnectionInfo]) -> bool {
    let mut tuples = HashSet::new();
    list.iter().all(|info| {
        let (arrived, reply) = (info.arrived, reversed(info.sent));
        tuples.insert((flow(info), arrived)) && (reply == arrived || tuples.insert((flow(info), reply)))
    })
}

/// Whether a rule of the policy `HIDING` maps an address.
pub(super) fn is_inside(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets()[..3] == [10, 0, 0],
        IpAddr::V6(address) => address.segments()[..4] == [0x2001, 0xdb8, 0, 0],
    }
}

fn maps_ports(proto: u8) -> bool {
    matches!(proto, TCP | UDP | ICMP | ICMP6 | UDP_LITE | DCCP)
}

fn timeout_s(timeouts: &Timeouts, info: &ConnectionInfo) -> u32 {
    match (info.state, info.proto) {
        ("syn-sent" | "syn-received", _) | ("unreplied", TCP | SCTP) => timeouts.tcp_syn,
        ("established", _) => timeouts.tcp_established,
        ("fin-wait" | "closing", _) => timeouts.tcp_fin,
        ("time-wait", _) => timeouts.tcp_time_wait,
        ("reset", _) => timeouts.tcp_reset,
        ("unreplied", UDP | UDP_LITE) => timeouts.udp_unreplied,
        (_, UDP | UDP_LITE) => timeouts.udp,
        (_, ICMP | ICMP6) => timeouts.icmp,
        _ => timeouts.other,
    }
}

/// What a worker has grows beyond its share of the maximum only if it already was there.
pub(super) fn bounded(
    harness: &Harness,
    before: &[ConnectionInfo],
    after: &[ConnectionInfo],
) -> Result<(), String> {
    let max = harness.engine.connections().summary().max.div_ceil(harness.workers() as u64) as usize;
    for worker in 0..harness.workers() {
        let of =
            |list: &[ConnectionInfo]| list.iter().filter(|info| usize::from(info.worker) == worker).count();
        ensure!(of(after) <= max.max(of(before)), "worker {worker} has {} of {max}", of(after));
    }
    Ok(())
}

/// Counters against each other and the list.
pub(super) fn adds_up(harness: &Harness, policy: &Policy, list: &[ConnectionInfo]) -> Result<(), String> {
    let summary = harness.engine.connections().summary();
    let closed: u64 = summary.closed.iter().map(|(_, count)| count).sum();
    ensure!(summary.created == closed + summary.connections, "{summary:?}");
    ensure!(summary.connections == list.len() as u64, "{summary:?} and a list of {}", list.len());
    let half_open = list.iter().filter(|i| matches!(i.state, "syn-sent" | "syn-received" | "unreplied"));
    ensure!(summary.half_open == half_open.count() as u64, "half open: {summary:?} and {list:?}");
    let ports = harness.engine.port_counts();
    let received: u64 = ports.iter().map(|port| port.rx.packets).sum();
    let sent: u64 = ports.iter().map(|port| port.tx.packets).sum();
    let drops: u64 = harness.engine.drops().iter().map(|(_, count)| count).sum();
    let by_rules = harness.engine.drops().into_iter().find(|(reason, _)| *reason == DropReason::Rule);
    let by_rules = by_rules.map_or(0, |(_, count)| count);
    let of_rules: u64 = policy.rules.keys().map(|id| harness.engine.rule_count(id).dropped.packets).sum();
    let former = harness.engine.dropped_by_former_rules().packets;
    ensure!(
        by_rules == of_rules + former,
        "of {by_rules} drops, rules count {of_rules}, former ones {former}"
    );
    ensure!(received == harness.received, "{} came in, {received} counted", harness.received);
    let (held, released) = (summary.held, harness.released.len() as u64);
    ensure!(
        received == sent + drops + held + released,
        "of {received} packets {sent} were sent, {drops} dropped, {held} held, and {released} released"
    );
    ensure!(
        held == 0 || harness.now_ms() - harness.held_ms <= HELD_MS,
        "{held} are held, the last one since {} of {} ms",
        harness.held_ms,
        harness.now_ms()
    );
    Ok(())
}

/// A packet that was processed in a vector of its own, and the result.
pub(super) struct Passage<'a> {
    pub(super) came: &'a [u8],
    /// The side that it came from.
    pub(super) side: Side,
    pub(super) verdict: Verdict,
    pub(super) left: &'a [u8],
    pub(super) before: &'a [ConnectionInfo],
    pub(super) after: &'a [ConnectionInfo],
    /// It came from where only packets of connections are let in.
    pub(super) members_only: bool,
    /// It came from hosts whose addresses must not be visible outside.
    pub(super) hidden: bool,
    /// The port that it came by, where `ct` decides.
    pub(super) states: Option<u16>,
    /// Connections that ended by it.
    pub(super) closed: &'a HashSet<Name>,
}

impl Passage<'_> {
    /// Checks that it was counted and translated as the connections after it require.
    pub(super) fn check(&self) -> Result<(), String> {
        let came = Seen::read(&self.came[LINK..]).ok_or("a script's packet cannot be read")?;
        let counted = self.counted()?;
        if came.fragment {
            self.check_unchanged()?;
        }
        if self.members_only && !came.later && !came.fragment {
            let passes = matches!(self.verdict, Verdict::Send(_));
            let is_member = self.connection(&came, &counted).is_some();
            // Of errors about a connection those pass that can be about a packet of it.
            let is_refuted = self.verdict == Verdict::Drop(DropReason::IcmpUnrelated) && came.is_error();
            // What has the ends of a connection may be too short for the rest of its header.
            let is_malformed = matches!(self.verdict, Verdict::Drop(DropReason::Malformed(_)));
            let passes_if_member = passes == is_member || (is_refuted || is_malformed) && is_member;
            ensure!(passes_if_member, "{:?}, and is of a connection: {is_member}", self.verdict);
        }
        if let Some(port) = self.states {
            self.check_states(&came, port)?;
        }
        if self.hidden && matches!(self.verdict, Verdict::Send(_)) {
            let left = Seen::read(&self.left[LINK..]).ok_or("what was sent cannot be read")?;
            // An answer goes to somebody inside.
            let is_answer = matches!(self.connection(&came, &counted), Some((_, 1)));
            ensure!(
                is_answer || !is_inside(left.ends.src),
                "{:?} is an inside source address",
                left.ends.src
            );
        }
        if matches!(self.verdict, Verdict::Drop(_) | Verdict::Held(_) | Verdict::Absorbed) {
            ensure!(counted.is_empty(), "a packet that is not sent counts for {counted:?}");
            let held = matches!(self.verdict, Verdict::Held(_));
            ensure!(came.later || !held, "{:?}, and it is no later fragment", self.verdict);
            return Ok(());
        }
        if came.later {
            ensure!(counted.len() <= 1, "one packet counts for {counted:?}");
            return Ok(());
        }
        let member = self.connection(&came, &counted);
        let expected = match member {
            Some((info, direction)) if !came.is_error() => vec![(name(info), direction)],
            _ => Vec::new(),
        };
        ensure!(counted == expected, "it counts for {counted:?}, and should for {expected:?}");
        let Some((info, direction)) = member else {
            ensure!(self.came == self.left, "a packet of no connection was changed");
            return Ok(());
        };
        let becomes = if direction == 0 { info.sent } else { reversed(info.arrived) };
        let left = Seen::read(&self.left[LINK..]).ok_or("what was sent cannot be read")?;
        if !came.is_error() {
            ensure!(left.ends == becomes, "it left as {:?}, and should as {becomes:?}", left.ends);
            return Ok(());
        }
        let inside = self.quoted(self.left, &left).ok_or("what is quoted cannot be read any more")?;
        let becomes = reversed(becomes);
        ensure!(inside.ends == becomes, "{:?} is quoted, and should be {becomes:?}", inside.ends);
        ensure!(left.ends.dst == inside.ends.src, "an error to {:?} about {inside:?}", left.ends.dst);
        Ok(())
    }

    /// Checks that no connection changed its state: the checksum of a fragment cannot be verified.
    fn check_unchanged(&self) -> Result<(), String> {
        for was in self.before.iter().filter(|was| !self.closed.contains(&name(was))) {
            let moved = self.after.iter().find(|now| name(now) == name(was) && now.state != was.state);
            ensure!(moved.is_none(), "by a fragment, {was:?} became {moved:?}");
        }
        Ok(())
    }

    /// Under the policy `STATES`: whether it passed as it stood to the connections that there were before it.
    fn check_states(&self, came: &Seen, port: u16) -> Result<(), String> {
        if came.fragment || came.icmp.is_some() {
            return Ok(());
        }
        if let Verdict::Drop(DropReason::Malformed(_)) = self.verdict {
            return Ok(());
        }
        let passes = matches!(self.verdict, Verdict::Send(_));
        let live = || self.before.iter().filter(|info| flow(info) == came.flow() && info.expires_ms > 0);
        // A packet from a host to itself is no answer.
        let answers = live().any(|info| reversed(info.sent) == came.ends && info.arrived != came.ends);
        let begins = !answers && !live().any(|info| info.arrived == came.ends);
        let flags = self.came.get(LINK + came.l4 + 13).filter(|_| came.proto == TCP);
        let is_init_ack = came.proto == SCTP && self.came.get(LINK + came.l4 + 12) == Some(&2);
        match flags {
            _ if begins && is_init_ack => ensure!(!passes, "an INIT ACK began an association"),
            // It answers an INIT alone, and no association that was picked up.
            _ if is_init_ack => {}
            _ if begins && port == 1 => ensure!(!passes, "`b` began a connection"),
            None if answers && port == 1 => ensure!(passes, "{:?} is an answer", self.verdict),
            None if begins => {
                let is_full = self.verdict == Verdict::Drop(DropReason::ConnFull);
                ensure!(passes || is_full, "{:?}, and `a` may begin", self.verdict);
            }
            None => {}
            Some(flags) if begins => {
                // A SYN or an acknowledgement, of FIN, SYN, RST and ACK.
                let may = matches!(flags & 0x17, 0x02 | 0x10);
                ensure!(passes == may, "{:?}, and flags {flags:#x} begin: {may}", self.verdict);
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// The connection that a packet is of or complains about. An error is translated as the packet was that it quotes.
    fn connection(&self, came: &Seen, counted: &[(Name, usize)]) -> Option<(&ConnectionInfo, usize)> {
        if !came.is_error() {
            let member = self.member(came, (came.flow(), came.ends), counted);
            // Where it begins no other one, what is over stays.
            return member.filter(|(info, _)| !counted.is_empty() || !is_over(info) || !self.begins(came));
        }
        let quoted = self.quoted(self.came, came)?;
        let left = self.quoted(self.left, &Seen::read(&self.left[LINK..])?);
        let fits = |(info, direction): &(&ConnectionInfo, usize)| {
            let becomes = if *direction == 0 { reversed(info.sent) } else { info.arrived };
            left.as_ref().is_some_and(|left| left.ends == becomes)
        };
        let mut all = self.members((quoted.flow(), reversed(quoted.ends)));
        let first = all.next();
        first.into_iter().chain(all).find(fits).or(first)
    }

    /// Whether it asks for a connection: a SYN, or an INIT.
    fn begins(&self, came: &Seen) -> bool {
        let byte = |at: usize| self.came.get(LINK + came.l4 + at).copied().unwrap_or(0);
        match came.proto {
            TCP => byte(13) & 0x17 == 0x02,
            SCTP => byte(12) == 1,
            _ => false,
        }
    }

    /// The packet that an error quotes, with the 8 bytes of its transport that RFC 792 asks for.
    fn quoted(&self, frame: &[u8], error: &Seen) -> Option<Seen> {
        let ip = frame.get(LINK + error.l4 + 8..)?;
        let names_ends = |seen: &Seen| !seen.later && !seen.is_error() && ip.len() >= seen.l4 + 8;
        Seen::read(ip).filter(names_ends)
    }

    /// The connection whose packets have such ends, and the direction: the one that counted the packet.
    fn member(
        &self,
        came: &Seen,
        packet: ((u8, u32), Endpoints),
        counted: &[(Name, usize)],
    ) -> Option<(&ConnectionInfo, usize)> {
        let found =
            self.members(packet).min_by_key(|(info, direction)| !counted.contains(&(name(info), *direction)));
        found.filter(|(_, direction)| came.asks().is_none_or(|asks| asks == (*direction == 0)))
    }

    /// The connections whose packets have such ends, and the direction. Each worker may have one, where what one worker's connection
    /// is answered with is how another's begins (docs/nat.md, "Workers").
    fn members(
        &self,
        (packet, ends): ((u8, u32), Endpoints),
    ) -> impl Iterator<Item = (&ConnectionInfo, usize)> {
        let tuples =
            |info: &ConnectionInfo| [(info.arrived, info.sides[0]), (reversed(info.sent), info.sides[1])];
        self.after.iter().filter(move |info| flow(info) == packet).filter_map(move |info| {
            let is = |tuple: &(Endpoints, Side)| *tuple == (ends, self.side);
            tuples(info).iter().position(is).map(|direction| (info, direction))
        })
    }

    /// The connections and directions that counted a packet.
    fn counted(&self) -> Result<Vec<(Name, usize)>, String> {
        let live = |known: &Name| self.before.iter().find(|info| name(info) == *known);
        let mut counted = Vec::new();
        for info in self.after {
            let before = live(&name(info)).filter(|_| !self.closed.contains(&name(info)));
            let before = before.map_or([0; 2], |before| before.packets);
            for (direction, before) in before.into_iter().enumerate() {
                match info.packets[direction].checked_sub(before) {
                    Some(0) => {}
                    Some(1) => counted.push((name(info), direction)),
                    more => return Err(format!("one packet counts {more:?} times for {info:?}")),
                }
            }
        }
        Ok(counted)
    }
}

/// What was sent is sound if what came in was.
pub(super) fn checksums(came: &[u8], left: &[u8]) -> Result<(), String> {
    let sound = !sums_up(&came[LINK..]) || sums_up(&left[LINK..]);
    ensure!(sound, "checksums were right and are wrong: {left:02x?}");
    Ok(())
}
