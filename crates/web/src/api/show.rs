//! What is: ports, workers, counters, rules, settings.

use super::context::Context;
use super::input::Params;
use super::json::Json;
use crate::problem::Problem;
use crate::rules::{RulePage, RuleQuery};
use crate::state::{DropCount, State as DaemonState};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use mmb_protocol::Request;
use mmb_protocol::answer::{Answer, PortLine, RuleLine, SettingLine, WorkerLine};
use serde::Serialize;
use std::sync::Arc;

/// What this server is.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct ServerInfo {
    /// The version of this program.
    version: &'static str,
    /// Requests that change something are refused.
    read_only: bool,
}

/// What this server is, without a question to the daemon
#[utoipa::path(get, path = "/api/v1/server", responses((status = 200, body = ServerInfo), Problem))]
pub(super) async fn server(State(context): State<Arc<Context>>) -> Json<ServerInfo> {
    Json(ServerInfo { version: env!("CARGO_PKG_VERSION"), read_only: context.access.is_read_only() })
}

/// Ports, workers and all counters but those of rules
#[utoipa::path(get, path = "/api/v1/state", responses((status = 200, body = DaemonState), Problem))]
pub(super) async fn state(State(context): State<Arc<Context>>) -> Result<Response, Problem> {
    Ok(Json(&*context.state().await?).into_response())
}

/// The ports and their counters
#[utoipa::path(get, path = "/api/v1/ports", responses((status = 200, body = Vec<PortLine>), Problem))]
pub(super) async fn ports(State(context): State<Arc<Context>>) -> Result<Json<Vec<PortLine>>, Problem> {
    Ok(Json(context.state().await?.ports.clone()))
}

/// The packet threads and their stages
#[utoipa::path(get, path = "/api/v1/workers", responses((status = 200, body = Vec<WorkerLine>), Problem))]
pub(super) async fn workers(State(context): State<Arc<Context>>) -> Result<Json<Vec<WorkerLine>>, Problem> {
    Ok(Json(context.state().await?.workers.clone()))
}

/// Dropped packets by reason, with its meaning and remedy
#[utoipa::path(get, path = "/api/v1/drops", responses((status = 200, body = Vec<DropCount>), Problem))]
pub(super) async fn drops(State(context): State<Arc<Context>>) -> Result<Json<Vec<DropCount>>, Problem> {
    Ok(Json(context.state().await?.drops.clone()))
}

/// The settings in force
#[utoipa::path(get, path = "/api/v1/settings", responses((status = 200, body = Vec<SettingLine>), Problem))]
pub(super) async fn settings(State(context): State<Arc<Context>>) -> Result<Json<Vec<SettingLine>>, Problem> {
    let reply = context.daemon.run(&["show settings"]).await?;
    let setting = |line| match line {
        Answer::Setting(line) => Some(line),
        _ => None,
    };
    Ok(Json(reply.lines.into_iter().filter_map(setting).collect()))
}

/// Rules in force with their counters, searched and sorted, a page at a time
#[utoipa::path(get, path = "/api/v1/rules", params(RuleQuery), responses((status = 200, body = RulePage), Problem))]
pub(super) async fn rules(
    State(context): State<Arc<Context>>,
    Params(query): Params<RuleQuery>,
) -> Result<Json<RulePage>, Problem> {
    let (rules, age) = context.rules().await?;
    let page = tokio::task::spawn_blocking(move || rules.page(&query, age.as_millis() as u64)).await;
    page.map(Json).map_err(|_| Problem::internal())
}

/// A rule in force with its counters
#[utoipa::path(
    get, path = "/api/v1/rules/{id}", params(("id" = u32, Path, description = "The number of the rule")),
    responses((status = 200, body = RuleLine), Problem)
)]
pub(super) async fn rule(
    State(context): State<Arc<Context>>,
    Path(id): Path<String>,
) -> Result<Json<RuleLine>, Problem> {
    let missing = || Problem::new(StatusCode::NOT_FOUND, format!("there is no rule {id:?}"));
    let number = id.parse().map_err(|_| missing())?;
    let (rules, _) = context.rules().await?;
    rules.rule(number).cloned().map(Json).ok_or_else(missing)
}

/// Begin all counters at zero again
#[utoipa::path(post, path = "/api/v1/counters/clear", responses((status = 204), Problem))]
pub(super) async fn clear(State(context): State<Arc<Context>>) -> Result<StatusCode, Problem> {
    context.access.may_change()?;
    context.daemon.ask(Request::Run(vec!["clear counters".to_owned()])).await?;
    context.forget().await;
    Ok(StatusCode::NO_CONTENT)
}
