//! The policies that scripts choose from. Only connections change packets under them.

use mmb_language::parse_policy;
use mmb_policy::Policy;

/// The policy that accepts only replies on `b`.
pub(super) const REFLEXIVE: usize = 0;

/// The policy that hides inside addresses.
pub(super) const HIDING: usize = 1;

/// The policy that matches on `ct`: only `a` begins connections, and invalid packets are dropped.
pub(super) const STATES: usize = 12;

/// Their texts.
pub(super) const ALL: [&str; 13] = [
    "add-stateful in a accept\nadd in b drop",
    "add-stateful in a ip-saddr 10.0.0.0/24 map ip-saddr 200.0.0.1-200.0.0.2\n\
     add-stateful in a ip6-saddr 2001:db8::/64 map ip6-saddr 2001:db8:f::1",
    "add-stateful in a ip-saddr 10.0.0.0/24 ip-proto udp map ip-saddr 200.0.0.1 map udp-sport 1000-1002\n\
     add-stateful in a ip-saddr 10.0.0.0/24 ip-proto tcp shuffle tcp-sport 2000-2002 mod ip-saddr 200.0.0.1",
    "add-stateful in b ip-daddr 200.0.0.1 udp-dport 53 map ip-daddr 10.0.0.1 map udp-dport 5353\n\
     add-stateful in b ip-daddr 200.0.0.1 ip-proto tcp map ip-daddr 10.0.0.2\n\
     add-stateful in b ip6-daddr 2001:db8:f::1 map ip6-daddr 2001:db8::1",
    "add-stateful in b ip-daddr 200.0.0.2 ip-proto tcp lb ip-daddr {10.0.0.1, 10.0.0.2} rr\n\
     add-stateful in b ip-daddr 200.0.0.2 ip-proto udp lb ip-daddr {10.0.0.1, 10.0.0.2} least\n\
     add-stateful in b ip-daddr 200.0.0.1 lb ip-daddr {10.0.0.1, 10.0.0.2} hash",
    "add-stateful in a ip-proto tcp shuffle tcp-seq-num\nadd-stateful in b ip-proto tcp accept",
    "set conn max 3\nset conn pickup strict\nset timeout udp 5\nset timeout udp-unreplied 2\n\
     set timeout tcp-syn 3\nset timeout tcp-established 60\nset timeout icmp 1\nadd-stateful all accept",
    "set nat filtering endpoint-independent\nset conn max 4\n\
     add-stateful in a ip-saddr 10.0.0.0/24 map ip-saddr 200.0.0.1",
    "",
    "set nat filtering address-and-port-dependent\n\
     add-stateful ip-saddr 10.0.0.0/24 map ip-saddr 200.0.0.1-200.0.0.2 shuffle ip-id\n\
     add-stateful in a ip6-saddr 2001:db8::/64 ip-proto tcp map ip6-saddr 2001:db8:f::1 shuffle tcp-sport",
    "add-stateful in a ip-saddr 10.0.0.0/24 ip-proto udp mod ip-saddr 200.0.0.1 mod udp-sport 7777\n\
     add-stateful in a ip-proto tcp mod tcp-dport 80 shuffle tcp-seq-num\n\
     add-stateful in b ip-daddr 200.0.0.1 udp-dport 7777 map ip-daddr 10.0.0.2",
    "add-stateful in a ip-saddr 10.0.0.0/24 accept map ip-saddr 200.0.0.1\n\
     add-stateful in b ip-daddr 200.0.0.2 accept map ip-daddr 10.0.0.1\n\
     add-stateful ip-proto udp shuffle udp-sport 1000-1001\nadd prio 200 in b drop",
    "add-stateful all accept\nadd prio 10 ct invalid drop\nadd prio 10 in b ct new drop",
];

/// A policy by its number.
pub(super) fn parsed(number: usize) -> Result<Policy, String> {
    parse_policy(ALL[number]).map(|(policy, _)| policy).map_err(|errors| format!("{number}: {errors:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_can_be_parsed() {
        for number in 0..ALL.len() {
            parsed(number).expect("a policy");
        }
    }
}
