//! Rules on HTTP, by what both ends of a connection see.

mod bodies;
mod constraints;
mod harness;
mod heads;
mod holding;
mod messages;
mod odd;
mod random;
