//! Requests as values, and their form on the wire.

use crate::framing::{push_digits, write_line};
use crate::{VERSION, hex};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// The most commands in one request; a policy file may have more.
pub const MAX_COMMANDS: usize = 10_000;

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Executes commands of the language. Their changes are committed as a whole or not at all; then the other commands are answered, in
    /// order.
    Run(Vec<String>),
    /// Replaces the policy with that of a policy file, whose text this is.
    Apply(String, ConnectionFate),
    /// Asks what [`Request::Apply`] would do with this text, and changes nothing.
    DryRun(String, ConnectionFate),
    /// Executes the commands of a text, one a line, all of which change the policy: as a whole or not at all.
    Batch {
        /// The text.
        text: String,
        /// Asks what the commands would do, and changes nothing.
        dry_run: bool,
    },
    /// Asks for the policy in force, as the text of a policy file.
    Save,
    /// Asks for names for completion: the ports, and the rules whose id begins with these digits.
    Names(String),
    /// Asks for the state of all connections, for [`Request::LoadState`].
    SaveState,
    /// Restores the connections of a state, whose pieces follow as [`Request::Piece`].
    LoadState {
        /// Asks also for the connections that are left out.
        verbose: bool,
    },
    /// Sends a piece of a state, in hexadecimal; the last one is empty.
    Piece(String),
    /// A change, and what is recorded of it.
    WithOptions(ChangeOptions, Box<Request>),
    /// A request with the contents of the files that its `patterns` and `set` commands name, by these names. The daemon opens no file for a client.
    WithFiles(BTreeMap<String, Vec<u8>>, Box<Request>),
}

/// What goes with a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeOptions {
    /// The name of the file that the text came from, for the history.
    pub source: Option<String>,
    /// The policy before is in force again after so many seconds, unless the change was confirmed.
    pub confirm: Option<u32>,
    /// For a dry run: the client has checked that the patterns can be compiled, so the daemon does not compile them.
    pub checked: bool,
}

impl ChangeOptions {
    /// The longest time that a change may wait for its confirmation: a day.
    pub const MAX_CONFIRM_S: u32 = 86_400;
}

/// The fate of the connections of stateful rules that a policy file removes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ConnectionFate {
    /// They keep their translations and lose the rules' other targets.
    #[default]
    Release,
    /// They keep the rules, which drain.
    Keep,
    /// They end.
    Kill,
}

/// The reason why a line is no request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The line is not JSON, or has not the form of a request.
    #[error("this is not a request: {0}")]
    Malformed(String),
    /// The request has another version of the protocol.
    #[error("version {0} of the protocol is not supported; this daemon supports version {VERSION}")]
    Version(u32),
    /// The request has an unknown name.
    #[error(
        "unknown request '{0}'; the requests are: run, apply, dry-run, batch, save, names, save-state, load-state, piece"
    )]
    Unknown(String),
    /// The request lacks a member.
    #[error("a request to '{request}' needs '{member}'")]
    Missing {
        /// The name of the request.
        request: &'static str,
        /// The missing member.
        member: &'static str,
    },
}

/// A request on the wire.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope {
    v: u32,
    #[serde(rename = "do")]
    verb: String,
    commands: Option<CommandList>,
    policy: Option<String>,
    text: Option<String>,
    dry_run: Option<bool>,
    prefix: Option<String>,
    state: Option<String>,
    verbose: Option<bool>,
    connections: Option<ConnectionFate>,
    source: Option<String>,
    confirm: Option<u32>,
    checked: Option<bool>,
    /// Contents in hexadecimal, by name.
    files: Option<BTreeMap<String, String>>,
}

/// The commands of one request. Their number is limited, since an empty one takes three bytes of a request and much more memory.
struct CommandList(Vec<String>);

impl<'de> Deserialize<'de> for CommandList {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<CommandList, D::Error> {
        struct CommandListVisitor;
        impl<'de> Visitor<'de> for CommandListVisitor {
            type Value = CommandList;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "an array of at most {MAX_COMMANDS} commands")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<CommandList, A::Error> {
                let mut commands = Vec::new();
                while let Some(command) = seq.next_element()? {
                    if commands.len() == MAX_COMMANDS {
                        return Err(A::Error::invalid_length(MAX_COMMANDS + 1, &self));
                    }
                    commands.push(command);
                }
                Ok(CommandList(commands))
            }
        }
        from.deserialize_seq(CommandListVisitor)
    }
}

/// The version of a request that has other members than this version's.
#[derive(Deserialize)]
struct VersionOnly {
    v: u32,
}

/// Decodes one request: the bytes of a line, without its end.
///
/// # Errors
/// The line is no request. No input panics or allocates more than a small multiple of its length.
pub fn decode(line: &[u8]) -> Result<Request, DecodeError> {
    if let Some(digits) = digits_of_piece(line) {
        return Ok(Request::Piece(digits));
    }
    let malformed = |error: serde_json::Error| DecodeError::Malformed(truncated(&error.to_string(), 200));
    let envelope: Envelope = match serde_json::from_slice(line) {
        Ok(envelope) => envelope,
        Err(error) => {
            return Err(match serde_json::from_slice::<VersionOnly>(line) {
                Ok(VersionOnly { v }) if v != VERSION => DecodeError::Version(v),
                _ => malformed(error),
            });
        }
    };
    if envelope.v != VERSION {
        return Err(DecodeError::Version(envelope.v));
    }
    let Envelope { files, .. } = &envelope;
    let files = files.as_ref().map(|files| {
        let content = |(name, digits): (&String, &String)| Some((name.clone(), hex::decode(digits)?));
        let decoded: Option<BTreeMap<_, _>> = files.iter().map(content).collect();
        decoded.ok_or_else(|| DecodeError::Malformed("the content of a file is not hexadecimal".to_owned()))
    });
    match files {
        Some(files) => Ok(Request::WithFiles(files?, Box::new(without_files(envelope)?))),
        None => without_files(envelope),
    }
}

/// The request of an envelope, but for its files.
fn without_files(mut envelope: Envelope) -> Result<Request, DecodeError> {
    let options = ChangeOptions {
        source: envelope.source.take(),
        confirm: envelope.confirm,
        checked: envelope.checked.unwrap_or_default(),
    };
    if options.confirm.is_some_and(|seconds| !(1..=ChangeOptions::MAX_CONFIRM_S).contains(&seconds)) {
        let range = format!("'confirm' is 1 to {} seconds", ChangeOptions::MAX_CONFIRM_S);
        return Err(DecodeError::Malformed(range));
    }
    let request = without_options(envelope)?;
    let has_options = options != ChangeOptions::default();
    Ok(if has_options { Request::WithOptions(options, Box::new(request)) } else { request })
}

/// The request of an envelope, but for its files and options.
fn without_options(envelope: Envelope) -> Result<Request, DecodeError> {
    let missing = |request, member| DecodeError::Missing { request, member };
    match envelope.verb.as_str() {
        "run" => envelope.commands.map(|commands| Request::Run(commands.0)).ok_or(missing("run", "commands")),
        "apply" => {
            let policy = envelope.policy.ok_or(missing("apply", "policy"))?;
            Ok(Request::Apply(policy, envelope.connections.unwrap_or_default()))
        }
        "dry-run" => {
            let policy = envelope.policy.ok_or(missing("dry-run", "policy"))?;
            Ok(Request::DryRun(policy, envelope.connections.unwrap_or_default()))
        }
        "batch" => {
            let text = envelope.text.ok_or(missing("batch", "text"))?;
            Ok(Request::Batch { text, dry_run: envelope.dry_run.unwrap_or_default() })
        }
        "save" => Ok(Request::Save),
        "names" => Ok(Request::Names(envelope.prefix.unwrap_or_default())),
        "save-state" => Ok(Request::SaveState),
        "load-state" => Ok(Request::LoadState { verbose: envelope.verbose.unwrap_or_default() }),
        "piece" => envelope.state.map(Request::Piece).ok_or(missing("piece", "state")),
        other => Err(DecodeError::Unknown(truncated(other, 40))),
    }
}

/// Returns the first characters of a text that may be as long as its request.
fn truncated(text: &str, characters: usize) -> String {
    text.chars().take(characters).collect()
}

/// Encodes one request, with the end of its line.
///
/// # Errors
/// The writer failed.
pub fn encode(request: &Request, to: impl std::io::Write) -> std::io::Result<()> {
    #[derive(Serialize)]
    struct BorrowedEnvelope<'a> {
        v: u32,
        #[serde(rename = "do")]
        verb: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        commands: Option<&'a [String]>,
        #[serde(skip_serializing_if = "Option::is_none")]
        policy: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        text: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        dry_run: Option<bool>,
        #[serde(skip_serializing_if = "Option::is_none")]
        prefix: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        state: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        verbose: Option<bool>,
        #[serde(skip_serializing_if = "Option::is_none")]
        connections: Option<ConnectionFate>,
        #[serde(skip_serializing_if = "Option::is_none")]
        source: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        confirm: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        checked: Option<bool>,
        #[serde(skip_serializing_if = "Option::is_none")]
        files: Option<BTreeMap<String, String>>,
    }
    let mut envelope = BorrowedEnvelope {
        v: VERSION,
        verb: "",
        commands: None,
        policy: None,
        text: None,
        dry_run: None,
        prefix: None,
        state: None,
        verbose: None,
        connections: None,
        source: None,
        confirm: None,
        checked: None,
        files: None,
    };
    let mut request = request;
    loop {
        request = match request {
            Request::WithFiles(files, inner) => {
                let content = |(name, content): (&'_ String, &Vec<u8>)| (name.clone(), hex::encode(content));
                envelope.files.get_or_insert_default().extend(files.iter().map(content));
                inner
            }
            Request::WithOptions(options, inner) => {
                envelope.source = options.source.as_deref();
                envelope.confirm = options.confirm;
                envelope.checked = options.checked.then_some(true);
                inner
            }
            _ => break,
        };
    }
    match request {
        Request::Run(commands) => (envelope.verb, envelope.commands) = ("run", Some(commands.as_slice())),
        Request::Apply(policy, fate) | Request::DryRun(policy, fate) => {
            envelope.verb = if let Request::Apply(..) = request { "apply" } else { "dry-run" };
            envelope.policy = Some(policy.as_str());
            envelope.connections = Some(*fate).filter(|fate| *fate != ConnectionFate::Release);
        }
        Request::Batch { text, dry_run } => {
            (envelope.verb, envelope.text) = ("batch", Some(text.as_str()));
            envelope.dry_run = dry_run.then_some(true);
        }
        Request::Save => envelope.verb = "save",
        Request::Names(prefix) => (envelope.verb, envelope.prefix) = ("names", Some(prefix.as_str())),
        Request::SaveState => envelope.verb = "save-state",
        Request::LoadState { verbose } => {
            (envelope.verb, envelope.verbose) = ("load-state", verbose.then_some(true));
        }
        Request::Piece(state) => (envelope.verb, envelope.state) = ("piece", Some(state.as_str())),
        // They were taken off.
        Request::WithFiles(..) | Request::WithOptions(..) => {}
    }
    write_line(&envelope, to)
}

/// Appends a [`Request::Piece`] with these bytes, with the end of its line. It is the line that [`encode`] writes, without a search for
/// characters to escape.
pub(crate) fn push_piece(bytes: &[u8], line: &mut Vec<u8>) {
    push_digits([BEFORE_PIECE, AFTER_PIECE], bytes, line);
    line.push(b'\n');
}

/// The line of [`push_piece`] before and after the digits.
const BEFORE_PIECE: &[u8] = b"{\"v\":1,\"do\":\"piece\",\"state\":\"";
const AFTER_PIECE: &[u8] = b"\"}";
const _: () = assert!(VERSION == 1);

/// The digits of a line, without its end, that is the one of [`push_piece`] byte for byte: without a search for escaped characters. `None` for other lines, which may
/// be pieces too.
fn digits_of_piece(line: &[u8]) -> Option<String> {
    let digits = line.strip_prefix(BEFORE_PIECE)?.strip_suffix(AFTER_PIECE)?;
    hex::are_digits(digits).then(|| String::from_utf8(digits.to_vec()).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_piece_is_that_of_its_request() {
        for bytes in [&[][..], &[0, 0x9f, 0xff]] {
            let (mut line, mut request) = (Vec::new(), Vec::new());
            push_piece(bytes, &mut line);
            encode(&Request::Piece(hex::encode(bytes)), &mut request).expect("a vector takes everything");
            assert_eq!(line, request);
            assert_eq!(digits_of_piece(&line[..line.len() - 1]), Some(hex::encode(bytes)));
        }
    }

    #[test]
    fn a_piece_in_another_form_is_read_too() {
        let decoded = |line: &str| decode(line.as_bytes());
        let piece = |digits: &str| Ok::<_, DecodeError>(Request::Piece(digits.to_owned()));
        for line in [
            r#"{"v":1,"do":"piece","state":"00ff"}"#,
            r#"{"do":"piece", "state":"00\u0066f", "v":1}"#,
            r#"{"v":1,"do":"piece","state":"00ff","verbose":null}"#,
        ] {
            assert_eq!(decoded(line), piece("00ff"), "{line}");
        }
        // What it is, is told where its digits are read.
        assert_eq!(decoded(r#"{"v":1,"do":"piece","state":"0g"}"#), piece("0g"));
    }

    fn round_trip(request: &Request) -> Request {
        let mut wire = Vec::new();
        encode(request, &mut wire).expect("a vector takes everything");
        assert_eq!(wire.iter().filter(|&&byte| byte == b'\n').count(), 1, "one line");
        decode(wire.trim_ascii_end()).expect("decodes")
    }

    #[test]
    fn a_decoded_request_is_the_encoded_one() {
        for request in [
            Request::Run(vec!["add payload \"a\\\"b\" drop".into(), "list".into()]),
            Request::Run(Vec::new()),
            Request::Apply("add all drop\n# é\u{2028}\nflush\n".into(), ConnectionFate::Release),
            Request::Apply("add all drop\n".into(), ConnectionFate::Keep),
            Request::DryRun("add all drop\n".into(), ConnectionFate::Kill),
            Request::Batch { text: "add all drop\ndel 1\n".into(), dry_run: false },
            Request::Batch { text: String::new(), dry_run: true },
            Request::WithFiles(
                [("/c".into(), b"x".to_vec())].into(),
                Box::new(Request::WithOptions(
                    ChangeOptions { source: Some("edge.mmb".into()), confirm: Some(60), checked: false },
                    Box::new(Request::Apply("patterns a /c".into(), ConnectionFate::Keep)),
                )),
            ),
            Request::WithOptions(
                ChangeOptions { checked: true, ..ChangeOptions::default() },
                Box::new(Request::DryRun("add all drop\n".into(), ConnectionFate::Release)),
            ),
            Request::Save,
            Request::Names("12".into()),
            Request::SaveState,
            Request::LoadState { verbose: false },
            Request::LoadState { verbose: true },
            Request::Piece("00ff".into()),
            Request::WithFiles(
                [("/a b".into(), vec![0, 255]), ("/c".into(), Vec::new())].into(),
                Box::new(Request::Run(vec!["patterns a /c".into()])),
            ),
            Request::WithFiles(
                [("/c".into(), b"x".to_vec())].into(),
                Box::new(Request::DryRun("patterns a /c".into(), ConnectionFate::Keep)),
            ),
        ] {
            assert_eq!(round_trip(&request), request);
        }
    }

    #[test]
    fn a_decode_error_names_the_fault() {
        let error = |line: &str| decode(line.as_bytes()).expect_err(line).to_string();
        assert!(error("").starts_with("this is not a request"));
        assert!(error("[[[[").starts_with("this is not a request"));
        assert!(error(r#"{"v":1,"do":"run","comands":[]}"#).contains("comands"));
        assert!(error(r#"{"v":1,"do":"run"}"#).contains("'commands'"));
        assert!(error(r#"{"v":1,"do":"run","commands":[1]}"#).starts_with("this is not a request"));
        assert!(error(r#"{"v":1,"do":"piece"}"#).contains("'state'"));
        assert!(error(r#"{"v":1,"do":"batch"}"#).contains("'text'"));
        assert!(error(r#"{"v":1,"do":"batch","text":"","confirm":0}"#).contains("1 to 86400 seconds"));
        assert!(error(r#"{"v":1,"do":"save","files":{"/a":"0"}}"#).contains("hexadecimal"));
        assert!(error(r#"{"v":1,"do":"dance"}"#).contains("unknown request 'dance'"));
        assert!(error(r#"{"v":7,"do":"save","new":true}"#).contains("version 7"));
        assert!(error(r#"{"v":7,"do":"save"}"#).contains("version 7"));
        assert!(decode(b"{\"v\":1,\"do\":\"apply\",\"policy\":\"\xff\"}").is_err(), "not UTF-8");
        let many =
            |n: usize| format!("{{\"v\":1,\"do\":\"run\",\"commands\":[{}\"\"]}}", "\"\",".repeat(n - 1));
        assert!(decode(many(MAX_COMMANDS).as_bytes()).is_ok());
        assert!(error(&many(MAX_COMMANDS + 1)).contains("at most 10000 commands"));
        assert!(decode(&b"[".repeat(1 << 16)).is_err(), "nested deeply");
        let long = "x".repeat(1 << 16);
        for line in [format!("{{\"v\":1,\"{long}\":1}}"), format!("{{\"v\":1,\"do\":\"{long}\"}}")] {
            assert!(error(&line).len() < 300);
        }
    }
}
