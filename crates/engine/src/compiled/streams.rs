//! Compiled constraints on streams: the patterns of all rules as one set, and the rules of each pattern.
//!
//! With one set for the whole policy, the state of a scan is small, and a connection keeps that state when
//! other parts of the policy change. A match counts for a connection only if the connection has the rule.

use super::publish_error::{MAX_CONSTRAINTS, PublishError};
use super::stream_edit::{StreamEditRule, directions, part};
use mmb_base::Id;
use mmb_classify::RuleSlot;
use mmb_http::name_key;
use mmb_httpedit::{HttpRuleError, HttpRules};
use mmb_packet::proto;
use mmb_policy::field::StreamPart;
use mmb_policy::pattern::{PatternItem, Regex};
use mmb_policy::rule::{Helper, Match, Target};
use mmb_policy::settings::HttpSettings;
use mmb_policy::{PatternList, Policy, Rule, RuleId};
use mmb_scan::{Pattern, PatternError, PatternKind, PatternSet, SetSource};
use mmb_stream::Level;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// What a stateful rule does with the bytes of its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamRule {
    /// How closely the bytes of the initiator and of the responder are followed.
    pub(crate) levels: [Level; 2],
    /// It matches on messages of HTTP.
    pub(crate) is_http: bool,
    /// The number of its constraints on streams, all of which must be met.
    pub(crate) constraints: u8,
    /// A match ends the connection with a RST to each end.
    pub(crate) closes: bool,
    /// A match ends the connection silently, without a RST.
    pub(crate) drops: bool,
    /// A match is reported, with this text.
    pub(crate) alert: Option<Arc<str>>,
    /// Bytes and checksums of both directions are reported when the connection ends.
    pub(crate) digests: bool,
    /// Whether it searches the bytes of the initiator and of the responder.
    pub(crate) searches: [bool; 2],
    /// Its constraints on the server's name in TLS.
    pub(crate) names: Box<[NameConstraint]>,
    /// The helper that follows its TCP connections.
    pub(crate) helper: Option<Helper>,
}

/// A constraint on the server's name in TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NameConstraint {
    /// Its number among the constraints of its rule.
    pub(crate) number: u8,
    /// The constraint is met by other names, and by a missing name.
    pub(crate) negated: bool,
}

impl StreamRule {
    /// Compiles a rule; `None` if it needs no streams.
    pub(crate) fn compile(rule: &Rule) -> Option<Box<StreamRule>> {
        if !rule.is_stream_rule() {
            return None;
        }
        let has = |wanted: &Target| rule.targets.iter().any(|target| target == wanted);
        let constraints = rule.stream_matches().count();
        let mut stream = StreamRule {
            levels: [Level::None; 2],
            is_http: rule.stream_matches().any(is_http),
            constraints: constraints as u8,
            closes: has(&Target::Close),
            drops: constraints > 0 && rule.targets.iter().any(|target| matches!(target, Target::Drop(_))),
            alert: None,
            digests: has(&Target::Digest),
            searches: [false; 2],
            names: (0..)
                .zip(rule.stream_matches())
                .filter(|(_, constraint)| SearchPlace::of(constraint) == Some(SearchPlace::ServerName))
                .map(|(number, constraint)| NameConstraint { number, negated: constraint.negated })
                .collect(),
            helper: None,
        };
        for target in &rule.targets {
            match target {
                Target::Alert(text) => stream.alert = Some(text.as_deref().unwrap_or_default().into()),
                Target::Helper(helper) => stream.helper = Some(*helper),
                Target::Close | Target::Digest | Target::Edit(_) | Target::Log(_) => {}
                Target::Mod(..) | Target::AddOption(..) | Target::Strip(_) | Target::Keep(_) => {}
                Target::StripAll | Target::Drop(_) | Target::Reject(_) | Target::Accept => {}
                Target::Map(..) | Target::Shuffle(..) | Target::Lb(..) | Target::Limit(_) => {}
            }
        }
        // A RST needs the sequence numbers of both directions.
        let min = if stream.digests || stream.closes { Level::Watch } else { Level::None };
        stream.levels = [min; 2];
        let edits = rule.targets.iter().any(|target| matches!(target, Target::Edit(_)));
        let level = match stream.ends() {
            _ if edits => Level::Edit,
            true => Level::Guard,
            false => Level::Watch,
        };
        for constraint in rule.stream_matches() {
            let is_of_bytes = SearchPlace::of(constraint) == Some(SearchPlace::Bytes);
            for (direction, is_followed) in directions(constraint).into_iter().enumerate() {
                if is_followed {
                    stream.levels[direction] = stream.levels[direction].max(level);
                    stream.searches[direction] |= is_of_bytes;
                }
            }
        }
        if stream.is_http {
            // The head of a message must be complete before rules decide on it, so its bytes may be held
            // back.
            stream.levels = [Level::Edit; 2];
        }
        Some(Box::new(stream))
    }

    /// How closely the bytes of connections of a protocol are followed. The FTP helper rewrites the bytes of
    /// the initiator of a TCP connection.
    pub(crate) fn levels_of(&self, proto: u8) -> [Level; 2] {
        let [forward, reply] = self.levels;
        match self.helper {
            Some(Helper::Ftp) if proto == proto::TCP => [forward.max(Level::Edit), reply],
            Some(Helper::Ftp) | None => [forward, reply],
        }
    }

    /// Whether a match ends the connection.
    pub(crate) fn ends(&self) -> bool {
        self.closes || self.drops
    }
}

fn is_http(constraint: &Match) -> bool {
    SearchPlace::of(constraint) == Some(SearchPlace::Messages)
}

/// Where the patterns of a constraint are searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SearchPlace {
    /// In the bytes of one direction or of both.
    Bytes,
    /// In the server name that a TLS client asks for.
    ServerName,
    /// In messages of HTTP: [`HttpRules`] has these patterns.
    Messages,
}

impl SearchPlace {
    /// The place of a constraint; `None` for a constraint on packets.
    fn of(constraint: &Match) -> Option<SearchPlace> {
        Some(match part(constraint)? {
            StreamPart::Both | StreamPart::Forward | StreamPart::Reply => SearchPlace::Bytes,
            StreamPart::ServerName => SearchPlace::ServerName,
            StreamPart::Http | StreamPart::HttpMethod | StreamPart::HttpHost => SearchPlace::Messages,
            StreamPart::HttpUri | StreamPart::HttpStatus => SearchPlace::Messages,
            StreamPart::HttpHeader | StreamPart::HttpBody => SearchPlace::Messages,
        })
    }
}

/// The source of the compiled rules on HTTP. If a change of the policy does not affect it, connections keep
/// the state of their messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct HttpSource {
    /// The rules with their slots, in the order of (priority, id).
    rules: Vec<(u32, Rule)>,
    settings: HttpSettings,
    /// The lists that the rules name.
    lists: Vec<PatternList>,
}

impl HttpSource {
    fn new(policy: &Policy, rules: &[(RuleId, RuleSlot, Rule)]) -> HttpSource {
        let mut http_rules: Vec<_> =
            rules.iter().filter(|(_, _, rule)| rule.stream_matches().any(is_http)).collect();
        http_rules.sort_by_key(|(id, _, rule)| (rule.prio, *id));
        let names: BTreeSet<&str> = http_rules.iter().flat_map(|(_, _, rule)| rule.lists()).collect();
        HttpSource {
            lists: names.into_iter().filter_map(|name| policy.lists.get(name)).cloned().collect(),
            rules: http_rules.into_iter().map(|(_, slot, rule)| (slot.number(), rule.clone())).collect(),
            settings: policy.settings.http,
        }
    }

    /// Compiles the rules. Returns the compiled rules of `before` if they have the same source.
    fn compile(
        &self,
        policy: &Policy,
        rules: &[(RuleId, RuleSlot, Rule)],
        (before, sets): (&StreamPatterns, SetSource<'_>),
    ) -> Result<Option<Arc<HttpRules>>, PublishError> {
        if self.rules.is_empty() {
            return Ok(None);
        }
        if *self == before.http_source {
            return Ok(before.http.clone());
        }
        let numbered = self.rules.iter().map(|(slot, rule)| (*slot, rule));
        let lists = |name: &str| policy.lists.get(name);
        let compiled = HttpRules::compile(numbered, &lists, &self.settings, sets);
        let compiled = compiled.map_err(|error| {
            let of_error = |(_, slot, _): &&(RuleId, RuleSlot, Rule)| Some(slot.number()) == error.rule();
            let rule = rules.iter().find(of_error).map(|(id, _, _)| *id);
            if let HttpRuleError::Pattern(_, error) = &error {
                return PublishError::from_pattern_error(rule, error);
            }
            PublishError::Patterns { rule, reason: error.to_string() }
        })?;
        Ok(Some(Arc::new(compiled)))
    }
}

/// A constraint that a match of a pattern meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PatternUse {
    pub(crate) slot: RuleSlot,
    /// The number of the constraint among those of its rule.
    pub(crate) constraint: u8,
    /// Whether the constraint matches on the initiator's bytes, and on the responder's.
    pub(crate) directions: [bool; 2],
    /// The rule edits the match.
    pub(crate) edits: bool,
}

/// The patterns of a policy.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamPatterns {
    /// The patterns on plain bytes; `None` if no rule has any.
    pub(crate) bytes: Option<PatternSet>,
    /// The constraints by pattern of `bytes`.
    uses: Vec<Vec<PatternUse>>,
    /// The regexes on server names; `None` if no rule has any.
    pub(crate) names: Option<PatternSet>,
    name_uses: Vec<Vec<PatternUse>>,
    /// The constraints by whole server name.
    exact: HashMap<Vec<u8>, Vec<PatternUse>>,
    /// The constraints by domain, without the leading dot. They are met by the domain itself and by the names
    /// below it.
    domains: HashMap<Vec<u8>, Vec<PatternUse>>,
    /// The rules that edit plain bytes, by slot.
    edits: Vec<StreamEditRule>,
    /// The rules on HTTP, in their order.
    pub(crate) http: Option<Arc<HttpRules>>,
    /// The source of `http`.
    http_source: HttpSource,
    /// Some rule has a helper.
    pub(crate) has_helpers: bool,
}

/// Patterns of one kind while they are collected.
#[derive(Default)]
struct PatternTable<'p> {
    numbers: HashMap<(&'p [u8], Option<bool>), u32>,
    patterns: Vec<Pattern>,
    rules: Vec<RuleId>,
    uses: Vec<Vec<PatternUse>>,
}

/// A set, and the constraints by pattern.
type SetAndUses = (Option<PatternSet>, Vec<Vec<PatternUse>>);

impl<'p> PatternTable<'p> {
    fn text(&mut self, rule: RuleId, bytes: &'p [u8], pattern_use: PatternUse) {
        self.add(rule, (bytes, None), || (PatternKind::Text(bytes.to_vec()), false), pattern_use);
    }

    fn regex(&mut self, rule: RuleId, Regex { source, ignores_case }: &'p Regex, pattern_use: PatternUse) {
        let kind = || (PatternKind::Regex(source.clone()), *ignores_case);
        self.add(rule, (source.as_bytes(), Some(*ignores_case)), kind, pattern_use);
    }

    fn add(
        &mut self,
        rule: RuleId,
        key: (&'p [u8], Option<bool>),
        kind: impl FnOnce() -> (PatternKind, bool),
        pattern_use: PatternUse,
    ) {
        let PatternTable { numbers, patterns, rules, uses } = self;
        let number = *numbers.entry(key).or_insert_with(|| {
            let id = patterns.len() as u32;
            let (kind, ignores_case) = kind();
            patterns.push(Pattern { kind, ignores_case, id });
            rules.push(rule);
            uses.push(Vec::new());
            id
        });
        uses[number as usize].push(pattern_use);
    }

    fn compile(self, sets: SetSource<'_>) -> Result<SetAndUses, PublishError> {
        if self.patterns.is_empty() {
            return Ok((None, Vec::new()));
        }
        let error = match sets.set(&self.patterns) {
            Ok(set) => return Ok((Some(set), self.uses)),
            Err(error) => error,
        };
        let rule = error.index().and_then(|index| self.rules.get(index)).copied();
        if let PatternError::Refused { index, refusal } = &error {
            let pattern = self.patterns.get(*index).map(Pattern::shown).unwrap_or_default();
            return Err(PublishError::Patterns { rule, reason: format!("{pattern}: {refusal}") });
        }
        Err(PublishError::from_pattern_error(rule, &error))
    }
}

// Every text that the language accepts can be searched for.
const _: () = assert!(PatternList::MAX_PATTERN_BYTES == mmb_scan::MAX_TEXT_BYTES);

impl StreamPatterns {
    /// Compiles the patterns of a policy's rules on streams. `rules` has the slots of these rules. Rules on
    /// HTTP that are unchanged since `before` are taken from there, so that connections keep the state of
    /// their messages.
    ///
    /// # Errors
    /// A rule has patterns that cannot be searched for, or patterns that `sets` does not know.
    pub(crate) fn build(
        policy: &Policy,
        rules: &BTreeMap<RuleId, RuleSlot>,
        before: &StreamPatterns,
        sets: SetSource<'_>,
    ) -> Result<StreamPatterns, PublishError> {
        let rules: Vec<(RuleId, RuleSlot, Rule)> =
            rules.iter().filter_map(|(id, slot)| Some((*id, *slot, policy.rules.get(*id)?))).collect();
        let (mut bytes, mut names) = (PatternTable::default(), PatternTable::default());
        let mut built = StreamPatterns::default();
        for (id, slot, rule) in &rules {
            built.has_helpers |= rule.targets.iter().any(|target| matches!(target, Target::Helper(_)));
            let edit = StreamEditRule::compile(policy, (*slot, *id, rule), sets)?;
            let edits = edit.is_some();
            built.edits.extend(edit);
            for (number, constraint) in rule.stream_matches().take(MAX_CONSTRAINTS).enumerate() {
                let is_name = match SearchPlace::of(constraint) {
                    Some(SearchPlace::Bytes) => false,
                    Some(SearchPlace::ServerName) => true,
                    Some(SearchPlace::Messages) | None => continue,
                };
                let pattern_use = PatternUse {
                    slot: *slot,
                    constraint: number as u8,
                    directions: directions(constraint),
                    edits,
                };
                for item in constraint.test.patterns() {
                    match item {
                        PatternItem::Regex(regex) if is_name => names.regex(*id, regex, pattern_use),
                        PatternItem::Regex(regex) => bytes.regex(*id, regex, pattern_use),
                        PatternItem::Text(text) if is_name => built.add_name(text, pattern_use),
                        PatternItem::Text(text) => bytes.text(*id, text, pattern_use),
                        PatternItem::List(list) => {
                            let texts = policy.lists.get(list).map(|list| &list.patterns);
                            for text in texts.into_iter().flat_map(|texts| texts.iter()) {
                                match is_name {
                                    true => built.add_name(text, pattern_use),
                                    false => bytes.text(*id, text, pattern_use),
                                }
                            }
                        }
                    }
                }
            }
        }
        built.edits.sort_unstable_by_key(|edit| edit.slot.number());
        built.http_source = HttpSource::new(policy, &rules);
        built.http = built.http_source.compile(policy, &rules, (before, sets))?;
        (built.bytes, built.uses) = bytes.compile(sets)?;
        (built.names, built.name_uses) = names.compile(sets)?;
        Ok(built)
    }

    /// The rules that edit plain bytes.
    pub(crate) fn edits(&self) -> &[StreamEditRule] {
        &self.edits
    }

    /// A rule's edit of plain bytes.
    #[inline]
    pub(crate) fn edit(&self, slot: RuleSlot) -> Option<&StreamEditRule> {
        let index = self.edits.binary_search_by_key(&slot.number(), |edit| edit.slot.number()).ok()?;
        Some(&self.edits[index])
    }

    fn add_name(&mut self, text: &[u8], pattern_use: PatternUse) {
        let (names, text) = match text {
            [b'.', domain @ ..] => (&mut self.domains, domain),
            whole => (&mut self.exact, whole),
        };
        names.entry(name_key(text)).or_default().push(pattern_use);
    }

    /// The constraints that a match of a stream pattern meets.
    pub(crate) fn uses(&self, pattern: u32) -> &[PatternUse] {
        self.uses.get(pattern as usize).map_or(&[], Vec::as_slice)
    }

    /// The constraints that a match of a server name pattern meets.
    pub(crate) fn name_uses(&self, pattern: u32) -> &[PatternUse] {
        self.name_uses.get(pattern as usize).map_or(&[], Vec::as_slice)
    }

    /// The constraints that a server name meets by its text. `name` is in lower case and without a trailing
    /// dot.
    pub(crate) fn uses_of_name<'n>(&'n self, name: &'n [u8]) -> impl Iterator<Item = PatternUse> + 'n {
        let below =
            name.iter().enumerate().filter(|(_, byte)| **byte == b'.').map(|(dot, _)| &name[dot + 1..]);
        let domains = std::iter::once(name).chain(below).filter_map(|domain| self.domains.get(domain));
        self.exact.get(name).into_iter().chain(domains).flatten().copied()
    }
}
