//! What the policy in force does to a packet, and why.

use super::context::Context;
use super::input::{Body, GivenFiles};
use super::json::Json;
use super::policy::saved;
use crate::problem::Problem;
use axum::extract::State;
use axum::http::StatusCode;
use mmb_language::parse_policy_with;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most rules of which a client asks why they do not apply.
const MAX_WHY_NOT: usize = 16;

/// A packet that is to be explained.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExplainRequest {
    /// Constraints that the packet satisfies: `in lan ip-saddr 10.0.0.1 tcp-dport 443 tcp-syn`.
    packet: String,
    /// Rules of which each constraint is told whether it holds.
    #[serde(default)]
    why_not: Vec<u32>,
}

/// Explain what the policy in force does to a packet, as `mmb explain --json`; without connections, and without a search in bytes
#[utoipa::path(
    post, path = "/api/v1/explain", request_body = ExplainRequest,
    responses((status = 200, body = Value, description = "The explanation, as of mmb explain --json"), Problem)
)]
pub(super) async fn explain(
    State(context): State<Arc<Context>>,
    Body(request, _budget): Body<ExplainRequest>,
) -> Result<Json<Value>, Problem> {
    if request.why_not.len() > MAX_WHY_NOT {
        return Err(Problem::bad_request(format!("at most {MAX_WHY_NOT} rules can be asked about at once")));
    }
    let text = saved(&context).await?;
    let explain = context.explain;
    let explained = context.heavy(move |_| {
        let policy = parse_policy_with(&text, &GivenFiles(BTreeMap::new()));
        let (policy, _) = policy.map_err(|errors| {
            errors
                .into_iter()
                .next()
                .map_or_else(String::new, |error| format!("the policy in force: {}", error.message))
        })?;
        explain(policy, &request.packet, &request.why_not)
    });
    explained.await?.map(Json).map_err(|detail| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail))
}
