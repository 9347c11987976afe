//! The output of `nft -j list ruleset` as data (libnftables-json(5)). What is not known is kept as it is, and gets its reason where it
//! is used.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

/// A whole output.
#[derive(Debug, Deserialize)]
pub(super) struct Listing {
    /// Its objects, in order.
    pub(super) nftables: Vec<Object>,
}

/// An object of a rule set.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Object {
    Known(Box<KnownObject>),
    /// A counter and so on, which no translation needs.
    Other(IgnoredAny),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum KnownObject {
    Table(TableObject),
    Chain(ChainObject),
    Rule(RuleObject),
    Set(SetObject),
    Map(SetObject),
    Limit(LimitObject),
}

/// A table.
#[derive(Debug, Deserialize)]
pub(super) struct TableObject {
    pub(super) family: String,
    pub(super) name: String,
    #[serde(default)]
    pub(super) handle: u64,
    /// A text, or several.
    pub(super) flags: Option<Expr>,
}

/// A chain; a base chain has a type, a hook, a priority and a policy.
#[derive(Debug, Deserialize)]
pub(super) struct ChainObject {
    pub(super) family: String,
    pub(super) table: String,
    pub(super) name: String,
    #[serde(default)]
    pub(super) handle: u64,
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) hook: Option<String>,
    #[serde(default)]
    pub(super) prio: i64,
    pub(super) dev: Option<Expr>,
    pub(super) policy: Option<String>,
}

/// A rule.
#[derive(Debug, Deserialize)]
pub(super) struct RuleObject {
    pub(super) family: String,
    pub(super) table: String,
    pub(super) chain: String,
    #[serde(default)]
    pub(super) handle: u64,
    pub(super) comment: Option<String>,
    #[serde(default)]
    pub(super) expr: Vec<Value>,
}

/// A set, or a map from keys to values.
#[derive(Debug, Deserialize)]
pub(super) struct SetObject {
    pub(super) family: String,
    pub(super) table: String,
    pub(super) name: String,
    /// The type of its elements: a text, or several for combinations.
    #[serde(rename = "type")]
    pub(super) kind: Option<Value>,
    #[serde(default)]
    pub(super) flags: Vec<String>,
    #[serde(default)]
    pub(super) elem: Vec<Expr>,
    /// What each element has of its own.
    #[serde(default)]
    pub(super) stmt: Vec<Statement>,
}

impl SetObject {
    /// Whether elements do more than to count.
    pub(super) fn decides(&self) -> bool {
        self.stmt.iter().any(Statement::decides)
    }
}

/// A rate that rules name.
#[derive(Debug, Deserialize)]
pub(super) struct LimitObject {
    pub(super) family: String,
    pub(super) table: String,
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) limit: LimitStatement,
}

/// A statement of a rule.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Statement {
    Match(MatchStatement),
    Accept(IgnoredAny),
    Drop(IgnoredAny),
    Continue(IgnoredAny),
    Return(IgnoredAny),
    Jump(ToChain),
    Goto(ToChain),
    Reject(Option<RejectStatement>),
    Vmap(Mapping),
    Snat(NatStatement),
    Dnat(NatStatement),
    Masquerade(Option<NatStatement>),
    Redirect(Option<NatStatement>),
    Mangle(MangleStatement),
    Counter(IgnoredAny),
    Last(IgnoredAny),
    Log(Option<LogStatement>),
    Notrack(IgnoredAny),
    Limit(LimitRef),
    Meter(MeterStatement),
    Quota(IgnoredAny),
    Xt(Option<XtStatement>),
    Flow(IgnoredAny),
    Set(SetStatement),
    #[serde(rename = "ct count")]
    CtCount(IgnoredAny),
    #[serde(rename = "ct helper")]
    CtHelper(IgnoredAny),
}

impl Statement {
    /// Whether a statement of an element decides on packets.
    pub(super) fn decides(&self) -> bool {
        !matches!(self, Statement::Counter(_) | Statement::Last(_))
    }
}

/// A match or a target of iptables that has no equivalent in nftables.
#[derive(Debug, Deserialize)]
pub(super) struct XtStatement {
    /// `match`, `target` or `watcher`.
    #[serde(rename = "type")]
    pub(super) kind: String,
}

/// A change of a set, and what elements have of their own.
#[derive(Debug, Deserialize)]
pub(super) struct SetStatement {
    pub(super) set: String,
    pub(super) elem: Expr,
    #[serde(default)]
    pub(super) stmt: Vec<Statement>,
}

/// A set of its own, whose elements have a statement.
#[derive(Debug, Deserialize)]
pub(super) struct MeterStatement {
    pub(super) name: String,
    pub(super) key: Expr,
    pub(super) stmt: Box<Statement>,
}

/// A rate, or the name of one.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum LimitRef {
    Named(String),
    Own(LimitStatement),
}

/// A rate.
#[derive(Debug, Deserialize)]
pub(super) struct LimitStatement {
    pub(super) rate: u64,
    pub(super) per: String,
    pub(super) burst: Option<u64>,
    /// Packets beyond the rate match, not those within.
    #[serde(default)]
    pub(super) inv: bool,
    pub(super) rate_unit: Option<String>,
    pub(super) burst_unit: Option<String>,
}

/// How senders are told; the usual answer has no type.
#[derive(Debug, Deserialize)]
pub(super) struct RejectStatement {
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) expr: Option<Expr>,
}

#[derive(Debug, Deserialize)]
pub(super) struct LogStatement {
    pub(super) prefix: Option<String>,
    pub(super) level: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct MatchStatement {
    pub(super) op: String,
    pub(super) left: Expr,
    pub(super) right: Expr,
}

#[derive(Debug, Deserialize)]
pub(super) struct ToChain {
    pub(super) target: String,
}

/// A value of a map by a key.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Mapping {
    pub(super) key: Expr,
    pub(super) data: Expr,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct NatStatement {
    pub(super) addr: Option<Expr>,
    pub(super) port: Option<Expr>,
    pub(super) flags: Option<Expr>,
}

#[derive(Debug, Deserialize)]
pub(super) struct MangleStatement {
    pub(super) key: Expr,
    pub(super) value: Expr,
}

/// An expression.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Expr {
    Number(u64),
    Text(String),
    List(Vec<Expr>),
    Tagged(Box<TaggedExpr>),
    Other(Value),
}

/// An expression with a name.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TaggedExpr {
    Payload(PayloadExpr),
    Meta(KeyExpr),
    Ct(KeyExpr),
    Rt(KeyExpr),
    Concat(Vec<Expr>),
    Set(Vec<Expr>),
    Map(Mapping),
    Prefix(PrefixExpr),
    Range([Expr; 2]),
    #[serde(rename = "&")]
    And(Vec<Expr>),
    #[serde(rename = "|")]
    Or(Vec<Expr>),
    Elem(ElemExpr),
    Fib(FibExpr),
    #[serde(rename = "tcp option")]
    TcpOption(OptionExpr),
}

/// A field, but not one of a header in a tunnel.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PayloadExpr {
    pub(super) protocol: String,
    pub(super) field: String,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct KeyExpr {
    pub(super) key: String,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct PrefixExpr {
    pub(super) addr: String,
    pub(super) len: u8,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct ElemExpr {
    pub(super) val: Expr,
    pub(super) timeout: Option<u64>,
    pub(super) expires: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct FibExpr {
    pub(super) result: String,
    pub(super) flags: Expr,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct OptionExpr {
    pub(super) name: String,
    pub(super) field: Option<String>,
}

impl Expr {
    /// The named expression, without the timeout and the comment of an element.
    pub(super) fn tagged(&self) -> Option<&TaggedExpr> {
        let Expr::Tagged(tagged) = self.value() else { return None };
        Some(tagged)
    }

    /// The expression without the timeout and the comment of an element.
    pub(super) fn value(&self) -> &Expr {
        self.elem().map_or(self, |elem| &elem.val)
    }

    /// The time in seconds after which an element expires.
    pub(super) fn expires_s(&self) -> Option<u64> {
        self.elem().and_then(|elem| elem.expires.or(elem.timeout))
    }

    fn elem(&self) -> Option<&ElemExpr> {
        match self {
            Expr::Tagged(tagged) => match &**tagged {
                TaggedExpr::Elem(elem) => Some(elem),
                _other => None,
            },
            _other => None,
        }
    }

    /// The text.
    pub(super) fn text(&self) -> Option<&str> {
        let Expr::Text(text) = self.value() else { return None };
        Some(text)
    }

    /// Texts: one, or those of a list.
    pub(super) fn texts(&self) -> Vec<&str> {
        match self.value() {
            Expr::List(list) => list.iter().filter_map(Expr::text).collect(),
            other => other.text().into_iter().collect(),
        }
    }
}
