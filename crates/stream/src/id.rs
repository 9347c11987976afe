//! The number of a stream.

use mmb_base::id_types;

id_types! {
    /// A worker's stream.
    pub struct StreamId;
}
