//! Errors as problem details (RFC 9457).

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use mmb_protocol::ClientError;
use mmb_protocol::answer::ErrorLine;
use serde::Serialize;
use std::collections::BTreeMap;
use std::error::Error;
use utoipa::IntoResponses;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response as ResponseDescription, ResponseBuilder};

/// Why a request was not answered. The media type is `application/problem+json`.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Problem {
    /// Always `about:blank`: the status says what kind of problem this is.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The meaning of the status.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// What went wrong, and the remedy.
    detail: String,
    /// The errors in the commands or the policy of the request, with their positions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<ErrorLine>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Problem {
        Problem {
            kind: "about:blank",
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            detail: detail.into(),
            errors: Vec::new(),
        }
    }

    /// The request is malformed.
    pub(crate) fn bad_request(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, detail)
    }

    /// The daemon refused commands or a policy: nothing was changed.
    pub(crate) fn refused(errors: Vec<ErrorLine>) -> Problem {
        let detail = match &errors[..] {
            [] => "mmb refused the request".to_owned(),
            [only] => only.message.clone(),
            [first, ..] => format!("{}; {} errors in all", first.message, errors.len()),
        };
        Problem { errors, ..Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail) }
    }

    /// A thread of this program ended without a result.
    pub(crate) fn internal() -> Problem {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "an internal error; the daemon is not affected")
    }

    /// The HTTP status.
    #[cfg(test)]
    pub(crate) fn into_status(self) -> u16 {
        self.status
    }
}

impl IntoResponses for Problem {
    fn responses() -> BTreeMap<String, RefOr<ResponseDescription>> {
        let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
        let response = ResponseBuilder::new()
            .description("The request failed, and nothing was changed")
            .content("application/problem+json", content);
        [("default".to_owned(), response.build().into())].into()
    }
}

impl From<ClientError> for Problem {
    fn from(error: ClientError) -> Problem {
        let causes = std::iter::successors(error.source(), |&cause| cause.source());
        let detail = causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"));
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let media_type = HeaderValue::from_static("application/problem+json");
        let mut response = (status, [(header::CONTENT_TYPE, media_type)], body).into_response();
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer realm=\"mmb\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}
