//! The flow offload of kernel interfaces: the engine's flows in the form of the BPF programs.

use mmb_engine::{Count, EndNumbers, FlowOffload, FlowUsage, FlowWrites, OffloadEpoch, OffloadedFlow};
use mmb_io::OpenPorts;
use mmb_io::flows::{FlowHook, FlowTable, NO_FLOW, RawFlow, RawKey, VLAN_PRESENT, flags};
use mmb_packet::PortId;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The most flows that the kernel forwards, over all workers: some 16 MB of kernel memory.
pub(super) const FLOWS: u32 = 1 << 16;

/// So long at most packets of a flow go to a worker because it has earlier ones, in units of 2^20 ns: milliseconds about. Of a busy TCP connection it always
/// has some, and the receiver puts them in order.
const TCP_OVERTAKE_AFTER: u32 = 10;
const OVERTAKE_AFTER: u32 = 100;

/// The interface numbers of ports by which flows may come in and leave, by port; 0 for others. The control thread changes them when an interface
/// goes and comes back.
#[derive(Clone, Debug)]
pub(super) struct FlowInterfaces(Arc<[InterfaceNumbers]>);

#[derive(Debug, Default)]
struct InterfaceNumbers {
    ingress: AtomicU32,
    egress: AtomicU32,
    /// Its driver forwards frames (XDP).
    of_driver: AtomicBool,
    /// It takes frames of other drivers.
    takes_frames: AtomicBool,
    /// The first queue of the ingress interface.
    queue: AtomicU32,
}

impl FlowInterfaces {
    pub(super) fn new(ports: &OpenPorts) -> FlowInterfaces {
        let interfaces = FlowInterfaces(ports.ports().iter().map(|_| InterfaceNumbers::default()).collect());
        (0..ports.ports().len()).for_each(|port| _ = interfaces.take_up(ports, port));
        interfaces
    }

    /// Takes up the interface of a port, which is usable; true if it has changed.
    pub(super) fn take_up(&self, ports: &OpenPorts, port: usize) -> bool {
        let opened = &ports.ports()[port];
        let is_up = opened.health() == mmb_io::Health::Up;
        let egress = opened.interface_index().filter(|_| is_up).unwrap_or(0);
        let hook = opened.flow_hook();
        let ingress = if hook.is_some() { opened.interface_index().unwrap_or(0) } else { 0 };
        let numbers = &self.0[port];
        let mut takes_frames = false;
        if let (Ok(programs), Some(name)) = (ports.flows(), opened.interface_name()) {
            numbers.queue.store(programs.queue(name, 0).unwrap_or(0), Ordering::Relaxed);
            let redirects = |port: &mmb_io::Port| port.flow_hook() == Some(FlowHook::Xdp);
            takes_frames =
                egress != 0 && ports.ports().iter().any(redirects) && programs.update_egress(egress);
        }
        numbers.of_driver.store(hook == Some(FlowHook::Xdp), Ordering::Relaxed);
        // Without an entry of its egress interface, the program hands packets of a flow to mmb: no flow has to end.
        numbers.takes_frames.store(takes_frames, Ordering::Relaxed);
        let before = (
            numbers.ingress.swap(ingress, Ordering::Relaxed),
            numbers.egress.swap(egress, Ordering::Relaxed),
        );
        before != (ingress, egress)
    }

    /// Whether packets that come in by a port can be forwarded to another.
    fn can_forward(&self, ingress: PortId, egress: PortId) -> bool {
        let [ingress, egress] = [ingress, egress].map(|port| self.0.get(usize::from(port.0)));
        let (Some(ingress), Some(egress)) = (ingress, egress) else { return false };
        let is_set = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        egress.egress.load(Ordering::Relaxed) != 0
            && (!is_set(&ingress.of_driver) || is_set(&egress.takes_frames))
    }

    fn ingress(&self, port: PortId) -> Option<u32> {
        let number = self.0.get(usize::from(port.0))?.ingress.load(Ordering::Relaxed);
        Some(number).filter(|number| *number != 0)
    }

    fn queue(&self, port: PortId) -> Option<u32> {
        Some(self.0.get(usize::from(port.0))?.queue.load(Ordering::Relaxed))
    }

    fn egress(&self, port: PortId) -> Option<u32> {
        let number = self.0.get(usize::from(port.0))?.egress.load(Ordering::Relaxed);
        Some(number).filter(|number| *number != 0)
    }
}

/// One worker's part of the kernel's flows.
pub(super) struct KernelFlows {
    worker: u16,
    table: FlowTable,
    interfaces: FlowInterfaces,
    /// The flows in their places, as they were installed: an interface may have another number by their end.
    keys: Vec<Option<(RawKey, u32)>>,
    /// The places to which keys lead.
    places: HashMap<RawKey, u32>,
}

/// The parts of all workers, if the programs are loaded.
pub(super) fn tables(ports: &OpenPorts, interfaces: &FlowInterfaces, workers: u16) -> Vec<KernelFlows> {
    let Ok(programs) = ports.flows() else { return Vec::new() };
    let share = programs.capacity() / u32::from(workers).max(1);
    let table = |worker: u16| KernelFlows {
        worker,
        table: programs.table(u32::from(worker) * share, share),
        interfaces: interfaces.clone(),
        keys: vec![None; share as usize],
        places: HashMap::with_capacity(share as usize),
    };
    (0..workers).map(table).collect()
}

/// Sets the epoch of all flows.
pub(super) struct KernelEpoch<F>(pub(super) F);

impl<F: Fn(u32) + Send> OffloadEpoch for KernelEpoch<F> {
    fn set_epoch(&self, epoch: u32) {
        self.0(epoch);
    }
}

impl FlowOffload for KernelFlows {
    fn capacity(&self) -> u32 {
        self.table.capacity()
    }

    fn can_forward(&self, ingress: PortId, egress: Option<PortId>) -> bool {
        self.interfaces.ingress(ingress).is_some()
            && egress.is_none_or(|egress| self.interfaces.can_forward(ingress, egress))
    }

    fn install(&mut self, place: u32, flow: &OffloadedFlow) -> bool {
        let Some((key, raw)) = self.raw(flow) else { return false };
        if self.keys[place as usize].is_some_and(|(before, _)| before != key) {
            self.end(place);
        }
        if self.table.install(place, &key, &raw).is_err() {
            return false;
        }
        self.keys[place as usize] = Some((key, flow.epoch));
        self.places.insert(key, place);
        true
    }

    fn enable(&mut self, place: u32) {
        if let Some((_, epoch)) = self.keys[place as usize] {
            self.table.enable(place, epoch);
        }
    }

    fn end(&mut self, place: u32) {
        let Some((key, _)) = self.keys[place as usize].take() else { return };
        self.table.disable(place);
        if self.places.get(&key) == Some(&place) {
            self.places.remove(&key);
            self.table.remove(&key, place);
        }
    }

    fn usage(&self, place: u32) -> FlowUsage {
        let usage = self.table.usage(place);
        FlowUsage {
            count: Count { packets: usage.packets, bytes: usage.bytes },
            idle_ms: usage.idle_ms,
            numbers: EndNumbers { snd_nxt: usage.end, ack: usage.ack, window: usage.window as u16, scale: 0 },
        }
    }

    fn update_numbers(&mut self, place: u32, numbers: EndNumbers) {
        self.table.follow(place, numbers.snd_nxt, numbers.ack, numbers.window.into());
    }
}

impl KernelFlows {
    /// A flow as the programs have it; `None` if one of its interfaces is gone.
    fn raw(&self, flow: &OffloadedFlow) -> Option<(RawKey, RawFlow)> {
        let OffloadedFlow { key, epoch, egress, max_len, writes, tcp } = flow;
        let raw_key = RawKey {
            ifindex: self.interfaces.ingress(key.port)?,
            vlan: key.vlan.map_or(0, |vlan| vlan | VLAN_PRESENT),
            family: key.family,
            proto: key.proto,
            saddr: address(key.family, key.addresses[0]),
            daddr: address(key.family, key.addresses[1]),
            sport: key.ports[0].to_be(),
            dport: key.ports[1].to_be(),
        };
        let FlowWrites { addresses, ports, ttl, traffic_class, label } = writes;
        let set = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
        let bits = [
            set(egress.is_none(), flags::DROP),
            set(addresses.is_some(), flags::ADDRESSES),
            set(ports.is_some(), flags::PORTS),
            set(ttl.is_some(), flags::TTL),
            set(traffic_class.mask != 0, flags::TRAFFIC_CLASS),
            set(label.is_some(), flags::LABEL),
            set(tcp.is_some(), flags::WINDOWS),
        ];
        let [saddr, daddr] = addresses.unwrap_or_default().map(|bits| address(key.family, bits));
        let [sport, dport] = ports.unwrap_or_default().map(u16::to_be);
        let (numbers, peer) = tcp.unwrap_or_default();
        let raw = RawFlow {
            epoch: *epoch,
            egress: egress.map_or(Some(0), |egress| self.interfaces.egress(egress))?,
            flags: bits.iter().fold(0, |all, bit| all | bit),
            longest: (*max_len).min(u16::MAX.into()) as u16,
            ttl: ttl.unwrap_or_default(),
            traffic_class: traffic_class.value,
            traffic_mask: traffic_class.mask,
            scale: numbers.scale,
            saddr,
            daddr,
            sport,
            dport,
            reserved: [0; 3],
            end: numbers.snd_nxt,
            ack: numbers.ack,
            window: numbers.window.into(),
            peer: if tcp.is_some() { self.table.number(peer) } else { NO_FLOW },
            label: label.unwrap_or_default(),
            overtake_after: if tcp.is_some() { TCP_OVERTAKE_AFTER } else { OVERTAKE_AFTER },
            queue: self.interfaces.queue(key.port)? + u32::from(self.worker),
        };
        Some((raw_key, raw))
    }
}

/// An address as in a packet.
fn address(family: u8, address: u128) -> [u32; 4] {
    let bytes = address.to_be_bytes();
    let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    match family {
        4 => [word(12), 0, 0, 0],
        _ => [word(0), word(4), word(8), word(12)],
    }
}
