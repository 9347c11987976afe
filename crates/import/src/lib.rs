//! Policies from the filters of other programs: ClassBench filter sets, iptables dumps and rule sets of nftables.
//!
//! A reader ([`classbench`], [`iptables`], [`nftables`]) parses a file. The packets that a filter matches become exact
//! `PacketCube`s; `language` writes them as rules, and a [`PolicyDraft`] collects the rules with ascending priorities, so
//! that the first match of the original has the best priority of the policy. A draft also lists everything that it leaves out.
#![forbid(unsafe_code)]

pub mod classbench;
mod cube;
mod draft;
mod edit;
pub mod iptables;
mod language;
mod named_set;
mod netfilter;
pub mod nftables;
mod set;

pub use cube::Family;
pub use draft::{Effect, ImportVerdict, LeftOut, Place, PolicyDraft, Rejection, count};
pub use netfilter::{HostAddresses, RulesetError};
