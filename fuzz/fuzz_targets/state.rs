//! See `mmb_referee::fuzz::state`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mmb_referee::fuzz::state(data));
