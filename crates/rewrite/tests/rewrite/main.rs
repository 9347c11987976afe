//! Edits on packets of every kind, against plain models.

mod common;
mod fields;
mod options;
mod payload;
