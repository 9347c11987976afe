//! Loads the programs, and attaches them.

use super::hook::FlowHook;
use super::table::{FlowQueue, FlowTable, SharedFlows};
use crate::bpf::instruction::instruction;
use crate::bpf::{self, BpfMap};
use crate::kernel::KernelInterface;
use crate::xdp::features::takes_xdp_frames;
use aya::maps::{Map, MapData};
use aya::programs::tc::{self, NlOptions, SchedClassifierLink, TcAttachOptions, TcAttachType};
use aya::programs::{LinkOrder, SchedClassifier, SocketFilter};
use aya::{Ebpf, EbpfLoader};
use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/flow.bpf.o"));
static XDP_OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/flow_xdp.bpf.o"));
const FILTER: &str = "find_flow";
const FORWARDER: &str = "forward_flow";
const FRAME_FORWARDER: &str = "forward_frame";

/// The programs, loaded.
#[derive(Debug)]
pub struct FlowPrograms {
    ebpf: Ebpf,
    shared: Arc<SharedFlows>,
    /// The interfaces that take frames of drivers, by number.
    egress: BpfMap<4, 4>,
    /// The first queue of each interface, by name: one that is made again has the same.
    queues: HashMap<String, u32>,
    workers: u16,
}

/// The most queues: those of 64 interfaces with 16 workers each.
const QUEUES: u32 = 1024;
/// The most interfaces that take frames of drivers.
const EGRESSES: u32 = 256;

/// The program at tc ingress of an interface. Dropping it detaches the program.
#[derive(Debug)]
pub struct Attachment {
    _link: SchedClassifierLink,
    hook: FlowHook,
}

impl Attachment {
    /// Where it is attached.
    pub fn hook(&self) -> FlowHook {
        self.hook
    }
}

impl FlowPrograms {
    /// Loads the programs for so many flows, and so many workers.
    ///
    /// # Errors
    /// Why this kernel, or this process, cannot, in words.
    pub fn load(flows: u32, workers: u16) -> Result<FlowPrograms, String> {
        let failed = |what: &str, error: &(dyn Error + 'static)| match is_not_permitted(error) {
            true => "the process lacks CAP_BPF or CAP_NET_ADMIN".to_owned(),
            false => format!("{what}: {}", chain(error)),
        };
        let mut ebpf = EbpfLoader::new()
            .map_max_entries("flow_index", flows)
            .map_max_entries("flows", flows)
            .map_max_entries("queues", QUEUES)
            .load(OBJECT)
            .map_err(|error| failed("the maps of flows cannot be made", &error))?;
        let loaded = program::<SchedClassifier>(&mut ebpf, FORWARDER).and_then(SchedClassifier::load);
        let both =
            loaded.and_then(|()| program::<SocketFilter>(&mut ebpf, FILTER).and_then(SocketFilter::load));
        both.map_err(|error| failed("the programs of flows cannot be loaded", &error))?;
        let shared = {
            let map = |name| data(&ebpf, name).ok_or_else(|| format!("the programs have no map {name}"));
            let [index, all, control] = [map("flow_index")?, map("flows")?, map("control")?];
            SharedFlows::new(index, all, control, map("queues")?, [flows, QUEUES])
                .map_err(|error| failed("the map of flows cannot be mapped", &error))?
        };
        let egress = bpf::device_map(EGRESSES)
            .map_err(|error| failed("the map of egress interfaces cannot be made", &error))?;
        Ok(FlowPrograms { ebpf, shared: Arc::new(shared), egress, queues: HashMap::new(), workers })
    }

    /// Gives an interface queues, if it has none.
    fn add_queues(&mut self, name: &str) -> Result<(), String> {
        let next = self.queues.len() as u32 * u32::from(self.workers);
        if !self.queues.contains_key(name) {
            if next + u32::from(self.workers) > QUEUES {
                return Err(format!("there are more than {QUEUES} queues"));
            }
            self.queues.insert(name.to_owned(), next);
        }
        Ok(())
    }

    /// Attaches the program at tc ingress of an interface.
    ///
    /// # Errors
    /// The kernel refuses it, in words.
    pub fn attach(&mut self, interface: &KernelInterface) -> Result<Attachment, String> {
        let name = interface.name();
        self.add_queues(name)?;
        let forwarder =
            program::<SchedClassifier>(&mut self.ebpf, FORWARDER).map_err(|error| chain(&error))?;
        let ingress = TcAttachType::Ingress;
        let tcx = TcAttachOptions::TcxOrder(LinkOrder::first());
        let (id, hook) = match forwarder.attach_with_options(name, ingress, tcx) {
            Ok(id) => (id, FlowHook::Tcx),
            Err(why) => {
                // There may be one from the user, or from a process that was killed.
                let _ = tc::qdisc_add_clsact(name);
                let _ = tc::qdisc_detach_program(name, ingress, FORWARDER);
                let options = TcAttachOptions::Netlink(NlOptions::default());
                let id = forwarder.attach_with_options(name, ingress, options);
                (
                    id.map_err(|error| format!("tcx: {}; clsact: {}", chain(&why), chain(&error)))?,
                    FlowHook::Clsact,
                )
            }
        };
        let link = forwarder.take_link(id).map_err(|error| chain(&error))?;
        Ok(Attachment { _link: link, hook })
    }

    /// Attaches the look-up of flows to a packet socket of an interface with an [`Attachment`].
    ///
    /// # Errors
    /// The kernel refuses it, in words.
    pub(crate) fn filter(&mut self, socket: BorrowedFd<'_>) -> Result<(), String> {
        let filter = program::<SocketFilter>(&mut self.ebpf, FILTER).map_err(|error| chain(&error))?;
        filter.attach(socket).map_err(|error| chain(&error))
    }

    /// The instructions of the program that forwards frames in the driver of an interface with these sockets.
    ///
    /// # Errors
    /// The embedded object cannot be parsed or relocated, in words.
    pub(crate) fn forward_frame(&self, sockets: BorrowedFd<'_>) -> Result<Vec<u64>, String> {
        let words = |error: &(dyn Error + 'static)| chain(error);
        let mut object = aya_obj::Object::parse(XDP_OBJECT).map_err(|error| words(&error))?;
        let maps = object.maps.clone();
        let descriptor = |name: &str| match name {
            "sockets" => Some(sockets.as_raw_fd()),
            "egress" => Some(self.egress.as_fd().as_raw_fd()),
            _ => data(&self.ebpf, name).map(|map| map.as_raw_fd()),
        };
        let known = maps.iter().filter_map(|(name, map)| Some((name.as_str(), descriptor(name)?, map)));
        let sections: HashSet<usize> = object.functions.keys().map(|(section, _)| *section).collect();
        object.relocate_maps(known, &sections).map_err(|error| words(&error))?;
        let key = object.programs.get(FRAME_FORWARDER).map(aya_obj::Program::function_key);
        let Some(function) = key.and_then(|key| object.functions.get(&key)) else {
            return Err(format!("the object lacks the program {FRAME_FORWARDER}"));
        };
        let codes = function.instructions.iter();
        Ok(codes
            .map(|code| instruction(code.code, code.dst_reg(), code.src_reg(), code.off, code.imm))
            .collect())
    }

    /// Lets programs redirect frames to the interface of this number if its driver takes them (`NDO_XMIT`) now; returns whether it does.
    pub fn update_egress(&self, interface: u32) -> bool {
        let takes = takes_xdp_frames(interface);
        let key = interface.to_ne_bytes();
        let done = match takes {
            true => self.egress.update(&key, &key),
            false => self.egress.delete(&key),
        };
        takes && done.is_ok()
    }

    /// The number of a worker's queue of an interface whose packets are looked up.
    pub fn queue(&self, interface: &str, worker: u16) -> Option<u32> {
        self.queues.get(interface).map(|first| first + u32::from(worker))
    }

    /// The same, for the worker.
    pub(crate) fn flow_queue(&self, interface: &str, worker: u16) -> Option<FlowQueue> {
        Some(FlowQueue::new(&self.shared, self.queue(interface, worker)?, false))
    }

    /// The queues of an interface that has AF_XDP sockets, for all workers.
    ///
    /// # Errors
    /// There are too many, in words.
    pub(crate) fn frame_queues(&mut self, interface: &str) -> Result<Vec<FlowQueue>, String> {
        self.add_queues(interface)?;
        let queue = |worker| Some(FlowQueue::new(&self.shared, self.queue(interface, worker)?, true));
        Ok((0..self.workers).filter_map(queue).collect())
    }

    /// The most flows.
    pub fn capacity(&self) -> u32 {
        self.shared.capacity()
    }

    /// A part of the table of flows: places from `first` on.
    pub fn table(&self, first: u32, count: u32) -> FlowTable {
        FlowTable::new(&self.shared, first, count.min(self.capacity().saturating_sub(first)))
    }

    /// A function that sets the epoch, of which flows are used.
    pub fn epoch_setter(&self) -> impl Fn(u32) + Send + use<> {
        let shared = Arc::clone(&self.shared);
        move |epoch| shared.set_epoch(epoch)
    }
}

fn program<'e, P>(ebpf: &'e mut Ebpf, name: &str) -> Result<&'e mut P, aya::programs::ProgramError>
where
    &'e mut P: TryFrom<&'e mut aya::programs::Program, Error = aya::programs::ProgramError>,
{
    match ebpf.program_mut(name) {
        Some(program) => program.try_into(),
        None => unreachable!("the object has the program {name}"),
    }
}

fn data<'e>(ebpf: &'e Ebpf, name: &str) -> Option<BorrowedFd<'e>> {
    let (Map::Array(map) | Map::HashMap(map)) = ebpf.map(name)? else { return None };
    Some(MapData::fd(map).as_fd())
}

/// An error and its causes.
fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

fn is_not_permitted(error: &(dyn Error + 'static)) -> bool {
    causes(error)
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|error| error.raw_os_error() == Some(libc::EPERM))
}

/// An error with its causes.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    for cause in causes(error) {
        let more = cause.to_string();
        if text.is_empty() {
            text = more;
        } else if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
    }
    // The verifier's log has many lines.
    text.lines().next().unwrap_or_default().to_owned()
}
