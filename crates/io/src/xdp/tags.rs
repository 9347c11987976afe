// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! The instructions that put VLAN tags back into frames.
//!
//! A veth hands frames over with their VLAN tag beside them, where their sender left it for the device to insert
//! (`tx-vlan-offload`, on by default). AF_XDP shows the bytes of a frame only: it would show a tagged frame as an
//! untagged one, which a middlebox must not even forward. From Linux 6.8 on the program can ask the device for the
//! tag, and insert it.

use super::btf;
use crate::bpf::instruction::{
    CALL_OF_THE_KERNEL, EXIT, R0, R1, R2, R3, R4, R5, R6, R10, add, call, copy, instruction, load_half,
    load_word, set, store_half, store_word,
};

const RX_VLAN_TAG: &str = "bpf_xdp_metadata_rx_vlan_tag";

/// `struct xdp_md`: where the frame begins and ends.
const DATA: i16 = 0;
const DATA_END: i16 = 4;

const ADJUST_HEAD: i32 = 44;
const XDP_ABORTED: i32 = 0;

/// Stack offsets of the tag: its ether type as on the wire, and its value as a number.
const PROTOCOL: i16 = -8;
const VALUE: i16 = -4;

/// The instructions that a program begins with. With a tag beside the frame: room of four bytes in front, both addresses moved there, the tag
/// behind them. The context is in `R6` from then on.
///
/// # Errors
/// The kernel cannot, in words.
pub(super) fn insert_tag() -> Result<Vec<u64>, String> {
    let function = btf::function(RX_VLAN_TAG)
        .ok_or("before Linux 6.8 it cannot see VLAN tags that a veth hands over beside the frame")?;
    Ok(instructions(function))
}

fn instructions(function: u32) -> Vec<u64> {
    let insert = [
        copy(R1, R6),
        set(R2, -4),
        call(ADJUST_HEAD),
        instruction(0x55, R0, 0, 17, 0), // no room: to `give_up`
        load_word(R2, R6, DATA),
        load_word(R3, R6, DATA_END),
        copy(R4, R2),
        add(R4, 18),
        instruction(0x2d, R4, R3, 12, 0), // shorter than its header: to `give_up`
        load_word(R5, R2, 4),
        store_word(R2, 0, R5),
        load_word(R5, R2, 8),
        store_word(R2, 4, R5),
        load_word(R5, R2, 12),
        store_word(R2, 8, R5),
        load_half(R5, R10, PROTOCOL),
        store_half(R2, 12, R5),
        load_half(R5, R10, VALUE),
        instruction(0xdc, R5, 0, 0, 16), // to network order
        store_half(R2, 14, R5),
        instruction(0x05, 0, 0, 2, 0), // to the end
    ];
    let give_up = [set(R0, XDP_ABORTED), instruction(EXIT, 0, 0, 0, 0)];
    let ask = [
        copy(R6, R1),
        set(R2, 0),
        instruction(0x7b, R10, R2, PROTOCOL, 0), // the verifier wants the whole place written
        copy(R2, R10),
        add(R2, i32::from(PROTOCOL)),
        copy(R3, R10),
        add(R3, i32::from(VALUE)),
        instruction(0x85, 0, CALL_OF_THE_KERNEL, 0, function as i32),
        instruction(0x55, R0, 0, (insert.len() + give_up.len()) as i16, 0), // no tag: to the end
    ];
    [&ask[..], &insert, &give_up].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The target of the jump at `at`, counted from the program's start.
    fn target(program: &[u64], at: usize) -> usize {
        let bytes = program[at].to_ne_bytes();
        (at as isize + 1 + isize::from(i16::from_ne_bytes([bytes[2], bytes[3]]))) as usize
    }

    #[test]
    fn jumps_land_where_they_should() {
        let program = instructions(1);
        let give_up =
            program.iter().position(|&code| code == set(R0, XDP_ABORTED)).expect("it gives up somewhere");
        let end = give_up + 2;
        assert_eq!(program.len(), end);
        let jumps: Vec<usize> = (0..program.len())
            .filter(|&at| matches!(program[at].to_ne_bytes()[0], 0x55 | 0x2d | 0x05))
            .map(|at| target(&program, at))
            .collect();
        assert_eq!(jumps, [end, give_up, give_up, end]);
    }
}
