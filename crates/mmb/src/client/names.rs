//! What completion asks the daemon: names of ports, numbers of rules.

use mmb_control::answer::Answer;
use mmb_control::protocol::Request;
use mmb_control::{Client, ClientError};
use mmb_policy::RuleId;
use std::path::Path;
use std::time::Duration;

/// Someone has pressed Tab and waits.
const PATIENCE: Duration = Duration::from_millis(500);

/// Names in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    /// Numbers of rules that begin as asked; some of them, where there are many.
    pub(crate) ids: Vec<RuleId>,
    /// The ports.
    pub(crate) ports: Vec<String>,
}

/// Names for a word that begins like this. None, if there is no daemon or it does not answer soon.
pub(crate) fn ask(socket: &Path, word: &str) -> Names {
    let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
    // No number begins like a word: then only the ports are wanted.
    let prefix = if is_number { word } else { "x" };
    let mut names = Names::default();
    let asked = Client::connect(socket).and_then(|client| {
        client.patience(PATIENCE)?.ask(&Request::Names(prefix.to_owned()), |answer| {
            match answer {
                Answer::PortName(name) => names.ports.push(name),
                Answer::Rule(rule) => names.ids.push(RuleId(rule.id)),
                _ => {}
            }
            Ok::<(), ClientError>(())
        })
    });
    match asked {
        Ok(_) => names,
        Err(_) => Names::default(),
    }
}
