// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! The XDP program of an interface: puts VLAN tags into frames where the device hands them over beside, forwards what has a flow, and gives every
//! other frame to the AF_XDP socket of its queue.
//!
//! Life-cycle: the driver of DPDK attaches a program of its own when it sets up a queue; [`LoadedProgram::replace`] puts
//! ours in its place. It stays as long as the [`XdpProgram`], and goes with the process.

use super::tags;
use crate::bpf::instruction::{
    EXIT, MAP_BY_DESCRIPTOR, R1, R2, R3, R6, call, copy, instruction, load_word, set,
};
use crate::bpf::{self, BpfMap};
use crate::flows::FlowPrograms;
use crate::kernel::KernelInterface;
use crate::netlink::detach_xdp;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

/// The kernel lets programs call its functions only under a licence that is compatible with its own. The instructions in this file, in `tags.rs` and in
/// `bpf/flow_xdp.bpf.c` are to be had under version 2 of the GPL too.
const LICENSE: &str = "GPL v2";

/// `struct xdp_md`: the queue.
const RX_QUEUE_INDEX: i16 = 16;

const REDIRECT_MAP: i32 = 51;
const XDP_PASS: i32 = 2;

/// The program on an interface.
#[derive(Debug)]
pub(crate) struct XdpProgram {
    _link: OwnedFd,
    _sockets: BpfMap<4, 4>,
}

/// A program that is not on its interface yet.
#[derive(Debug)]
pub(crate) struct LoadedProgram {
    program: OwnedFd,
    sockets: BpfMap<4, 4>,
    interface: i32,
}

impl LoadedProgram {
    /// Loads a program that hands frames to the sockets, which are those of the queues in their order.
    ///
    /// # Errors
    /// The reason for which this kernel cannot, in words.
    pub(crate) fn load(
        interface: &KernelInterface,
        sockets: &[RawFd],
        inserts_tags: bool,
        flows: Option<&FlowPrograms>,
    ) -> Result<LoadedProgram, String> {
        let failed = |doing: &'static str| move |error| format!("{doing} the program of XDP: {error}");
        let index = interface.index();
        let map = bpf::socket_map(sockets).map_err(failed("cannot make the map of"))?;
        let mut program = if inserts_tags { tags::insert_tag()? } else { vec![copy(R6, R1)] };
        match flows {
            None => program.extend(to_socket(map.as_fd().as_raw_fd())),
            Some(flows) => {
                program.push(copy(R1, R6));
                program.extend(flows.forward_frame(map.as_fd())?);
            }
        }
        // A program that asks the device about frames is bound to it.
        let bound = inserts_tags.then_some(index);
        let program = bpf::load_xdp(&program, "mmb_frames", LICENSE, bound).map_err(failed("cannot load"))?;
        Ok(LoadedProgram { program, sockets: map, interface: index })
    }

    /// Puts the program in place of the one that is on the interface.
    ///
    /// # Errors
    /// The kernel refuses it, in words. The interface may have no program then.
    pub(crate) fn replace(self) -> Result<XdpProgram, String> {
        let failed = |doing: &'static str| move |error| format!("{doing} the program of XDP: {error}");
        detach_xdp(self.interface).map_err(failed("cannot make room for"))?;
        let link = bpf::attach(&self.program, self.interface).map_err(failed("cannot attach"))?;
        Ok(XdpProgram { _link: link, _sockets: self.sockets })
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
