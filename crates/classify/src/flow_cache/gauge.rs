//! Whether the flow cache is worth it: a count of hits and of cycles, decided on every some thousand keys.
//!
//! While packets pass the cache by, it is tried again after a pause, and after longer and longer ones if it is still not worth it. A host
//! without a count of cycles has the cache used wherever enough keys hit.

/// Keys after which it is decided.
const WINDOW: u32 = 8192;
/// Keys for which the tables are measured alone, once in [`WINDOWS`] windows.
const MEASURED: u32 = 2048;
const WINDOWS: u32 = 64;
/// The most windows until then after a change of the policy.
const SOON: u32 = 8;
/// Windows after a change of the policy that are judged neither by their hits nor by their cycles.
const COLD: u32 = 8;
/// The shortest and the longest pause, in windows.
const SHORTEST_PAUSE: u32 = 8;
const LONGEST_PAUSE: u32 = 64;

/// Why keys pass the cache by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BypassReason {
    /// The tables cost less than the cache.
    CheapPolicy,
    /// What keys match depends on options or payload too.
    ReadsBeyondKey,
    /// Fewer than a quarter of keys hit.
    FewHits,
    /// The cost of the tables alone was to be measured.
    Measured,
    /// The cache is not to be used.
    Off,
}

impl BypassReason {
    /// All of them, by their number.
    pub const ALL: [BypassReason; 5] = [
        BypassReason::CheapPolicy,
        BypassReason::ReadsBeyondKey,
        BypassReason::FewHits,
        BypassReason::Measured,
        BypassReason::Off,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            BypassReason::CheapPolicy => "cheap-policy",
            BypassReason::ReadsBeyondKey => "reads-beyond-key",
            BypassReason::FewHits => "few-hits",
            BypassReason::Measured => "measured",
            BypassReason::Off => "off",
        }
    }
}

/// The state of the decision.
#[derive(Debug)]
pub(super) struct Gauge {
    bypass: Option<BypassReason>,
    /// Keys until it is decided again.
    until: u32,
    /// Windows in which flows come for the first time since the cache was emptied: hits are not to be expected.
    cold: u32,
    /// Keys since the last change of the policy.
    unchanged: u32,
    /// Windows that the next pause takes.
    pause: u32,
    /// Windows until the tables are measured again.
    unmeasured: u32,
    /// Of a thousand keys, if the tables find all of them; 0 if it is not known.
    table_cycles: u64,
    keys: u32,
    misses: u32,
    beyond: u32,
    cycles: u64,
}

impl Default for Gauge {
    fn default() -> Gauge {
        Gauge {
            bypass: None,
            until: WINDOW,
            cold: 0,
            unchanged: u32::MAX,
            pause: SHORTEST_PAUSE,
            unmeasured: 1,
            table_cycles: 0,
            keys: 0,
            misses: 0,
            beyond: 0,
            cycles: 0,
        }
    }
}

impl Gauge {
    /// Why keys pass the cache by now, if they do.
    #[inline]
    pub(super) fn bypass(&self) -> Option<BypassReason> {
        self.bypass
    }

    /// Tries the cache soon: another policy may be worth it. Where the policy changes again and again, the cache is judged as if it had not.
    pub(super) fn policy_changed(&mut self) {
        let is_often = self.unchanged < COLD * WINDOW;
        self.unchanged = 0;
        if is_often {
            return;
        }
        if self.bypass.is_some() {
            self.until = self.until.min(WINDOW);
        }
        self.pause = SHORTEST_PAUSE;
        self.cold = COLD;
        self.unmeasured = self.unmeasured.min(SOON);
    }

    /// Notes a vector that passed the cache by.
    pub(super) fn note_tables(&mut self, keys: usize, cycles: u64) {
        self.keys += keys as u32;
        self.unchanged = self.unchanged.saturating_add(keys as u32);
        self.add_cycles(keys, cycles);
        if self.keys >= self.until {
            self.table_cycles = self.per_thousand();
            self.begin(None, WINDOW);
        }
    }

    /// Notes a vector, of whose keys some were in no line, and of these some cannot be.
    #[inline]
    pub(super) fn note(&mut self, keys: usize, (misses, beyond): (usize, usize), cycles: u64) {
        self.keys += keys as u32;
        self.unchanged = self.unchanged.saturating_add(keys as u32);
        self.misses += misses as u32;
        self.beyond += beyond as u32;
        self.add_cycles(keys, cycles);
        if self.keys >= self.until {
            self.decide();
        }
    }

    /// Adds the cycles of a vector. One that took very long was interrupted.
    #[inline]
    fn add_cycles(&mut self, keys: usize, cycles: u64) {
        let usual = self.table_cycles.saturating_mul(4 * keys as u64) / 1000;
        self.cycles = self.cycles.saturating_add(if usual > 0 { cycles.min(usual) } else { cycles });
    }

    fn decide(&mut self) {
        if self.cold > 0 && self.beyond * 2 <= self.misses {
            self.cold -= 1;
            return self.begin(None, WINDOW);
        }
        let hits = self.keys - self.misses;
        let is_dear = self.table_cycles > 0 && self.per_thousand() > self.table_cycles;
        let reason = match () {
            () if hits * 4 < self.keys && self.beyond * 2 > self.misses => Some(BypassReason::ReadsBeyondKey),
            () if hits * 4 < self.keys => Some(BypassReason::FewHits),
            () if is_dear => Some(BypassReason::CheapPolicy),
            () => None,
        };
        if reason.is_some() {
            self.begin(reason, self.pause * WINDOW);
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
            return;
        }
        self.pause = SHORTEST_PAUSE;
        self.unmeasured = self.unmeasured.saturating_sub(1);
        if self.unmeasured == 0 && self.cycles > 0 {
            self.unmeasured = WINDOWS;
            self.begin(Some(BypassReason::Measured), MEASURED);
        } else {
            self.begin(None, WINDOW);
        }
    }

    fn begin(&mut self, bypass: Option<BypassReason>, until: u32) {
        (self.bypass, self.until) = (bypass, until);
        (self.keys, self.misses, self.beyond, self.cycles) = (0, 0, 0, 0);
    }

    fn per_thousand(&self) -> u64 {
        self.cycles.saturating_mul(1000) / u64::from(self.keys.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors of 256 keys of which so many miss, at so many cycles a key in the cache or the tables, until so many keys were taken. Returns
    /// how many passed the cache by.
    fn run(
        gauge: &mut Gauge,
        keys: usize,
        misses: usize,
        [cached, tables]: [u64; 2],
        beyond: usize,
    ) -> usize {
        let mut bypassed = 0;
        for _ in 0..keys / 256 {
            if gauge.bypass().is_some() {
                bypassed += 256;
                gauge.note_tables(256, 256 * tables);
            } else {
                gauge.note(256, (misses, beyond), 256 * cached);
            }
        }
        bypassed
    }

    const MANY: usize = 1 << 22;

    #[test]
    fn it_is_used_where_it_pays() {
        let mut gauge = Gauge::default();
        let bypassed = run(&mut gauge, MANY, 20, [60, 800], 0);
        assert!(bypassed < MANY / 100 && bypassed > 0, "the tables are measured now and then: {bypassed}");
        // Without cycles there is nothing to measure.
        assert_eq!(run(&mut Gauge::default(), MANY, 20, [0, 0], 0), 0);
    }

    #[test]
    fn it_is_bypassed_where_it_does_not_pay_and_tried_again() {
        let nearly_all = |bypassed: usize| bypassed > MANY * 19 / 20 && bypassed < MANY;
        let mut gauge = Gauge::default();
        assert!(nearly_all(run(&mut gauge, MANY, 250, [900, 800], 0)));
        assert_eq!(gauge.bypass(), Some(BypassReason::FewHits));
        assert!(nearly_all(run(&mut Gauge::default(), MANY, 250, [0, 0], 0)));
        let mut cheap = Gauge::default();
        assert!(nearly_all(run(&mut cheap, MANY, 10, [30, 20], 0)));
        assert_eq!(cheap.bypass(), Some(BypassReason::CheapPolicy));
        let mut beyond = Gauge::default();
        assert!(nearly_all(run(&mut beyond, MANY, 250, [900, 800], 240)));
        assert_eq!(beyond.bypass(), Some(BypassReason::ReadsBeyondKey));
        // When traffic changes it is used again.
        let bypassed = run(&mut gauge, MANY, 20, [60, 800], 0);
        assert!(bypassed < MANY / 4, "{bypassed}");
        // A policy that changes again and again is no reason to try it again and again.
        let mut restless = Gauge::default();
        let mut bypassed = 0;
        for _ in 0..MANY / 2560 {
            restless.policy_changed();
            bypassed += run(&mut restless, 2560, 250, [900, 800], 0);
        }
        assert!(nearly_all(bypassed), "{bypassed}");
        // After a change of the policy soon.
        cheap.policy_changed();
        assert!(run(&mut cheap, MANY, 20, [60, 800], 0) < MANY / 50);
    }
}
