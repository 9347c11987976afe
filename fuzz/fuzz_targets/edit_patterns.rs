//! See `mmb_differential::fuzz::edit_patterns`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mmb_differential::fuzz::edit_patterns(data));
