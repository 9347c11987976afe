//! The kinds of words that may stand at a place of a command.

use crate::target::info::TargetInfo;
use mmb_policy::field::FieldInfo;
use mmb_policy::setting_table::SettingInfo;

/// A kind of word that may stand at a place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expect {
    /// A command's first word.
    Command,
    /// A rule's number.
    RuleId,
    /// This word, with its meaning.
    Word(&'static str, &'static str),
    /// A subject of `show` whose name begins with this.
    Show(&'static str),
    /// A number, with its meaning.
    Number(&'static str),
    /// A word of a filter.
    Term,
    /// The state of a connection.
    State,
    /// A port's name.
    Port,
    /// A setting whose name begins with this.
    Setting(&'static str),
    /// A setting's value.
    SettingValue(&'static SettingInfo),
    /// The name of a list of patterns.
    List,
    /// The name of a set.
    Set,
    /// A set as the value of a constraint.
    SetValue,
    /// An element of a set.
    Element,
    /// The time for which an element stays.
    Duration,
    /// A file's name.
    File,
    /// `id`, `prio`, `name` or `draining`.
    Attribute(&'static str),
    /// The value of one of these.
    AttributeValue(&'static str),
    /// `all`
    All,
    /// `!`, with its meaning.
    Bang(&'static str),
    /// A field to compare; `true`: in a stateful rule, which may also be about streams.
    Field(bool),
    /// A field that a target takes; `true`: in a stateful rule.
    TargetField(&'static TargetInfo, bool),
    /// A comparison.
    Cond(&'static FieldInfo),
    /// The kind behind `tcp-opt`.
    OptionKind,
    /// A value of a field.
    Value(&'static FieldInfo),
    /// The name of a header field.
    HeaderName,
    /// What a target writes into a stream; `true`: `\m` may be in it.
    Written(bool),
    /// The number behind `weight`.
    Weight,
    /// `,` or `}`
    InSet,
    /// A target.
    Target(bool),
    /// `all` in place of a TCP option.
    SelectAll,
    /// A percentage behind `drop`.
    Percentage,
    /// A rate behind `limit`.
    Rate,
    /// An argument of this form.
    Argument(&'static str),
    /// A field that limits may have a key of.
    LimitKey,
    /// A text in quotes.
    Text,
    /// A server of a rule.
    Server,
    /// One of these words, each with its help.
    Choice(&'static [(&'static str, &'static str)]),
    /// One of these words, each with its help, or a number.
    Code(&'static [(&'static str, &'static str)]),
    /// The end of the command.
    End,
}
