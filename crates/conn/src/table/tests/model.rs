//! The table compared with a plain map: lookups, evictions, timeouts.

use super::*;
use crate::timeouts::timeout_s;
use mmb_random::Seed;
use proptest::prelude::*;

/// One step of the model.
#[derive(Clone, Debug)]
enum Step {
    Insert(u32, u8),
    Touch(u32, bool, u8),
    Remove(u32),
    Pass(u64),
    Configure(usize, u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let proto = prop::sample::select(vec![proto::TCP, proto::UDP, proto::ICMP, 47]);
    let flags = prop::sample::select(vec![SYN, SYN | ACK, ACK, ACK, FIN | ACK, RST]);
    let step = prop_oneof![
        8 => (0..40u32, proto).prop_map(|(number, proto)| Step::Insert(number, proto)),
        12 => (0..40u32, any::<bool>(), flags).prop_map(|(number, reply, flags)| Step::Touch(number, reply, flags)),
        1 => (0..40u32).prop_map(Step::Remove),
        3 => (0..20_000u64).prop_map(Step::Pass),
        1 => (0..10_000_000u64).prop_map(Step::Pass),
        1 => (5..40usize, 1..500u32).prop_map(|(max, seconds)| Step::Configure(max, seconds)),
    ];
    prop::collection::vec(step, 1..300)
}

/// The reference model: connections in a map.
struct Model {
    table: ConnectionTable,
    plain: HashMap<ConnId, Plain>,
    now_ms: u64,
    /// Whether any connection was evicted.
    evicted: bool,
}

#[derive(Clone, Debug)]
struct Plain {
    tuples: [Tuple; 2],
    state: ConnState,
    last_ms: u64,
    packets: [u64; 2],
    began_ms: u64,
    /// Its first packet was retransmitted at least half a second after the connection began or was evicted.
    is_protected: bool,
}

impl Model {
    /// The eviction rank of a connection. The lowest rank is evicted first; of equal ranks, the longest idle
    /// connection. `half_open` are all half-open connections.
    fn order(plain: &Plain, half_open: &[&Plain]) -> u8 {
        let kinds = |plain: &Plain| (plain.is_protected, plain.state == ConnState::SynReceived);
        let many = |kind: fn((bool, bool)) -> bool, part: usize| {
            half_open.iter().filter(|plain| kind(kinds(plain))).count() > (half_open.len() / part).max(16)
        };
        match (plain.state, plain.is_protected) {
            (ConnState::TimeWait | ConnState::Reset, _) => 0,
            (ConnState::SynReceived, false) if many(|kinds| kinds == (false, true), 2) => 1,
            (ConnState::SynSent | ConnState::SynReceived | ConnState::Unreplied, true)
                if many(|kinds| kinds.0, 4) =>
            {
                2
            }
            (ConnState::SynSent | ConnState::Unreplied, false) => 3,
            (ConnState::SynReceived, false) => 4,
            (ConnState::SynSent | ConnState::SynReceived | ConnState::Unreplied, true) => 5,
            (ConnState::Established | ConnState::FinWait | ConnState::Closing | ConnState::Replied, _) => {
                u8::MAX
            }
        }
    }

    fn named(&self, tuple: &Tuple) -> Option<(ConnId, Direction)> {
        self.plain.iter().find_map(|(id, plain)| {
            let side = plain.tuples.iter().position(|other| other == tuple)?;
            Some((*id, Direction::ALL[side]))
        })
    }

    fn timeout_ms(&self, plain: &Plain) -> u64 {
        u64::from(timeout_s(self.table.limits.timeouts(), plain.tuples[0].proto, plain.state)) * 1000
    }

    /// Checks the connections that the table ended, and removes them from the model.
    fn ended(&mut self, closed: Vec<(Tuple, CloseReason)>) {
        for (tuple, reason) in closed {
            let (id, _) = self.named(&tuple).expect("who ends was there");
            let plain = self.plain.remove(&id).unwrap();
            let idle_ms = self.now_ms - plain.last_ms;
            if reason == CloseReason::Evicted {
                assert!(plain.state.is_half_open() || plain.state.is_closed());
                let all = self.plain.values().chain([&plain]);
                let half_open: Vec<&Plain> = all.filter(|plain| plain.state.is_half_open()).collect();
                let order = |plain: &Plain| (Model::order(plain, &half_open), plain.last_ms);
                let goes_before = |other: &&Plain| order(other) < order(&plain);
                assert!(self.plain.values().find(goes_before).is_none(), "another one goes first");
            } else {
                assert!(idle_ms >= self.timeout_ms(&plain), "{} ms early", self.timeout_ms(&plain) - idle_ms);
            }
            self.evicted |= reason == CloseReason::Evicted;
        }
    }

    fn step(&mut self, step: &Step) {
        let mut closed = Vec::new();
        let mut on_close = |connection: &Connection, reason| closed.push((connection.tuples()[0], reason));
        match *step {
            Step::Insert(number, proto) => {
                let forward = client(number, proto);
                let (tuples, syn) = ([forward, answer(&forward)], segment(SYN, 100, 0));
                let syn = (proto == proto::TCP).then_some(&syn);
                let taken = self.named(&tuples[0]).is_some();
                let made = self.table.insert(self.now_ms, tuples[0], tuples[1], syn, &mut on_close);
                assert_eq!(made == Err(InsertError::Taken), taken);
                self.ended(closed);
                if let Ok(id) = made {
                    let state = if proto == proto::TCP { ConnState::SynSent } else { ConnState::Unreplied };
                    let is_protected = ExpiryQueues::is_protected(&self.table.slab, id);
                    assert!(!is_protected || self.evicted, "nobody can come again");
                    let [last_ms, began_ms] = [self.now_ms; 2];
                    let plain = Plain { tuples, state, last_ms, packets: [0; 2], began_ms, is_protected };
                    assert!(self.plain.insert(id, plain).is_none(), "a place of its own");
                } else if made == Err(InsertError::Full) {
                    assert!(self.plain.len() >= self.table.max);
                }
            }
            Step::Touch(number, reply, flags) => {
                let direction = if reply { Direction::Reply } else { Direction::Forward };
                for proto in [proto::TCP, proto::UDP, proto::ICMP, 47] {
                    let forward = client(number, proto);
                    let Some((id, _)) = self.named(&forward) else { continue };
                    let (seq, ack) = if reply { (500, 101) } else { (100, 501) };
                    let seq = seq + u32::from(flags & SYN == 0);
                    let segment = segment(flags, seq, ack);
                    let segment = (proto == proto::TCP).then_some(&segment);
                    let outcome = self.table.touch(id, direction, self.now_ms, 60, segment);
                    self.outcome(id, direction, outcome);
                }
            }
            Step::Remove(number) => {
                if let Some((id, _)) = self.named(&client(number, proto::TCP)) {
                    assert_eq!(self.table.remove(id).tuples(), self.plain.remove(&id).unwrap().tuples);
                }
            }
            Step::Pass(ms) => {
                self.now_ms += ms;
                self.table.advance_fully(self.now_ms, &mut on_close);
                self.ended(closed);
                for plain in self.plain.values() {
                    let late = (self.now_ms - plain.last_ms).checked_sub(self.timeout_ms(plain));
                    assert!(late.is_none_or(|late| late < SLOT_MS), "{late:?} ms late");
                }
            }
            Step::Configure(max, seconds) => {
                let timeouts = Timeouts {
                    tcp_established: seconds * 3,
                    udp: seconds,
                    tcp_time_wait: seconds,
                    ..Timeouts::default()
                };
                self.table.configure(max, timeouts, Pickup::Loose);
            }
        }
    }

    fn outcome(&mut self, id: ConnId, direction: Direction, outcome: TrackOutcome) {
        let timeout_ms = self.timeout_ms(&self.plain[&id]);
        let plain = self.plain.get_mut(&id).unwrap();
        let is_late = self.now_ms - plain.last_ms >= timeout_ms;
        assert!(!is_late || outcome == TrackOutcome::Reopens);
        match outcome {
            TrackOutcome::Reopens | TrackOutcome::Invalid(_) => return,
            TrackOutcome::Noted => {}
            TrackOutcome::Moves(state) => (plain.state, plain.last_ms) = (state, self.now_ms),
            TrackOutcome::Stays => {
                plain.last_ms = self.now_ms;
                // Ages are in units of 16 ms.
                let age_ms = ((self.now_ms >> 4) - (plain.began_ms >> 4)) << 4;
                plain.is_protected |=
                    direction == Direction::Forward && age_ms >= 500 && plain.state.is_half_open();
            }
        }
        plain.packets[direction as usize] += 1;
    }

    fn compare(&self) {
        assert_eq!(self.table.len(), self.plain.len());
        assert_eq!(self.table.queues.walk(&self.table.slab), self.plain.len());
        let half_open = self.plain.values().filter(|plain| plain.state.is_half_open()).count();
        assert_eq!(self.table.half_open(), half_open);
        let mut scanned = 0;
        self.table.scan(ConnId::FIRST, usize::MAX, &mut |id, connection| {
            let plain = &self.plain[&id];
            assert_eq!(connection.tuples(), plain.tuples);
            assert_eq!((connection.state, connection.packets), (plain.state, plain.packets));
            assert_eq!(connection.idle_ms(self.now_ms), self.now_ms - plain.last_ms);
            scanned += 1;
        });
        assert_eq!(scanned, self.plain.len());

        let protos = [proto::TCP, proto::UDP, proto::ICMP, 47];
        let forward = (0..40).flat_map(|number| protos.map(|proto| client(number, proto)));
        let tuples: Vec<Tuple> = forward.flat_map(|forward| [forward, answer(&forward)]).collect();
        let mut found = vec![None; tuples.len()];
        self.table.find_all(&tuples, &mut found);
        for (tuple, found) in tuples.iter().zip(found) {
            assert_eq!(found, self.named(tuple));
            assert_eq!(found, self.table.find(tuple));
        }
    }
}

proptest! {
    /// Under any sequence of steps the table equals the plain map: lookups, evictions, timeouts.
    #[test]
    fn the_table_is_a_plain_map(
        steps in steps(),
        begins_ms in prop::sample::select(vec![0, u64::from(u32::MAX) - 100_000, 1_700_000_000_000]),
        weak in any::<bool>(),
    ) {
        let mut table = ConnectionTable::new(Seed::repeatable(1));
        if weak {
            table.hasher = TupleHasher::weak();
        }
        table.advance(begins_ms, &mut nobody);
        let mut model = Model { table, plain: HashMap::new(), now_ms: begins_ms, evicted: false };
        for step in &steps {
            model.step(step);
        }
        model.compare();
    }
}
