//! The integration tests of this crate, in one program, so that cargo links once.

mod command_mistakes;
mod edit_mistakes;
mod edits;
mod errors;
mod examples;
mod http_mistakes;
mod limits;
mod messages;
mod mistakes;
mod reference;
mod seeming_mistakes;
mod sets;
mod shadowed;
mod stream_mistakes;
