//! TCP sequence numbers: numbers on a circle (RFC 9293 section 3.4, RFC 1982).

use std::ops::{Add, AddAssign, Sub};

/// A sequence number. Comparisons hold for numbers less than 2^31 apart; that is why there is no `Ord`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seq(pub u32);

impl Seq {
    /// The distance of `self` behind `earlier`; negative if it lies before it.
    #[inline]
    pub fn distance(self, earlier: Seq) -> i32 {
        self.0.wrapping_sub(earlier.0) as i32
    }

    /// Whether `self` lies before `other`.
    #[inline]
    pub fn before(self, other: Seq) -> bool {
        self.distance(other) < 0
    }

    /// Whether `self` lies behind `other`.
    #[inline]
    pub fn after(self, other: Seq) -> bool {
        other.before(self)
    }

    /// Whether `self` lies in the window of `length` numbers that begins at `first`.
    #[inline]
    pub fn within(self, first: Seq, length: u32) -> bool {
        self.0.wrapping_sub(first.0) < length
    }
}

impl Add<u32> for Seq {
    type Output = Seq;

    #[inline]
    fn add(self, octets: u32) -> Seq {
        Seq(self.0.wrapping_add(octets))
    }
}

impl AddAssign<u32> for Seq {
    #[inline]
    fn add_assign(&mut self, octets: u32) {
        *self = *self + octets;
    }
}

impl Sub<u32> for Seq {
    type Output = Seq;

    #[inline]
    fn sub(self, octets: u32) -> Seq {
        Seq(self.0.wrapping_sub(octets))
    }
}

#[cfg(test)]
mod tests {
    use super::Seq;

    #[test]
    fn order_goes_around_the_circle() {
        let last = Seq(u32::MAX);
        assert!(last.before(last + 1));
        assert!((last + 1).after(last));
        assert_eq!((last + 6).distance(last), 6);
        assert_eq!(last.distance(last + 6), -6);
        assert!(!last.before(last) && !last.after(last));
        assert_eq!(Seq(2) - 5, Seq(u32::MAX - 2));
    }

    #[test]
    fn a_window_may_span_the_wrap() {
        let first = Seq(u32::MAX - 1);
        assert!(first.within(first, 4));
        assert!(Seq(1).within(first, 4));
        assert!(!Seq(2).within(first, 4));
        assert!(!(first - 1).within(first, 4));
        assert!(!first.within(first, 0));
    }
}
