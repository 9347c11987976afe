//! TCP options.
