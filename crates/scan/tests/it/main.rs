//! The tests of this crate from outside, in one program: each is linked once.

mod edit_oracle;
mod edits;
mod matches;
mod oracle;
mod refusals;
mod states;
