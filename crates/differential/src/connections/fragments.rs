//! Pieces of datagrams in any order, of any length, at any worker.

use super::ensure::ensure;
use super::packets;
use super::script::{ScriptBytes, ScriptRun, WAITS_MS};
use mmb_engine::Verdict;

/// Bytes of a piece in a script, and the most pieces.
const STEP: usize = 8;
const STEPS: usize = 48;

/// Takes an engine through pieces of a few datagrams, and checks the invariants of connections after each step. The first byte selects
/// the number of workers and the policy, the next four the datagrams; then each piece has `STEP` bytes.
///
/// # Errors
/// The violated invariant, and the steps up to it.
pub fn fragments(script: &[u8]) -> Result<(), String> {
    let Some((first, steps)) = script.split_first() else { return Ok(()) };
    let mut run = ScriptRun::new(*first)?;
    let (seeds, steps) = steps.split_at_checked(4).unwrap_or((steps, &[]));
    let datagrams: Vec<_> = seeds
        .iter()
        .map(|seed| run.packet(&mut ScriptBytes([*seed, seed.rotate_left(3), !seed, 0x7d].iter().cycle())))
        .collect();
    for step in steps.chunks(STEP).take(STEPS) {
        let mut bytes = ScriptBytes(step.iter().cycle());
        let Some((port, whole)) = datagrams.get(bytes.byte() % datagrams.len().max(1)) else { break };
        let done = if bytes.byte() % 16 == 15 {
            run.wait(bytes.one_of(&WAITS_MS[..4]))
        } else {
            let (id, place, len, how) = (bytes.byte() % 2, bytes.byte() % 12, bytes.byte() % 8, bytes.byte());
            let piece = packets::fragment(whole, id as u16, place as u16, len, how & 1 == 0);
            let port = if how & 6 == 6 { 1 - port } else { *port };
            match packets::Seen::read(piece.get(packets::LINK..).unwrap_or_default()) {
                Some(_) => run.pass_one(bytes.byte(), (port, piece)),
                None => run.refused(bytes.byte(), port, piece),
            }
        };
        done.map_err(|what| format!("{what}\n--- steps\n{}", run.log.join("\n")))?;
    }
    Ok(())
}

impl ScriptRun {
    /// Checks that a piece without a readable header is dropped.
    fn refused(&mut self, worker: usize, port: u16, piece: Vec<u8>) -> Result<(), String> {
        let worker = worker % self.harness.workers();
        let passed = self.harness.pass(worker, &[(port, piece)]).pop();
        ensure!(matches!(passed, Some((Verdict::Drop(_), _))), "{passed:?} of an empty piece");
        self.check_connections()
    }
}
