//! Metrics for Prometheus.

use super::context::Context;
use crate::metrics;
use crate::problem::Problem;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

/// The counters as metrics, in the text format of OpenMetrics; `mmb_up 0` if the daemon does not answer
#[utoipa::path(
    get, path = "/metrics",
    responses((status = 200, body = String, content_type = "application/openmetrics-text"), Problem)
)]
pub(super) async fn metrics(State(context): State<Arc<Context>>) -> Response {
    let state = context.state().await.ok();
    let rules = match context.metrics_rules {
        0 => None,
        _ if state.is_none() => None,
        _ => context.rules().await.ok(),
    };
    let list = rules.as_ref().map(|(rules, _)| &**rules);
    let text = metrics::text(state.as_deref(), list, context.metrics_rules);
    ([(header::CONTENT_TYPE, metrics::MEDIA_TYPE)], text).into_response()
}
