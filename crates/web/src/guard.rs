//! What every request passes: the decision about its head, a record of changes, and the headers of the answer.

use crate::access::{Access, Area};
use crate::peer::Peer;
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

/// Nothing from other sites, no scripts and styles in the text, no frames.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'";

/// Decides about a request and completes its answer.
pub(crate) async fn guard(
    State(access): State<Arc<Access>>,
    Extension(peer): Extension<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let decision = access.decide(&method, &path, request.headers());
    let is_change = !method.is_safe() && Area::of(&path) == Area::Api;
    let mut response = match decision {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    if is_change {
        // To the journal. Paths have no secrets: tokens are accepted in a header only.
        eprintln!("mmb web: {peer}: {method} {path:?}: {}", response.status().as_u16());
    }
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
