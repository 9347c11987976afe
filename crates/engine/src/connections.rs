//! Connections as the control side sees them: lists, ends and watches them.
//!
//! Connections belong to workers. [`Connections`] is a handle through which others ask: a question is a task that a worker runs
//! between two vectors, over at most a thousand connections, so that packets hardly wait; a worker that does not answer within
//! some seconds has stopped. What is only counted is read from counters, without asking.

use crate::cells::WorkerCells;
use crate::flows::saved::{self, Saved};
use crate::flows::{Common, Flows, Watcher};
use crate::pipeline::Pipeline;
use crate::snapshot::Snapshot;
use mmb_conn::{CloseReason, ConnId, Connection, DESTINATION, Invalid, SOURCE, Side, Tuple, Wire, proto};
use mmb_policy::{Filter, RuleId};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::time::Duration;

/// Bytes that a connection takes at most, with all that can hang on it: its record, its places in tables while these grow, a
/// translation of a host that has no other, a peer, an owner among several workers, a counted source. Measured (`connection_memory.rs`
/// of the tests): 320 without translation, 950 to 1310 with it.
pub const CONNECTION_BYTES: u64 = 1344;

/// Connections that a worker looks at before it goes back to packets.
const CHUNK: usize = 1024;
/// How long a worker may take for a chunk.
const PATIENCE: Duration = Duration::from_secs(5);
/// Events that wait for whoever watches; further ones are lost, and counted. They own no memory beside the queue, which so takes
/// 4 MB at most.
const EVENTS: usize = 16_384;
const _: () = assert!(EVENTS * size_of::<Event>() <= 4 << 20);

/// Something for a worker to do between two vectors.
pub(crate) type Task = Box<dyn FnOnce(&mut Pipeline, &Snapshot) + Send>;

/// Two ends of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ends {
    /// Source address.
    pub src: IpAddr,
    /// Source port, or an ICMP query's identifier; 0 where there is none, of GRE too.
    pub sport: u16,
    /// Destination address.
    pub dst: IpAddr,
    /// Destination port.
    pub dport: u16,
}

impl Ends {
    pub(crate) fn of(tuple: &Tuple) -> Ends {
        let [sport, dport] = match tuple.proto {
            proto::GRE => [0; 2],
            _ => [SOURCE, DESTINATION].map(|side| tuple.port(side)),
        };
        Ends { src: tuple.address(SOURCE), sport, dst: tuple.address(DESTINATION), dport }
    }
}

/// A connection at some moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// The worker that has it.
    pub worker: u16,
    /// Its number there, good while it lives.
    pub id: u32,
    /// The IP protocol.
    pub proto: u8,
    /// 4 or 6.
    pub family: u8,
    /// The key of GRE (RFC 2890); 0 without one.
    pub key: u32,
    /// The type of an ICMP query's request; 0 for other protocols.
    pub icmp_type: u8,
    /// The wire: the smaller number of its two ports, and the VLAN that the initiator's packets come in by.
    pub wire: Wire,
    /// The sides of the wire that the initiator's and the other end's packets come in by.
    pub sides: [Side; 2],
    /// The initiator's packets as they arrive.
    pub arrived: Ends,
    /// The initiator's packets as they leave.
    pub sent: Ends,
    /// Its state, in words.
    pub state: &'static str,
    /// Milliseconds since it was made.
    pub age_ms: u64,
    /// Milliseconds since its last packet.
    pub idle_ms: u64,
    /// Milliseconds until it ends if no packet comes.
    pub expires_ms: u64,
    /// Packets of the initiator, and of the other end.
    pub packets: [u64; 2],
    /// Their bytes, link headers included.
    pub bytes: [u64; 2],
    /// The stateful rules that made it.
    pub rules: Arc<[RuleId]>,
}

impl ConnectionInfo {
    /// Whether a filter means it.
    pub fn is_meant_by(&self, filter: &Filter) -> bool {
        fn within<T: PartialOrd + Copy>(range: Option<(T, T)>, values: [T; 2]) -> bool {
            range.is_none_or(|(first, last)| values.iter().any(|value| first <= *value && *value <= last))
        }
        let ConnectionInfo { arrived, sent, .. } = self;
        filter.proto.is_none_or(|proto| proto == self.proto)
            && filter.family.is_none_or(|family| family == self.family)
            && within(filter.src, [arrived.src, sent.src])
            && within(filter.dst, [arrived.dst, sent.dst])
            && within(filter.sport, [arrived.sport, sent.sport])
            && within(filter.dport, [arrived.dport, sent.dport])
            && filter.state.is_none_or(|state| state == self.state)
            && filter.rule.is_none_or(|rule| self.rules.contains(&rule))
    }

    pub(crate) fn new(
        worker: usize,
        id: ConnId,
        connection: &Connection,
        (now_ms, expires_ms): (u64, u64),
        rules: Arc<[RuleId]>,
    ) -> ConnectionInfo {
        let [forward, reply] = connection.tuples();
        let [high, low] = if forward.proto == proto::GRE { forward.ports } else { [0; 2] };
        ConnectionInfo {
            worker: worker as u16,
            id: id.0,
            proto: forward.proto,
            family: forward.family,
            key: u32::from(high) << 16 | u32::from(low),
            icmp_type: if forward.is_query() { forward.ports[DESTINATION] as u8 } else { 0 },
            wire: forward.wire,
            sides: [forward.side, reply.side],
            arrived: Ends::of(&forward),
            sent: Ends::of(&reply.reversed()),
            state: connection.state.name(),
            age_ms: connection.age_ms(now_ms),
            idle_ms: connection.idle_ms(now_ms),
            expires_ms,
            packets: connection.packets,
            bytes: connection.bytes,
            rules,
        }
    }
}

/// What happened to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// It was made; else it has ended.
    pub created: bool,
    /// Why it ended.
    pub reason: Option<&'static str>,
    /// It, at that moment; `id` says nothing.
    pub info: ConnectionInfo,
}

/// All workers' connections in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionSummary {
    /// Connections now.
    pub connections: u64,
    /// Of these, those that the other end has not answered yet.
    pub half_open: u64,
    /// Connections that their workers have memory for already.
    pub places: u64,
    /// The most that there may be.
    pub max: u64,
    /// Made so far.
    pub created: u64,
    /// Ended so far, by reason, those above zero.
    pub closed: Vec<(&'static str, u64)>,
    /// Packets that were not believed, by kind, those above zero.
    pub invalid: Vec<(&'static str, u64)>,
    /// Events that came faster than they were read.
    pub events_lost: u64,
    /// Packets that came in at another worker than their connection's, and were handed over.
    pub handed: u64,
    /// Fragments that wait for their datagram's first one now: received, and neither sent nor dropped.
    pub held: u64,
}

/// A worker has not answered: it has stopped, or is held up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("worker {0} does not answer")]
pub struct NoAnswer(pub usize);

/// A connection to be made, and the slots of its rules.
type Found = (Saved, Vec<u32>);

/// A handle on all workers' connections.
#[derive(Clone)]
pub struct Connections {
    workers: Vec<(Sender<Task>, Arc<WorkerCells>)>,
    common: Arc<Common>,
    max: u64,
    /// Has a worker do what it was asked, where no other thread does.
    drive: Option<Arc<dyn Fn(usize) + Send + Sync>>,
}

impl Connections {
    pub(crate) fn new(
        workers: Vec<(Sender<Task>, Arc<WorkerCells>)>,
        common: Arc<Common>,
        max: u64,
    ) -> Connections {
        Connections { workers, common, max, drive: None }
    }

    /// The handle of a host whose workers run on the thread that asks: `drive` has one process no packets, so that it answers.
    #[must_use]
    pub fn driven_by(self, drive: Arc<dyn Fn(usize) + Send + Sync>) -> Connections {
        Connections { drive: Some(drive), ..self }
    }

    /// All workers' connections in numbers.
    pub fn summary(&self) -> ConnectionSummary {
        let mut summary = ConnectionSummary { max: self.max, ..ConnectionSummary::default() };
        for (_, cells) in &self.workers {
            let counts = cells.connections();
            summary.connections += counts.now;
            summary.half_open += counts.half_open;
            summary.places += counts.places;
            summary.created += counts.created;
            summary.events_lost += counts.events_lost;
            summary.handed += counts.handed;
            summary.held += counts.held;
        }
        let closed = |reason| self.workers.iter().map(|(_, cells)| cells.closed(reason)).sum();
        let all = CloseReason::ALL.into_iter().map(|reason| (reason.name(), closed(reason)));
        summary.closed = all.filter(|(_, count)| *count > 0).collect();
        let invalid = |kind| self.workers.iter().map(|(_, cells)| cells.invalid(kind)).sum();
        let all = Invalid::ALL.into_iter().map(|kind| (kind.name(), invalid(kind)));
        summary.invalid = all.filter(|(_, count)| *count > 0).collect();
        summary
    }

    /// Tells of every connection that a filter means, in no order, as they are met: one that is made meanwhile may be missing. Ends
    /// when `each` says false.
    ///
    /// # Errors
    /// A worker does not answer.
    pub fn list(
        &self,
        filter: &Filter,
        each: &mut dyn FnMut(ConnectionInfo) -> bool,
    ) -> Result<(), NoAnswer> {
        for worker in 0..self.workers.len() {
            let mut from = Some(0);
            while let Some(first) = from {
                let filter = *filter;
                let (next, found) = self.ask(worker, move |flows, _| {
                    let mut found = Vec::new();
                    let next = flows.table.scan(first, CHUNK, &mut |id, connection| {
                        let info = flows.info(id, connection);
                        if info.is_meant_by(&filter) {
                            found.push(info);
                        }
                    });
                    (next, found)
                })?;
                for info in found {
                    if !each(info) {
                        return Ok(());
                    }
                }
                from = next;
            }
        }
        Ok(())
    }

    /// Ends every connection that a filter means, and returns how many.
    ///
    /// # Errors
    /// A worker does not answer.
    pub fn kill(&self, filter: &Filter) -> Result<u64, NoAnswer> {
        let mut killed = 0;
        for worker in 0..self.workers.len() {
            let mut from = Some(0);
            while let Some(first) = from {
                let filter = *filter;
                let (next, ended) = self.ask(worker, move |flows, _| {
                    let mut ends = Vec::new();
                    let next = flows.table.scan(first, CHUNK, &mut |id, connection| {
                        if flows.info(id, connection).is_meant_by(&filter) {
                            ends.push(id);
                        }
                    });
                    let reason =
                        if filter.rule.is_some() { CloseReason::RuleDeleted } else { CloseReason::Killed };
                    ends.iter().for_each(|id| flows.end(*id, reason));
                    (next, ends.len() as u64)
                })?;
                killed += ended;
                from = next;
            }
        }
        Ok(killed)
    }

    /// Writes all connections, for [`Connections::load`]; returns how many. Packets go on meanwhile, so that it is no picture of one
    /// moment.
    ///
    /// # Errors
    /// What `out` says, or that a worker does not answer.
    pub fn save(&self, out: &mut dyn Write) -> io::Result<u64> {
        let mut writer = saved::Writer::new(out)?;
        for worker in 0..self.workers.len() {
            let mut from = Some(0);
            while let Some(first) = from {
                let (next, found) = self
                    .ask(worker, move |flows, _| {
                        let mut found = Vec::new();
                        let next = flows.table.scan(first, CHUNK, &mut |_, connection| {
                            found.push(flows.saved(connection));
                        });
                        (next, found)
                    })
                    .map_err(io::Error::other)?;
                found.iter().try_for_each(|saved| writer.write(saved))?;
                from = next;
            }
        }
        writer.end()
    }

    /// Makes the connections that [`Connections::save`] wrote, with those of their rules that the policy in force has under the same
    /// numbers; returns how many there are now. One whose ends somebody else has by now is left out.
    ///
    /// # Errors
    /// What is wrong with the input, which is read as a whole first: nothing is made of it then. That a worker does not answer.
    pub fn load(&self, input: &mut dyn Read) -> Result<u64, String> {
        let whole = saved::Whole::read(input, self.max)?;
        let slots = self.ask(0, |_, snapshot| snapshot.stateful_slots().collect::<HashMap<_, _>>());
        let slots = slots.map_err(|error| error.to_string())?;
        // One that is over may have lent its port to another, and does without it: who needs it comes first.
        let live = whole.connections().filter(|saved| !saved.connection.state.is_over());
        let over = whole.connections().filter(|saved| saved.connection.state.is_over());
        Ok(self.put_all(live, &slots)? + self.put_all(over, &slots)?)
    }

    /// Has each connection made by its worker; `slots` are those of the stateful rules.
    fn put_all(&self, all: impl Iterator<Item = Saved>, slots: &HashMap<RuleId, u32>) -> Result<u64, String> {
        let mut waiting: Vec<Vec<Found>> = self.workers.iter().map(|_| Vec::new()).collect();
        let mut loaded = 0;
        for saved in all {
            let worker = self.common.owner(&saved.connection.tuples[0]);
            let slots = saved.rules.iter().filter_map(|rule| slots.get(rule).copied()).collect();
            waiting[worker].push((saved, slots));
            if waiting[worker].len() == CHUNK {
                loaded += self.put(worker, std::mem::take(&mut waiting[worker]))?;
            }
        }
        for (worker, left) in waiting.into_iter().enumerate() {
            loaded += self.put(worker, left)?;
        }
        Ok(loaded)
    }

    fn put(&self, worker: usize, found: Vec<Found>) -> Result<u64, String> {
        let made = self.ask(worker, move |flows, snapshot| {
            let made = found.iter().filter(|(saved, slots)| {
                let there = slots.iter().filter(|slot| snapshot.stateful(**slot).is_some()).copied();
                flows.restore(snapshot, saved, &there.collect::<Vec<_>>()).is_ok()
            });
            made.count() as u64
        });
        made.map_err(|error| error.to_string())
    }

    /// Has these workers, of those that may own connections, share the ones to come in equal parts, and the places for them. Connections
    /// that there are stay at their workers, to whom their packets are handed over. One caller at a time.
    ///
    /// # Errors
    /// A worker does not answer: everything stays as it is.
    ///
    /// # Panics
    /// If there are none, or one that may own none.
    pub fn share_among(&self, workers: &[u16]) -> Result<(), NoAnswer> {
        let owners = &self.common.owners;
        assert!(!workers.is_empty() && workers.iter().all(|&worker| usize::from(worker) < owners.owning()));
        owners.prepare(workers);
        for worker in 0..owners.owning() {
            let mut from = Some(0);
            while let Some(first) = from {
                from = self.ask(worker, move |flows, _| flows.claim_strays(first, CHUNK))?;
            }
        }
        owners.switch(workers);
        for worker in 0..owners.owning() {
            self.ask(worker, |flows, snapshot| flows.fit_share(snapshot))?;
        }
        Ok(())
    }

    /// Events from now on, until what is returned is dropped.
    ///
    /// # Errors
    /// A worker does not answer.
    pub fn watch(&self) -> Result<Watch, NoAnswer> {
        self.watch_with_room(EVENTS)
    }

    /// [`Connections::watch`] with room for so many events that wait.
    ///
    /// # Errors
    /// A worker does not answer.
    pub fn watch_with_room(&self, events: usize) -> Result<Watch, NoAnswer> {
        let (sender, events) = sync_channel(events);
        let tasks = self.workers.iter().map(|(tasks, _)| tasks.clone()).collect();
        let watch = Watch { events, lost: Arc::default(), tasks };
        for worker in 0..self.workers.len() {
            let watcher = Watcher { events: sender.clone(), lost: Arc::clone(&watch.lost) };
            self.ask(worker, move |flows, _| flows.keeper.watchers.push(watcher))?;
        }
        Ok(watch)
    }

    /// Has a worker do something, and waits for what comes of it.
    fn ask<R: Send + 'static>(
        &self,
        worker: usize,
        task: impl FnOnce(&mut Flows, &Snapshot) -> R + Send + 'static,
    ) -> Result<R, NoAnswer> {
        let (answer, answered) = channel();
        let task: Task = Box::new(move |pipeline, snapshot| {
            // Whoever asked may have gone.
            let _ = answer.send(task(pipeline.flows(), snapshot));
        });
        self.workers[worker].0.send(task).map_err(|_| NoAnswer(worker))?;
        if let Some(drive) = &self.drive {
            drive(worker);
        }
        answered.recv_timeout(PATIENCE).map_err(|_| NoAnswer(worker))
    }
}

/// What happens to connections, as it is told to one who watches. The queue in between is bounded, and its memory is given back
/// when this is dropped, whether or not anything happens then.
pub struct Watch {
    events: Receiver<Event>,
    lost: Arc<AtomicU64>,
    tasks: Vec<Sender<Task>>,
}

impl Watch {
    /// The next event; waits for it so long at most.
    ///
    /// # Errors
    /// None has come, or the workers have stopped.
    pub fn recv_timeout(&self, patience: Duration) -> Result<Event, RecvTimeoutError> {
        self.events.recv_timeout(patience)
    }

    /// The events that wait.
    pub fn try_iter(&self) -> impl Iterator<Item = Event> {
        self.events.try_iter()
    }

    /// Events that found no room since this was asked last.
    pub fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        for tasks in &self.tasks {
            let lost = Arc::clone(&self.lost);
            // Where the worker has stopped, nothing is left to be taken off.
            let _ = tasks.send(Box::new(move |pipeline, _| {
                pipeline.flows().keeper.watchers.retain(|watcher| !Arc::ptr_eq(&watcher.lost, &lost));
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, NoCycles, PortTable};
    use mmb_conn::State;
    use std::sync::atomic::AtomicBool;

    /// Nothing had to happen to a connection for that: memory of clients that are gone is not to wait for traffic.
    #[test]
    fn the_queue_of_one_who_no_longer_watches_is_freed_though_nothing_happens() {
        let (engine, mut workers) =
            Engine::new(PortTable::default(), 2, &mmb_random::SeedTree::repeatable(1));
        let connections = engine.connections();
        let stop = AtomicBool::new(false);
        let watch = std::thread::scope(|scope| {
            for worker in &mut workers {
                let stop = &stop;
                scope.spawn(move || {
                    while !stop.load(Ordering::SeqCst) {
                        worker.process(0, &NoCycles, &mut [], &mut []);
                    }
                });
            }
            let watch = connections.watch();
            stop.store(true, Ordering::SeqCst);
            watch.expect("the workers answer")
        });
        let watchers = Arc::downgrade(&watch.lost);
        assert_eq!(watchers.strong_count(), 3, "its own, and each worker's");
        drop(watch);
        workers.iter_mut().for_each(|worker| worker.process(0, &NoCycles, &mut [], &mut []));
        assert_eq!(watchers.strong_count(), 0);
    }

    #[test]
    fn the_language_knows_every_state() {
        let known: Vec<_> = mmb_policy::filter::STATES.iter().map(|(name, _)| *name).collect();
        assert_eq!(known, State::ALL.map(State::name));
    }
}
