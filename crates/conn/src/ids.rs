//! Ids of connections and of their resources.

use mmb_base::id_types;

id_types! {
    /// A connection of a table; valid until the connection ends.
    pub struct ConnId;

    /// A set of stateful rules, which the table's owner keeps and connections share.
    pub struct RuleSetId;

    /// State of a connection that the table's owner stores outside the record.
    pub struct ExtensionId;

    /// The NAT bindings of a connection. They are released, and the id becomes invalid, when the connection
    /// ends.
    pub struct LeaseId;

    /// The entry with a connection's addresses, if its flow line has no room for them.
    pub(crate) struct WideId;
}

/// The ids of a connection's resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceIds {
    /// The set of its stateful rules.
    pub rule_set: Option<RuleSetId>,
    /// Its NAT lease.
    pub lease: Option<LeaseId>,
    /// Its extension: sequence offsets, MAC addresses.
    pub extension: Option<ExtensionId>,
}
