//! Policy files as the commands without a daemon use them: read, parsed, and what is wrong with them told.

use crate::cli::{CheckArgs, Global};
use crate::output;
use anyhow::Context;
use mmb_policy::diagnostic::{Diagnostic, Note, Style};
use mmb_policy::{Policy, Target};
use serde_json::{Value, json};
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

/// A file that holds more than this is no policy: a million rules take a tenth of it.
const MAX_BYTES: u64 = 1 << 30;

/// Checks a file: `mmb check`.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn check(args: &CheckArgs, global: &Global) -> anyhow::Result<ExitCode> {
    let Some(policy) = load(&args.file, global)? else {
        return Ok(ExitCode::FAILURE);
    };
    let rules = policy.rules.len();
    if global.json {
        let rules = policy.rules.keys().zip(policy.rules.iter());
        let rules = rules.map(|(id, rule)| json!({ "id": id.0, "rule": rule.to_string() }));
        output::print_json(&json!({ "rules": rules.collect::<Vec<_>>() }));
    } else {
        let plural = if rules == 1 { "" } else { "s" };
        output::print(&format!("{}: good, {rules} rule{plural}\n", name(&args.file)));
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads a policy file; `-` is standard input. `None`: it is wrong, and everything that is wrong with it has been
/// printed. Notes go to standard error.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn load(path: &Path, global: &Global) -> anyhow::Result<Option<Policy>> {
    let text = read(path).with_context(|| name(path))?;
    match Policy::parse(&text) {
        Ok((policy, notes)) => {
            notes.iter().for_each(|note: &Note| output::tell(&note.render_in(&name(path), &text, style())));
            Ok(Some(policy))
        }
        Err(errors) if global.json => {
            output::print_json(&errors_as_json(&errors));
            Ok(None)
        }
        Err(errors) => {
            for error in &errors {
                output::tell(&error.render_in(&name(path), &text, style()));
            }
            if errors.len() > 1 {
                output::complain(&format!("{}: {} errors", name(path), errors.len()));
            }
            Ok(None)
        }
    }
}

/// Whether some rule of the policy may change a packet.
pub(crate) fn rewrites(policy: &Policy) -> bool {
    policy
        .rules
        .iter()
        .flat_map(|rule| rule.targets)
        .any(|target| !matches!(target, Target::Drop(_) | Target::Accept))
}

pub(crate) fn read(path: &Path) -> anyhow::Result<String> {
    let mut source: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(std::fs::File::open(path)?)
    };
    let mut bytes = Vec::new();
    source.by_ref().take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    anyhow::ensure!(bytes.len() as u64 <= MAX_BYTES, "it is larger than a policy can be ({MAX_BYTES} bytes)");
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.iter().filter(|&&byte| byte == b'\n').count() + 1;
        anyhow::anyhow!("line {line} is not UTF-8 text")
    })
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

fn name(path: &Path) -> String {
    if path.as_os_str() == "-" { "standard input".to_owned() } else { path.display().to_string() }
}

fn style() -> Style {
    if output::stderr_is_colored() { Style::Colored } else { Style::Plain }
}
