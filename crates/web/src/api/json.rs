//! Answers in JSON.

use crate::problem::Problem;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// An answer in JSON.
pub(super) struct Json<T>(pub(super) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(body) => ([(axum::http::header::CONTENT_TYPE, "application/json")], body).into_response(),
            Err(_) => Problem::internal().into_response(),
        }
    }
}
