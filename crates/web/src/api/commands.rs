//! Commands of the language, all of them or none.

use super::connections::error_line;
use super::context::Context;
use super::input::{Body, Files, GivenFiles};
use super::json::Json;
use crate::problem::Problem;
use axum::extract::State;
use mmb_language::{Command, parse_command_with};
use mmb_protocol::Request;
use mmb_protocol::answer::{Answer, ChangeCount};
use mmb_protocol::request::MAX_COMMANDS;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most lines of an answer.
const MAX_LINES: usize = 200_000;

/// Commands to run.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CommandRequest {
    /// Commands of the language, as for `mmb batch`: their changes are made as a whole or not at all, then the questions are answered.
    commands: Vec<String>,
    /// Contents of the files that `patterns` and `set` commands name.
    #[serde(default)]
    files: Files,
}

/// The answer to commands.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct CommandReply {
    /// The lines of the answer, as on the control socket; `error` lines are of questions after changes that were made.
    lines: Vec<Answer>,
    /// The numbers of changed rules, if there was a change.
    change: Option<ChangeCount>,
    /// There are more lines than an answer may have.
    more: bool,
}

/// Run commands of the language: all of their changes or none
#[utoipa::path(
    post, path = "/api/v1/commands", request_body = CommandRequest,
    responses((status = 200, body = CommandReply), Problem)
)]
pub(super) async fn run(
    State(context): State<Arc<Context>>,
    Body(request, _budget): Body<CommandRequest>,
) -> Result<Json<CommandReply>, Problem> {
    if request.commands.len() > MAX_COMMANDS {
        return Err(Problem::bad_request(format!(
            "more than {MAX_COMMANDS} commands; a policy may have more rules"
        )));
    }
    let read_only = context.access.is_read_only();
    let mut has_change = false;
    for line in &request.commands {
        match parse_command_with(line, &GivenFiles(BTreeMap::new())) {
            Ok((command @ (Command::Monitor | Command::Trace(_) | Command::Capture(_)), _)) => {
                let name = command.name();
                return Err(Problem::bad_request(format!("`{name}` has no end; use the control socket")));
            }
            Ok((command, _)) => has_change |= !is_question(&command),
            // What is no command here might be one for another version of the daemon.
            Err(errors) if read_only => {
                return Err(Problem::refused(errors.into_iter().map(error_line).collect()));
            }
            // The daemon reports it.
            Err(_) => has_change = true,
        }
    }
    if has_change {
        context.access.may_change()?;
    }
    let mut sent = Request::Run(request.commands);
    if !request.files.0.is_empty() {
        sent = Request::WithFiles(request.files.0, Box::new(sent));
    }
    let reply = context.daemon.ask_for(sent, MAX_LINES).await?;
    if has_change {
        context.forget().await;
    }
    Ok(Json(CommandReply { lines: reply.lines, change: reply.change, more: reply.is_cut }))
}

/// Whether a command changes nothing.
fn is_question(command: &Command) -> bool {
    match command {
        Command::List { .. } | Command::Show(_) | Command::ShowSet(_) => true,
        Command::Monitor | Command::Trace(_) | Command::Capture(_) => true,
        Command::History(_) | Command::Diff(..) => true,
        Command::Add(_)
        | Command::Replace(_)
        | Command::DelNamed(..)
        | Command::Confirm(_)
        | Command::Rollback(..)
        | Command::Del(_)
        | Command::DelKill(_)
        | Command::DelKeep(_)
        | Command::Flush
        | Command::Enable(_)
        | Command::Disable(_)
        | Command::Set(_)
        | Command::Patterns(..)
        | Command::ChangeSet(..)
        | Command::DelSet(_)
        | Command::Kill(_)
        | Command::Server(_)
        | Command::ClearCounters => false,
    }
}
