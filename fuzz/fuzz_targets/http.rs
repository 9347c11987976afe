//! See `mmb_differential::fuzz::http`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mmb_differential::fuzz::http(data));
