//! What happens to single segments of directions that are edited.
