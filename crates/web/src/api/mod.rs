//! The REST API: the requests of the control socket as resources.
//!
//! Handlers ask the daemon and shape its answer. Each has its description beside it, from which the OpenAPI document is made; a route without
//! one does not compile.

mod commands;
mod connections;
mod explain;
mod history;
mod input;
mod policy;
mod scrape;
mod show;

use crate::access::Access;
use crate::cached::Cached;
use crate::daemon::DaemonSocket;
use crate::options::{Explainer, PatternCheck, WebOptions};
use crate::problem::Problem;
use crate::rules::RuleList;
use crate::state::{self, State};
use axum::response::{IntoResponse, Response};
use mmb_protocol::Request;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, Semaphore};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// How long the list of rules is shown before it is read again.
const RULES_AGE: Duration = Duration::from_secs(1);

/// The same for counters, so that they are not read again for every page that is open.
const STATE_AGE: Duration = Duration::from_millis(400);

/// What handlers share.
pub(crate) struct Context {
    daemon: DaemonSocket,
    rules: Cached<RuleList>,
    state: Cached<State>,
    access: Arc<Access>,
    /// Texts that are checked and packets that are explained at once: each takes a processor.
    heavy: Arc<Semaphore>,
    /// The bytes of bodies that may still arrive.
    bodies: Arc<Semaphore>,
    /// Whose turn it is to change the policy under a condition.
    changes: Mutex<()>,
    explain: Explainer,
    check_patterns: PatternCheck,
    metrics_rules: usize,
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
            bodies: Arc::new(Semaphore::new(input::BODY_BUDGET)),
            changes: Mutex::new(()),
            explain: options.explain,
            check_patterns: options.check_patterns,
            metrics_rules: options.metrics_rules,
            started: Instant::now(),
        }
    }

    /// The rules in force and the age of the list.
    async fn rules(&self) -> Result<(Arc<RuleList>, Duration), Problem> {
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
    async fn state(&self) -> Result<Arc<State>, Problem> {
        let fetch = async {
            let reply = self.daemon.run(&state::COMMANDS).await?;
            Ok(State::new(reply, self.started.elapsed().as_millis() as u64))
        };
        self.state.value(fetch).await.map(|(state, _)| state)
    }

    /// Forgets what was read, after a change.
    async fn forget(&self) {
        self.rules.forget().await;
        self.state.forget().await;
    }

    /// Runs what takes a processor for long, one after the other. Its argument returns true when the client waits no longer.
    async fn heavy<T: Send + 'static>(
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

/// An answer in JSON.
struct Json<T>(T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(body) => ([(axum::http::header::CONTENT_TYPE, "application/json")], body).into_response(),
            Err(_) => Problem::internal().into_response(),
        }
    }
}

/// The description of the API.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "mmb",
        version = "1",
        description = "A running mmb: the requests of its control socket as resources. Errors are problem details (RFC 9457). \
                       Without a token (unix sockets, client certificates), requests that are not GET need the header `X-Mmb-Request: 1`."
    ),
    components(schemas(Problem)),
    modifiers(&BearerToken),
    security(("token" = []))
)]
struct Document;

struct BearerToken;

impl Modify for BearerToken {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        document
            .components
            .get_or_insert_default()
            .add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

/// The routes and their descriptions.
pub(crate) fn routes() -> OpenApiRouter<Arc<Context>> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(show::server))
        .routes(routes!(show::state))
        .routes(routes!(show::ports))
        .routes(routes!(show::workers))
        .routes(routes!(show::drops))
        .routes(routes!(show::settings))
        .routes(routes!(show::rules))
        .routes(routes!(show::rule))
        .routes(routes!(show::clear))
        .routes(routes!(connections::list))
        .routes(routes!(connections::kill))
        .routes(routes!(policy::save, policy::apply))
        .routes(routes!(policy::check))
        .routes(routes!(policy::dry_run))
        .routes(routes!(history::confirm))
        .routes(routes!(history::list))
        .routes(routes!(history::diff))
        .routes(routes!(history::rollback))
        .routes(routes!(commands::run))
        .routes(routes!(explain::explain))
        .routes(routes!(scrape::metrics))
}
