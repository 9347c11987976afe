//! The host of `mmb run`: live ports and packet threads, as the control side sees them.

use super::orders::ThreadOrders;
use super::wiring::PortWiring;
use mmb_base::lock;
use mmb_control::{Host, PortLosses, PortOffload, PortStatus, WorkerStatus};
use mmb_io::{Health, OpenPorts, Port};
use mmb_log::{LogHandle, SinkStatus};
use mmb_policy::settings::Poll;
use mmb_protocol::answer::LinkLine;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Reports ports and workers, and forwards settings to the packet threads.
pub(super) struct LiveHost {
    ports: Arc<Mutex<OpenPorts>>,
    orders: Arc<ThreadOrders>,
    peers: Vec<Option<String>>,
    cores: Vec<Option<usize>>,
    started: Instant,
    log: LogHandle,
}

impl LiveHost {
    pub(super) fn new(
        ports: &Arc<Mutex<OpenPorts>>,
        orders: &Arc<ThreadOrders>,
        wiring: &PortWiring,
        (cores, started): (&[Option<usize>], Instant),
        log: LogHandle,
    ) -> LiveHost {
        let peers = (0..wiring.devices.len()).map(|port| wiring.peer_name(port).map(str::to_owned)).collect();
        LiveHost {
            ports: Arc::clone(ports),
            orders: Arc::clone(orders),
            peers,
            cores: cores.to_vec(),
            started,
            log,
        }
    }
}

impl Host for LiveHost {
    fn ports(&self) -> Vec<PortStatus> {
        let ports = lock(&self.ports);
        ports.ports().iter().zip(&self.peers).map(|(port, peer)| status(port, peer.clone())).collect()
    }

    fn set_poll(&self, poll: Poll) {
        self.orders.spin.store(poll == Poll::Spin, Ordering::Relaxed);
    }

    fn offload(&self) -> Vec<PortOffload> {
        let ports = lock(&self.ports);
        let state = |port: &Port| match (port.flow_hook(), ports.flows()) {
            (Some(hook), _) => Ok(hook.name().to_owned()),
            (None, Err(why)) => Err(why.to_owned()),
            (None, Ok(_)) if port.interface_index().is_none() && port.interface_name().is_some() => {
                Err("its interface is gone".to_owned())
            }
            (None, Ok(_)) if port.interface_index().is_none() => Err("it is no kernel interface".to_owned()),
            (None, Ok(_)) => {
                Err("the program could not be attached; a message at the start says why".to_owned())
            }
        };
        ports
            .ports()
            .iter()
            .map(|port| PortOffload { port: port.name().to_owned(), state: state(port) })
            .collect()
    }

    fn time_origin(&self) -> Option<Instant> {
        Some(self.started)
    }

    fn cycles(&self) -> Option<u64> {
        Some(mmb_io::cycles::now())
    }

    fn log_sinks(&self) -> Vec<SinkStatus> {
        self.log.status()
    }

    fn workers(&self) -> Vec<WorkerStatus> {
        let worker = |(number, core): (usize, &Option<usize>)| WorkerStatus {
            worker: number as u16,
            core: core.map(|core| core as u32),
        };
        self.cores.iter().enumerate().map(worker).collect()
    }
}

fn status(port: &Port, peer: Option<String>) -> PortStatus {
    let stats = port.stats();
    let mac: Vec<String> = port.info().mac.iter().map(|byte| format!("{byte:02x}")).collect();
    PortStatus {
        name: port.name().to_owned(),
        device: port.device().to_string(),
        driver: port.info().driver.clone(),
        mac: mac.join(":"),
        mtu: port.mtu(),
        link: match port.health() {
            Health::Up => LinkLine::Up,
            Health::Down => LinkLine::Down,
            Health::Gone => LinkLine::Gone,
        },
        peer,
        losses: PortLosses {
            rx_missed: stats.rx_missed,
            rx_errors: stats.rx_errors,
            tx_errors: stats.tx_errors,
        },
    }
}
