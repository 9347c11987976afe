//! Names that the daemon knows, for completion and help: ports, lists of patterns, sets and rule ids.

use crate::connector::Connector;
use mmb_protocol::answer::Answer;
use mmb_protocol::{ClientError, Request};
use std::time::Duration;

/// The longest time that the daemon may take, since a user has pressed Tab and waits.
const TIMEOUT: Duration = Duration::from_millis(500);

/// Names in use at the daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DaemonNames {
    /// Rules whose id begins with the requested digits, with their text; the daemon sends a limited number.
    pub rules: Vec<(u32, String)>,
    /// The names of the ports.
    pub ports: Vec<String>,
    /// The names of the lists of patterns.
    pub lists: Vec<String>,
    /// The names of the sets.
    pub sets: Vec<String>,
}

impl DaemonNames {
    /// Returns the text of a rule.
    pub fn rule(&self, id: u32) -> Option<&str> {
        self.rules.iter().find(|(known, _)| *known == id).map(|(_, rule)| rule.as_str())
    }
}

/// Asks the daemon for names that fit the last word of `before`. Returns no names if there is no daemon or it does not answer in time.
pub fn query(connect: &Connector<'_>, before: &str) -> DaemonNames {
    let word = before.rsplit(char::is_whitespace).next().unwrap_or_default();
    // No id begins with another word: the answer then has no rules.
    let prefix = if word.bytes().all(|byte| byte.is_ascii_digit()) { word } else { "-" };
    let mut names = DaemonNames::default();
    let answered = connect().and_then(|client| {
        client.with_timeout(TIMEOUT)?.ask(&Request::Names(prefix.to_owned()), |answer| {
            match answer {
                Answer::PortName(name) => names.ports.push(name),
                Answer::ListName(name) => names.lists.push(name),
                Answer::SetName(name) => names.sets.push(name),
                Answer::Rule(rule) => names.rules.push((rule.id, rule.rule)),
                _ => {}
            }
            Ok::<(), ClientError>(())
        })
    });
    answered.map(|_| names).unwrap_or_default()
}
