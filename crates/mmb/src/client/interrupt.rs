//! Ctrl-C during `monitor`, `trace` and `capture`: it ends the command. At other times it ends the program.

use signal_hook::consts::SIGINT;
use signal_hook::flag;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// The state of the signal handlers, which stay installed.
struct Handlers {
    /// Ctrl-C ends the program.
    ends_program: Arc<AtomicBool>,
    /// Ctrl-C was pressed.
    pressed: Arc<AtomicBool>,
}

static HANDLERS: OnceLock<Option<Handlers>> = OnceLock::new();

/// While it exists, Ctrl-C does not end the program.
pub(crate) struct InterruptGuard(Option<&'static Handlers>);

impl InterruptGuard {
    /// Installs the handlers. If the system refuses, Ctrl-C still ends the program.
    pub(crate) fn begin() -> InterruptGuard {
        let handlers = HANDLERS.get_or_init(|| {
            let handlers = Handlers { ends_program: Arc::default(), pressed: Arc::default() };
            let conditional = flag::register_conditional_default(SIGINT, Arc::clone(&handlers.ends_program));
            conditional.and_then(|_| flag::register(SIGINT, Arc::clone(&handlers.pressed))).ok()?;
            Some(handlers)
        });
        if let Some(handlers) = handlers {
            handlers.ends_program.store(false, Ordering::SeqCst);
            handlers.pressed.store(false, Ordering::SeqCst);
        }
        InterruptGuard(handlers.as_ref())
    }
}

/// Returns whether Ctrl-C was pressed since the last [`InterruptGuard`] began.
pub(crate) fn interrupted() -> bool {
    let handlers = HANDLERS.get().and_then(Option::as_ref);
    handlers.is_some_and(|handlers| handlers.pressed.load(Ordering::SeqCst))
}

impl Drop for InterruptGuard {
    fn drop(&mut self) {
        if let Some(handlers) = self.0 {
            handlers.ends_program.store(true, Ordering::SeqCst);
        }
    }
}
