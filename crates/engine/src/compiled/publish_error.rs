//! [`PublishError`]: the reasons for which the engine refuses a policy.

use mmb_policy::RuleId;
use mmb_scan::PatternError;
use std::fmt;

/// The most constraints on streams that one rule may have.
pub(crate) const MAX_CONSTRAINTS: usize = 16;

/// Why a policy could not be published.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// A rule names a port that does not exist.
    #[error("rule {}: no port is called '{port}'; the ports are {known}", .rule.0)]
    UnknownPort {
        /// The rule.
        rule: RuleId,
        /// The name.
        port: String,
        /// The names that exist.
        known: String,
    },
    /// Patterns cannot be searched for.
    #[error("{}{reason}", RulePrefix(*.rule))]
    Patterns {
        /// The rule of the pattern; `None` if the reason concerns the patterns of all rules together.
        rule: Option<RuleId>,
        /// The reason.
        reason: String,
    },
    /// The engine does not compile patterns itself, and the patterns of the policy were not compiled before:
    /// see [`compile_patterns`](crate::compile_patterns).
    #[error("the patterns of the policy are not compiled yet")]
    NotCompiled,
    /// The memory for the streams of the policy could not be allocated.
    #[error("no memory for streams: {reason}; lower `stream max` or `stream memory`")]
    StreamMemory {
        /// The allocation that failed.
        reason: String,
    },
    /// A rule has too many constraints on streams.
    #[error("rule {}: more than {MAX_CONSTRAINTS} constraints on streams; split the rule, or write patterns of one field in braces", .0.0)]
    StreamConstraints(RuleId),
    /// `enable` or `disable` names a port that does not exist.
    #[error("{} {port}: no port is called '{port}'; the ports are {known}", if *.enables { "enable" } else { "disable" })]
    UnknownSwitchedPort {
        /// The command is `enable`.
        enables: bool,
        /// The name.
        port: String,
        /// The names that exist.
        known: String,
    },
}

/// The part of a message about the rule.
struct RulePrefix(Option<RuleId>);

impl fmt::Display for RulePrefix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |rule| write!(formatter, "rule {}: ", rule.0))
    }
}

impl PublishError {
    /// Why patterns, of a rule or of all rules together, cannot be searched for.
    pub(super) fn from_pattern_error(rule: Option<RuleId>, error: &PatternError) -> PublishError {
        if matches!(error, PatternError::NotCompiled) {
            return PublishError::NotCompiled;
        }
        PublishError::Patterns { rule, reason: error.to_string() }
    }
}
