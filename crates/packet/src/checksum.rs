//! Internet checksums.
