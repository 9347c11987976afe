//! The integration tests of this crate, in one program, so that cargo links once.

mod checksum;
mod key;
mod offload;
mod options;
mod parse;
mod superframe;
mod tunnel;
mod vector;
