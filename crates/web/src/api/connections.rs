//! Connections: the first ones that a filter selects, and ending them.

use super::context::Context;
use super::input::{Body, Params, behind};
use super::json::Json;
use crate::problem::Problem;
use axum::extract::State;
use mmb_language::{Command, Diagnostic, parse_command};
use mmb_protocol::Request;
use mmb_protocol::answer::{Answer, ConnectionLine, CountLine, ErrorLine};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The most connections of an answer.
const MAX_CONNECTIONS: usize = 1000;

/// Connections in an answer, if the client does not say.
const USUAL: usize = 100;

/// Which connections are asked for.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct ConnectionQuery {
    /// A filter of the language: `ip-saddr 10.0.0.0/24 tcp-dport 443`; empty: all
    filter: String,
    /// The most connections of the answer: 1 to 1000, 100 without it
    limit: Option<usize>,
}

/// Connections that a filter selects.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct ConnectionPage {
    /// There are more.
    more: bool,
    /// The connections, in no particular order.
    connections: Vec<ConnectionLine>,
}

/// Which connections end.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct KillRequest {
    /// A filter of the language; not empty.
    filter: String,
}

/// Connections that a filter selects: the first ones that are found
#[utoipa::path(
    get, path = "/api/v1/connections", params(ConnectionQuery),
    responses((status = 200, body = ConnectionPage), Problem)
)]
pub(super) async fn list(
    State(context): State<Arc<Context>>,
    Params(query): Params<ConnectionQuery>,
) -> Result<Json<ConnectionPage>, Problem> {
    let command = command("show connections ", &query.filter)?;
    let limit = query.limit.unwrap_or(USUAL).clamp(1, MAX_CONNECTIONS);
    // The first line begins the answer.
    let reply = context.daemon.ask_for(Request::Run(vec![command]), limit + 1).await?;
    let connection = |line| match line {
        Answer::Connection(line) => Some(line),
        _ => None,
    };
    let connections = reply.lines.into_iter().filter_map(connection).collect();
    Ok(Json(ConnectionPage { more: reply.is_cut, connections }))
}

/// End the connections that a filter selects
#[utoipa::path(
    post, path = "/api/v1/connections/kill", request_body = KillRequest,
    responses((status = 200, body = CountLine), Problem)
)]
pub(super) async fn kill(
    State(context): State<Arc<Context>>,
    Body(request, _budget): Body<KillRequest>,
) -> Result<Json<CountLine>, Problem> {
    context.access.may_change()?;
    if request.filter.trim().is_empty() {
        return Err(Problem::bad_request(
            "the filter is empty: it would end all connections; `net-proto ip4` and `net-proto ip6` select them",
        ));
    }
    let command = command("conn kill ", &request.filter)?;
    let reply = context.daemon.ask(Request::Run(vec![command])).await?;
    context.forget().await;
    let killed = reply.lines.into_iter().find_map(|line| match line {
        Answer::Killed(line) => Some(line),
        _ => None,
    });
    killed.map(Json).ok_or_else(Problem::internal)
}

/// A command with a filter, of which the places of errors are places in the filter.
fn command(verb: &str, filter: &str) -> Result<String, Problem> {
    let command = format!("{verb}{filter}");
    match parse_command(&command) {
        Ok((Command::Show(_) | Command::Kill(_), _)) => Ok(command),
        Ok(_) => Err(Problem::bad_request("this is no filter")),
        Err(errors) => Err(Problem::refused(behind(verb, errors.into_iter().map(error_line).collect()))),
    }
}

/// An error of the language as the daemon would send it.
pub(super) fn error_line(error: Diagnostic) -> ErrorLine {
    ErrorLine {
        message: error.message,
        command: None,
        line: Some(error.line),
        column: Some(error.column),
        span: Some((error.span.start, error.span.end)),
        expected: error.expected,
        suggestion: error.suggestion,
    }
}
