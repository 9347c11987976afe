//! Sending superframes in tunnels.
//!
//! Purpose: a packet socket describes no tunnels (`virtio_net_hdr` has no place for them), so that the kernel would refuse a superframe
//! with an outer header. [`Encapsulator`] sends the inner packet by the socket, as the superframe that it is, and has a BPF program at tc egress of the
//! interface put the outer headers around it (`bpf_skb_adjust_room`). Behind the program it is a superframe as Linux's own drivers of tunnels
//! make them: it crosses a veth whole, and a device that cannot cut it has the kernel do so.
//!
//! The outer headers lie in memory that is shared with the program, a slot for each sender. The superframe has the number of the slot in its
//! Ethernet addresses, behind eight random bytes by which the program knows it. The program runs inside the system call that sends, so that the
//! sender may write the next headers when the call returns, and knows then whether the program did its work.
//!
//! The program is attached by tcx (Linux 6.6), before other programs: they see the whole packet. A tcx link ends with the process, and nobody removes it by
//! accident, as a queueing discipline may be removed. On older kernels, or without CAP_BPF and CAP_NET_ADMIN, there is no [`Encapsulator`], and
//! segments in tunnels leave one by one.

use crate::bpf;
use crate::bpf::instruction::{
    EXIT, MAP_BY_DESCRIPTOR, R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10, add, add_register, call, copy,
    instruction, load_double, load_word, multiply, set, store_word,
};
use crate::mapping::Mapping;
use mmb_packet::{Superframe, TunnelHeaders, TunnelKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const ETHERNET_HEADER: usize = 14;
/// The most senders of an interface; further ones send segments in tunnels one by one.
const SLOTS: usize = 64;
/// The most bytes of headers before the inner IP header.
const MOST_HEADERS: usize = 144;
/// Bytes of the Ethernet addresses by which the program knows a superframe. The number of the slot is behind them.
const MARK: usize = 8;
const _: () = assert!(MARK + size_of::<u32>() == 12);

/// What a sender tells the program about the next superframe, and the program the sender.
#[repr(C)]
struct Slot {
    /// Bytes of headers.
    len: u32,
    /// An [`Encapsulated`].
    result: u32,
    /// The flags of `bpf_skb_adjust_room`.
    flags: u64,
    headers: [u8; MOST_HEADERS],
}

const LEN: i16 = 0;
const RESULT: i16 = 4;
const FLAGS: i16 = 8;
const HEADERS: i32 = 16;
const _: () = assert!(std::mem::offset_of!(Slot, result) == RESULT as usize);
const _: () = assert!(std::mem::offset_of!(Slot, flags) == FLAGS as usize);
const _: () = assert!(std::mem::offset_of!(Slot, headers) == HEADERS as usize);

/// What the program did with a superframe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Encapsulated {
    /// Nothing: the kernel had no memory for it, or the program is not attached.
    Not = 0,
    /// It has its headers.
    Done = 1,
    /// The kernel does not put these headers around it; it was dropped.
    Failed = 2,
}

/// The program at tc egress of an interface, and the memory that its senders share with it. Dropping it detaches the program.
#[derive(Debug)]
pub(super) struct Encapsulator {
    /// Of [`SLOTS`] slots.
    memory: Mapping,
    mark: [u8; MARK],
    taken: AtomicU32,
    _link: OwnedFd,
}

impl Encapsulator {
    /// Attaches a program to the interface of that number.
    ///
    /// # Errors
    /// A refusal by the kernel: mostly it is older than Linux 6.6, or the process lacks CAP_BPF or CAP_NET_ADMIN.
    pub(super) fn new(interface: i32) -> std::io::Result<Encapsulator> {
        let mark = random()?;
        let len = SLOTS * size_of::<Slot>();
        let map = bpf::shared_value(len as u32)?;
        let program = bpf::load_classifier(&program(map.as_raw_fd(), mark), "mmb_encap", "Apache-2.0")?;
        let memory = Mapping::new(map.as_fd(), len)?;
        let link = bpf::attach_egress(&program, interface)?;
        Ok(Encapsulator { memory, mark, taken: AtomicU32::new(0), _link: link })
    }

    /// A slot that no other sender has; `None` if there are none left.
    pub(super) fn slot(self: &Arc<Encapsulator>) -> Option<EncapsulatorSlot> {
        let number = self.taken.fetch_add(1, Ordering::Relaxed);
        let is_one = (number as usize) < SLOTS;
        is_one.then(|| EncapsulatorSlot { encapsulator: Arc::clone(self), number })
    }
}

/// One sender's place in the memory of an [`Encapsulator`].
#[derive(Debug)]
pub(super) struct EncapsulatorSlot {
    encapsulator: Arc<Encapsulator>,
    number: u32,
}

impl EncapsulatorSlot {
    /// Writes the outer headers of a superframe in a tunnel into the slot, and gives the Ethernet header to send its inner packet with.
    pub(super) fn prepare(
        &mut self,
        superframe: &Superframe,
        tunnel: &TunnelHeaders,
    ) -> [u8; ETHERNET_HEADER] {
        let outer = &superframe.headers()[..ETHERNET_HEADER + usize::from(tunnel.len)];
        let slot = self.slot();
        slot.result = Encapsulated::Not as u32;
        slot.flags = flags(tunnel);
        // A tunnel is never longer: an empty slot would have the program drop it.
        slot.len = 0;
        if let Some(place) = slot.headers.get_mut(..outer.len()) {
            place.copy_from_slice(outer);
            slot.len = outer.len() as u32;
        }
        let mut ethernet = [0; ETHERNET_HEADER];
        ethernet[..MARK].copy_from_slice(&self.encapsulator.mark);
        ethernet[MARK..12].copy_from_slice(&self.number.to_ne_bytes());
        let ether_type: u16 = if superframe.is_ip6() { 0x86dd } else { 0x0800 };
        ethernet[12..].copy_from_slice(&ether_type.to_be_bytes());
        ethernet
    }

    /// What became of the superframe that was sent last.
    pub(super) fn result(&mut self) -> Encapsulated {
        let result = &raw const self.slot().result;
        // SAFETY: aligned memory of the slot, which the program has written in the meantime.
        match unsafe { result.read_volatile() } {
            1 => Encapsulated::Done,
            2 => Encapsulated::Failed,
            _ => Encapsulated::Not,
        }
    }

    fn slot(&mut self) -> &mut Slot {
        let slots = self.encapsulator.memory.start().cast::<Slot>();
        // SAFETY: the memory has that many slots, for which any bytes will do. No other sender has this one, and the program touches it
        // only while this thread is in a system call.
        unsafe { slots.add(self.number as usize).as_mut() }
    }
}

fn random() -> std::io::Result<[u8; MARK]> {
    let mut bytes = [0u8; MARK];
    // SAFETY: place and length belong together. So few bytes come at once.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), MARK, 0) };
    if got == MARK as isize { Ok(bytes) } else { Err(std::io::Error::last_os_error()) }
}

/// The flags of `bpf_skb_adjust_room`: segments keep their size, and what the new headers are.
fn flags(tunnel: &TunnelHeaders) -> u64 {
    const FIXED_SIZE: u64 = 1;
    const IP4: u64 = 1 << 1;
    const IP6: u64 = 1 << 2;
    const GRE: u64 = 1 << 3;
    const UDP: u64 = 1 << 4;
    const ETHERNET: u64 = 1 << 6 | (ETHERNET_HEADER as u64) << 56;
    let network = if tunnel.is_ip6 { IP6 } else { IP4 };
    let kind = match tunnel.kind {
        TunnelKind::Udp => UDP,
        TunnelKind::Gre => GRE,
        TunnelKind::Ip => 0,
    };
    FIXED_SIZE | network | kind | if tunnel.has_ethernet { ETHERNET } else { 0 }
}

const MAP_LOOKUP: i32 = 1;
const STORE_BYTES: i32 = 9;
const ADJUST_ROOM: i32 = 50;
/// Room behind the Ethernet header.
const ROOM_MAC: i32 = 1;

/// Fields of `struct __sk_buff`.
const SKB_DATA: i16 = 76;
const SKB_DATA_END: i16 = 80;

/// Results of a program at tcx.
const TCX_NEXT: i32 = -1;
const TCX_DROP: i32 = 2;

/// Conditional jumps; those by words of 32 bits compare the number as it is.
const IF_ZERO: u8 = 0x15;
const IF_NOT: u8 = 0x55;
const IF_NOT_WORD: u8 = 0x56;
const IF_ABOVE: u8 = 0x25;
const IF_BELOW: u8 = 0xa5;
const IF_ABOVE_REGISTER: u8 = 0x2d;

/// Offsets of jumps to the ends of the program, until their distances are known.
const TO_NEXT: i16 = i16::MAX;
const TO_DROP: i16 = i16::MAX - 1;
const TO_FAILED: i16 = i16::MAX - 2;

/// The instructions: what has not the mark goes on as it is. What has it gets the headers of its slot, or is dropped.
fn program(map: i32, mark: [u8; MARK]) -> Vec<u64> {
    let words = [0, 4].map(|at| i32::from_ne_bytes([mark[at], mark[at + 1], mark[at + 2], mark[at + 3]]));
    let jump = |code, register, to, value| instruction(code, register, 0, to, value);
    const KEY: i16 = -4;
    let mut program = [
        // The mark.
        &[copy(R6, R1), load_word(R2, R6, SKB_DATA), load_word(R3, R6, SKB_DATA_END)][..],
        &[copy(R1, R2), add(R1, 12), instruction(IF_ABOVE_REGISTER, R1, R3, TO_NEXT, 0)],
        &[load_word(R4, R2, 0), jump(IF_NOT_WORD, R4, TO_NEXT, words[0])],
        &[load_word(R4, R2, 4), jump(IF_NOT_WORD, R4, TO_NEXT, words[1])],
        // R7 becomes the slot.
        &[load_word(R8, R2, 8), jump(IF_ABOVE, R8, TO_DROP, SLOTS as i32 - 1)],
        &[multiply(R8, size_of::<Slot>() as i32), set(R1, 0), store_word(R10, KEY, R1)],
        &[instruction(0x18, R1, MAP_BY_DESCRIPTOR, 0, map), 0, copy(R2, R10), add(R2, i32::from(KEY))],
        &[call(MAP_LOOKUP), jump(IF_ZERO, R0, TO_DROP, 0), copy(R7, R0), add_register(R7, R8)],
        // The headers. R9 is their length.
        &[load_word(R9, R7, LEN), jump(IF_ABOVE, R9, TO_FAILED, MOST_HEADERS as i32)],
        &[jump(IF_BELOW, R9, TO_FAILED, ETHERNET_HEADER as i32 + 1)],
        &[copy(R1, R6), copy(R2, R9), add(R2, -(ETHERNET_HEADER as i32)), set(R3, ROOM_MAC)],
        &[load_double(R4, R7, FLAGS), call(ADJUST_ROOM), jump(IF_NOT, R0, TO_FAILED, 0)],
        &[copy(R1, R6), set(R2, 0), copy(R3, R7), add(R3, HEADERS), copy(R4, R9), set(R5, 0)],
        &[call(STORE_BYTES), jump(IF_NOT, R0, TO_FAILED, 0)],
        &[set(R1, Encapsulated::Done as i32), store_word(R7, RESULT, R1)],
    ]
    .concat();
    let exit = instruction(EXIT, 0, 0, 0, 0);
    let next = program.len();
    program.extend([set(R0, TCX_NEXT), exit]);
    let failed = program.len();
    program.extend([set(R1, Encapsulated::Failed as i32), store_word(R7, RESULT, R1)]);
    let drop = program.len();
    program.extend([set(R0, TCX_DROP), exit]);
    for (at, instruction) in program.iter_mut().enumerate() {
        let mut bytes = instruction.to_ne_bytes();
        let to = match i16::from_ne_bytes([bytes[2], bytes[3]]) {
            TO_NEXT => next,
            TO_DROP => drop,
            TO_FAILED => failed,
            _ => continue,
        };
        bytes[2..4].copy_from_slice(&((to - at - 1) as i16).to_ne_bytes());
        *instruction = u64::from_ne_bytes(bytes);
    }
    program
}
