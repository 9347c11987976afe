//! The tests of this crate from outside, in one program: each is linked once.

mod ct;
mod policy_diff;
mod table;
