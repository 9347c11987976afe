//! The answer about the elements of a named set.

use super::{AnswerResult, Responder};
use mmb_policy::sets::NEVER;
use mmb_protocol::answer::{Answer, ElementLine};
use std::io;
use std::sync::Arc;

impl Responder<'_> {
    /// Writes the elements of a set. The set is shared until it is sent.
    pub(super) fn elements(&mut self, name: &str) -> io::Result<AnswerResult> {
        let (policy, now_ms) = {
            let daemon = self.daemon();
            (Arc::clone(daemon.policy()), daemon.now_ms())
        };
        let Some(set) = policy.sets.get(name) else {
            let known = policy.sets.keys().map(String::as_str);
            let meant = mmb_language::nearest(name, known).map(|meant| format!("; did you mean `{meant}`?"));
            return Ok(Err(format!("there is no set called '{name}'{}", meant.unwrap_or_default())));
        };
        set.each(|element, expires_ms| {
            let left_ms = (expires_ms != NEVER).then(|| expires_ms.saturating_sub(now_ms));
            let expires_s = left_ms.map(|left_ms| left_ms.div_ceil(1000).max(1));
            self.send(&Answer::Element(ElementLine { element: element.to_string(), expires_s }))
        })
        .map(Ok)
    }
}
