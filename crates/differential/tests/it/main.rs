//! The tests of this crate from outside, in one program: each is linked once.

mod corpora;
mod http_seeds;
mod offload;
mod oracle;
mod oracle_cases;
mod oracle_plan;
mod taps;
mod tracked;
