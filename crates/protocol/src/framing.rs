//! Lines of JSON: each message is one object on a line of its own.

use crate::answer::Answer;
use crate::hex;
use serde::Serialize;
use std::io::{self, BufRead, Read, Write};

/// The longest line of an answer that is read. It is longer than any request may be, and so longer than any rule.
const MAX_LINE_BYTES: u64 = 1 << 30;

/// The reason why no answer could be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnswerReadError {
    /// The line is not an answer.
    #[error("{0}")]
    Malformed(serde_json::Error),
    /// The system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Writes a message and the end of its line.
///
/// # Errors
/// The writer failed.
pub fn write_line(message: &impl Serialize, mut to: impl Write) -> io::Result<()> {
    serde_json::to_writer(&mut to, message)?;
    to.write_all(b"\n")
}

/// Appends the line of an [`Answer::State`] with these bytes. It is the line that [`write_line`] writes, without a search in half a billion
/// digits for characters to escape.
pub fn push_state(bytes: &[u8], line: &mut Vec<u8>) {
    push_digits([b"{\"state\":\"", b"\"}\n"], bytes, line);
}

/// Appends a line that has the digits of bytes between two texts.
pub(crate) fn push_digits([before, after]: [&[u8]; 2], bytes: &[u8], line: &mut Vec<u8>) {
    line.reserve(before.len() + 2 * bytes.len() + after.len());
    line.extend_from_slice(before);
    hex::encode_to(bytes, line);
    line.extend_from_slice(after);
}

/// Reads the next answer of a known kind; skips kinds that only a newer daemon knows. `None`: the stream has ended, maybe in the
/// middle of a line. `line` keeps the bytes of an unfinished line across an error, so that the next call continues it.
pub(crate) fn read_answer(
    stream: &mut impl BufRead,
    line: &mut Vec<u8>,
) -> Result<Option<Answer>, AnswerReadError> {
    loop {
        match stream.take(MAX_LINE_BYTES).read_until(b'\n', line) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        if !line.ends_with(b"\n") {
            return Ok(None);
        }
        let answer = serde_json::from_slice(line);
        line.clear();
        match answer {
            Ok(answer) => return Ok(Some(answer)),
            Err(error) if error.is_data() && error.to_string().starts_with("unknown variant") => {}
            Err(error) => return Err(AnswerReadError::Malformed(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{RuleText, VersionLine};

    fn read(text: &str) -> Vec<Result<Answer, String>> {
        let (mut stream, mut line) = (text.as_bytes(), Vec::new());
        let next = || read_answer(&mut stream, &mut line).map_err(|error| error.to_string()).transpose();
        std::iter::from_fn(next).take(5).collect()
    }

    #[test]
    fn additions_of_a_newer_daemon_are_skipped() {
        let added = r#"{"added":{"id":1,"rule":"add all drop","colour":"red"}}"#;
        let answers = read(&format!("{{\"weather\":{{\"rain\":true}}}}\n{added}\n{{\"mood\":\"good\"}}\n"));
        assert_eq!(answers, [Ok(Answer::Added(RuleText { id: 1, rule: "add all drop".into() }))]);
    }

    #[test]
    fn the_line_of_a_state_is_that_of_its_answer() {
        for bytes in [&[][..], &[0, 0x9f, 0xff]] {
            let (mut line, mut answer) = (Vec::new(), Vec::new());
            push_state(bytes, &mut line);
            write_line(&Answer::State(hex::encode(bytes)), &mut answer).expect("a vector takes everything");
            assert_eq!(line, answer);
        }
    }

    #[test]
    fn a_line_that_is_no_answer_is_an_error() {
        assert!(matches!(&read("HTTP/1.1 400\n")[..], [Err(_), ..]));
        assert!(matches!(&read("{\"added\":{}}\n")[..], [Err(_), ..]), "a known kind with a member missing");
        let version = Answer::Version(VersionLine {
            version: "1".into(),
            protocol: 1,
            instructions: String::new(),
            policy: 0,
        });
        let cut = r#"{"version":{"version":"1","protocol":1}}"#.to_owned() + "\n{\"end\":";
        assert_eq!(read(&cut), [Ok(version)], "half a line is the end");
    }
}
