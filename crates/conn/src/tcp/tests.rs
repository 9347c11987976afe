//! Scripts of segments, with what each one does.

use super::*;

#[test]
fn a_tracker_is_as_small_as_its_place() {
    assert_eq!(size_of::<Tracker>(), 22);
}
