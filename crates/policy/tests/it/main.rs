//! The integration tests of this crate, in one program, so that cargo links once.

mod ct;
mod policy_diff;
mod table;
