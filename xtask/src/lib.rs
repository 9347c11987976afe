//! Checks of the repository for its developers, which `make lint` runs.
//!
//! [`check_structure`] compares the code with ARCHITECTURE.md: the crates depend on each other as its table
//! says, no files of a crate use each other in a circle, and the folders of a crate use each other as its
//! tables say. [`check_dependencies`] finds dependencies that a manifest names and the code does not use.
//!
//! Both parse the sources (`tree`), resolve the paths in them (`names`) and collect what each file uses
//! (`uses`). Their limits: types are not inferred, so the call of a method is no use of the file that defines
//! the method. Macros are not expanded: the paths among the tokens of an invocation count, and each name
//! among the tokens may be defined by it.
#![forbid(unsafe_code)]

mod attributes;
mod circles;
mod crates;
mod dependencies;
mod folders;
mod macros;
mod names;
mod path;
mod prelude;
mod structure;
mod table;
mod tree;
mod uses;
mod workspace;

pub use dependencies::check_dependencies;
pub use structure::check_structure;
pub use tree::Sources;
pub use workspace::{Findings, Workspace};
