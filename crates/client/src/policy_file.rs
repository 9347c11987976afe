//! Policy files without a daemon: reading, parsing, and reporting their errors.

use crate::regular_file::read_regular;
use crate::report::{counted, print, print_json, style, tell};
use crate::sink::OutputSink;
use mmb_language::diagnostic::{Diagnostic, Note};
use mmb_language::{
    FileReader, MAX_ELEMENT_FILE_BYTES, Print, ShadowedRule, SilentEdit, parse_policy_with, read_elements,
    shadowed, silent_edits,
};
use mmb_policy::{ElementList, PatternList, Policy, RuleId};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The largest policy file in bytes. A daemon takes no longer request.
const MAX_BYTES: u64 = 256 << 20;

/// The most comparisons of rules, to find those that never decide: about a tenth of a second.
const COMPARISONS: u64 = 1 << 22;

/// Notes of a kind, at most.
const NOTES_SHOWN: usize = 20;

/// Pairs of a rule that edits streams and a rule on HTTP that are compared, at most.
const PAIRS: usize = 1 << 16;

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

/// Tells why a policy without errors cannot be put in force, if it cannot.
pub type CompileCheck = fn(&Policy) -> Result<(), String>;

/// Checks a file, reports the result, and returns whether the file is correct.
///
/// # Errors
/// The file cannot be read.
pub fn check(
    path: &Path,
    json: bool,
    compile: CompileCheck,
    sink: &dyn OutputSink,
) -> Result<bool, PolicyFileError> {
    let Some(policy) = load(path, json, sink)? else {
        return Ok(false);
    };
    if let Err(why) = compile(&policy) {
        match json {
            true => print_json(sink, &json!({ "error": why })),
            false => tell(sink, &format!("mmb: {}: {why}\n", name(path))),
        }
        return Ok(false);
    }
    let rules = policy.rules.len();
    let shadowed = shadowed(&policy.rules, COMPARISONS);
    let silent = silent_edits(&policy.rules, PAIRS);
    if json {
        let (mut shadowed, mut silent) = (shadowed.into_iter().peekable(), silent.into_iter().peekable());
        let rules = policy.rules.keys().zip(policy.rules.iter()).map(|(id, rule)| {
            let mut object = json!({ "id": id.0, "rule": rule.text().to_string() });
            if let Some(ShadowedRule { by, .. }) = shadowed.next_if(|shadowed| shadowed.id == id) {
                object["shadowed_by"] = json!(by.0);
            }
            if let Some(SilentEdit { by, .. }) = silent.next_if(|silent| silent.id == id) {
                object["no_edit_beside"] = json!(by.0);
            }
            object
        });
        print_json(sink, &json!({ "rules": rules.collect::<Vec<_>>() }));
    } else {
        note_shadowed(&policy, &shadowed, sink);
        note_silent(&policy, &silent, sink);
        print(sink, &format!("{}: good, {}\n", name(path), counted(rules as u64, "rule")));
    }
    Ok(true)
}

/// Reports rules that never decide.
fn note_shadowed(policy: &Policy, shadowed: &[ShadowedRule], sink: &dyn OutputSink) {
    let notes = shadowed.iter().map(|&ShadowedRule { id, by }| {
        let note = format!(
            "rule {id} never decides, because rule {by} has the better verdict for all of its packets"
        );
        ([id, by], note)
    });
    note_rules(policy, notes, "never decide", sink);
}

/// Reports rules that edit streams beside rules on HTTP.
fn note_silent(policy: &Policy, silent: &[SilentEdit], sink: &dyn OutputSink) {
    let notes = silent.iter().map(|&SilentEdit { id, by, is_always }| {
        let streams =
            if is_always { "no stream".into() } else { format!("no stream that rule {by} has too") };
        let note = format!(
            "rule {id} edits {streams}, because rule {by} is on HTTP; `http-body` edits bodies there"
        );
        ([id, by], note)
    });
    note_rules(policy, notes, "edit no streams of rules on HTTP", sink);
}

/// Reports rules, each with another one; of too many only how many others there are, and what these do.
fn note_rules(
    policy: &Policy,
    notes: impl ExactSizeIterator<Item = ([RuleId; 2], String)>,
    others_do: &str,
    sink: &dyn OutputSink,
) {
    let text = |id| policy.rules.get(id).map(|rule| rule.text().to_string()).unwrap_or_default();
    let others = notes.len().saturating_sub(NOTES_SHOWN);
    for ([id, by], note) in notes.take(NOTES_SHOWN) {
        tell(sink, &format!("note: {note}\n  {id}: {}\n  {by}: {}\n", text(id), text(by)));
    }
    if others > 0 {
        let others = counted(others as u64, "other rule");
        tell(sink, &format!("note: {others} {others_do} either; --json names them\n"));
    }
}

/// Reads a policy file; `-` is standard input. Reports errors and notes, and returns `None` if there are errors.
///
/// # Errors
/// The file cannot be read.
pub fn load(path: &Path, json: bool, sink: &dyn OutputSink) -> Result<Option<Policy>, PolicyFileError> {
    let text = read(path).map_err(|error| PolicyFileError::new(path, error))?;
    let (name, style) = (name(path), style(sink));
    let reader = FilesBeside(directory(path));
    match parse_policy_with(&text, &reader) {
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
                tell(sink, &format!("mmb: {name}: {} errors\n", errors.len()));
            }
            Ok(None)
        }
    }
}

/// Returns the directory against which a policy file's names of files are resolved: its own; that of the process for standard input.
pub(crate) fn directory(path: &Path) -> PathBuf {
    let own = if is_standard_stream(path) { None } else { path.parent() };
    own.map(Path::to_path_buf).unwrap_or_default()
}

/// Returns the whole path of a file that a policy file or a command names.
pub(crate) fn absolute(file: &str, directory: &Path) -> String {
    let path = directory.join(file);
    std::path::absolute(&path).unwrap_or(path).to_string_lossy().into_owned()
}

/// Reads the content of a file of patterns, by its whole path.
pub(crate) fn read_pattern_file(file: &str) -> Result<Vec<u8>, String> {
    read_regular(Path::new(file), PatternList::MAX_BYTES).map_err(|error| error.to_string())
}

/// Reads the content of a file of elements, by its whole path.
pub(crate) fn read_element_file(file: &str) -> Result<Vec<u8>, String> {
    read_regular(Path::new(file), MAX_ELEMENT_FILE_BYTES).map_err(|error| error.to_string())
}

/// Reads the files that a policy file names, from this directory if they have no whole path.
struct FilesBeside(PathBuf);

impl FileReader for FilesBeside {
    fn patterns(&self, file: &str) -> Result<PatternList, String> {
        let file = absolute(file, &self.0);
        let content = read_pattern_file(&file)?;
        PatternList::parse(file, &content).map_err(|error| error.to_string())
    }

    fn elements(&self, file: &str) -> Result<ElementList, String> {
        read_elements(&read_element_file(&absolute(file, &self.0))?)
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
