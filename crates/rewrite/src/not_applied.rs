//! Targets that could not be applied to a packet.

/// Why a target did not change a packet. Counted, never fatal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum NotApplied {
    /// The option area would exceed 40 bytes.
    OptionSpace,
    /// The value does not fit the data of the option.
    OptionWidth,
    /// A fragment's transport header cannot change its length.
    Fragment,
    /// The payload is shorter than the bytes to write.
    PayloadShort,
    /// The packet's buffer has no headroom, or the IP length would exceed 65,535.
    NoRoom,
}

/// How often targets were not applied, by reason.
#[derive(Clone, Debug, Default)]
pub struct NotAppliedCounts(pub [u64; NotApplied::ALL.len()]);

impl NotApplied {
    /// Every reason.
    pub const ALL: [NotApplied; 5] = [
        NotApplied::OptionSpace,
        NotApplied::OptionWidth,
        NotApplied::Fragment,
        NotApplied::PayloadShort,
        NotApplied::NoRoom,
    ];

    /// The reason's name in counters.
    pub fn name(self) -> &'static str {
        match self {
            NotApplied::OptionSpace => "option-space",
            NotApplied::OptionWidth => "option-width",
            NotApplied::Fragment => "fragment",
            NotApplied::PayloadShort => "payload-short",
            NotApplied::NoRoom => "no-room",
        }
    }
}

impl NotAppliedCounts {
    /// Counts one target.
    #[inline]
    pub fn count(&mut self, reason: NotApplied) {
        self.0[reason as usize] += 1;
    }
}
