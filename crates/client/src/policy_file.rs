//! Policy files without a daemon: reading, parsing, and reporting their errors.

use crate::report::{counted, print, print_json, style};
use crate::sink::OutputSink;
use mmb_language::diagnostic::{Diagnostic, Note};
use mmb_language::{Print, parse_policy};
use mmb_policy::Policy;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The largest policy file in bytes. A daemon takes no longer request.
const MAX_BYTES: u64 = 256 << 20;

/// The reason why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyFileErrorKind {
    /// The system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is larger than any policy, or has no end.
    #[error("it is larger than a policy can be ({} bytes)", MAX_BYTES)]
    TooLarge,
    /// The line of that number is not UTF-8 text.
    #[error("line {0} is not UTF-8 text")]
    NotText(usize),
}

/// A file that cannot be used, and the reason.
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

/// Checks a file, reports the result, and returns whether the file is correct.
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
        print_json(sink, &json!({ "rules": rules.collect::<Vec<_>>() }));
    } else {
        print(sink, &format!("{}: good, {}\n", name(path), counted(rules as u64, "rule")));
    }
    Ok(true)
}

/// Reads a policy file; `-` is standard input. Reports errors and notes, and returns `None` if there are errors.
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
            print_json(sink, &errors_as_json(&errors));
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
/// The file cannot be read, is not text, or is too large.
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

/// Returns the name of a file in messages.
pub fn name(path: &Path) -> String {
    if is_standard_stream(path) { "standard input".to_owned() } else { path.display().to_string() }
}

fn is_standard_stream(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Makes an object of the first error, with all errors in `errors` if there are several.
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
