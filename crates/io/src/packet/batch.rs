// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Sends many frames without an interruption between them.
//!
//! The kernel takes each message of `sendmmsg` apart: it sends one frame, and then allows soft interrupts again. On a virtual
//! interface the frame is then with its receiver, so that the receiver runs, or an interrupt tells another core of a single frame, before the
//! next frame is sent. Such an interrupt takes longer than all the rest of sending and receiving.
//!
//! A BPF program does not have this end after each frame. [`FrameBatch`] lays frames into memory that it shares with a program of its own, and
//! runs the program by the system call that runs programs once (`BPF_PROG_TEST_RUN`): in it soft interrupts wait, and the program sends one
//! frame after the other by `bpf_clone_redirect`, which is the usual way out of the interface with its queueing discipline and
//! filters. Frames that the program cannot send are left to the caller, who sends them by its socket: it is also the way of
//! processes that may not load programs.
//!
//! The packet of the run, which the kernel makes from a header given, is the buffer that each frame is written into before a copy of
//! it is sent. The ether type of this header becomes that of the frames in the kernel, so that a run has frames of one ether type.

use crate::bpf;
use crate::bpf::instruction::{
    EXIT, MAP_BY_DESCRIPTOR, R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10, add, add_register, call, copy,
    instruction, load_word, set, shift_left, store_word,
};
use crate::mapping::Mapping;
use crate::mbuf::{BURST, Mbuf};
use crate::queue::LostFrames;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Bytes of frames of one run.
const SPACE: usize = 256 << 10;
/// The longest frame of a run. The kernel extends packets to a little more than this.
const LONGEST: usize = 15 << 10;
/// The length of an Ethernet header.
const SHORTEST: usize = 14;
/// Frames lie at multiples of this.
const ALIGNMENT: usize = 8;
/// Fewer frames than this are sent sooner by the socket: making the packet of a run costs as much as sending a few frames.
const WORTHWHILE: usize = 4;
/// The bytes of the packet of a run: the kernel refuses one that is only a header.
const TEMPLATE: usize = 64;
/// The ether type of VLAN tags. The kernel allows no others beside the MTU.
const VLAN: [u8; 2] = [0x81, 0];
/// The place of the ether type in a frame.
const ETHER_TYPE: usize = 12;

const PROG_RUN: libc::c_long = 10;
/// The kernel lets programs call `bpf_check_mtu` only under a licence that is compatible with its own. The instructions in this file are to be had
/// under version 2 of the GPL too.
const LICENSE: &str = "GPL v2";

/// The memory shared with the program. Both sides only read and write words of it.
#[repr(C)]
struct SharedFrames {
    /// Frames to send.
    count: u32,
    /// Frames sent, or lost.
    sent: u32,
    /// The result of the call that did not succeed, after which the program ended: 0 or that of the interface, which may be negative.
    result: i32,
    /// A number that is added to lengths when they are held against the MTU: minus the bytes of a VLAN tag, which the kernel allows beside it.
    allowance: i32,
    /// If not 0, the program drops frames that find no room, and goes on.
    loses: u32,
    /// Frames lost.
    lost: u32,
    /// Their bytes.
    lost_bytes: u32,
    padding: u32,
    /// The place of each frame in `bytes`, and its length.
    places: [[u32; 2]; BURST],
    bytes: [u8; SPACE + LONGEST],
}

const COUNT: i16 = 0;
const SENT: i16 = 4;
const RESULT: i16 = 8;
const ALLOWANCE: i16 = 12;
const LOSES: i16 = 16;
const LOST: i16 = 20;
const LOST_BYTES: i16 = 24;
const PLACES: i16 = 32;
const BYTES: i32 = 32 + 8 * BURST as i32;
const _: () = assert!(std::mem::offset_of!(SharedFrames, sent) == SENT as usize);
const _: () = assert!(std::mem::offset_of!(SharedFrames, result) == RESULT as usize);
const _: () = assert!(std::mem::offset_of!(SharedFrames, allowance) == ALLOWANCE as usize);
const _: () = assert!(std::mem::offset_of!(SharedFrames, loses) == LOSES as usize);
const _: () = assert!(std::mem::offset_of!(SharedFrames, lost) == LOST as usize);
const _: () = assert!(std::mem::offset_of!(SharedFrames, lost_bytes) == LOST_BYTES as usize);
const _: () = assert!(std::mem::offset_of!(SharedFrames, places) == PLACES as usize);
const _: () = assert!(std::mem::offset_of!(SharedFrames, bytes) == BYTES as usize);

/// The part of `union bpf_attr` that a run of a program reads and writes.
#[repr(C)]
#[derive(Debug, Default)]
struct RunRequest {
    program: u32,
    result: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Frames from the front that were sent, or lost.
    pub(super) done: usize,
    /// Those of them that were lost.
    pub(super) lost: LostFrames,
    pub(super) end: RunEnd,
}

impl Run {
    fn none(end: RunEnd) -> Run {
        Run { done: 0, lost: LostFrames::default(), end }
    }
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunEnd {
    /// All frames that the run had are sent or lost; there may be more.
    Sent,
    /// There was no run: this many frames are too few.
    TooFew(usize),
    /// The interface has no room for the next frame.
    NoRoom,
    /// The next frame cannot be sent this way.
    Stopped,
}

/// A program that sends frames by one interface, and its memory.
#[derive(Debug)]
pub(super) struct FrameBatch {
    program: OwnedFd,
    /// Of one [`SharedFrames`].
    memory: Mapping,
}

impl FrameBatch {
    /// Loads a program for the interface of that number.
    ///
    /// # Errors
    /// A refusal by the kernel: mostly it is older than Linux 5.12, or the process lacks CAP_BPF.
    pub(super) fn new(interface: i32) -> std::io::Result<FrameBatch> {
        let map = bpf::shared_value(size_of::<SharedFrames>() as u32)?;
        let program = bpf::load_classifier(&program(map.as_raw_fd(), interface), "mmb_send", LICENSE)?;
        Ok(FrameBatch { program, memory: Mapping::new(map.as_fd(), size_of::<SharedFrames>())? })
    }

    /// Sends frames from the front of the slice, which has one at least. With `loses`, a frame that finds no room is dropped, and the next
    /// frame is sent. Without it, the run ends there.
    pub(super) fn send(&mut self, frames: &[Mbuf], loses: bool) -> Run {
        let mut template = [0; TEMPLATE];
        let count = self.fill(frames, &mut template);
        if count < WORTHWHILE {
            return Run::none(RunEnd::TooFew(count.max(1)));
        }
        self.shared().loses = loses.into();
        let mut request = RunRequest {
            program: self.program.as_raw_fd() as u32,
            data_size_in: TEMPLATE as u32,
            data_in: template.as_ptr() as u64,
            repeat: 1,
            ..RunRequest::default()
        };
        // SAFETY: the request has the length given, and its packet lies in `template`; the program writes only to the shared memory.
        let done = unsafe {
            let size = size_of::<RunRequest>() as libc::c_uint;
            libc::syscall(libc::SYS_bpf, PROG_RUN, &raw mut request, size)
        };
        if done < 0 {
            return Run::none(RunEnd::Stopped);
        }
        let shared = self.shared();
        let done = (shared.sent as usize).min(count);
        let lost =
            LostFrames { frames: u64::from(shared.lost).min(done as u64), bytes: shared.lost_bytes.into() };
        let end = match shared.result {
            _ if done == count => RunEnd::Sent,
            XMIT_DROP => RunEnd::NoRoom,
            _ => RunEnd::Stopped,
        };
        Run { done, lost, end }
    }

    /// Lays down the frames of one ether type at the front, as many as there is space for; returns their number.
    fn fill(&mut self, frames: &[Mbuf], template: &mut [u8; TEMPLATE]) -> usize {
        let shared = self.shared();
        let kind = |frame: &Mbuf| frame.bytes().get(ETHER_TYPE..SHORTEST).map(|kind| [kind[0], kind[1]]);
        let Some(first) = frames.first().and_then(kind) else { return 0 };
        template[ETHER_TYPE..SHORTEST].copy_from_slice(&first);
        let (mut count, mut at) = (0, 0);
        for (frame, place) in frames.iter().zip(&mut shared.places) {
            if kind(frame) != Some(first) || frame.len() > LONGEST || at > SPACE {
                break;
            }
            shared.bytes[at..at + frame.len()].copy_from_slice(frame.bytes());
            *place = [at as u32, frame.len() as u32];
            at += frame.len().next_multiple_of(ALIGNMENT);
            count += 1;
        }
        shared.count = count as u32;
        shared.sent = 0;
        shared.result = 0;
        (shared.lost, shared.lost_bytes) = (0, 0);
        shared.allowance = if first == VLAN { -4 } else { 0 };
        count
    }

    fn shared(&mut self) -> &mut SharedFrames {
        // SAFETY: the mapping has this size and lives as long as this value; any bytes will do for its fields; the program runs only
        // while `send` waits for it, and there is no reference to the memory then.
        unsafe { self.memory.start().cast().as_mut() }
    }
}

/// What sending returns for a frame that was dropped: by a full queue of the interface, or by a filter before it (Linux's `NET_XMIT_DROP`).
const XMIT_DROP: i32 = 1;
/// What sending returns for a frame that is in the queue of the interface, which has dropped another one (`NET_XMIT_CN`).
const XMIT_CN: i32 = 2;

const MAP_LOOKUP: i32 = 1;
const STORE_BYTES: i32 = 9;
const CLONE_REDIRECT: i32 = 13;
const CHANGE_TAIL: i32 = 38;
const CHECK_MTU: i32 = 163;

/// Conditional jumps: if equal to a number (0) or not, if above a number or below, if not below a register.
const IF_EQUAL: u8 = 0x15;
const IF_NOT: u8 = 0x55;
const IF_ABOVE: u8 = 0x25;
const IF_BELOW: u8 = 0xa5;
const UNLESS_BELOW: u8 = 0x3d;
const UNLESS_BELOW_NUMBER: u8 = 0x35;
const ALWAYS: u8 = 0x05;

/// Stack offset of the key of the map, and of the MTU that the kernel tells.
const SCRATCH: i16 = -4;

/// The instructions. For each frame in turn: the packet gets the frame's length, is held against the MTU, gets the frame's bytes, and a copy of it
/// is sent. The first call that fails ends the program, but for a frame that may be lost.
fn program(map: i32, interface: i32) -> Vec<u64> {
    let jump = |code, register, value| instruction(code, register, 0, TO_END, value);
    let place = || [copy(R1, R8), shift_left(R1, 3), add_register(R1, R7)];
    let packet = || copy(R1, R6);
    let over = |code, value, count: usize| instruction(code, R0, 0, count as i16, value);
    let loss = [
        &[jump(IF_NOT, R0, XMIT_DROP), load_word(R1, R7, LOSES), jump(IF_BELOW, R1, 1)][..],
        &[load_word(R1, R7, LOST), add(R1, 1), store_word(R7, LOST, R1)],
        &place(),
        &[load_word(R2, R1, PLACES + 4), load_word(R3, R7, LOST_BYTES), add_register(R3, R2)],
        &[store_word(R7, LOST_BYTES, R3)],
    ]
    .concat();
    let turn: Vec<u64> = [
        // R8 is the number of the frame. The second comparison is for the verifier.
        &[instruction(UNLESS_BELOW, R8, R9, TO_END, 0), jump(UNLESS_BELOW_NUMBER, R8, BURST as i32)][..],
        &place(),
        &[load_word(R2, R1, PLACES + 4)],
        &[jump(IF_ABOVE, R2, LONGEST as i32), jump(IF_BELOW, R2, SHORTEST as i32)],
        &[packet(), set(R3, 0), call(CHANGE_TAIL), jump(IF_NOT, R0, 0)],
        &[packet(), set(R2, interface), copy(R3, R10), add(R3, i32::from(SCRATCH))],
        &[
            load_word(R4, R7, ALLOWANCE),
            set(R5, 0),
            store_word(R10, SCRATCH, R5),
            call(CHECK_MTU),
            jump(IF_NOT, R0, 0),
        ],
        // The memory may have changed since, as far as the verifier knows.
        &place(),
        &[load_word(R3, R1, PLACES), load_word(R4, R1, PLACES + 4)],
        &[jump(IF_ABOVE, R3, SPACE as i32)],
        &[jump(IF_ABOVE, R4, LONGEST as i32), jump(IF_BELOW, R4, SHORTEST as i32)],
        &[add_register(R3, R7), add(R3, BYTES), packet(), set(R2, 0), set(R5, 0), call(STORE_BYTES)],
        &[jump(IF_NOT, R0, 0)],
        &[packet(), set(R2, interface), set(R3, 0), call(CLONE_REDIRECT)],
        &[store_word(R7, RESULT, R0), over(IF_EQUAL, 0, loss.len() + 1), over(IF_EQUAL, XMIT_CN, loss.len())],
        &loss,
        &[add(R8, 1)],
    ]
    .concat();
    let start = [
        copy(R6, R1),
        set(R1, 0),
        store_word(R10, SCRATCH, R1),
        instruction(0x18, R1, MAP_BY_DESCRIPTOR, 0, map),
        0, // the upper half of the map's address
        copy(R2, R10),
        add(R2, i32::from(SCRATCH)),
        call(MAP_LOOKUP),
        jump(IF_EQUAL, R0, 0),
        copy(R7, R0),
        load_word(R9, R7, COUNT),
        set(R8, 0),
    ];
    let again = instruction(ALWAYS, 0, 0, -(turn.len() as i16) - 1, 0);
    let end = [store_word(R7, SENT, R8), set(R0, 0), instruction(EXIT, 0, 0, 0, 0)];
    let mut program = [&start[..], &turn, &[again], &end].concat();
    land(&mut program, end.len());
    program
}

/// The distance of a jump to the end, until `land` knows it.
const TO_END: i16 = i16::MAX;

/// Makes jumps to the end land on its first instruction; without the map, on the second.
fn land(program: &mut [u64], end: usize) {
    let first = program.len() - end;
    for (at, instruction) in program.iter_mut().enumerate() {
        let mut bytes = instruction.to_ne_bytes();
        if i16::from_ne_bytes([bytes[2], bytes[3]]) == TO_END {
            let to = if bytes[0] == IF_EQUAL { first + 1 } else { first };
            bytes[2..4].copy_from_slice(&((to - at - 1) as i16).to_ne_bytes());
            *instruction = u64::from_ne_bytes(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_land_where_they_should() {
        let program = program(3, 7);
        let end = program.len() - 3;
        assert_eq!(program[end], store_word(R7, SENT, R8));
        let loop_start = program.iter().position(|code| code.to_ne_bytes()[0] == UNLESS_BELOW);
        for (at, code) in program.iter().map(|code| code.to_ne_bytes()).enumerate() {
            let offset = i16::from_ne_bytes([code[2], code[3]]);
            let to = (at as isize + 1 + isize::from(offset)) as usize;
            match code[0] {
                // One that was sent: to the next frame.
                IF_EQUAL if at > loop_start.expect("there is a loop") => assert_eq!(program[to], add(R8, 1)),
                IF_EQUAL => assert_eq!(to, end + 1, "without memory there is nowhere to write to"),
                ALWAYS => assert_eq!(Some(to), loop_start),
                UNLESS_BELOW | UNLESS_BELOW_NUMBER | IF_NOT | IF_ABOVE | IF_BELOW => assert_eq!(to, end),
                _ => {}
            }
        }
    }

    #[cfg(dpdk)]
    mod sending {
        use super::*;
        use crate::kernel::KernelInterface;
        use crate::mbuf::{Burst, testing::mbuf};

        /// An ether type that nothing listens to.
        const EXPERIMENTAL: [u8; 2] = [0x88, 0xb5];

        fn frames(frames: &[([u8; 2], usize)]) -> Burst {
            let frame = |&(kind, len): &([u8; 2], usize)| {
                let mut bytes = vec![0; len];
                bytes[ETHER_TYPE..SHORTEST].copy_from_slice(&kind);
                mbuf(&bytes)
            };
            frames.iter().map(frame).collect()
        }

        /// `None` where the process may not load programs.
        fn batch() -> Option<FrameBatch> {
            let lo = KernelInterface::find("lo").expect("every namespace has one");
            FrameBatch::new(lo.index()).ok().filter(|_| lo.state().up)
        }

        /// How many frames a run sends, and its end.
        fn run(batch: &mut FrameBatch, frames: &[Mbuf]) -> (usize, RunEnd) {
            let Run { done, lost, end } = batch.send(frames, false);
            assert_eq!(lost, LostFrames::default());
            (done, end)
        }

        #[test]
        fn a_run_has_frames_of_one_ether_type() {
            let Some(mut batch) = batch() else { return };
            let mut mixed = vec![(EXPERIMENTAL, SHORTEST); 5];
            mixed.push(([0x88, 0xb6], 60));
            mixed.extend([(EXPERIMENTAL, 1514); 5]);
            let mixed = frames(&mixed);
            assert_eq!(run(&mut batch, &mixed), (5, RunEnd::Sent));
            assert_eq!(run(&mut batch, &mixed[5..]), (0, RunEnd::TooFew(1)));
            assert_eq!(run(&mut batch, &mixed[6..]), (5, RunEnd::Sent));
        }

        #[test]
        fn a_run_ends_when_its_memory_is_full() {
            let Some(mut batch) = batch() else { return };
            let long = frames(&[(EXPERIMENTAL, 3500); BURST]);
            let (sent, end) = run(&mut batch, &long);
            assert_eq!((sent, end), (SPACE / 3504 + 1, RunEnd::Sent));
        }

        #[test]
        fn an_interface_that_is_gone_stops_a_run() {
            let Some(_) = batch() else { return };
            let mut batch = FrameBatch::new(i32::MAX).expect("as before");
            assert_eq!(run(&mut batch, &frames(&[(EXPERIMENTAL, 60); 8])), (0, RunEnd::Stopped));
        }
    }
}
