//! The XDP program of an interface: puts VLAN tags into frames where the device hands them over beside, forwards what has a flow, and gives every
//! other frame to the AF_XDP socket of its queue.
//!
//! Life-cycle: the driver of DPDK attaches a program of its own when it sets up a queue; [`XdpProgram::replace`] puts ours
//! in its place. It stays as long as the value, and goes with the process.

use super::tags;
use crate::bpf;
use crate::bpf::instruction::{
    EXIT, MAP_BY_DESCRIPTOR, R1, R2, R3, R6, call, copy, instruction, load_word, set,
};
use crate::flows::FlowPrograms;
use crate::kernel::KernelInterface;
use crate::netlink::detach_xdp;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

/// The kernel lets programs call its functions only under a licence that is compatible with its own. This program is
/// to be had under either.
const LICENSE: &str = "Dual MIT/GPL";

/// `struct xdp_md`: the queue.
const RX_QUEUE_INDEX: i16 = 16;

const REDIRECT_MAP: i32 = 51;
const XDP_PASS: i32 = 2;

/// The program on an interface.
#[derive(Debug)]
pub(crate) struct XdpProgram {
    _link: OwnedFd,
    _sockets: OwnedFd,
}

impl XdpProgram {
    /// Puts the program in place of the one that hands all frames to the sockets, which are those of the queues in their order.
    ///
    /// # Errors
    /// The reason for which this kernel cannot, in words.
    pub(crate) fn replace(
        interface: &KernelInterface,
        sockets: &[RawFd],
        inserts_tags: bool,
        flows: Option<&FlowPrograms>,
    ) -> Result<XdpProgram, String> {
        let failed = |doing: &'static str| move |error| format!("{doing} the program of XDP: {error}");
        let index = interface.index();
        let map = bpf::socket_map(sockets).map_err(failed("cannot make the map of"))?;
        let mut program = if inserts_tags { tags::insert_tag()? } else { vec![copy(R6, R1)] };
        match flows {
            None => program.extend(to_socket(map.as_raw_fd())),
            Some(flows) => {
                program.push(copy(R1, R6));
                program.extend(flows.forward_frame(map.as_fd())?);
            }
        }
        // A program that asks the device about frames is bound to it.
        let bound = inserts_tags.then_some(index);
        let program = bpf::load_xdp(&program, "mmb_frames", LICENSE, bound).map_err(failed("cannot load"))?;
        detach_xdp(index).map_err(failed("cannot make room for"))?;
        let link = bpf::attach(&program, index).map_err(failed("cannot attach"))?;
        Ok(XdpProgram { _link: link, _sockets: map })
    }
}

/// The frame, whose context is in `R6`, goes to the socket of its queue, and to the kernel if there is none.
fn to_socket(map: RawFd) -> [u64; 6] {
    [
        load_word(R2, R6, RX_QUEUE_INDEX),
        instruction(0x18, R1, MAP_BY_DESCRIPTOR, 0, map),
        0, // the upper half of the map's address
        set(R3, XDP_PASS),
        call(REDIRECT_MAP),
        instruction(EXIT, 0, 0, 0, 0),
    ]
}
