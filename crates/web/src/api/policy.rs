//! The policy in force as a text: reading, checking, trying and replacing it.

use super::connections::error_line;
use super::context::Context;
use super::input::{Body, Files, GivenFiles, Params};
use super::json::Json;
use crate::daemon::Reply;
use crate::problem::Problem;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use mmb_language::{Note, parse_policy_with, shadowed};
use mmb_policy::Policy;
use mmb_protocol::Request;
use mmb_protocol::answer::{
    AffectedLine, Answer, ChangeCount, ErrorLine, PatternsLine, RuleText, SetChangeLine, SettingLine,
    UnconfirmedLine,
};
use mmb_protocol::request::{ChangeOptions, ConnectionFate};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The most comparisons of rules, to find those that never decide: about a tenth of a second.
const COMPARISONS: u64 = 1 << 22;

/// How often the policy is read again because it was changed meanwhile.
const MAX_READS: usize = 3;

/// Changed rules that an answer shows of each kind; their numbers count all.
const MAX_SHOWN: usize = 1000;

/// The text of a policy.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyText {
    /// A policy file.
    policy: String,
    /// Contents of the files that its `patterns` and `set` commands name.
    #[serde(default)]
    files: Files,
}

/// How a policy is put in force.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct ApplyQuery {
    /// The fate of the connections of stateful rules that the text removes
    connections: ConnectionFate,
    /// The policy before is in force again after so many seconds, 1 to 86400, unless the change is confirmed
    confirm: Option<u32>,
}

/// How a policy is tried.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct DryRunQuery {
    /// The fate of the connections of stateful rules that the text removes
    connections: ConnectionFate,
}

/// The result of a check.
#[derive(Debug, Default, Serialize, utoipa::ToSchema)]
pub(super) struct CheckReply {
    /// There are no errors.
    good: bool,
    /// The number of rules, if there are no errors.
    rules: usize,
    /// What is wrong, with its places.
    errors: Vec<ErrorLine>,
    /// What is right but may surprise.
    notes: Vec<ErrorLine>,
    /// Rules that never decide, since another one decides for all of their packets.
    shadowed: Vec<Shadowed>,
}

/// A rule that never decides.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Shadowed {
    /// The number of the rule.
    id: u32,
    /// The number of the one that decides.
    by: u32,
}

/// What a text changed, or would change.
#[derive(Debug, Default, Serialize, utoipa::ToSchema)]
pub(super) struct PolicyChange {
    /// The numbers of rules.
    count: ChangeCount,
    /// The first rules that were added.
    added: Vec<RuleText>,
    /// The first rules that were removed.
    removed: Vec<RuleText>,
    /// Settings with another value.
    settings: Vec<SettingLine>,
    /// Ports that were enabled.
    enabled: Vec<String>,
    /// Ports that were disabled.
    disabled: Vec<String>,
    /// Lists of patterns that were changed.
    patterns: Vec<PatternsLine>,
    /// Sets that were made, changed or deleted.
    sets: Vec<SetChangeLine>,
    /// Connections that are affected.
    affected: Option<AffectedLine>,
    /// The change waits for its confirmation.
    unconfirmed: Option<UnconfirmedLine>,
    /// What is right but may surprise.
    notes: Vec<ErrorLine>,
}

impl PolicyChange {
    pub(super) fn new(reply: Reply) -> PolicyChange {
        let mut change = PolicyChange { count: reply.change.unwrap_or_default(), ..PolicyChange::default() };
        for line in reply.lines {
            match line {
                Answer::Added(rule) if change.added.len() < MAX_SHOWN => change.added.push(rule),
                Answer::Removed(rule) if change.removed.len() < MAX_SHOWN => change.removed.push(rule),
                Answer::Setting(line) => change.settings.push(line),
                Answer::Enabled(port) => change.enabled.push(port),
                Answer::Disabled(port) => change.disabled.push(port),
                Answer::Patterns(line) => change.patterns.push(line),
                Answer::SetChanged(line) => change.sets.push(line),
                Answer::Unconfirmed(line) => change.unconfirmed = Some(line),
                Answer::Affected(line) => change.affected = Some(line),
                Answer::Note(line) => change.notes.push(line),
                // Nothing else tells of a change to the policy.
                _ => {}
            }
        }
        change
    }
}

/// The policy in force, as the text of a policy file
#[utoipa::path(
    get, path = "/api/v1/policy",
    responses((status = 200, body = String, content_type = "text/plain", headers(("ETag" = String, description = "For If-Match"))), Problem)
)]
pub(super) async fn save(State(context): State<Arc<Context>>) -> Result<Response, Problem> {
    let (text, tag) = tagged(&context).await?;
    let headers = [(header::CONTENT_TYPE, "text/plain; charset=utf-8".to_owned()), (header::ETAG, tag)];
    Ok((headers, text).into_response())
}

/// Put a policy in force as a whole, or change nothing
///
/// With `If-Match` and the ETag of the text that was edited, a policy that somebody else has changed since then stays (412). With `confirm`,
/// the change waits for `POST /api/v1/policy/confirm`.
#[utoipa::path(
    put, path = "/api/v1/policy", params(ApplyQuery, ("If-Match" = Option<String>, Header, description = "The ETag of the policy that is to be replaced")),
    request_body = PolicyText, responses((status = 200, body = PolicyChange), Problem)
)]
pub(super) async fn apply(
    State(context): State<Arc<Context>>,
    Params(query): Params<ApplyQuery>,
    headers: HeaderMap,
    Body(text, _budget): Body<PolicyText>,
) -> Result<Json<PolicyChange>, Problem> {
    context.access.may_change()?;
    // Between the look at the tag and the change, no other client of this server changes the policy.
    let _turn = context.changes.lock().await;
    if let Some(expected) = headers.get(header::IF_MATCH)
        && expected.as_bytes() != b"*"
        && expected.as_bytes() != tagged(&context).await?.1.as_bytes()
    {
        let detail = "the policy in force is not the one that was edited: somebody has changed it since";
        return Err(Problem::new(StatusCode::PRECONDITION_FAILED, detail));
    }
    let reply = send(&context, text, |policy| {
        let options = ChangeOptions { confirm: query.confirm, ..ChangeOptions::default() };
        Request::WithOptions(options, Box::new(Request::Apply(policy, query.connections)))
    })
    .await?;
    context.forget().await;
    Ok(Json(PolicyChange::new(reply)))
}

/// Tell what a policy would change, and change nothing
///
/// Patterns are compiled by this server, one policy at a time, and not by the daemon.
#[utoipa::path(
    post, path = "/api/v1/policy/dry-run", params(DryRunQuery), request_body = PolicyText,
    responses((status = 200, body = PolicyChange), Problem)
)]
pub(super) async fn dry_run(
    State(context): State<Arc<Context>>,
    Params(query): Params<DryRunQuery>,
    Body(text, _budget): Body<PolicyText>,
) -> Result<Json<PolicyChange>, Problem> {
    let check = context.check_patterns;
    let (text, compiled) = context
        .heavy(move |is_gone| {
            // The daemon tells what is wrong with a text.
            let parsed = parse_policy_with(&text.policy, &GivenFiles(text.files.0.clone()));
            let compiled = parsed.map_or(Ok(()), |(policy, _)| check(&policy, is_gone));
            (text, compiled)
        })
        .await?;
    compiled.map_err(|error| Problem::refused(vec![ErrorLine::new(error)]))?;
    let reply = send(&context, text, |policy| {
        let options = ChangeOptions { checked: true, ..ChangeOptions::default() };
        Request::WithOptions(options, Box::new(Request::DryRun(policy, query.connections)))
    })
    .await?;
    Ok(Json(PolicyChange::new(reply)))
}

/// Check a policy without the daemon: its errors, notes, and the rules that never decide
#[utoipa::path(
    post, path = "/api/v1/policy/check", request_body = PolicyText,
    responses((status = 200, body = CheckReply), Problem)
)]
pub(super) async fn check(
    State(context): State<Arc<Context>>,
    Body(text, _budget): Body<PolicyText>,
) -> Result<Json<CheckReply>, Problem> {
    let (contents, check) = (text.files.0, context.check_patterns);
    context
        .heavy(move |is_gone| checked(&text.policy, contents, |policy| check(policy, is_gone)))
        .await
        .map(Json)
}

fn checked(
    text: &str,
    contents: BTreeMap<String, Vec<u8>>,
    check_patterns: impl FnOnce(&Policy) -> Result<(), String>,
) -> CheckReply {
    let (policy, notes) = match parse_policy_with(text, &GivenFiles(contents)) {
        Ok(parsed) => parsed,
        Err(errors) => {
            let errors = errors.into_iter().map(error_line).collect();
            return CheckReply { errors, ..CheckReply::default() };
        }
    };
    let notes = notes.into_iter().map(note_line).collect();
    if let Err(error) = check_patterns(&policy) {
        return CheckReply { errors: vec![ErrorLine::new(error)], notes, ..CheckReply::default() };
    }
    let shadowed = shadowed(&policy.rules, COMPARISONS);
    CheckReply {
        good: true,
        rules: policy.rules.len(),
        errors: Vec::new(),
        notes,
        shadowed: shadowed.into_iter().map(|found| Shadowed { id: found.id.0, by: found.by.0 }).collect(),
    }
}

fn note_line(note: Note) -> ErrorLine {
    ErrorLine {
        line: Some(note.line),
        column: Some(note.column),
        span: Some((note.span.start, note.span.end)),
        ..ErrorLine::new(note.message)
    }
}

/// The policy in force, as a text.
pub(super) async fn saved(context: &Context) -> Result<String, Problem> {
    let reply = context.daemon.ask(Request::Save).await?;
    let piece = |line| match line {
        Answer::Policy(piece) => Some(piece),
        _ => None,
    };
    Ok(reply.lines.into_iter().filter_map(piece).collect())
}

async fn send(
    context: &Context,
    text: PolicyText,
    request: impl FnOnce(String) -> Request,
) -> Result<Reply, Problem> {
    let contents = text.files.0;
    let request = request(text.policy);
    let has_files = !contents.is_empty();
    context
        .daemon
        .ask(if has_files { Request::WithFiles(contents, Box::new(request)) } else { request })
        .await
}

/// The policy in force as a text, and its entity tag.
async fn tagged(context: &Context) -> Result<(String, String), Problem> {
    let mut before = version(context).await?;
    for _ in 0..MAX_READS {
        let text = saved(context).await?;
        let after = version(context).await?;
        if before == after {
            let tag = tag(after, &text);
            return Ok((text, tag));
        }
        before = after;
    }
    Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the policy changes too fast to be read; try again"))
}

/// The number of the policy in force. Elements of sets that expire do not change it.
async fn version(context: &Context) -> Result<u64, Problem> {
    let reply = context.daemon.run(&["show version"]).await?;
    let number = |line| match line {
        Answer::Version(line) => Some(line.policy),
        _ => None,
    };
    reply.lines.into_iter().find_map(number).ok_or_else(Problem::internal)
}

/// An entity tag (RFC 9110, section 8.8.3). It need not be secret: it keeps clients from undoing each other's changes by mistake. A daemon
/// that starts again may begin with the same number, so the text is in the tag too, but for the elements of sets, which expire.
fn tag(version: u64, text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    for line in text.lines().filter(|line| !line.starts_with("set ")) {
        line.hash(&mut hasher);
    }
    format!("\"{version}-{:016x}\"", hasher.finish())
}
