//! The routes: of the page, the API and the metrics.

use crate::access::Access;
use crate::api::{self, Context};
use crate::assets;
use crate::guard::guard;
use crate::options::WebOptions;
use crate::problem::Problem;
use axum::Router;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::sync::Arc;

/// All routes, behind the guard.
pub(crate) fn new(options: &WebOptions, access: Arc<Access>) -> Router {
    let context = Arc::new(Context::new(options, Arc::clone(&access)));
    let (api, document) = api::routes().split_for_parts();
    // The document consists of strings and numbers.
    let document: Arc<str> = document.to_pretty_json().unwrap_or_default().into();
    let described = get(async move || json_text(document.to_string()));
    assets::ASSETS
        .iter()
        .fold(Router::new(), |router, asset| router.route(asset.path, get(async || asset.into_response())))
        .route("/api/openapi.json", described)
        .merge(api.with_state(context))
        .fallback(async || {
            Problem::new(
                StatusCode::NOT_FOUND,
                "there is nothing here; / is the page, /api/openapi.json the API",
            )
        })
        .method_not_allowed_fallback(async || {
            Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "the method does not fit this path; see /api/openapi.json",
            )
        })
        .layer(from_fn_with_state(access, guard))
}

fn json_text(text: String) -> Response {
    ([(axum::http::header::CONTENT_TYPE, "application/json")], text).into_response()
}
