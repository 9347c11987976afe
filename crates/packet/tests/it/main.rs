//! The tests of this crate from outside, in one program: each is linked once.

mod checksum;
mod key;
mod offload;
mod options;
mod parse;
mod superframe;
mod tunnel;
mod vector;
