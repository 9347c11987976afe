//! See `mmb_differential::fuzz::scan`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mmb_differential::fuzz::scan(data));
