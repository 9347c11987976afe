//! The checks find faults that are planted in small workspaces, and none in sound ones.

mod circles;
mod crates;
mod dependencies;
mod plant;
