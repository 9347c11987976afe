//! What the handlers of requests share.

use super::limits::BODY_BUDGET;
use crate::access::Access;
use crate::cached::Cached;
use crate::daemon::DaemonSocket;
use crate::options::{Explainer, PatternCheck, WebOptions};
use crate::problem::Problem;
use crate::rules::RuleList;
use crate::state::{self, State};
use mmb_protocol::Request;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, Semaphore};

/// How long the list of rules is shown before it is read again.
const RULES_AGE: Duration = Duration::from_secs(1);

/// The same for counters, so that they are not read again for every page that is open.
const STATE_AGE: Duration = Duration::from_millis(400);

/// What handlers share.
pub(crate) struct Context {
    pub(super) daemon: DaemonSocket,
    rules: Cached<RuleList>,
    state: Cached<State>,
    pub(super) access: Arc<Access>,
    /// Admits one check of a policy or one `explain` at a time: each uses a processor.
    heavy: Arc<Semaphore>,
    /// The bytes of bodies that may still arrive.
    pub(super) bodies: Arc<Semaphore>,
    /// Whose turn it is to change the policy under a condition.
    pub(super) changes: Mutex<()>,
    pub(super) explain: Explainer,
    pub(super) check_patterns: PatternCheck,
    pub(super) metrics_rules: usize,
    started: Instant,
}

impl Context {
    pub(crate) fn new(options: &WebOptions, access: Arc<Access>) -> Context {
        Context {
            daemon: DaemonSocket::new(options.socket.clone()),
            rules: Cached::new(RULES_AGE),
            state: Cached::new(STATE_AGE),
            access,
            heavy: Arc::new(Semaphore::new(1)),
            bodies: Arc::new(Semaphore::new(BODY_BUDGET)),
            changes: Mutex::new(()),
            explain: options.explain,
            check_patterns: options.check_patterns,
            metrics_rules: options.metrics_rules,
            started: Instant::now(),
        }
    }

    /// The rules in force and the age of the list.
    pub(super) async fn rules(&self) -> Result<(Arc<RuleList>, Duration), Problem> {
        let fetch = async {
            let request = Request::Run(vec!["list".to_owned()]);
            let take = |list: &mut RuleList, line| {
                list.take(line);
                true
            };
            self.daemon.ask_into(request, RuleList::default(), take).await.map(|reply| reply.lines)
        };
        self.rules.value(fetch).await
    }

    /// Ports, workers and counters.
    pub(super) async fn state(&self) -> Result<Arc<State>, Problem> {
        let fetch = async {
            let reply = self.daemon.run(&state::COMMANDS).await?;
            Ok(State::new(reply, self.started.elapsed().as_millis() as u64))
        };
        self.state.value(fetch).await.map(|(state, _)| state)
    }

    /// Forgets what was read, after a change.
    pub(super) async fn forget(&self) {
        self.rules.forget().await;
        self.state.forget().await;
    }

    /// Runs what takes a processor for long, one after the other. Its argument returns true when the client waits no longer.
    pub(super) async fn heavy<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Fn() -> bool) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let permit = Arc::clone(&self.heavy).acquire_owned().await.map_err(|_| Problem::internal())?;
        let waits = Waits::default();
        let is_gone = Arc::clone(&waits.0);
        let work = move || {
            // Until it ends: this request may end before, with its client.
            let _permit = permit;
            work(&|| is_gone.load(Ordering::Relaxed))
        };
        tokio::task::spawn_blocking(work).await.map_err(|_| Problem::internal())
    }
}

/// A request that waits for a thread; the thread sees its end.
#[derive(Default)]
struct Waits(Arc<AtomicBool>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
