//! Rules on the messages of HTTP/1.x: which are met, and which bytes of a connection they replace.
//!
//! Purpose: an editor is shown the bytes of both directions of a connection that are not decided, and says which of them pass, which are replaced,
//! and which are to be shown again with more. Both ends keep talking TCP to each other; every output byte belongs to an input byte.
//!
//! Life-cycle: [`HttpRules::compile`] for a policy, off the packet path; for each worker an [`HttpMemory`], a scanner with
//! [`HttpRules::sets`] and a scratch for [`HttpRules::edit_patterns`]; for each connection an [`HttpEditor`], from its first byte,
//! [`HttpEditor::edit`] for new bytes, [`HttpEditor::change_rules`] when the policy changes, [`HttpEditor::close`].
//!
//! When a rule is met: the constraints of a rule are about one request and its final response. What is asked of a request is known with its head,
//! the status with the response's head. `http-header` holds as soon as the head of either has such a header; negated when both heads are known and
//! none has. `http-body` holds as soon as a body has a match; negated never, since it would be known too late. `http-uri` looks at
//! what the server looks at: the target without scheme and authority. Interim responses (1xx but 101) are nothing that rules are about, and pass.
//!
//! What a rule then does: one that ends the connection does so before the byte that made it met has passed. Edits of heads apply to each head
//! that is not yet complete before the rule is met, in the order of the rules and of the targets in a rule, one after the other; constraints are
//! always about messages as they were sent. `mask`, `mod` and `strip` on bodies act on what their constraint finds, if the others are met with the
//! head: of all matches of all such rules the leftmost, of these the longest, of these the first rule's. `add http-body` acts at a body's end.
//!
//! How a body leaves that may be edited: with edits that keep its length, in the framing that it has; without a length, as it is;
//! otherwise in chunks of our own. If sender or receiver speak HTTP/1.0, a response behind which the server closes leaves without a length,
//! as it is; requests of HTTP/1.0 ask for that: Connection loses `keep-alive` where a rule may change the length of the response's body. Another message leaves
//! at once with a right length. A response without its length whose sender closes too early is refused, since its client would take it for complete.
//!
//! The head leaves first: an ETag becomes weak, and digests go, where a body *may* be changed. A body with a content coding, a part of one, and one that
//! `Cache-Control: no-transform` protects, pass unedited; so does a long one whose length would have to be known. All of these are told.
//!
//! Messages that cannot be read ([`HttpUnfit`](mmb_http::HttpUnfit)): if the rules of the connection only report, or
//! under `http unfit pass`, the connection passes from there on without rules. A body whose framing was changed keeps
//! that framing to its end, unedited. Otherwise the connection must end. Responses that are read although the grammar
//! forbids them are mended (`mend`) where rules edit.
//!
//! Bounds: a connection has at most [`MAX_LIVE_RULES`] rules on HTTP, a rule [`MAX_CONSTRAINTS`] constraints. Exchanges that are not over have room
//! for 128 states of rules together; further requests wait for responses. Held bytes of a begun match are looked at again with each call; they are at
//! most the longest match, and the framing between them. Nothing is allocated on the packet path. No I/O, no clock: the caller says when held
//! bytes were held long enough.
#![forbid(unsafe_code)]

mod bodies;
mod body;
mod detect;
mod editor;
mod exchange;
mod head_edit;
mod heads;
mod judge;
mod limits;
mod memory;
mod mend;
mod output;
mod plan;
mod rule;
mod state;
mod texts;

pub use editor::{HttpProgress, HttpTools};
pub use exchange::MAX_LIVE_RULES;
pub use memory::HttpMemory;
pub use output::{EditOutput, HttpNote, MAX_NAMED_RULES};
pub use rule::{HttpEnd, HttpRuleError, HttpRules, MAX_CONSTRAINTS, MAX_REPLACEMENT_BYTES, MAX_TAIL_BYTES};
pub use state::{Held, HttpEditor, HttpInput};
