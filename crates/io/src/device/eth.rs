//! Ports of DPDK as a driver.

use crate::dpdk::queues::{EthReceive, EthSend};
use crate::dpdk::{DeviceInfo, DeviceStats, EthPort};
use crate::driver::{PortDriver, WorkerQueues};
use crate::error::PortError;
use crate::flows::{FlowHook, FlowQueue};
use crate::link::{ReceiveQueues, SendQueues};
use crate::xdp::{self, InterfaceGuard};
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, PoisonError};

/// A started port of DPDK.
#[derive(Debug)]
pub(crate) struct EthDriver {
    pub(crate) port: EthPort,
    pub(crate) queues: u16,
    /// The AF_XDP socket of each queue; empty for other devices, which have nothing to wait on.
    pub(crate) sockets: Vec<RawFd>,
    /// Keeps a kernel interface as AF_XDP needs it; dropped after the port is closed.
    pub(crate) guard: Option<InterfaceGuard>,
    /// What keeps packets of flows in order, for each worker, until its link has it; empty if the interface forwards none.
    pub(crate) flows: Mutex<Vec<Option<FlowQueue>>>,
}

impl EthDriver {
    /// A port without an interface of the kernel.
    pub(crate) fn new(port: EthPort, queues: u16) -> EthDriver {
        EthDriver { port, queues, sockets: Vec::new(), guard: None, flows: Mutex::default() }
    }
}

impl PortDriver for EthDriver {
    fn info(&self) -> Result<DeviceInfo, PortError> {
        self.port.info()
    }

    fn flow_hook(&self) -> Option<FlowHook> {
        self.guard.as_ref().filter(|guard| guard.forwards_flows()).map(|_| FlowHook::Xdp)
    }

    fn stats(&self, gone: bool) -> DeviceStats {
        // The sockets of an interface that is gone only fail.
        if gone {
            return DeviceStats::default();
        }
        let stats = self.port.stats();
        let no_room: u64 = self.sockets.iter().map(|&socket| xdp::no_room(socket)).sum();
        DeviceStats { rx_missed: stats.rx_missed + no_room, ..stats }
    }

    fn queues(&self, workers: u16) -> Result<Vec<WorkerQueues>, PortError> {
        let EthDriver { port, queues, sockets, guard, flows } = self;
        let mut flows = flows.lock().unwrap_or_else(PoisonError::into_inner);
        let locks: Vec<_> = (0..*queues).map(|_| Arc::new(Mutex::new(()))).collect();
        let mut of_worker = |worker: u16| {
            let own = || (worker..*queues).step_by(workers.into());
            let sending = worker % queues;
            let lock = (workers > *queues).then(|| Arc::clone(&locks[usize::from(sending)]));
            let receive = EthReceive {
                queues: own().map(|queue| port.queue(queue)).collect(),
                kernel: guard.is_some(),
                flows: flows.get_mut(usize::from(worker)).and_then(Option::take).map(Box::new),
            };
            WorkerQueues {
                receive: ReceiveQueues::Eth(receive),
                send: SendQueues::Eth(EthSend { queue: port.queue(sending), lock }),
                descriptors: own().filter_map(|queue| sockets.get(usize::from(queue)).copied()).collect(),
            }
        };
        Ok((0..workers).map(&mut of_worker).collect())
    }
}
