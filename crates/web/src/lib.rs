//! `mmb web`: the page of a running mmb, its REST API and its metrics.
//!
//! The daemon speaks no HTTP. [`WebServer`] is a program beside it: an HTTP server that is a client of the control socket, as the command line
//! is, and that has what the socket gives it and nothing else. It opens no file for a client.
//!
//! A request passes `server` (connections, their limits and TLS), `guard` (who may ask what: host names, tokens, requests from other sites,
//! headers) and `api` (the routes), which asks the daemon through `daemon`. Answers that many clients ask for, the list of rules and the
//! counters, are kept for a moment (`cached`), so that the work for the daemon does not grow with the number of pages that are open.
//! `metrics` writes the same counters for Prometheus, `assets` has the page, which is a client of the API.
//!
//! All of it runs on one thread; what waits for the daemon or computes for long is done on threads of tokio's pool.
#![forbid(unsafe_code)]

mod access;
mod api;
mod assets;
mod cached;
mod daemon;
mod guard;
mod listen;
mod metrics;
mod options;
mod peer;
mod problem;
mod router;
mod rules;
mod server;
mod state;
mod tls;
mod token;

pub use listen::ListenError;
pub use options::{Explainer, Listen, OptionsError, PatternCheck, TlsFiles, WebOptions};
pub use server::{ServeError, WebServer};
pub use tls::TlsError;
pub use token::{Token, TokenError};
