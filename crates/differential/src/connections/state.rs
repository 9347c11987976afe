//! Files of connections, as they were saved and as somebody made them.

use super::ensure::ensure;
use super::harness::Harness;
use super::model;
use super::script::ScriptRun;
use std::collections::HashSet;

/// Has an engine load a file. The first byte selects the number of workers and the policy. If the second one is even, the
/// file is one that was saved with live connections, changed by what follows: triples of a two-byte offset and a byte that is XORed there.
/// Otherwise the rest is the file.
///
/// # Errors
/// The violated invariant.
pub fn state(script: &[u8]) -> Result<(), String> {
    let [first, kind, script @ ..] = script else { return Ok(()) };
    let mut run = ScriptRun::new(*first)?;
    let file = if kind & 1 == 0 {
        run.open_connections()?;
        let mut file = run.saved()?;
        for change in script.as_chunks::<3>().0 {
            let at = usize::from(u16::from_be_bytes([change[0], change[1]]));
            let len = file.len().max(1);
            file.iter_mut().skip(at % len).take(1).for_each(|byte| *byte ^= change[2]);
        }
        let keeps = if kind & 2 == 0 { file.len() } else { usize::from(*kind) % (file.len() + 1) };
        file.truncate(keeps);
        file
    } else {
        script.to_vec()
    };
    let mut harness = Harness::new(run.harness.workers(), 1000, &run.rules)?;
    let loaded = harness.load(&file);
    // What came before an error stays.
    let list = harness.list()?;
    let made = loaded.as_ref().map_or(u64::MAX, |loaded| loaded.connections);
    ensure!(made >= list.len() as u64, "{loaded:?}, and {} there", list.len());
    let names: HashSet<_> = list.iter().map(|info| (info.worker, model::name(info))).collect();
    ensure!(names.len() == list.len(), "two connections begin alike: {list:?}");
    // The table goes on, and what it saves loads.
    (run.harness, run.list) = (harness, list);
    let saved = run.saved()?;
    let mut again = Harness::new(run.harness.workers(), 1000, &run.rules)?;
    again.load(&saved)?;
    run.harness.wait(86_400_000);
    run.harness.run_workers();
    let list = run.harness.list()?;
    model::adds_up(&run.harness, &run.rules, &list)
}

impl ScriptRun {
    /// A file of the connections that there are.
    fn saved(&mut self) -> Result<Vec<u8>, String> {
        self.harness.save().map(|(file, _)| file)
    }
}
