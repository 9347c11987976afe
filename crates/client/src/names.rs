//! What completion and help ask the daemon: names of ports, numbers of rules.

use crate::run::Connector;
use mmb_protocol::ClientError;
use mmb_protocol::Request;
use mmb_protocol::answer::Answer;
use std::time::Duration;

/// Someone has pressed Tab and waits.
const PATIENCE: Duration = Duration::from_millis(500);

/// Names in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DaemonNames {
    /// Rules whose number begins as asked, with their text; some of them, where there are many.
    pub rules: Vec<(u32, String)>,
    /// The ports.
    pub ports: Vec<String>,
}

impl DaemonNames {
    /// The text of a rule.
    pub fn rule(&self, id: u32) -> Option<&str> {
        self.rules.iter().find(|(known, _)| *known == id).map(|(_, rule)| rule.as_str())
    }
}

/// Names for the last word before the cursor. None, if there is no daemon or it does not answer soon.
pub fn ask(connect: &Connector<'_>, before: &str) -> DaemonNames {
    let word = before.rsplit(char::is_whitespace).next().unwrap_or_default();
    // No number begins like another word: then only the ports are wanted.
    let prefix = if word.bytes().all(|byte| byte.is_ascii_digit()) { word } else { "-" };
    let mut names = DaemonNames::default();
    let asked = connect().and_then(|client| {
        client.with_timeout(PATIENCE)?.ask(&Request::Names(prefix.to_owned()), |answer| {
            match answer {
                Answer::PortName(name) => names.ports.push(name),
                Answer::Rule(rule) => names.rules.push((rule.id, rule.rule)),
                _ => {}
            }
            Ok::<(), ClientError>(())
        })
    });
    asked.map(|_| names).unwrap_or_default()
}
