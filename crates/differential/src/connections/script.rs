//! Takes an engine through a script of packets, time, policies, requests and restarts.

use super::ensure::ensure;
use super::harness::{Arrival, Harness};
use super::model::{self, Name, Passage};
use super::{packets, policies};
use mmb_engine::Endpoints;
use mmb_engine::{ConnectionInfo, Side, Verdict};
use mmb_policy::{ConnectionFilter, Policy};
use mmb_testkit::{Dccp, Sctp, Tcp, Udp, Upper, gre};
use std::collections::HashSet;
use std::iter::Cycle;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::slice::Iter;

/// Bytes of a step, and the most steps of a script: the fuzzer finds short ones.
pub const STEP: usize = 12;
const STEPS: usize = 64;
/// Packets that left lately, to be answered or complained about.
const KEPT: usize = 16;
const PORTS: [u16; 8] = [5000, 5001, 1000, 1001, 53, 5353, 80, 7777];
/// From half a second to more than the clock of a connection can count.
pub(super) const WAITS_MS: [u64; 8] =
    [500, 1, 2500, 30_000, 130_000, 900_000, 3 * 3_600_000, 25 * 86_400_000];
const FLAGS: [u8; 8] = [0x02, 0x12, 0x10, 0x18, 0x11, 0x04, 0x14, 0x00];

/// Takes an engine through a script.
///
/// # Errors
/// The violated invariant, and the steps up to it.
pub fn connections(script: &[u8]) -> Result<(), String> {
    let Some((first, steps)) = script.split_first() else { return Ok(()) };
    let mut run = ScriptRun::new(*first)?;
    for step in steps.chunks(STEP).take(STEPS) {
        let mut bytes = ScriptBytes(step.iter().cycle());
        run.step(&mut bytes).map_err(|what| format!("{what}\n--- steps\n{}", run.log.join("\n")))?;
    }
    Ok(())
}

/// The bytes of a step, again and again.
pub(super) struct ScriptBytes<'a>(pub(super) Cycle<Iter<'a, u8>>);

impl ScriptBytes<'_> {
    pub(super) fn byte(&mut self) -> usize {
        self.0.next().copied().unwrap_or(0).into()
    }

    pub(super) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.byte() % all.len()]
    }
}

/// An engine in the middle of a script.
pub(super) struct ScriptRun {
    pub(super) harness: Harness,
    pub(super) policy: usize,
    pub(super) rules: Policy,
    /// The policy was never changed.
    pub(super) steady: bool,
    pub(super) list: Vec<ConnectionInfo>,
    /// What left, and by which port.
    pub(super) left: Vec<Arrival>,
    pub(super) log: Vec<String>,
}

impl ScriptRun {
    pub(super) fn new(first: u8) -> Result<ScriptRun, String> {
        let policy = usize::from(first >> 1) % policies::ALL.len();
        let rules = policies::parsed(policy)?;
        let harness = Harness::new(1 + usize::from(first & 1), 1000, &rules)?;
        let log = vec![format!("{} workers, policy {policy}", harness.workers())];
        Ok(ScriptRun { harness, policy, rules, steady: true, list: Vec::new(), left: Vec::new(), log })
    }

    pub(super) fn step(&mut self, script: &mut ScriptBytes<'_>) -> Result<(), String> {
        match script.byte() % 16 {
            0..=3 => {
                let arrival = self.packet(script);
                self.pass_one(script.byte(), arrival)?;
            }
            4..=7 => {
                if let Some(arrival) = self.answer(script) {
                    self.pass_one(script.byte(), arrival)?;
                }
            }
            8 | 9 => {
                if let Some(arrival) = self.error(script) {
                    self.pass_one(script.byte(), arrival)?;
                }
            }
            10 => self.fragments(script)?,
            11 => self.vector(script)?,
            12 => self.wait(script.one_of(&WAITS_MS))?,
            13 => self.publish(script.byte() % policies::ALL.len())?,
            14 => self.kill(script)?,
            _ => self.restart(1 + script.byte() % 2)?,
        }
        Ok(())
    }

    pub(super) fn check_connections(&mut self) -> Result<(), String> {
        let list = self.harness.list()?;
        self.check_list(list)?;
        self.pass_released()
    }

    /// Checks what holds of any list of connections.
    pub(super) fn check_list(&mut self, list: Vec<ConnectionInfo>) -> Result<(), String> {
        model::check(&list, &self.rules)?;
        model::bounded(&self.harness, &self.list, &list)?;
        model::adds_up(&self.harness, &self.rules, &list)?;
        self.harness.events().for_each(drop);
        self.list = list;
        Ok(())
    }

    /// A packet from one side to any address.
    pub(super) fn packet(&mut self, script: &mut ScriptBytes<'_>) -> Arrival {
        let (port, kind) = (script.byte(), script.byte());
        let side = (port & 1) as u16;
        let hosts = if port & 2 == 0 { addresses4 } else { addresses6 };
        let src = hosts(if side == 0 { port >> 2 & 1 } else { 2 + (port >> 2 & 1) });
        let dst = hosts(script.byte() % 6);
        let (sport, dport) = (script.one_of(&PORTS), script.one_of(&PORTS));
        let family = if src.is_ipv4() { 4 } else { 6 };
        let upper = match kind % 8 {
            0..=2 => {
                let (flags, number) = (script.one_of(&FLAGS), script.byte() as u32 * 97);
                let (seq, ack) = (1000 + number, if flags & 0x10 == 0 { 0 } else { 9001 });
                Upper::Tcp(Tcp { sport, dport, flags, seq, ack, window: 8000, ..Tcp::default() })
            }
            3..=5 => Upper::Udp(Udp { sport, dport, payload: vec![1; kind >> 3], ..Udp::default() }),
            6 => {
                let [high, low] = sport.to_be_bytes();
                let types = [[8, 128], [0, 129], [13, 128], [14, 129]][kind >> 3 & 3];
                packets::icmp(family, types, [high, low, 0, 1], vec![2; 8])
            }
            _ => other(kind >> 3, sport, dport),
        };
        (side, packets::frame(Endpoints { src, sport, dst, dport }, upper))
    }

    pub(super) fn earlier(&self, script: &mut ScriptBytes<'_>) -> Option<&Arrival> {
        let back = script.byte() % KEPT;
        self.left.len().checked_sub(1 + back).or(self.left.len().checked_sub(1)).map(|at| &self.left[at])
    }

    /// An answer of the receiver of an earlier packet.
    pub(super) fn answer(&self, script: &mut ScriptBytes<'_>) -> Option<Arrival> {
        let (port, frame) = self.earlier(script)?;
        let (flags, payload) = (script.one_of(&FLAGS[1..]), script.byte() % 20);
        Some((*port, packets::answer(frame, flags, payload)?))
    }

    /// An ICMP error of a router about an earlier packet.
    pub(super) fn error(&self, script: &mut ScriptBytes<'_>) -> Option<Arrival> {
        let (port, frame) = self.earlier(script)?;
        let how = script.byte();
        let seen = packets::Seen::read(&frame[packets::LINK..])?;
        let hosts = if seen.family == 4 { addresses4 } else { addresses6 };
        let router = if how & 1 == 0 { seen.ends.dst } else { hosts(6) };
        let quoted = [8, 20, 200][how / 2 % 3];
        // The error may go to another host.
        let to = if (how / 6).is_multiple_of(4) { hosts(how / 24) } else { seen.ends.src };
        packets::error(frame, (router, to), quoted).map(|error| (*port, error))
    }

    /// Passes one packet and what it releases, and checks what became of them.
    pub(super) fn pass_one(&mut self, worker: usize, arrival: Arrival) -> Result<(), String> {
        let worker = worker % self.harness.workers();
        let passed = self.harness.pass(worker, std::slice::from_ref(&arrival)).pop();
        let (verdict, left) = passed.ok_or("nothing came of a packet")?;
        self.log.push(format!("port {}, worker {worker}, {verdict:?}: {}", arrival.0, describe(&arrival.1)));
        self.check_one(&arrival, verdict, &left)?;
        self.pass_released()
    }

    /// Passes what workers gave out again.
    pub(super) fn pass_released(&mut self) -> Result<(), String> {
        while let Some((arrival, verdict, left)) = self.harness.pass_released() {
            self.log.push(format!("port {}, released, {verdict:?}: {}", arrival.0, describe(&arrival.1)));
            ensure!(!matches!(verdict, Verdict::Held(_)), "held once more");
            self.check_one(&arrival, verdict, &left)?;
        }
        Ok(())
    }

    /// Checks what became of one packet.
    pub(super) fn check_one(
        &mut self,
        arrival: &Arrival,
        verdict: Verdict,
        left: &[u8],
    ) -> Result<(), String> {
        let (port, came) = (arrival.0, &arrival.1);
        let side = if port == 0 { Side::Low } else { Side::High };
        self.check_verdict(arrival, verdict, left)?;
        let after = self.harness.list()?;
        let ended = self.harness.events().filter(|event| !event.created);
        let closed: HashSet<Name> = ended.map(|event| model::name(&event.info)).collect();
        let members_only = self.steady && self.policy == policies::REFLEXIVE && port == 1;
        let hidden = self.steady && self.policy == policies::HIDING && port == 0;
        let states = (self.steady && self.policy == policies::STATES).then_some(port);
        let before = &self.list;
        let passage = Passage {
            came,
            side,
            verdict,
            left,
            before,
            after: &after,
            members_only,
            hidden,
            states,
            closed: &closed,
        };
        passage.check().map_err(|what| format!("{what}; left as {}; {after:#?}", describe(left)))?;
        self.check_list(after)
    }

    /// Checks the verdict and the checksums of any packet.
    pub(super) fn check_verdict(
        &mut self,
        (_, came): &Arrival,
        verdict: Verdict,
        left: &[u8],
    ) -> Result<(), String> {
        match verdict {
            Verdict::Drop(_) | Verdict::Held(_) => Ok(()),
            Verdict::Absorbed => Err("absorbed without a stream that is edited".to_owned()),
            Verdict::Hand(worker) => Err(format!("a packet is to be handed to {worker}, and on from there")),
            Verdict::Send(port) => {
                ensure!(port.0 < 2, "sent by port {port:?}");
                if self.left.len() == KEPT {
                    self.left.remove(0);
                }
                self.left.push((port.0, left.to_vec()));
                model::checksums(came, left)
            }
        }
    }

    /// A datagram in two pieces, or what somebody makes of it.
    pub(super) fn fragments(&mut self, script: &mut ScriptBytes<'_>) -> Result<(), String> {
        let (port, whole) = self.packet(script);
        let (id, how, worker) = (script.byte() as u16 % 4, script.byte(), script.byte());
        let first = packets::fragment(&whole, id, 0, 3, true);
        let later = packets::fragment(&whole, id, 3, 100, false);
        let pieces = match how % 6 {
            0 | 1 => vec![first, later],
            2 => vec![later, first],
            3 => vec![first.clone(), first, later],
            4 => vec![first, packets::fragment(&whole, id, 2, 100, false), later],
            _ => vec![later],
        };
        for (number, piece) in pieces.into_iter().enumerate() {
            // Devices do not send all pieces to one worker.
            self.pass_one(worker + number, (port, piece))?;
        }
        Ok(())
    }

    /// Some packets at once: which connections they made and ended is not followed.
    pub(super) fn vector(&mut self, script: &mut ScriptBytes<'_>) -> Result<(), String> {
        let mut arrivals = Vec::new();
        for _ in 0..2 + script.byte() % 5 {
            let packet = if script.byte() & 1 == 0 { None } else { self.answer(script) };
            arrivals.push(packet.unwrap_or_else(|| self.packet(script)));
        }
        let worker = script.byte() % self.harness.workers();
        let before: u64 = self.list.iter().map(|info| info.packets[0] + info.packets[1]).sum();
        let passed = self.harness.pass(worker, &arrivals);
        let mut sent = 0;
        for (arrival, (verdict, left)) in arrivals.iter().zip(&passed) {
            self.log.push(format!(
                "port {}, worker {worker}, {verdict:?}: {}",
                arrival.0,
                describe(&arrival.1)
            ));
            self.check_verdict(arrival, *verdict, left)?;
            sent += u64::from(matches!(verdict, Verdict::Send(_)));
        }
        let list = self.harness.list()?;
        let live: u64 = list.iter().map(|info| info.packets[0] + info.packets[1]).sum();
        let ended = self.harness.events().filter(|event| !event.created);
        let ended: u64 = ended.map(|event| event.info.packets[0] + event.info.packets[1]).sum();
        let counted = live + ended;
        ensure!((before..=before + sent).contains(&counted), "{sent} of {before} and on count as {counted}");
        self.check_list(list)
    }

    pub(super) fn wait(&mut self, ms: u64) -> Result<(), String> {
        self.log.push(format!("{ms} ms"));
        self.harness.wait(ms);
        self.check_connections()
    }

    pub(super) fn publish(&mut self, policy: usize) -> Result<(), String> {
        self.log.push(format!("policy {policy}"));
        self.steady &= policy == self.policy;
        (self.policy, self.rules) = (policy, policies::parsed(policy)?);
        self.harness.engine.publish(&self.rules).map_err(|error| error.to_string())?;
        self.check_connections()
    }

    pub(super) fn kill(&mut self, script: &mut ScriptBytes<'_>) -> Result<(), String> {
        let src = addresses4(script.byte() % 6);
        let filter = match script.byte() % 4 {
            0 => ConnectionFilter { src: Some((src, src)), ..ConnectionFilter::ALL },
            1 => ConnectionFilter { proto: Some(packets::UDP), ..ConnectionFilter::ALL },
            2 => ConnectionFilter { dport: Some((53, 80)), ..ConnectionFilter::ALL },
            _ => ConnectionFilter { state: Some("established"), ..ConnectionFilter::ALL },
        };
        self.log.push(format!("kill {filter:?}"));
        let killed = self.harness.ask(|connections| connections.kill(&filter)).map_err(|e| e.to_string())?;
        let list = self.harness.list()?;
        ensure!(!list.iter().any(|info| info.matches(&filter)), "killed, and still there: {list:?}");
        ensure!(killed as usize + list.len() == self.list.len(), "{killed} killed, {} left", list.len());
        self.check_list(list)
    }

    /// Another engine takes over the connections.
    pub(super) fn restart(&mut self, workers: usize) -> Result<(), String> {
        self.log.push(format!("restart with {workers} workers"));
        let (state, saved) = self.harness.save()?;
        ensure!(saved == self.list.len() as u64, "{saved} of {} connections saved", self.list.len());
        self.harness = Harness::new(workers, self.harness.now_ms(), &self.rules)?;
        let loaded = self.harness.load(&state)?;
        let list = self.harness.list()?;
        ensure!(loaded.connections >= list.len() as u64, "{loaded:?}, and {} there", list.len());
        let left_out: u64 = loaded.left_out.values().sum();
        ensure!(loaded.connections + left_out == saved, "{loaded:?} of {saved}");
        let roomy = self.harness.engine.connections().summary().max > 100;
        // Of connections of two workers that have packets alike (docs/nat.md, "Workers") one may come to the other's worker.
        let distinct = model::have_distinct_tuples(&self.list);
        let all_fit = self.steady && roomy && distinct;
        // What is due ends as soon as somebody looks.
        let lasting = self.list.iter().filter(|info| info.expires_ms > 0).count();
        ensure!(!all_fit || list.len() >= lasting, "{loaded:?} of {saved} came back");
        let what =
            |info: &ConnectionInfo| (model::name(info), info.sent, info.state, info.packets, info.bytes);
        let known: HashSet<_> = self.list.iter().map(what).collect();
        ensure!(list.iter().all(|info| known.contains(&what(info))), "{list:#?} from {:#?}", self.list);
        // What had outlived a timeout that is shorter now ends with its slot.
        self.list.clear();
        self.wait(3000)
    }
}

/// Two inside hosts, two outside, two addresses that translation uses, and a router.
pub(super) fn addresses4(number: usize) -> IpAddr {
    const ALL: [[u8; 4]; 7] = [
        [10, 0, 0, 1],
        [10, 0, 0, 2],
        [192, 0, 2, 80],
        [192, 0, 2, 81],
        [200, 0, 0, 1],
        [200, 0, 0, 2],
        [203, 0, 113, 9],
    ];
    Ipv4Addr::from(ALL[number % ALL.len()]).into()
}

/// The same in IPv6.
pub(super) fn addresses6(number: usize) -> IpAddr {
    const ALL: [(u16, u16); 7] = [(0, 1), (0, 2), (5, 0x80), (5, 0x81), (0xf, 1), (0xf, 2), (9, 9)];
    let (net, host) = ALL[number % ALL.len()];
    Ipv6Addr::new(0x2001, 0xdb8, net, 0, 0, 0, 0, host).into()
}

/// A packet of one of the protocols that rules do not look into.
fn other(kind: usize, sport: u16, dport: u16) -> Upper {
    match kind % 8 {
        0 | 1 => packets::udp_lite(sport, dport, vec![4; kind]),
        2 | 3 => Upper::Dccp(Dccp { sport, dport, payload: vec![5; kind], ..Dccp::default() }),
        4 => Sctp { sport, dport, tag: 0, ..Sctp::default() }.init(1, 7).upper(),
        5 => Sctp { sport, dport, tag: 7, ..Sctp::default() }.chunk(0, 3, &[6; 12]).upper(),
        6 => gre(Some(u32::from(sport) << 16 | u32::from(dport))),
        _ if kind & 8 == 0 => gre(None),
        _ => Upper::Raw(50, vec![3; 12]),
    }
}

pub(super) fn describe(frame: &[u8]) -> String {
    match packets::Seen::read(&frame[packets::LINK..]) {
        Some(seen) => format!(
            "{} {}:{} > {}:{} icmp {:?} fragment {} {:02x?}",
            seen.proto,
            seen.ends.src,
            seen.ends.sport,
            seen.ends.dst,
            seen.ends.dport,
            seen.icmp,
            seen.fragment,
            frame.get(packets::LINK + seen.l4..).unwrap_or_default()
        ),
        None => format!("{frame:02x?}"),
    }
}
