//! Loads the programs, and attaches them.

use super::table::{FlowQueue, FlowTable, SharedFlows};
use crate::kernel::KernelInterface;
use aya::maps::{Map, MapData};
use aya::programs::tc::{self, NlOptions, SchedClassifierLink, TcAttachOptions, TcAttachType};
use aya::programs::{LinkOrder, SchedClassifier, SocketFilter};
use aya::{Ebpf, EbpfLoader};
use std::collections::HashMap;
use std::error::Error;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/flow.bpf.o"));
const FILTER: &str = "find_flow";
const FORWARDER: &str = "forward_flow";

/// The programs, loaded.
#[derive(Debug)]
pub struct FlowPrograms {
    ebpf: Ebpf,
    shared: Arc<SharedFlows>,
    /// The first queue of each interface, by name: one that is made again has the same.
    queues: HashMap<String, u32>,
    workers: u16,
}

/// The most queues: those of 64 interfaces with 16 workers each.
const QUEUES: u32 = 1024;

/// The program at tc ingress of an interface. Dropping it detaches the program.
#[derive(Debug)]
pub struct Attachment {
    _link: SchedClassifierLink,
    how: &'static str,
}

impl Attachment {
    /// How it is attached: `tcx`, or `clsact` on kernels before 6.6.
    pub fn how(&self) -> &'static str {
        self.how
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
        Ok(FlowPrograms { ebpf, shared: Arc::new(shared), queues: HashMap::new(), workers })
    }

    /// Attaches the program at tc ingress of an interface.
    ///
    /// # Errors
    /// The kernel refuses it, in words.
    pub fn attach(&mut self, interface: &KernelInterface) -> Result<Attachment, String> {
        let name = interface.name();
        let next = self.queues.len() as u32 * u32::from(self.workers);
        if !self.queues.contains_key(name) {
            if next + u32::from(self.workers) > QUEUES {
                return Err(format!("there are more than {QUEUES} queues"));
            }
            self.queues.insert(name.to_owned(), next);
        }
        let forwarder =
            program::<SchedClassifier>(&mut self.ebpf, FORWARDER).map_err(|error| chain(&error))?;
        let ingress = TcAttachType::Ingress;
        let tcx = TcAttachOptions::TcxOrder(LinkOrder::first());
        let (id, how) = match forwarder.attach_with_options(name, ingress, tcx) {
            Ok(id) => (id, "tcx"),
            Err(why) => {
                // There may be one from the user, or from a process that was killed.
                let _ = tc::qdisc_add_clsact(name);
                let _ = tc::qdisc_detach_program(name, ingress, FORWARDER);
                let options = TcAttachOptions::Netlink(NlOptions::default());
                let id = forwarder.attach_with_options(name, ingress, options);
                (id.map_err(|error| format!("tcx: {}; clsact: {}", chain(&why), chain(&error)))?, "clsact")
            }
        };
        let link = forwarder.take_link(id).map_err(|error| chain(&error))?;
        Ok(Attachment { _link: link, how })
    }

    /// Attaches the look-up of flows to a packet socket of an interface with an [`Attachment`].
    ///
    /// # Errors
    /// The kernel refuses it, in words.
    pub(crate) fn filter(&mut self, socket: BorrowedFd<'_>) -> Result<(), String> {
        let filter = program::<SocketFilter>(&mut self.ebpf, FILTER).map_err(|error| chain(&error))?;
        filter.attach(socket).map_err(|error| chain(&error))
    }

    /// The number of a worker's queue of an interface with an [`Attachment`].
    pub fn queue(&self, interface: &str, worker: u16) -> Option<u32> {
        self.queues.get(interface).map(|first| first + u32::from(worker))
    }

    /// The same, for the worker.
    pub(crate) fn flow_queue(&self, interface: &str, worker: u16) -> Option<FlowQueue> {
        Some(FlowQueue::new(&self.shared, self.queue(interface, worker)?))
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
