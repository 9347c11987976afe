//! Finds the commands of active FTP in the bytes of a control connection.
//!
//! If the first line of the client is not a command of FTP, the connection is ignored. Otherwise a web page
//! could have a browser send a form to port 21, with commands of the page's author in it ("NAT
//! slipstreaming"). Bytes after AUTH TLS (RFC 4217) are encrypted, so they announce nothing.

use super::helper::HelperId;
use super::helper_control::Announced;
use super::stream_search::StreamSearch;
use mmb_classify::RuleSlot;
use mmb_http::{FtpEnd, FtpForm, FtpStep, MAX_FTP_END_BYTES, begins_ftp};
use mmb_policy::rule::Helper;
use mmb_stream::InOrder;

/// The argument of a command, as the responder gets it.
pub(super) struct FtpArgument {
    buffer: [u8; MAX_FTP_END_BYTES],
    len: usize,
    /// The rule of the helper that read the command.
    pub(super) rule: RuleSlot,
}

impl FtpArgument {
    /// The argument.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

impl<'s> StreamSearch<'s> {
    /// The helper that follows a direction, and the rule that has it.
    fn helper(&self, direction: usize) -> Option<(HelperId, RuleSlot)> {
        let id = self.helper_id().filter(|_| direction == 0)?;
        let has_helper = |slot: &&RuleSlot| {
            let rule = self.snapshot().stateful(**slot);
            rule.and_then(|rule| rule.stream.as_deref()).and_then(|stream| stream.helper) == Some(Helper::Ftp)
        };
        let rule = self.live().iter().find(has_helper)?;
        Some((id, *rule))
    }

    /// Whether a helper follows a direction.
    #[inline]
    pub(super) fn has_helper(&self, direction: usize) -> bool {
        self.helper(direction).is_some()
    }

    /// Records the first bytes of the initiator of a control connection.
    pub(super) fn note_first_bytes(&mut self, InOrder { direction, bytes, .. }: InOrder<'_>) {
        if let Some(id) = self.helper_id().filter(|_| direction == 0) {
            let first = &mut self.tools().helpers.states[id].first_bytes;
            let room = first.remaining_capacity();
            first.extend(bytes.iter().copied().take(room));
        }
    }

    /// The next command at or after `position` in undecided bytes, or the start of a line that may become
    /// one.
    pub(super) fn next_command(&mut self, direction: usize, bytes: &[u8], position: usize) -> FtpStep {
        let Some((id, _)) = self.helper(direction) else { return FtpStep::Nothing };
        if !begins_ftp(&self.tools().helpers.states[id].first_bytes) {
            return FtpStep::Nothing;
        }
        FtpStep::next(bytes, position, self.last(direction))
    }

    /// Evaluates a command. Returns the argument to forward instead; `None` if the command is forwarded
    /// unchanged.
    pub(super) fn take_command(&mut self, announced: FtpEnd, form: FtpForm) -> Option<FtpArgument> {
        let (id, rule) = self.helper(0)?;
        let rules = (self.snapshot(), self.live());
        let control = self.control;
        let FtpEnd { address, port } = announced;
        // Both addresses of a connection have the same family, so an IPv4-only PORT always has room for the
        // new address.
        let expectations = &mut self.tools().helpers.expectations;
        match control.announce((address, port), rules, expectations) {
            Ok(Announced { outside: (address, port), reference, is_new }) => {
                self.tools().helpers.note(id, reference);
                self.expected += u32::from(is_new);
                let mut buffer = [0; MAX_FTP_END_BYTES];
                let len = FtpEnd { address, port }.write(form, &mut buffer)?;
                Some(FtpArgument { buffer, len, rule })
            }
            Err(why) => {
                self.counters.count_not_applied(why);
                None
            }
        }
    }
}
