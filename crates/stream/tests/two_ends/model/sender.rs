//! The sending half of the model: Reno with SACK as in RFC 5681, 6298, 6582, 6675 and 8985, and the probes of
//! Linux.
//!
//! Offsets count the bytes of the stream. The FIN has the offset after the last byte.

/// The least retransmission timeout in milliseconds, as in Linux, and the largest one. Two minutes would make
/// tests of bad links long.
const MIN_RTO_MS: u64 = 200;
const MAX_RTO_MS: u64 = 5_000;
/// Segments that a connection begins with (RFC 6928).
const INITIAL_WINDOW: i64 = 10;
/// Duplicates that show a loss.
const DUPLICATES: usize = 3;
/// What the tail loss probe waits for a delayed acknowledgment of one segment.
const DELAYED_MS: u64 = 200;

/// A segment that was sent and is not acknowledged.
#[derive(Clone, Copy, Debug)]
struct Flight {
    start: i64,
    end: i64,
    sent_ms: u64,
    is_sacked: bool,
    is_lost: bool,
    /// It was sent again since it was lost last.
    is_again: bool,
    was_again: bool,
}

impl Flight {
    /// It does not wait to be sent again.
    fn is_known(&self) -> bool {
        self.is_sacked || !self.is_lost || self.is_again
    }

    fn is_in_pipe(&self) -> bool {
        !self.is_sacked && self.is_known()
    }
}

/// What is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sending {
    /// The bytes between two offsets, and the FIN if they reach behind the stream.
    Data(i64, i64),
    /// An empty segment with the number before the first that is not acknowledged.
    Probe,
}

/// What an acknowledgment says.
pub(super) struct Told<'t> {
    pub(super) ack: i64,
    pub(super) sack: &'t [(i64, i64)],
    pub(super) window: i64,
    /// The number of its segment, and whether it has bytes.
    pub(super) seq: i64,
    pub(super) has_data: bool,
    /// How long ago the segment was sent that it echoes.
    pub(super) rtt_ms: Option<u64>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Sender {
    /// Bytes of the stream.
    len: i64,
    buffer: i64,
    pub(super) mss: i64,
    /// Segments that leave in one packet.
    pub(super) bundle: i64,
    pub(super) sack_permitted: bool,
    pub(super) una: i64,
    pub(super) next: i64,
    edge: i64,
    widest: i64,
    /// The number of the segment that told the window last, and what it told.
    window: (i64, i64),
    congestion: i64,
    threshold: i64,
    flights: Vec<Flight>,
    recovery: Option<i64>,
    duplicates: usize,
    /// When the last segment was sent that has arrived.
    arrived_ms: u64,
    srtt_ms: Option<(u64, u64)>,
    backoff: u32,
    timeout_ms: Option<u64>,
    probe_ms: Option<u64>,
    persist_ms: Option<u64>,
    persists: u32,
    /// A tail was probed, and nothing has been acknowledged since.
    has_probed: bool,
}

impl Sender {
    pub(super) fn new(len: usize, buffer: usize) -> Sender {
        Sender {
            len: len as i64,
            buffer: buffer as i64,
            mss: 536,
            bundle: 1,
            sack_permitted: false,
            una: 0,
            next: 0,
            edge: 0,
            widest: 0,
            window: (-1, 0),
            congestion: 0,
            threshold: i64::MAX,
            flights: Vec::new(),
            recovery: None,
            duplicates: 0,
            arrived_ms: 0,
            srtt_ms: None,
            backoff: 0,
            timeout_ms: None,
            probe_ms: None,
            persist_ms: None,
            persists: 0,
            has_probed: false,
        }
    }

    /// The connection is open, with what the handshake told.
    pub(super) fn open(&mut self, mss: i64, window: i64) {
        self.mss = mss;
        self.congestion = INITIAL_WINDOW * mss;
        (self.edge, self.widest) = (window, window);
    }

    /// The FIN is acknowledged.
    pub(super) fn is_done(&self) -> bool {
        self.una > self.len
    }

    fn rto_ms(&self) -> u64 {
        let (srtt, var) = self.srtt_ms.unwrap_or((1000, 0));
        let base = (srtt + (4 * var).max(MIN_RTO_MS)).min(MAX_RTO_MS);
        (base << self.backoff.min(8)).min(MAX_RTO_MS)
    }

    fn sample(&mut self, rtt_ms: u64) {
        self.srtt_ms = Some(match self.srtt_ms {
            None => (rtt_ms, rtt_ms / 2),
            Some((srtt, var)) => ((7 * srtt + rtt_ms) / 8, (3 * var + srtt.abs_diff(rtt_ms)) / 4),
        });
    }

    /// Bytes that are on their way, as far as the sender can know.
    fn pipe(&self) -> i64 {
        let pipe: i64 = self
            .flights
            .iter()
            .filter(|flight| flight.is_in_pipe())
            .map(|flight| flight.end - flight.start)
            .sum();
        let left = if self.sack_permitted { 0 } else { self.duplicates as i64 * self.mss };
        (pipe - left).max(0)
    }

    /// Takes an acknowledgment. False if it acknowledges what was not sent, or is much too old.
    pub(super) fn acknowledged(&mut self, told: &Told<'_>, now_ms: u64) -> bool {
        let Told { ack, sack, window, seq, has_data, rtt_ms } = *told;
        if ack > self.next || ack < self.una - self.widest.max(65_535) {
            return false;
        }
        if ack < self.una {
            return true;
        }
        let (last_seq, last_window) = self.window;
        let may_update =
            ack > self.una || seq > last_seq || seq == last_seq && (window > last_window || window == 0);
        let is_same = window == last_window;
        if may_update {
            (self.window, self.edge) = ((seq, window), ack + window);
            self.widest = self.widest.max(window);
            if self.edge > self.next {
                (self.persist_ms, self.persists) = (None, 0);
            }
        }
        let is_new = ack > self.una;
        if is_new {
            self.take_new(ack, rtt_ms, now_ms);
        }
        self.take_blocks(sack);
        // RFC 5681 section 2.
        let is_duplicate = !is_new && !has_data && is_same && !self.flights.is_empty();
        self.duplicates += usize::from(is_duplicate);
        self.find_losses();
        if is_new {
            self.rearm(now_ms);
        }
        true
    }

    fn take_new(&mut self, ack: i64, rtt_ms: Option<u64>, now_ms: u64) {
        let newly = ack - self.una;
        // Karn: what was sent again has no time, but by timestamps.
        let timed = self.flights.iter().rfind(|flight| flight.end <= ack && !flight.was_again);
        if let Some(rtt_ms) = rtt_ms.or(timed.map(|flight| now_ms - flight.sent_ms)) {
            self.sample(rtt_ms);
        }
        let arrived = self.flights.iter().filter(|flight| flight.end <= ack && !flight.was_again);
        self.arrived_ms = arrived.map(|flight| flight.sent_ms).max().unwrap_or(0).max(self.arrived_ms);
        self.flights.retain(|flight| flight.end > ack);
        if let Some(first) = self.flights.first_mut() {
            first.start = first.start.max(ack);
        }
        self.una = ack;
        (self.duplicates, self.backoff) = (0, 0);
        self.has_probed = false;
        match self.recovery {
            Some(point) if ack >= point => {
                self.recovery = None;
                self.congestion = self.threshold.max(2 * self.mss);
            }
            // NewReno: a partial acknowledgment shows the next loss.
            Some(_) if !self.sack_permitted => {
                if let Some(first) = self.flights.first_mut() {
                    (first.is_lost, first.is_again) = (true, false);
                }
            }
            Some(_) => {}
            None if self.congestion < self.threshold => self.congestion += newly.min(2 * self.mss),
            None => self.congestion += (self.mss * newly / self.congestion).max(1),
        }
    }

    fn take_blocks(&mut self, sack: &[(i64, i64)]) {
        for &(left, right) in sack.iter().filter(|_| self.sack_permitted) {
            // Blocks below the acknowledgment tell what came twice (RFC 2883).
            if left < self.una || right > self.next || left >= right {
                continue;
            }
            for edge in [left, right] {
                if let Some(place) = self.flights.iter().position(|each| each.start < edge && edge < each.end)
                {
                    let mut second = self.flights[place];
                    (self.flights[place].end, second.start) = (edge, edge);
                    self.flights.insert(place + 1, second);
                }
            }
            for flight in self.flights.iter_mut().filter(|each| left <= each.start && each.end <= right) {
                if !flight.is_sacked && !flight.was_again {
                    self.arrived_ms = self.arrived_ms.max(flight.sent_ms);
                }
                flight.is_sacked = true;
            }
        }
    }

    fn find_losses(&mut self) {
        let mut has_lost = false;
        if self.sack_permitted {
            let reordering_ms = self.srtt_ms.map_or(0, |(srtt, _)| srtt / 4).max(1);
            let mut above = self.flights.iter().filter(|flight| flight.is_sacked).count();
            for flight in &mut self.flights {
                if flight.is_sacked {
                    above -= 1;
                    continue;
                }
                let is_late = flight.sent_ms + reordering_ms < self.arrived_ms;
                let is_passed = above >= DUPLICATES && !flight.was_again;
                if (is_late || is_passed) && flight.is_in_pipe() {
                    (flight.is_lost, flight.is_again) = (true, false);
                    has_lost = true;
                }
            }
        } else if self.duplicates == DUPLICATES && self.recovery.is_none() {
            let first = &mut self.flights[0];
            (first.is_lost, first.is_again) = (true, false);
            has_lost = true;
        }
        if has_lost && self.recovery.is_none() {
            self.recovery = Some(self.next);
            self.threshold = (self.pipe().max(self.congestion) / 2).max(2 * self.mss);
            self.congestion = self.threshold;
        }
    }

    fn rearm(&mut self, now_ms: u64) {
        let is_idle = self.flights.is_empty();
        self.timeout_ms = (!is_idle).then(|| now_ms + self.rto_ms());
        let may_probe = !is_idle && !self.has_probed && self.recovery.is_none() && self.srtt_ms.is_some();
        self.probe_ms = may_probe.then(|| {
            let single = if self.flights.len() == 1 { DELAYED_MS } else { 2 };
            now_ms + (2 * self.srtt_ms.map_or(0, |(srtt, _)| srtt) + single).min(self.rto_ms())
        });
    }

    fn time_out(&mut self, now_ms: u64) {
        // A first segment that was acknowledged selectively is none that the receiver has kept.
        let is_reneged = self.flights.first().is_some_and(|first| first.is_sacked);
        self.threshold = (self.pipe() / 2).max(2 * self.mss);
        for flight in &mut self.flights {
            flight.is_sacked &= !is_reneged;
            (flight.is_lost, flight.is_again) = (!flight.is_sacked, false);
        }
        self.congestion = self.mss;
        self.recovery = Some(self.next);
        self.duplicates = 0;
        self.backoff += 1;
        self.probe_ms = None;
        self.timeout_ms = Some(now_ms + self.rto_ms());
    }

    /// What is to be sent now.
    pub(super) fn poll(&mut self, now_ms: u64) -> Vec<Sending> {
        let mut sent = Vec::new();
        if self.timeout_ms.is_some_and(|at| at <= now_ms) {
            self.time_out(now_ms);
        }
        if self.probe_ms.is_some_and(|at| at <= now_ms) {
            (self.probe_ms, self.has_probed) = (None, true);
            if !self.send_new(now_ms, &mut sent, true)
                && let Some(last) = self.flights.last_mut()
            {
                (last.is_again, last.was_again, last.sent_ms) = (true, true, now_ms);
                sent.push(Sending::Data(last.start, last.end));
            }
            self.timeout_ms = Some(now_ms + self.rto_ms());
        }
        if self.persist_ms.is_some_and(|at| at <= now_ms) {
            self.persists += 1;
            self.persist_ms = Some(now_ms + (self.rto_ms() << self.persists.min(8)).min(MAX_RTO_MS));
            // What fits into a small window goes.
            if self.edge <= self.next || !self.send_new(now_ms, &mut sent, true) {
                sent.push(Sending::Probe);
            }
        }
        while self.send_lost(now_ms, &mut sent) {}
        let is_repaired = self.flights.iter().all(Flight::is_known);
        while is_repaired && self.send_new(now_ms, &mut sent, false) {}
        let waits = self.next <= self.len && self.next < self.una + self.buffer;
        if self.flights.is_empty() && waits && self.persist_ms.is_none() {
            self.persist_ms = Some(now_ms + self.rto_ms());
        }
        sent
    }

    /// Sends the first segment that is lost again, if there is one and the congestion window allows it.
    fn send_lost(&mut self, now_ms: u64, sent: &mut Vec<Sending>) -> bool {
        let (pipe, congestion) = (self.pipe(), self.congestion);
        let Some(lost) = self.flights.iter_mut().find(|flight| !flight.is_known()) else { return false };
        let may = pipe + (lost.end - lost.start) <= congestion || pipe == 0;
        if may {
            (lost.is_again, lost.was_again, lost.sent_ms) = (true, true, now_ms);
            sent.push(Sending::Data(lost.start, lost.end));
        }
        may
    }

    /// Sends the next segment, if any. `is_forced` ignores the congestion window and small windows.
    fn send_new(&mut self, now_ms: u64, sent: &mut Vec<Sending>, is_forced: bool) -> bool {
        let start = self.next;
        if start > self.len {
            return false;
        }
        let room = self.congestion - self.pipe();
        let max = if is_forced { self.mss } else { (self.mss * self.bundle).min(room / self.mss * self.mss) };
        let by_window = (self.edge - start).min(self.una + self.buffer - start);
        let count = (self.len - start).min(max).min(by_window).max(0);
        let is_last = start + count == self.len;
        let is_fin_alone = start == self.len;
        let is_whole = count > 0 && (count >= self.mss || is_last || self.flights.is_empty() || is_forced);
        if !(is_whole && count > 0 && (room >= count || is_forced) || is_fin_alone && room > 0) {
            return false;
        }
        // Merged segments have whole ones but for the last.
        let count = if count > self.mss && !is_last { count / self.mss * self.mss } else { count };
        let end = start + count + i64::from(is_last);
        let mut at = start;
        while at < end {
            let to = (at + self.mss).min(end);
            // The FIN does not make a segment of its own.
            let to = if end - to == 1 && is_last { end } else { to };
            let (is_sacked, is_lost, is_again, was_again) = (false, false, false, false);
            self.flights.push(Flight {
                start: at,
                end: to,
                sent_ms: now_ms,
                is_sacked,
                is_lost,
                is_again,
                was_again,
            });
            at = to;
        }
        self.next = end;
        sent.push(Sending::Data(start, end));
        self.persist_ms = None;
        self.rearm(now_ms);
        true
    }

    /// When there is something to do.
    pub(super) fn next_ms(&self) -> Option<u64> {
        [self.timeout_ms, self.probe_ms, self.persist_ms].into_iter().flatten().min()
    }
}
