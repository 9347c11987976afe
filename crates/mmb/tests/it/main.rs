//! The tests of this crate from outside, in one program: each is linked once.

#![recursion_limit = "256"]

mod bench;
mod client;
mod client_files;
mod common;
mod golden;
mod man;
mod replay;
mod service;
mod shell;
mod talk;
