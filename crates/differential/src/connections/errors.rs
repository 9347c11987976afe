//! ICMP errors about live connections: the script selects the quoted bytes, the receiver and the checksum.

use super::ensure::ensure;
use super::packets::{self, LINK, Seen};
use super::policies;
use super::script::{ScriptBytes, ScriptRun, addresses4, addresses6, describe};
use mmb_engine::Endpoints;
use mmb_engine::{ConnectionInfo, Verdict};
use mmb_testkit::{Tcp, Udp, Upper};

/// Bytes of an error in a script, and the most errors.
const STEP: usize = 16;
const STEPS: usize = 24;
/// Types of errors of both IP versions, and others.
const TYPES: [[u8; 2]; 8] = [[3, 1], [11, 3], [3, 2], [12, 4], [4, 1], [5, 137], [0, 129], [40, 200]];

/// Takes an engine with connections through errors about them. The first byte selects the number of workers and the
/// policy; then each error has `STEP` bytes.
///
/// # Errors
/// The violated invariant, and the steps up to it.
pub fn errors(script: &[u8]) -> Result<(), String> {
    let Some((first, steps)) = script.split_first() else { return Ok(()) };
    let mut run = ScriptRun::new(*first)?;
    run.open_connections()?;
    for step in steps.chunks(STEP).take(STEPS) {
        let mut bytes = ScriptBytes(step.iter().cycle());
        run.step_error(&mut bytes).map_err(|what| format!("{what}\n--- steps\n{}", run.log.join("\n")))?;
    }
    Ok(())
}

impl ScriptRun {
    /// Connections of TCP, UDP and pings in both IP versions, as far as the policy lets them be.
    pub(super) fn open_connections(&mut self) -> Result<(), String> {
        for (src, dst) in [(addresses4(0), addresses4(2)), (addresses6(0), addresses6(2))] {
            let family = if src.is_ipv4() { 4 } else { 6 };
            let ends = |sport, dport| Endpoints { src, sport, dst, dport };
            let syn = Tcp { sport: 5000, dport: 80, flags: 2, seq: 1000, window: 8000, ..Tcp::default() };
            let asks = Udp { sport: 5001, dport: 53, payload: vec![1; 9], ..Udp::default() };
            let echo = packets::icmp(family, [8, 128], [0, 7, 0, 1], vec![2; 8]);
            let firsts =
                [(ends(5000, 80), Upper::Tcp(syn)), (ends(5001, 53), Upper::Udp(asks)), (ends(7, 7), echo)];
            for (ends, upper) in firsts {
                let sent = self.left.len();
                self.pass_one(0, (0, packets::frame(ends, upper)))?;
                // SYN-ACK, ACK, data each way.
                for flags in [0x12, 0x10, 0x18] {
                    let Some((port, frame)) = self.left.get(sent..).and_then(<[_]>::last).cloned() else {
                        break;
                    };
                    let payload = if flags == 0x18 { 20 } else { 0 };
                    let Some(answer) = packets::answer(&frame, flags, payload) else { break };
                    self.pass_one(0, (port, answer))?;
                }
            }
        }
        Ok(())
    }

    /// One error.
    fn step_error(&mut self, script: &mut ScriptBytes<'_>) -> Result<(), String> {
        let Some((port, about)) = self.earlier(script).cloned() else { return Ok(()) };
        let Some(seen) = Seen::read(&about[LINK..]) else { return Ok(()) };
        let hosts = if seen.family == 4 { addresses4 } else { addresses6 };
        let (who, how, cut) = (script.byte(), script.byte(), script.byte());
        let to = if who & 1 == 0 { seen.ends.src } else { hosts(who >> 4) };
        let from = if who & 2 == 0 { seen.ends.dst } else { hosts(who >> 1 & 7) };
        let mut quoted = about[LINK..].to_vec();
        quoted.truncate(if how & 1 == 0 { seen.l4 + 8 + cut % 32 } else { cut });
        for _ in 0..how >> 1 & 3 {
            let (at, flip) = (script.byte(), script.byte() as u8);
            if let Some(byte) = quoted.get_mut(at) {
                *byte ^= flip;
            }
        }
        let ends = Endpoints { src: from, sport: 0, dst: to, dport: 0 };
        let error = packets::icmp(seen.family, TYPES[how >> 5], [0, 0, 5, 0], quoted);
        let mut error = packets::frame(ends, error);
        if how & 0x18 == 0x18 {
            let (at, flip) = (script.byte() % error.len().max(1), script.byte() as u8);
            error.iter_mut().skip(at.max(LINK)).take(1).for_each(|byte| *byte ^= flip);
        }
        let is_side_right = who & 8 == 0;
        let port = if is_side_right { port } else { 1 - port };
        self.pass_error(script.byte(), (port, is_side_right), &error)
    }

    /// Passes an error and checks that it changes no connection, and where it may go. What comes from the side that the quoted packet came
    /// from may be taken for the other side's.
    fn pass_error(
        &mut self,
        worker: usize,
        (port, is_side_right): (u16, bool),
        error: &[u8],
    ) -> Result<(), String> {
        let worker = worker % self.harness.workers();
        let passed = self.harness.pass(worker, &[(port, error.to_vec())]).pop();
        let (verdict, left) = passed.ok_or("nothing came of a packet")?;
        self.log.push(format!("port {port}, worker {worker}, {verdict:?}: {}", describe(error)));
        let list = self.harness.list()?;
        // A script may turn an error into anything else: only errors are held to what errors may do.
        let is_error = Seen::read(&error[LINK..]).is_some_and(|seen| seen.is_any_error() && !seen.fragment);
        if is_error {
            let what =
                |info: &ConnectionInfo| (info.arrived, info.sent, info.state, info.packets, info.idle_ms);
            let (before, after) = (self.list.iter().map(what), list.iter().map(what));
            ensure!(before.eq(after), "an error changed {:?} to {list:?}", self.list);
        }
        if let (Verdict::Send(_), true) = (verdict, is_error && is_side_right) {
            self.check_sent_error(port, &left)?;
        }
        self.check_list(list)
    }

    fn check_sent_error(&self, port: u16, left: &[u8]) -> Result<(), String> {
        let seen = Seen::read(&left[LINK..]).ok_or("what was sent cannot be read")?;
        if self.policy == policies::REFLEXIVE && port == 1 {
            let inside = left.get(LINK + seen.l4 + 8..).and_then(Seen::read).ok_or("it quotes nothing")?;
            ensure!(seen.ends.dst == inside.ends.src, "an error to {:?} about {inside:?}", seen.ends.dst);
        }
        let hidden = self.policy == policies::HIDING && port == 0;
        ensure!(
            !hidden || !super::model::is_inside(seen.ends.src),
            "{:?} is an inside source address",
            seen.ends.src
        );
        Ok(())
    }
}
