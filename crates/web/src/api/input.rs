//! What clients send: parameters and bodies, within limits.

use super::context::Context;
use super::limits::LARGEST_BODY;
use crate::problem::Problem;
use axum::body::to_bytes;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use mmb_language::{FileReader, read_elements};
use mmb_policy::{ElementList, PatternList};
use mmb_protocol::answer::ErrorLine;
use mmb_protocol::hex;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

/// A body of so many bytes needs no share of the budget.
const SMALL_BODY_BYTES: usize = 64 << 10;

/// The time for a body to arrive.
const BODY_TIME: Duration = Duration::from_secs(60);

/// The parameters of a URL.
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<Arc<Context>> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Context>) -> Result<Params<T>, Problem> {
        let query = Query::try_from_uri(&parts.uri);
        query.map(|Query(params)| Params(params)).map_err(|error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            Problem::bad_request(format!(
                "the parameters of the URL: {}",
                cause.unwrap_or_else(|| error.to_string())
            ))
        })
    }
}

/// A body in JSON, and its share of the budget of all bodies, which is held as long as the request is worked on.
pub(super) struct Body<T>(pub(super) T, pub(super) OwnedSemaphorePermit);

impl<T: DeserializeOwned + Send + 'static> FromRequest<Arc<Context>> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, context: &Arc<Context>) -> Result<Body<T>, Problem> {
        let media_type = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media_type = media_type.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
        if !media_type.eq_ignore_ascii_case("application/json") {
            let detail = "the body must be JSON, with `Content-Type: application/json`";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
        }
        let too_large = || {
            let detail =
                format!("the body has more than {LARGEST_BODY} bytes; use the control socket: `mmb apply`");
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
        };
        let length: Option<u64> =
            request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let length = length.map_or(LARGEST_BODY, |length| usize::try_from(length).unwrap_or(usize::MAX));
        if length > LARGEST_BODY {
            return Err(too_large());
        }
        let late = |what| move |_| Problem::new(StatusCode::REQUEST_TIMEOUT, what);
        let share = if length <= SMALL_BODY_BYTES { 0 } else { length as u32 };
        let share = Arc::clone(&context.bodies).acquire_many_owned(share);
        let share = timeout(BODY_TIME, share).await.map_err(late("too many large requests at once"))?;
        let share = share.map_err(|_| Problem::internal())?;
        let body = timeout(BODY_TIME, to_bytes(request.into_body(), length)).await;
        let body = body.map_err(late("the body did not arrive in time"))?.map_err(|_| too_large())?;
        // Long ones take long: other clients are answered meanwhile.
        let parsed = tokio::task::spawn_blocking(move || serde_json::from_slice(&body)).await;
        match parsed.map_err(|_| Problem::internal())? {
            Ok(value) => Ok(Body(value, share)),
            Err(error) => Err(Problem::bad_request(format!("the body: {error}"))),
        }
    }
}

/// Contents of files, in hexadecimal on the wire, by the names that `patterns` and `set` commands have for them. This program opens no file for
/// a client.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "BTreeMap<String, String>")]
#[schema(value_type = BTreeMap<String, String>)]
pub(super) struct Files(pub(super) BTreeMap<String, Vec<u8>>);

impl TryFrom<BTreeMap<String, String>> for Files {
    type Error = &'static str;

    fn try_from(digits: BTreeMap<String, String>) -> Result<Files, &'static str> {
        let content = |(name, digits): (String, String)| Some((name, hex::decode(&digits)?));
        let contents: Option<BTreeMap<_, _>> = digits.into_iter().map(content).collect();
        contents.map(Files).ok_or("the content of a file is not hexadecimal")
    }
}

/// Reads lists of patterns and elements of sets from these contents. A list whose content is not there gets a pattern that stands for it, and a set no
/// elements: whether a command is one, and whether it changes something, does not depend on them.
pub(super) struct GivenFiles(pub(super) BTreeMap<String, Vec<u8>>);

impl FileReader for GivenFiles {
    fn patterns(&self, file: &str) -> Result<PatternList, String> {
        let content = self.0.get(file).map_or(&b"patterns that are not read here"[..], Vec::as_slice);
        PatternList::parse(file.to_owned(), content).map_err(|error| error.to_string())
    }

    fn elements(&self, file: &str) -> Result<ElementList, String> {
        self.0.get(file).map_or(Ok(ElementList::default()), |content| read_elements(content))
    }
}

/// Moves the places of errors, which are in a command, to what the client sent: the command without its first bytes, which are ASCII.
pub(super) fn behind(prefix: &str, errors: Vec<ErrorLine>) -> Vec<ErrorLine> {
    let moved = |error: ErrorLine| ErrorLine {
        command: None,
        column: error.column.map(|column| column.saturating_sub(prefix.len()).max(1)),
        span: error
            .span
            .map(|(start, end)| (start.saturating_sub(prefix.len()), end.saturating_sub(prefix.len()))),
        ..error
    };
    errors.into_iter().map(moved).collect()
}
