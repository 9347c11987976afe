//! The REST API: the requests of the control socket as resources.
//!
//! Handlers ask the daemon and shape its answer. Each has its description beside it, from which the OpenAPI document is made; a route without
//! one does not compile.

mod commands;
mod connections;
mod context;
mod explain;
mod history;
mod input;
mod json;
mod limits;
mod policy;
mod scrape;
mod show;

pub(crate) use context::Context;

use crate::problem::Problem;
use std::sync::Arc;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The description of the API.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "mmb",
        version = "1",
        description = "A running mmb: the requests of its control socket as resources. Errors are problem details (RFC 9457). \
                       Without a token (unix sockets, client certificates), requests that are not GET need the header `X-Mmb-Request: 1`."
    ),
    components(schemas(Problem)),
    modifiers(&BearerToken),
    security(("token" = []))
)]
struct Document;

struct BearerToken;

impl Modify for BearerToken {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        document
            .components
            .get_or_insert_default()
            .add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

/// The routes and their descriptions.
pub(crate) fn routes() -> OpenApiRouter<Arc<Context>> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(show::server))
        .routes(routes!(show::state))
        .routes(routes!(show::ports))
        .routes(routes!(show::workers))
        .routes(routes!(show::drops))
        .routes(routes!(show::settings))
        .routes(routes!(show::rules))
        .routes(routes!(show::rule))
        .routes(routes!(show::clear))
        .routes(routes!(connections::list))
        .routes(routes!(connections::kill))
        .routes(routes!(policy::save, policy::apply))
        .routes(routes!(policy::check))
        .routes(routes!(policy::dry_run))
        .routes(routes!(history::confirm))
        .routes(routes!(history::list))
        .routes(routes!(history::diff))
        .routes(routes!(history::rollback))
        .routes(routes!(commands::run))
        .routes(routes!(explain::explain))
        .routes(routes!(scrape::metrics))
}
