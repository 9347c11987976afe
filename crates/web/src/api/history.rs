//! Versions of the policy: listing and comparing them, going back to one, and keeping a change that waits for its confirmation.

use super::context::Context;
use super::input::{Body, Params};
use super::json::Json;
use super::policy::PolicyChange;
use crate::problem::Problem;
use axum::extract::State;
use axum::http::StatusCode;
use mmb_language::{Command, Deletion};
use mmb_protocol::Request;
use mmb_protocol::answer::{Answer, DiffVersions, DifferenceLine, ErrorLine, HistoryLine, UnconfirmedLine};
use mmb_protocol::request::ConnectionFate;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The most entries of an answer.
const MAX_ENTRIES: u64 = 1000;

/// Entries in an answer, if the client does not say.
const USUAL_ENTRIES: u64 = 50;

/// The most lines of a difference.
const MAX_LINES: usize = 10_000;

/// How much of the history is asked for.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct HistoryQuery {
    /// The most entries: 1 to 1000, 50 without it
    limit: Option<u64>,
}

/// The end of the history.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct HistoryPage {
    /// The last entries, the last one at the end.
    entries: Vec<HistoryLine>,
    /// The change that waits for its confirmation, if there is one.
    unconfirmed: Option<UnconfirmedLine>,
}

/// Which versions are compared.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct DiffQuery {
    /// The first version; without it, the one before the version in force
    from: Option<u64>,
    /// The second version; without it, the one in force
    to: Option<u64>,
}

/// What differs between two versions.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Difference {
    /// The versions.
    versions: DiffVersions,
    /// Lines that one of them has and the other has not.
    lines: Vec<DifferenceLine>,
    /// There are more lines than an answer may have.
    more: bool,
}

/// What is to be in force again.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RollbackRequest {
    /// The version; without it, the one before the version in force.
    version: Option<u64>,
    /// The change that waits for its confirmation and is taken back: if another one waits, or none, nothing is changed (409).
    unconfirmed: Option<u64>,
    /// The fate of the connections of rules that go.
    #[serde(default)]
    connections: ConnectionFate,
}

/// Which change is kept.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct ConfirmQuery {
    /// The version that waits; if another one waits, or none, nothing is changed (409). Without it, the one that waits
    version: Option<u64>,
}

/// A change that is kept.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Confirmation {
    /// The version of the policy.
    version: u64,
    /// What is right but may surprise.
    notes: Vec<ErrorLine>,
}

/// The last versions of the policy: who has made them, when, and by which command
#[utoipa::path(
    get, path = "/api/v1/history", params(HistoryQuery), responses((status = 200, body = HistoryPage), Problem)
)]
pub(super) async fn list(
    State(context): State<Arc<Context>>,
    Params(query): Params<HistoryQuery>,
) -> Result<Json<HistoryPage>, Problem> {
    let limit = query.limit.unwrap_or(USUAL_ENTRIES).clamp(1, MAX_ENTRIES);
    let history = Command::History(Some(limit)).to_string();
    let reply = context.daemon.run(&[&history, "show version"]).await?;
    let mut page = HistoryPage { entries: Vec::new(), unconfirmed: None };
    for line in reply.lines {
        match line {
            Answer::HistoryEntry(entry) => page.entries.push(entry),
            Answer::Unconfirmed(waiting) => page.unconfirmed = Some(waiting),
            // The begin of each answer, and the version.
            _ => {}
        }
    }
    Ok(Json(page))
}

/// What differs between two versions of the policy
#[utoipa::path(
    get, path = "/api/v1/history/diff", params(DiffQuery), responses((status = 200, body = Difference), Problem)
)]
pub(super) async fn diff(
    State(context): State<Arc<Context>>,
    Params(query): Params<DiffQuery>,
) -> Result<Json<Difference>, Problem> {
    if query.to.is_some() && query.from.is_none() {
        return Err(Problem::bad_request("`to` needs `from`"));
    }
    let command = Command::Diff(query.from, query.to).to_string();
    // The first two lines begin the answer and tell the versions.
    let reply = context.daemon.ask_for(Request::Run(vec![command]), MAX_LINES + 2).await?;
    let mut found = Difference { versions: DiffVersions::default(), lines: Vec::new(), more: reply.is_cut };
    for line in reply.lines {
        match line {
            Answer::DiffOf(versions) => found.versions = versions,
            Answer::Difference(line) => found.lines.push(line),
            // The begin of the answer.
            _ => {}
        }
    }
    Ok(Json(found))
}

/// Put a version of the policy in force again; this is a change, and a version of its own
#[utoipa::path(
    post, path = "/api/v1/history/rollback", request_body = RollbackRequest,
    responses((status = 200, body = PolicyChange), Problem)
)]
pub(super) async fn rollback(
    State(context): State<Arc<Context>>,
    Body(request, _budget): Body<RollbackRequest>,
) -> Result<Json<PolicyChange>, Problem> {
    context.access.may_change()?;
    let _turn = context.changes.lock().await;
    waits(&context, request.unconfirmed).await?;
    let deletion = match request.connections {
        ConnectionFate::Release => Deletion::Plain,
        ConnectionFate::Keep => Deletion::Drain,
        ConnectionFate::Kill => Deletion::Kill,
    };
    let command = Command::Rollback(request.version, deletion).to_string();
    let reply = context.daemon.run(&[&command]).await?;
    context.forget().await;
    Ok(Json(PolicyChange::new(reply)))
}

/// Refuses if a change is named, and it is not the one that waits for its confirmation.
async fn waits(context: &Context, expected: Option<u64>) -> Result<(), Problem> {
    let Some(expected) = expected else { return Ok(()) };
    let reply = context.daemon.run(&["show version"]).await?;
    let is_it = |line: &Answer| matches!(line, Answer::Unconfirmed(waiting) if waiting.version == expected);
    if reply.lines.iter().any(is_it) {
        return Ok(());
    }
    let detail = format!("version {expected} does not wait for its confirmation any more");
    Err(Problem::new(StatusCode::CONFLICT, detail))
}

/// Keep the change that waits for its confirmation
#[utoipa::path(
    post, path = "/api/v1/policy/confirm", params(ConfirmQuery), responses((status = 200, body = Confirmation), Problem)
)]
pub(super) async fn confirm(
    State(context): State<Arc<Context>>,
    Params(query): Params<ConfirmQuery>,
) -> Result<Json<Confirmation>, Problem> {
    context.access.may_change()?;
    let _turn = context.changes.lock().await;
    waits(&context, query.version).await?;
    let reply = context.daemon.run(&[&Command::Confirm(query.version).to_string()]).await?;
    context.forget().await;
    let (mut version, mut notes) = (None, Vec::new());
    for line in reply.lines {
        match line {
            Answer::Confirmed(number) => version = Some(number),
            Answer::Note(note) => notes.push(note),
            // Nothing else answers `confirm`.
            _ => {}
        }
    }
    let version = version.ok_or_else(Problem::internal)?;
    Ok(Json(Confirmation { version, notes }))
}
