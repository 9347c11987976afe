//! `mmb web`: the page, the REST API and the metrics of a running mmb.

use crate::cli::{Global, WebArgs};
use crate::{compile, explain, output};
use anyhow::Context;
use mmb_protocol::DEFAULT_SOCKET;
use mmb_web::{Listen, TlsFiles, WebOptions, WebServer};
use serde_json::json;
use std::process::ExitCode;

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// The options do not go together, or something that they name cannot be used.
pub(crate) fn main(args: WebArgs, global: Global) -> anyhow::Result<ExitCode> {
    let (made_token, json) = (args.token_file.is_none(), global.json);
    let server = WebServer::bind(&options(args, global)?)?;
    let (url, token) = (server.url(), server.token().filter(|_| made_token));
    if json {
        output::print_json(&json!({ "url": url, "token": token.map(|token| token.reveal()) }));
    } else {
        // Browsers send no fragment to the server.
        let fragment = token.map(|token| format!("#token={}", token.reveal())).unwrap_or_default();
        output::print(&format!("{url}{fragment}\n"));
    }
    server.run()?;
    Ok(ExitCode::SUCCESS)
}

fn options(args: WebArgs, global: Global) -> anyhow::Result<WebOptions> {
    let listen = match args.listen.strip_prefix("unix:") {
        Some(path) => Listen::Unix(path.into()),
        None => Listen::Tcp(args.listen.parse().with_context(|| {
            format!(
                "--listen {}: this is neither ADDRESS:PORT, as 127.0.0.1:8090 or [::1]:8090, nor unix:PATH",
                args.listen
            )
        })?),
    };
    let client_authorities = args.client_ca;
    let tls = args.tls_cert.zip(args.tls_key);
    Ok(WebOptions {
        listen,
        group: args.group.as_deref().map(mmb_control::group_id).transpose()?,
        socket: global.socket.unwrap_or_else(|| DEFAULT_SOCKET.into()),
        tls: tls.map(|(certificate, key)| TlsFiles { certificate, key, client_authorities }),
        token_file: args.token_file,
        metrics_token_file: args.metrics_token_file,
        hosts: args.hosts,
        read_only: args.read_only,
        metrics_rules: args.metrics_rules,
        explain: explain::json,
        check_patterns: compile::check_for,
    })
}
