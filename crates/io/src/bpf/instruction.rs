//! BPF instructions, as the kernel reads them (RFC 9669).

/// Registers: `R0` has results, `R1` to `R5` arguments, calls preserve `R6` to `R9`, `R10` is the frame of the stack.
pub(crate) const R0: u8 = 0;
pub(crate) const R1: u8 = 1;
pub(crate) const R2: u8 = 2;
pub(crate) const R3: u8 = 3;
pub(crate) const R4: u8 = 4;
pub(crate) const R5: u8 = 5;
pub(crate) const R6: u8 = 6;
pub(crate) const R7: u8 = 7;
pub(crate) const R8: u8 = 8;
pub(crate) const R9: u8 = 9;
pub(crate) const R10: u8 = 10;

pub(crate) fn instruction(code: u8, to: u8, from: u8, offset: i16, value: i32) -> u64 {
    let mut bytes = [0; 8];
    bytes[0] = code;
    bytes[1] = from << 4 | to;
    bytes[2..4].copy_from_slice(&offset.to_ne_bytes());
    bytes[4..].copy_from_slice(&value.to_ne_bytes());
    u64::from_ne_bytes(bytes)
}

pub(crate) fn copy(to: u8, from: u8) -> u64 {
    instruction(0xbf, to, from, 0, 0)
}

pub(crate) fn set(to: u8, value: i32) -> u64 {
    instruction(0xb7, to, 0, 0, value)
}

pub(crate) fn add(to: u8, value: i32) -> u64 {
    instruction(0x07, to, 0, 0, value)
}

pub(crate) fn load_word(to: u8, from: u8, offset: i16) -> u64 {
    instruction(0x61, to, from, offset, 0)
}

pub(crate) fn load_double(to: u8, from: u8, offset: i16) -> u64 {
    instruction(0x79, to, from, offset, 0)
}

pub(crate) fn store_word(to: u8, offset: i16, from: u8) -> u64 {
    instruction(0x63, to, from, offset, 0)
}

pub(crate) fn load_half(to: u8, from: u8, offset: i16) -> u64 {
    instruction(0x69, to, from, offset, 0)
}

pub(crate) fn store_half(to: u8, offset: i16, from: u8) -> u64 {
    instruction(0x6b, to, from, offset, 0)
}

pub(crate) fn call(helper: i32) -> u64 {
    instruction(0x85, 0, 0, 0, helper)
}

pub(crate) const CALL_OF_THE_KERNEL: u8 = 2;
pub(crate) const MAP_BY_DESCRIPTOR: u8 = 1;
pub(crate) const EXIT: u8 = 0x95;

pub(crate) fn add_register(to: u8, from: u8) -> u64 {
    instruction(0x0f, to, from, 0, 0)
}

pub(crate) fn shift_left(to: u8, bits: i32) -> u64 {
    instruction(0x67, to, 0, 0, bits)
}

pub(crate) fn multiply(to: u8, value: i32) -> u64 {
    instruction(0x27, to, 0, 0, value)
}
