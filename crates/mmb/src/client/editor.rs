//! The prompt: line editing, history, completion, and help on `?`.

use super::runner::SHELL_WORDS;
use crate::output;
use mmb_base::lock;
use mmb_client::{daemon_names, help};
use mmb_language::complete::{Completion, CompletionKind};
use mmb_protocol::Client;
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{
    Cmd, ColorMode, CompletionType, ConditionalEventHandler, Config, Context, Event, EventContext,
    EventHandler, Helper, KeyEvent, RepeatCount,
};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Lines kept from one session to the next.
const HISTORY: usize = 2_000;

/// The user's input at a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PromptInput {
    /// A line.
    Line(String),
    /// The user discarded the line with Ctrl-C.
    Discarded,
    /// The user pressed Ctrl-D.
    End,
}

/// The prompt.
pub(crate) struct LineEditor {
    editor: rustyline::Editor<WordCompleter, FileHistory>,
    history: Option<PathBuf>,
    help_key: HelpKey,
    socket: PathBuf,
}

impl LineEditor {
    /// Creates a prompt with the user's history, which completes names that the daemon at `socket` knows.
    pub(crate) fn new(socket: &Path) -> Result<LineEditor, ReadlineError> {
        let config = Config::builder()
            .max_history_size(HISTORY)?
            .history_ignore_dups(true)?
            .history_ignore_space(true)
            .completion_type(CompletionType::List)
            .completion_show_all_if_ambiguous(true)
            .color_mode(if output::stdout_is_colored() { ColorMode::Enabled } else { ColorMode::Disabled })
            .build();
        let mut editor = rustyline::Editor::with_config(config)?;
        editor.set_helper(Some(WordCompleter { socket: socket.to_owned(), files: FilenameCompleter::new() }));
        let help_key = HelpKey::default();
        editor.bind_sequence(KeyEvent::from('?'), EventHandler::Conditional(Box::new(help_key.clone())));
        let history = history_file();
        if let Some(file) = &history {
            // The first session has no history yet, and the shell works without one that cannot be read.
            let _ = editor.load_history(file);
        }
        Ok(LineEditor { editor, history, help_key, socket: socket.to_owned() })
    }

    /// Reads a line. `?` shows help and returns to the same line.
    pub(crate) fn line(&mut self, prompt: &str) -> Result<PromptInput, ReadlineError> {
        let styled = (prompt.to_owned(), format!("\x1b[1;36m{prompt}\x1b[0m"));
        let (mut before, mut after) = (String::new(), String::new());
        loop {
            let line = match self.editor.readline_with_initial(&styled, (&before, &after)) {
                Ok(line) => line,
                Err(ReadlineError::Eof) => return Ok(PromptInput::End),
                Err(ReadlineError::Interrupted) => return Ok(PromptInput::Discarded),
                Err(error) => return Err(error),
            };
            let Some(at) = self.help_key.take() else {
                self.remember(&line);
                return Ok(PromptInput::Line(line));
            };
            let known = daemon_names::query(&|| Client::connect(&self.socket), &line[..at]);
            output::print(&help::at(&line, at, &known, SHELL_WORDS));
            (before, after) = (line[..at].to_owned(), line[at..].to_owned());
        }
    }

    fn remember(&mut self, line: &str) {
        if line.trim().is_empty() {
            return;
        }
        // The line is written at once, so that shells that run at the same time lose nothing. The shell works without a history.
        if self.editor.add_history_entry(line).unwrap_or(false)
            && let Some(file) = &self.history
        {
            let _ = self.editor.append_history(file);
        }
    }
}

/// Returns `$XDG_STATE_HOME/mmb/history`, and creates its directory. `None` for root if another user could
/// replace the file by a link: a shell of root may have the `HOME` of the user that began it.
fn history_file() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
    let directory = state.join("mmb");
    std::fs::create_dir_all(&directory).ok()?;
    let is_safe = !rustix::process::geteuid().is_root() || mmb_files::is_ours_alone(&directory);
    is_safe.then(|| directory.join("history"))
}

/// Handles `?`, and keeps the position in the line at which it was pressed.
#[derive(Clone, Default)]
struct HelpKey(Arc<Mutex<Option<usize>>>);

impl HelpKey {
    fn take(&self) -> Option<usize> {
        lock(&self.0).take()
    }
}

impl ConditionalEventHandler for HelpKey {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext) -> Option<Cmd> {
        let at = context.pos();
        if is_text(context.line().get(..at)?) {
            // An ordinary character.
            return None;
        }
        *lock(&self.0) = Some(at);
        // Ends the line, so that `LineEditor::line` shows help and returns to it. An interrupt would lose the input that was typed ahead.
        Some(Cmd::AcceptLine)
    }
}

/// Returns whether the position after `before` is within quotes or a comment.
fn is_text(before: &str) -> bool {
    let (mut quoted, mut escaped, mut begins) = (false, false, true);
    for character in before.chars() {
        match character {
            '#' if !quoted && begins => return true,
            '"' if !escaped => quoted = !quoted,
            _ => {}
        }
        escaped = quoted && character == '\\' && !escaped;
        begins = character.is_whitespace();
    }
    quoted
}

/// Completes words of the language, names and files.
struct WordCompleter {
    socket: PathBuf,
    files: FilenameCompleter,
}

impl Completer for WordCompleter {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        at: usize,
        context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let known = daemon_names::query(&|| Client::connect(&self.socket), &line[..at]);
        let candidates = help::words(line, at, &known, SHELL_WORDS);
        if candidates.iter().any(|candidate| candidate.kind == CompletionKind::File) {
            return self.files.complete(line, at, context);
        }
        let start = candidates.first().map_or(at, |candidate| candidate.start);
        let pair = |candidate: Completion| Pair {
            replacement: format!("{} ", candidate.text),
            display: candidate.text,
        };
        Ok((start, candidates.into_iter().map(pair).collect()))
    }
}

impl Hinter for WordCompleter {
    type Hint = String;
}
impl Highlighter for WordCompleter {}
impl Validator for WordCompleter {}
impl Helper for WordCompleter {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_mark_in_quotes_or_a_comment_is_a_character() {
        assert!(is_text("add payload \"GET "));
        assert!(is_text("add all drop # why"));
        assert!(is_text("add payload \"a\\\""));
        assert!(!is_text("add payload \"GET \" "));
        assert!(!is_text("add payload \"a\\\\\" "));
        assert!(!is_text(""));
        assert!(!is_text("list "));
    }
}
