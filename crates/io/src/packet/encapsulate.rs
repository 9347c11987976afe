//! Sending superframes in tunnels.
//!
//! Purpose: a packet socket cannot describe a superframe in a tunnel (`virtio_net_hdr` has no fields for it), so the kernel would cut it by its outer
//! header. [`Encapsulator`] sends the inner superframe by a socket of its own, and a BPF program at tc egress of the interface adds the outer headers
//! (`bpf_skb_adjust_room`). After the program, the kernel treats it as a superframe of a tunnel device (`SKB_GSO_UDP_TUNNEL`,
//! `SKB_GSO_GRE`, `SKB_GSO_IPXIP4`, `SKB_GSO_IPXIP6`): it crosses a veth whole, and the kernel cuts it for a device that cannot. The kernel copies
//! an outer UDP checksum to each segment, and the superframe has the one that each segment needs.
//!
//! The outer headers lie in memory that is shared with the program, a slot for each sender. The program runs inside the system call that
//! sends, so that the sender may write the next headers when the call returns, and knows then what the program did.
//!
//! The program knows these superframes by the mark of the socket, which no packet from outside has, and by their Ethernet addresses, which also
//! hold the number of the slot. The destination is a group address that no bridge forwards (IEEE 802.1Q, table 8-1): if somebody detaches the
//! program, one inner packet of each sender leaves without its tunnel, and goes no further than to the peer, which drops it.
//!
//! The program is attached by tcx (Linux 6.6), before the tcx programs that are attached already. A tcx link ends with the process. On older
//! kernels, or without CAP_BPF and CAP_NET_ADMIN, [`Encapsulator::new`] fails, and each segment in a tunnel is sent alone.

use super::socket::PacketSocket;
use crate::bpf;
use crate::bpf::instruction::{
    EXIT, MAP_BY_DESCRIPTOR, R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10, add, add_register, call, copy,
    instruction, load_double, load_half, load_word, multiply, set, store_word,
};
use crate::mapping::Mapping;
use mmb_packet::{Superframe, TunnelHeaders, TunnelKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

const ETHERNET_HEADER: usize = 14;
/// The most senders of an interface; further ones send segments in tunnels one by one.
const SLOTS: usize = 64;
/// The most bytes of outer headers, with those of Ethernet.
const MAX_OUTER_BYTES: usize = ETHERNET_HEADER + TunnelHeaders::LONGEST as usize;
/// The destination of superframes that the program has not seen yet.
const NEAREST: [u8; 6] = [0x01, 0x80, 0xc2, 0x00, 0x00, 0x0f];
/// Bytes of the Ethernet addresses before the number of the slot.
const MARK: usize = 10;
const _: () = assert!(MARK + size_of::<u16>() == 12);

/// The marks of superframes for one program.
#[derive(Clone, Copy, Debug)]
struct SuperframeMark {
    /// Of the socket: not 0.
    socket: u32,
    ethernet: [u8; MARK],
}

impl SuperframeMark {
    fn random() -> std::io::Result<SuperframeMark> {
        let mut bytes = [0u8; 8];
        // SAFETY: there are so many bytes. getrandom(2) gives up to 256 bytes in one piece.
        let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        if got != bytes.len() as isize {
            return Err(std::io::Error::last_os_error());
        }
        let [a, b, c, d, e, f, g, _] = bytes;
        let mut ethernet = [0; MARK];
        ethernet[..6].copy_from_slice(&NEAREST);
        // A local address (IEEE 802, section 8.4).
        ethernet[6..].copy_from_slice(&[0x02, e, f, g]);
        Ok(SuperframeMark { socket: u32::from_ne_bytes([a, b, c, d]) | 1, ethernet })
    }
}

/// What a sender tells the program about the next superframe, and the program the sender.
#[repr(C)]
struct Slot {
    /// Bytes of headers.
    len: u32,
    /// An [`Encapsulated`].
    result: u32,
    /// The flags of `bpf_skb_adjust_room`.
    flags: u64,
    headers: [u8; HEADER_ROOM],
}

/// [`MAX_OUTER_BYTES`] with padding.
const HEADER_ROOM: usize = MAX_OUTER_BYTES.next_multiple_of(8);
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
    /// The program did not run: the kernel had no memory for the frame, or the program is not attached.
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
    mark: SuperframeMark,
    interface: i32,
    /// The number of slots that were given out.
    taken: AtomicU16,
    _link: OwnedFd,
}

impl Encapsulator {
    /// Attaches a program to the interface of that number.
    ///
    /// # Errors
    /// A refusal by the kernel: mostly it is older than Linux 6.6, or the process lacks CAP_BPF or CAP_NET_ADMIN.
    pub(super) fn new(interface: i32) -> std::io::Result<Encapsulator> {
        let mark = SuperframeMark::random()?;
        let len = SLOTS * size_of::<Slot>();
        let map = bpf::shared_value(len as u32)?;
        let program = bpf::load_classifier(&program(map.as_raw_fd(), mark), "mmb_encap", "Apache-2.0")?;
        let memory = Mapping::new(map.as_fd(), len)?;
        let link = bpf::attach_egress(&program, interface)?;
        Ok(Encapsulator { memory, mark, interface, taken: AtomicU16::new(0), _link: link })
    }

    /// The place of one more sender; `None` if there are none left, or there is no socket for it. Places are not used again.
    pub(super) fn slot(self: &Arc<Encapsulator>) -> Option<EncapsulatorSlot> {
        let socket = PacketSocket::sending(self.interface).ok()?;
        socket.set(libc::SOL_SOCKET, libc::SO_MARK, &self.mark.socket).ok()?;
        let number = self.taken.fetch_add(1, Ordering::Relaxed);
        let is_one = usize::from(number) < SLOTS;
        is_one.then(|| EncapsulatorSlot { encapsulator: Arc::clone(self), socket, number })
    }
}

/// One sender's place in the memory of an [`Encapsulator`].
#[derive(Debug)]
pub(super) struct EncapsulatorSlot {
    encapsulator: Arc<Encapsulator>,
    socket: PacketSocket,
    number: u16,
}

impl EncapsulatorSlot {
    /// The socket by which the inner superframes leave.
    pub(super) fn socket(&self) -> &PacketSocket {
        &self.socket
    }

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
        slot.len = outer.len() as u32;
        slot.headers[..outer.len()].copy_from_slice(outer);
        let mut ethernet = [0; ETHERNET_HEADER];
        ethernet[..MARK].copy_from_slice(&self.encapsulator.mark.ethernet);
        ethernet[MARK..12].copy_from_slice(&self.number.to_ne_bytes());
        let ether_type: u16 = if superframe.is_ip6() { 0x86dd } else { 0x0800 };
        ethernet[12..].copy_from_slice(&ether_type.to_be_bytes());
        ethernet
    }

    /// What became of the superframe that was sent last. The headers are gone then: they are for no other frame.
    pub(super) fn finish(&mut self) -> Encapsulated {
        let slot = self.slot();
        slot.len = 0;
        // SAFETY: an aligned number in the mapping. The program writes it only inside the system call that sends.
        match unsafe { (&raw const slot.result).read_volatile() } {
            1 => Encapsulated::Done,
            2 => Encapsulated::Failed,
            _ => Encapsulated::Not,
        }
    }

    fn slot(&mut self) -> &mut Slot {
        let slots = self.encapsulator.memory.start().cast::<Slot>();
        // SAFETY: the memory has more slots than this number, and any bytes are a slot. No other sender has this one, and the program touches it
        // only inside the system call that sends.
        unsafe { slots.add(self.number.into()).as_mut() }
    }
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
const SKB_MARK: i16 = 8;
const SKB_DATA: i16 = 76;
const SKB_DATA_END: i16 = 80;

/// Results of a program at tcx.
const TCX_NEXT: i32 = -1;
const TCX_DROP: i32 = 2;

/// Conditional jumps. `IF_NOT_WORD` compares 32 bits.
const IF_EQUAL: u8 = 0x15;
const IF_NOT: u8 = 0x55;
const IF_NOT_WORD: u8 = 0x56;
const IF_ABOVE: u8 = 0x25;
const IF_BELOW: u8 = 0xa5;
const IF_ABOVE_REGISTER: u8 = 0x2d;

/// Offsets of jumps to the ends of the program, until their distances are known.
const TO_NEXT: i16 = i16::MAX;
const TO_DROP: i16 = i16::MAX - 1;
const TO_FAILED: i16 = i16::MAX - 2;

/// The instructions: a frame without the marks passes unchanged. A frame with them gets the headers of its slot, or is dropped.
fn program(map: i32, mark: SuperframeMark) -> Vec<u64> {
    let SuperframeMark { socket, ethernet } = mark;
    let words = [0, 4]
        .map(|at| i32::from_ne_bytes([ethernet[at], ethernet[at + 1], ethernet[at + 2], ethernet[at + 3]]));
    let rest = u16::from_ne_bytes([ethernet[8], ethernet[9]]);
    let jump = |code, register, to, value| instruction(code, register, 0, to, value);
    const KEY: i16 = -4;
    let mut program = [
        // The marks.
        &[copy(R6, R1), load_word(R4, R6, SKB_MARK), jump(IF_NOT_WORD, R4, TO_NEXT, socket as i32)][..],
        &[load_word(R2, R6, SKB_DATA), load_word(R3, R6, SKB_DATA_END)],
        &[copy(R1, R2), add(R1, 12), instruction(IF_ABOVE_REGISTER, R1, R3, TO_NEXT, 0)],
        &[load_word(R4, R2, 0), jump(IF_NOT_WORD, R4, TO_NEXT, words[0])],
        &[load_word(R4, R2, 4), jump(IF_NOT_WORD, R4, TO_NEXT, words[1])],
        &[load_half(R4, R2, 8), jump(IF_NOT_WORD, R4, TO_NEXT, rest.into())],
        // R7 becomes the slot.
        &[load_half(R8, R2, MARK as i16), jump(IF_ABOVE, R8, TO_DROP, SLOTS as i32 - 1)],
        &[multiply(R8, size_of::<Slot>() as i32), set(R1, 0), store_word(R10, KEY, R1)],
        &[instruction(0x18, R1, MAP_BY_DESCRIPTOR, 0, map), 0, copy(R2, R10), add(R2, i32::from(KEY))],
        &[call(MAP_LOOKUP), jump(IF_EQUAL, R0, TO_DROP, 0), copy(R7, R0), add_register(R7, R8)],
        // The headers. R9 is their length.
        &[load_word(R9, R7, LEN), jump(IF_ABOVE, R9, TO_FAILED, MAX_OUTER_BYTES as i32)],
        &[jump(IF_BELOW, R9, TO_FAILED, ETHERNET_HEADER as i32 + 1)],
        &[copy(R1, R6), copy(R2, R9), add(R2, -(ETHERNET_HEADER as i32)), set(R3, ROOM_MAC)],
        &[load_double(R4, R7, FLAGS), call(ADJUST_ROOM), jump(IF_NOT, R0, TO_FAILED, 0)],
        &[copy(R1, R6), set(R2, 0), copy(R3, R7), add(R3, HEADERS), copy(R4, R9), set(R5, 0)],
        &[call(STORE_BYTES), jump(IF_NOT, R0, TO_FAILED, 0)],
        &[set(R1, Encapsulated::Done as i32), store_word(R7, RESULT, R1)],
        // Nobody else is to see the mark.
        &[set(R1, 0), store_word(R6, SKB_MARK, R1)],
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
