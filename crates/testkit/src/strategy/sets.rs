//! Named sets of random policies, as text of the language.

use super::pool;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// The set of IPv4 and IPv6 addresses that random rules name.
pub const ADDRESSES: &str = "addresses";
/// The set of numbers that random rules name; they fit eight bits.
pub const NUMBERS: &str = "numbers";

/// Commands that make both sets.
pub const FIXED: [&str; 2] = [
    "set addresses {10.0.0.0/31, 10.0.1.0-10.0.1.9, 10.0.1.7, 192.168.1.1, 2001:db8::/64, 2001:db8::1, fe80::1-fe80::ffff}",
    "set numbers {0, 1-2, 6, 17, 58-80, 64, 255}",
];

/// A command that makes a set or changes its elements.
pub fn change() -> BoxedStrategy<String> {
    let addresses = [pool::IP4, pool::IP4_PREFIXES, pool::IP6, pool::IP6_PREFIXES].concat();
    let addresses = vec(select(addresses).prop_map(str::to_owned), 0..6);
    let number = prop_oneof![
        pool::byte().prop_map(|n| n.to_string()),
        (pool::byte(), pool::byte()).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
    ];
    let of = |name: &'static str, elements: BoxedStrategy<Vec<String>>| {
        (select(&["", "", "+= ", "-= "][..]), elements, any::<bool>()).prop_map(
            move |(sign, elements, timed)| {
                let timeout = if timed && sign != "-= " { " timeout 1h" } else { "" };
                let elements: Vec<_> = elements.iter().map(|element| format!("{element}{timeout}")).collect();
                format!("set {name} {sign}{{{}}}", elements.join(", "))
            },
        )
    };
    prop_oneof![of(ADDRESSES, addresses.boxed()), of(NUMBERS, vec(number, 0..6).boxed())].boxed()
}
