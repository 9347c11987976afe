//! Named sets.

use serde::{Deserialize, Serialize};

/// A set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SetLine {
    /// Its name.
    pub name: String,
    /// The number of its elements,
    pub elements: u64,
    /// of these the IPv4 addresses, prefixes and ranges of addresses,
    pub ip4: u64,
    /// likewise those of IPv6,
    pub ip6: u64,
    /// and the numbers and ranges of numbers.
    pub numbers: u64,
    /// The bytes that it takes, about.
    pub bytes: u64,
    /// The number of rules that name it.
    pub rules: u64,
}

/// A set that was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SetChangeLine {
    /// Its name.
    pub name: String,
    /// The number of its elements before; `None`: there was no such set.
    pub before: Option<u64>,
    /// The number of its elements now; `None`: there is no such set any more.
    pub elements: Option<u64>,
}

/// An element of a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ElementLine {
    /// The element.
    pub element: String,
    /// The seconds after which it expires, rounded up; absent if it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_s: Option<u64>,
}
