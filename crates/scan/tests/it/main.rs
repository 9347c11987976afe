//! The integration tests of this crate, in one program, so that cargo links once.

mod edit_oracle;
mod edits;
mod matches;
mod oracle;
mod refusals;
mod states;
