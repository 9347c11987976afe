//! What was typed behind a command of VPP's, as far as VPP lets it through.
//!
//! VPP expands macros before a command sees its line: it takes backslashes away, puts `UNSET` in the place of `$…`, and its line editor skips
//! bytes beyond ASCII; nothing tells a command that it did. So text in quotation marks, the only place where such characters mean something to
//! the language, may not be what was written. It is refused: another rule than was written would be worse.

use std::str;

/// The line of a command, if it is what was written.
///
/// # Errors
/// Why it may be something else, and what to write instead.
pub(crate) fn line(bytes: &[u8], command: &str) -> Result<String, String> {
    let elsewhere = "or ask at the control socket";
    let line = str::from_utf8(bytes).ok().filter(|line| line.is_ascii()).ok_or_else(|| {
        format!("VPP's command line passes only ASCII on; write bytes as |c3 a9|, {elsewhere}")
    })?;
    let without_comment = line.split('#').next().unwrap_or_default();
    if is_rule(command) && without_comment.contains('"') {
        return Err(format!(
            "VPP changes backslashes and `$` in quoted text before mmb sees it; write the bytes, as in |47 45 54|, {elsewhere}"
        ));
    }
    Ok(line.to_owned())
}

/// Whether a command's quotation marks are a rule's; others stand around names of files.
fn is_rule(command: &str) -> bool {
    command.starts_with("add")
}
