//! The arguments of a command, checked for changes by VPP.
//!
//! VPP expands macros before a command sees its line: it removes backslashes, replaces `$…` by `UNSET`, and its line editor skips bytes
//! beyond ASCII. A command cannot see that. So text in quotation marks, the only place where the language knows such characters, may differ
//! from what was written. It is refused, since another rule than the written one would be worse.

use std::str;

/// The line of a command, if VPP cannot have changed it.
///
/// # Errors
/// The reason for which VPP may have changed it, and what to write instead.
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

/// True if quotation marks of a command belong to a rule; others stand around names of files.
fn is_rule(command: &str) -> bool {
    command.starts_with("add")
}
