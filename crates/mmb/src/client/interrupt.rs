//! Ctrl-C while something is watched: it ends the watching, and otherwise the program as ever.

use signal_hook::consts::SIGINT;
use signal_hook::flag;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// The handlers, which stay once they are there.
struct Handlers {
    /// Ctrl-C ends the program.
    ends: Arc<AtomicBool>,
    came: Arc<AtomicBool>,
}

static HANDLERS: OnceLock<Option<Handlers>> = OnceLock::new();

/// While it lives, Ctrl-C is only remembered.
pub(crate) struct InterruptGuard(Option<&'static Handlers>);

impl InterruptGuard {
    /// Begins; where the system refuses, Ctrl-C goes on to end the program.
    pub(crate) fn begin() -> InterruptGuard {
        let handlers = HANDLERS.get_or_init(|| {
            let handlers = Handlers { ends: Arc::default(), came: Arc::default() };
            let conditional = flag::register_conditional_default(SIGINT, Arc::clone(&handlers.ends));
            conditional.and_then(|_| flag::register(SIGINT, Arc::clone(&handlers.came))).ok()?;
            Some(handlers)
        });
        if let Some(handlers) = handlers {
            handlers.ends.store(false, Ordering::SeqCst);
            handlers.came.store(false, Ordering::SeqCst);
        }
        InterruptGuard(handlers.as_ref())
    }
}

/// Somebody has pressed Ctrl-C since the last [`InterruptGuard`] began.
pub(crate) fn came() -> bool {
    let handlers = HANDLERS.get().and_then(Option::as_ref);
    handlers.is_some_and(|handlers| handlers.came.load(Ordering::SeqCst))
}

impl Drop for InterruptGuard {
    fn drop(&mut self) {
        if let Some(handlers) = self.0 {
            handlers.ends.store(true, Ordering::SeqCst);
        }
    }
}
