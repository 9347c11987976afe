//! Policy files where no daemon is asked: read, parsed, and what is wrong with them told.

use crate::report::{say, say_json, style};
use crate::sink::OutputSink;
use mmb_language::diagnostic::{Diagnostic, Note};
use mmb_language::{Print, parse_policy};
use mmb_policy::Policy;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// A file that holds more than this is no policy that a daemon takes: no request is longer.
const MAX_BYTES: u64 = 256 << 20;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyFileErrorKind {
    /// The system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It has no end, or nobody wrote it.
    #[error("it is larger than a policy can be ({} bytes)", MAX_BYTES)]
    TooLarge,
    /// The line has bytes that are no text.
    #[error("line {0} is not UTF-8 text")]
    NotText(usize),
}

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{name}")]
pub struct PolicyFileError {
    name: String,
    #[source]
    error: PolicyFileErrorKind,
}

impl PolicyFileError {
    pub(crate) fn new(path: &Path, error: impl Into<PolicyFileErrorKind>) -> PolicyFileError {
        PolicyFileError { name: name(path), error: error.into() }
    }
}

/// Checks a file, and tells whether it is good.
///
/// # Errors
/// The file cannot be read.
pub fn check(path: &Path, json: bool, sink: &dyn OutputSink) -> Result<bool, PolicyFileError> {
    let Some(policy) = load(path, json, sink)? else {
        return Ok(false);
    };
    let rules = policy.rules.len();
    if json {
        let rules = policy.rules.keys().zip(policy.rules.iter());
        let rules = rules.map(|(id, rule)| json!({ "id": id.0, "rule": rule.text().to_string() }));
        say_json(sink, &json!({ "rules": rules.collect::<Vec<_>>() }));
    } else {
        let plural = if rules == 1 { "" } else { "s" };
        say(sink, &format!("{}: good, {rules} rule{plural}\n", name(path)));
    }
    Ok(true)
}

/// Reads a policy file; `-` is standard input. `None`: it is wrong, and everything that is wrong with it has been
/// told. Notes are told as errors are.
///
/// # Errors
/// The file cannot be read.
pub fn load(path: &Path, json: bool, sink: &dyn OutputSink) -> Result<Option<Policy>, PolicyFileError> {
    let text = read(path).map_err(|error| PolicyFileError::new(path, error))?;
    let (name, style) = (name(path), style(sink));
    match parse_policy(&text) {
        Ok((policy, notes)) => {
            notes.iter().for_each(|note: &Note| sink.err(&note.render_in(&name, &text, style)));
            Ok(Some(policy))
        }
        Err(errors) if json => {
            say_json(sink, &errors_as_json(&errors));
            Ok(None)
        }
        Err(errors) => {
            errors.iter().for_each(|error| sink.err(&error.render_in(&name, &text, style)));
            if errors.len() > 1 {
                sink.err(&format!("mmb: {name}: {} errors\n", errors.len()));
            }
            Ok(None)
        }
    }
}

/// Reads a text file; `-` is standard input.
///
/// # Errors
/// It cannot be read, is no text, or far too large.
pub fn read(path: &Path) -> Result<String, PolicyFileErrorKind> {
    let mut source: Box<dyn Read> =
        if is_standard_stream(path) { Box::new(io::stdin().lock()) } else { Box::new(File::open(path)?) };
    let mut bytes = Vec::new();
    source.by_ref().take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(PolicyFileErrorKind::TooLarge);
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        PolicyFileErrorKind::NotText(good.iter().filter(|&&byte| byte == b'\n').count() + 1)
    })
}

/// What a file is called in messages.
pub fn name(path: &Path) -> String {
    if is_standard_stream(path) { "standard input".to_owned() } else { path.display().to_string() }
}

fn is_standard_stream(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The first error as an object, with all of them in `errors` where there are several.
fn errors_as_json(errors: &[Diagnostic]) -> Value {
    let all: Vec<Value> = errors.iter().map(error_as_json).collect();
    match &all[..] {
        [] => json!({ "error": "the policy is wrong" }),
        [only] => only.clone(),
        [first, ..] => {
            let mut object = first.clone();
            object["errors"] = Value::Array(all);
            object
        }
    }
}

fn error_as_json(error: &Diagnostic) -> Value {
    let mut object = json!({ "error": error.message, "line": error.line, "column": error.column });
    if let Some(expected) = &error.expected {
        object["expected"] = json!(expected);
    }
    if let Some(suggestion) = &error.suggestion {
        object["suggestion"] = json!(suggestion);
    }
    object
}
