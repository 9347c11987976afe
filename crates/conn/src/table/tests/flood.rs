//! A full table under a flood, on a virtual clock: which clients succeed.

use super::*;
use std::collections::BTreeMap;

/// The first client numbers of the flood, and of the connections that fill the table before it. Ordinary
/// clients start at zero.
const FLOOD: u32 = 1 << 30;
const OLD: u32 = 1 << 31;

/// The initial contents of the table.
#[derive(Clone, Copy)]
struct Full {
    max: u32,
    /// Established connections; the others are in TIME-WAIT.
    established: u32,
}

/// The behaviour of the flood's senders and receivers.
#[derive(Clone, Copy, PartialEq)]
enum Flood {
    None,
    /// A SYN of each tuple, and no reply.
    Silent,
    /// A server near the table answers each SYN, and no client acknowledges the SYN-ACK.
    Answered,
    /// SYNs of this many tuples, repeatedly.
    Loop(u32),
}

/// How long the responder of an ordinary connection takes to answer, and the initiator to acknowledge.
#[derive(Clone, Copy)]
struct Trip {
    answer_ms: u64,
    ack_ms: u64,
}

const NEAR_CLIENT: Trip = Trip { answer_ms: 100, ack_ms: 0 };
const NEAR_SERVER: Trip = Trip { answer_ms: 0, ack_ms: 100 };

#[derive(Clone, Copy)]
enum Event {
    Syn,
    Answer,
    Ack,
}

/// When a client retransmits its SYN (RFC 6298: after one second, then after two more).
const AGAIN_MS: [u64; 2] = [1000, 3000];

/// Ordinary clients, and how many of them succeeded.
struct Clients {
    events: BTreeMap<u64, Vec<(u32, Event)>>,
    answered: Vec<bool>,
    trip: Trip,
}

struct Outcome {
    asked: usize,
    through: usize,
}

impl Outcome {
    fn percent(&self) -> f64 {
        100.0 * self.through as f64 / self.asked as f64
    }
}

impl ConnectionTable {
    fn full(size: Full) -> ConnectionTable {
        let mut table = ConnectionTable::new(mmb_random::Seed::repeatable(7));
        table.configure(size.max as usize, Timeouts::default(), Pickup::Loose);
        for number in 0..size.max {
            let id = table.add(0, OLD + number, proto::TCP).unwrap();
            table.establish(0, id);
            if number >= size.established {
                table.finish(id);
            }
        }
        assert_eq!(table.len(), size.max as usize);
        table
    }

    /// Both ends close the connection.
    fn finish(&mut self, id: ConnId) {
        self.touch(id, Direction::Forward, 0, 60, Some(&segment(FIN | ACK, 101, 501)));
        self.touch(id, Direction::Reply, 0, 60, Some(&segment(FIN | ACK, 501, 102)));
        self.touch(id, Direction::Forward, 0, 60, Some(&segment(ACK, 102, 502)));
        assert_eq!(self.get(id).state, ConnState::TimeWait);
    }

    /// A SYN arrives.
    fn syn(&mut self, now_ms: u64, number: u32) -> Option<ConnId> {
        let forward = client(number, proto::TCP);
        let syn = segment(SYN, 100, 0);
        if let Some((id, _)) = self.find(&forward) {
            self.touch(id, Direction::Forward, now_ms, 60, Some(&syn));
            return Some(id);
        }
        let closed = &mut |connection: &Connection, _| {
            assert!(connection.state.is_closed() || connection.state.is_half_open());
        };
        self.insert(now_ms, forward, answer(&forward), Some(&syn), closed).ok()
    }

    /// Sends the SYNs of `clients.0` ordinary clients per second for `clients.1` milliseconds. Sends a flood
    /// of `per_ms` packets per millisecond until the clients have had time to succeed.
    fn under(&mut self, flood: Flood, per_ms: u32, clients: (u32, u64), trip: Trip) -> Outcome {
        self.under_from(0, flood, per_ms, clients, trip)
    }

    fn under_from(
        &mut self,
        begins_ms: u64,
        flood: Flood,
        per_ms: u32,
        (a_second, last_ms): (u32, u64),
        trip: Trip,
    ) -> Outcome {
        let wait_ms = 1000 / u64::from(a_second);
        let many = last_ms / wait_ms;
        let first =
            (0..many).map(|number| (begins_ms + 1 + number * wait_ms, vec![(number as u32, Event::Syn)]));
        let mut clients = Clients { events: first.collect(), answered: vec![false; many as usize], trip };
        let mut sent = 0;
        for now_ms in begins_ms + 1..=begins_ms + last_ms + 1300 {
            self.advance(now_ms, &mut |_: &Connection, _: CloseReason| {});
            for _ in 0..if flood == Flood::None { 0 } else { per_ms } {
                let number = FLOOD + if let Flood::Loop(tuples) = flood { sent % tuples } else { sent };
                sent += 1;
                let id = self.syn(now_ms, number);
                if let (Some(id), Flood::Answered) = (id, flood) {
                    self.touch(id, Direction::Reply, now_ms, 60, Some(&segment(SYN | ACK, 500, 101)));
                }
            }
            for (number, event) in clients.events.remove(&now_ms).unwrap_or_default() {
                clients.step(self, now_ms, number, event);
            }
            assert!(self.len() <= self.max);
        }
        let open = |number: u32| {
            let found = self.find(&client(number, proto::TCP));
            found.is_some_and(|(id, _)| self.get(id).state == ConnState::Established)
        };
        let through = (0..many as u32).filter(|number| open(*number)).count();
        assert_eq!(self.queues.walk(&self.slab), self.len());
        Outcome { asked: many as usize, through }
    }
}

impl Clients {
    fn step(&mut self, table: &mut ConnectionTable, now_ms: u64, number: u32, event: Event) {
        let mut later =
            |in_ms: u64, event| self.events.entry(now_ms + in_ms).or_default().push((number, event));
        let forward = client(number, proto::TCP);
        let found = table.find(&forward);
        match event {
            Event::Syn if self.answered[number as usize] => {}
            Event::Syn => {
                if found.is_none_or(|(id, _)| table.get(id).state == ConnState::SynSent) {
                    table.syn(now_ms, number);
                    later(self.trip.answer_ms.max(1), Event::Answer);
                    AGAIN_MS.into_iter().for_each(|in_ms| later(in_ms, Event::Syn));
                }
            }
            // Without the connection's entry no rule admits a reply.
            Event::Answer => {
                let Some((id, _)) = found else { return };
                table.touch(id, Direction::Reply, now_ms, 60, Some(&segment(SYN | ACK, 500, 101)));
                self.answered[number as usize] = true;
                later(self.trip.ack_ms.max(1), Event::Ack);
            }
            Event::Ack => {
                let ack = segment(ACK, 101, 501);
                let id = match found {
                    Some((id, _)) => id,
                    // Picked up in mid-flow.
                    None => {
                        let made = table.insert(
                            now_ms,
                            forward,
                            answer(&forward),
                            Some(&ack),
                            &mut |_: &Connection, _: CloseReason| {},
                        );
                        let Ok(id) = made else { return };
                        id
                    }
                };
                table.touch(id, Direction::Forward, now_ms, 60, Some(&ack));
                if table.get(id).state == ConnState::Unreplied {
                    table.touch(id, Direction::Reply, now_ms, 60, Some(&segment(ACK, 501, 101)));
                }
            }
        }
    }
}

/// The reported case: 100 connections a second, answered after 40 ms, in a table that is full of closed
/// connections.
#[test]
fn a_table_full_of_closed_connections_admits_new_ones() {
    let mut table = ConnectionTable::full(Full { max: 3000, established: 0 });
    let trip = Trip { answer_ms: 40, ack_ms: 0 };
    let outcome = table.under(Flood::None, 0, (100, 5000), trip);
    assert_eq!((outcome.through, outcome.asked), (500, 500));
}

/// However small the table is and whatever fills it, clients at 100 ms succeed under 300,000 SYNs a second,
/// at once or with their retransmitted SYN.
#[test]
fn clients_get_through_an_unreplied_flood() {
    for (max, established) in [(3000, 1500), (3000, 2700), (100_000, 90_000)] {
        let mut table = ConnectionTable::full(Full { max, established });
        let outcome = table.under(Flood::Silent, 300, (200, 200), NEAR_CLIENT);
        println!("{max} places, {established} established: {:.1} % get through", outcome.percent());
        assert!(outcome.percent() >= 95.0, "{max}, {established}: {:.1} %", outcome.percent());
        let stayed =
            (0..established).filter(|number| table.find(&client(OLD + number, proto::TCP)).is_some());
        assert_eq!(stayed.count(), established as usize, "an established connection was ended");
    }
}

/// With slots for a tenth of a second of the flood, no client needs a second SYN.
#[test]
fn clients_get_through_at_once_where_there_is_room_for_the_time_of_an_answer() {
    let mut table = ConnectionTable::full(Full { max: 100_000, established: 60_000 });
    let outcome = table.under(Flood::Silent, 300, (200, 500), NEAR_CLIENT);
    let again = (0..outcome.asked as u32).filter(|number| {
        let (id, _) = table.find(&client(*number, proto::TCP)).unwrap();
        table.get(id).age_ms(1800) < 1000
    });
    assert_eq!((outcome.through, again.count()), (100, 0));
}

/// Connections that a server answers and no client acknowledges do not shorten the time of unreplied ones.
#[test]
fn clients_get_through_a_flood_that_a_server_answers() {
    for (max, established) in [(3000, 2700), (100_000, 90_000)] {
        for trip in [NEAR_CLIENT, NEAR_SERVER] {
            let mut table = ConnectionTable::full(Full { max, established });
            let outcome = table.under(Flood::Answered, 300, (200, 200), trip);
            println!("{max} places, {established} established: {:.1} % get through", outcome.percent());
            assert!(outcome.percent() >= 95.0, "{max}, {established}: {:.1} %", outcome.percent());
        }
    }
}

/// A sender that repeats the same made-up tuples faster than a client does gains no advantage.
#[test]
fn clients_get_through_a_flood_that_sends_its_tuples_again() {
    for tuples in [5000, 65_536] {
        let mut table = ConnectionTable::full(Full { max: 3000, established: 1500 });
        let outcome = table.under(Flood::Loop(tuples), 300, (200, 200), NEAR_CLIENT);
        println!("{tuples} tuples: {:.1} % get through", outcome.percent());
        assert!(outcome.percent() >= 95.0, "{tuples} tuples: {:.1} %", outcome.percent());
    }
}

/// A sender that waits as long as a client before it repeats its tuples gets the protected slots, and no
/// others.
#[test]
fn new_clients_get_through_a_flood_that_sends_its_tuples_again_as_clients_do() {
    let mut table = ConnectionTable::full(Full { max: 3000, established: 1500 });
    for number in 0..180_000u32 {
        table.syn(u64::from(number) / 300, FLOOD + number);
    }
    // From the second round of the flood on.
    let outcome = table.under_from(600, Flood::Loop(180_000), 300, (200, 200), NEAR_CLIENT);
    println!("{:.1} % get through", outcome.percent());
    assert!(outcome.percent() >= 95.0, "{:.1} %", outcome.percent());
}

/// An unreplied flood does not evict connections that the responder has answered.
#[test]
fn an_unreplied_flood_ends_no_answered_connection() {
    let mut table = ConnectionTable::full(Full { max: 100, established: 80 });
    for number in 0..10 {
        let id = table.syn(1, number).unwrap();
        table.touch(id, Direction::Reply, 1, 60, Some(&segment(SYN | ACK, 500, 101)));
    }
    for number in 0..10_000 {
        table.syn(2, FLOOD + number).unwrap();
    }
    let state = |number| table.find(&client(number, proto::TCP)).map(|(id, _)| table.get(id).state);
    assert!((0..10).all(|number| state(number) == Some(ConnState::SynReceived)));
    assert_eq!(table.len(), 100);
}

/// Closed connections are evicted before half-open ones, and the longest closed connection first.
#[test]
fn what_is_over_goes_first_and_the_longest_over_before_others() {
    let mut table = ConnectionTable::new(mmb_random::Seed::repeatable(1));
    table.configure(4, Timeouts::default(), Pickup::Loose);
    let ids: Vec<ConnId> = (0..3).map(|number| table.add(0, number, proto::TCP).unwrap()).collect();
    table.establish(0, ids[1]);
    table.finish(ids[1]);
    table.establish(0, ids[2]);
    table.touch(ids[2], Direction::Forward, 5, 60, Some(&segment(RST, 101, 0)));
    table.add(10, 3, proto::UDP).unwrap();
    let mut gone = Vec::new();
    for number in 10..14 {
        let forward = client(number, proto::UDP);
        let closed = &mut |connection: &Connection, _| gone.push(connection.tuples()[0]);
        table.insert(20, forward, answer(&forward), None, closed).unwrap();
    }
    // Closed since 0 and 5, then half-open since 0 and 10.
    let expected = [(1, proto::TCP), (2, proto::TCP), (0, proto::TCP), (3, proto::UDP)];
    assert_eq!(gone, expected.map(|(number, proto)| client(number, proto)));
}
