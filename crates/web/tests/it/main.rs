//! The tests of this crate from outside, in one program: each is linked once.

mod common;
mod metrics;
mod openapi;
mod rest;
mod security;
