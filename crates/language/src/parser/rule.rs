//! The grammar of rules: number, priority, name, constraints, targets, values.

use super::keyword::{KEEP, KILL};
use super::target::is_digit_like;
use super::word_list::list;
use super::{Parser, remedy, unknown};
use crate::diagnostic::{Diagnostic, TextSpan};
use crate::lexer::TokenKind;
use crate::syntax::value::{FieldSyntax, ItemKind, ItemSyntax, ValueSyntax, WeightSyntax};
use crate::syntax::{MatchSyntax, RuleSyntax};
use crate::target;
use crate::target::info::{Slot, TargetSyntax};
use crate::value;
use mmb_policy::field::{Field, FieldId, FieldInfo, ValueKind};
use mmb_policy::rule::{Prio, RuleId, ServerList};

/// The longest name of a rule in bytes.
const MAX_NAME_BYTES: usize = 64;

/// The word before the weight of a member of a set.
pub(crate) const WEIGHT: &str = "weight";

impl<'t> Parser<'t, '_, '_> {
    /// Parses the arguments of `add`, or of `replace`, behind whose rule `--kill` may stand.
    pub(super) fn rule(&mut self, mut rule: RuleSyntax<'t>, is_replacement: bool) -> RuleSyntax<'t> {
        // Looking for what was meant takes time, and nobody is told any more.
        while !self.errors.is_full() {
            let token = self.peek();
            match &token.kind {
                TokenKind::End => break,
                TokenKind::Bang => self.constraint(&mut rule),
                TokenKind::Word(word) => match &**word {
                    KILL if is_replacement && !rule.targets.is_empty() => break,
                    KEEP if is_replacement => {
                        let message = "connections follow the rule that replaces theirs";
                        let remedy = "`--kill`, or another rule by `add` and `del ID --keep`";
                        self.error(Diagnostic::new(token.span, message).expected(remedy));
                        self.next();
                    }
                    "draining" if is_replacement => {
                        let message = "a rule that replaces another one does not drain";
                        self.error(Diagnostic::new(token.span, message).expected("`del ID --keep`"));
                        self.next();
                    }
                    "id" | "prio" | "name" | "draining" => self.attribute(word, &mut rule),
                    "all" => self.all(&mut rule),
                    word if FieldId::named(word).is_some() => self.constraint(&mut rule),
                    word => match target::named(word) {
                        Some(info) => {
                            let start = self.next().span;
                            if let Some(arguments) = self.target(info) {
                                let span = start.to(self.last_span());
                                rule.targets.push(TargetSyntax { info, arguments, span });
                            } else {
                                self.recover();
                            }
                        }
                        None => self.unknown_word(word, token.span),
                    },
                },
                kind => {
                    let error = Diagnostic::new(token.span, "this has no place here");
                    self.error(match kind {
                        TokenKind::Comma => error.expected("several values in braces, as in `{80, 443}`"),
                        _ => error.expected("a field, `!` or a target"),
                    });
                    self.next();
                    self.recover();
                }
            }
        }
        if !self.is_broken() {
            self.complete(&rule);
        }
        rule.broken = self.is_broken();
        rule
    }

    /// Reports a rule without constraints or targets.
    fn complete(&mut self, rule: &RuleSyntax<'_>) {
        let end = self.peek().span;
        if rule.all.is_none() && rule.matches.is_empty() {
            let at = rule.targets.first().map_or(end, |target| target.span);
            self.error(Diagnostic::new(at, "a rule needs a constraint").expected("`all`, a field or `!`"));
        }
        if rule.targets.is_empty() {
            let error = Diagnostic::new(end, "a rule needs a target");
            self.error(error.expected(list(target::allowed(rule.stateful).map(|info| info.name))));
        }
    }

    /// What may follow constraints.
    pub(super) fn expected_next(&self) -> String {
        match self.options {
            [] => "a field, `!` or a target".to_owned(),
            options => format!("a field, `!`, {}", list(options.iter().copied())),
        }
    }

    /// Skips to what may begin a constraint or a target.
    pub(super) fn recover(&mut self) {
        loop {
            match &self.peek().kind {
                TokenKind::End | TokenKind::Bang => return,
                TokenKind::Word(word) if unknown::is_keyword(word) => return,
                _ => self.next(),
            };
        }
    }

    fn unknown_word(&mut self, word: &str, span: TextSpan) {
        self.next();
        let joined = self.peek_word().and_then(|next| unknown::joined(word, next));
        if joined.is_some() {
            self.next();
        }
        let meant = joined.or_else(|| unknown::keyword(word));
        let error = Diagnostic::new(span, format!("unknown word `{word}`"));
        self.error(error.expected("a field, `!` or a target").suggest(meant));
        self.recover();
        // A field behind what was meant for a target is that target's.
        let takes_field = meant
            .and_then(target::named)
            .is_some_and(|target| matches!(target.slots.first(), Some(Slot::Field(_))));
        if takes_field && self.peek_word().and_then(FieldId::named).is_some() {
            self.next();
            self.recover();
        }
    }

    /// `id N`, `prio N`, `name WORD`, `draining`
    fn attribute(&mut self, word: &str, rule: &mut RuleSyntax<'_>) {
        let start = self.next().span;
        if !rule.matches.is_empty() || !rule.targets.is_empty() || rule.all.is_some() {
            let message = format!("`{word}` stands before the constraints");
            self.error(Diagnostic::new(start, message));
        }
        let repeated = match word {
            "id" => rule.id.is_some(),
            "prio" => rule.prio.is_some(),
            "draining" => rule.draining.is_some(),
            _ => rule.name.is_some(),
        };
        if repeated {
            self.error(Diagnostic::new(start, format!("`{word}` is given twice")));
        }
        let done = match word {
            "id" => self.rule_id().map(|id: RuleId| rule.id = Some(id)),
            "prio" => self.prio().map(|prio| rule.prio = Some(prio)),
            "draining" => {
                rule.draining = Some(start);
                Some(())
            }
            _ => self.name().map(|name| rule.name = Some(name)),
        };
        if done.is_none() {
            self.recover();
        }
    }

    fn prio(&mut self) -> Option<Prio> {
        let token = self.peek();
        if let TokenKind::Word(word) = &token.kind
            && let Ok(n) = value::number(word)
            && let Ok(prio) = Prio::try_from(n)
        {
            self.next();
            return Some(prio);
        }
        let message = match &token.kind {
            TokenKind::Word(word) if !unknown::is_keyword(word) => format!("`{word}` is no priority"),
            _ => "a priority is missing".to_owned(),
        };
        self.error(Diagnostic::new(token.span, message).expected("a number 0 (best) to 4294967295"));
        None
    }

    pub(super) fn name(&mut self) -> Option<String> {
        let token = self.next();
        let error = match &token.kind {
            TokenKind::Word(word) if word.len() <= MAX_NAME_BYTES && crate::lexer::is_word(word) => {
                return Some(word.to_string());
            }
            TokenKind::Word(_) => Diagnostic::new(token.span, "this is no name for a rule"),
            _ => Diagnostic::new(token.span, "a name is missing"),
        };
        self.error(error.expected(format!("a word of at most {MAX_NAME_BYTES} bytes")));
        None
    }

    pub(super) fn all(&mut self, rule: &mut RuleSyntax<'_>) {
        let span = self.next().span;
        if rule.all.is_some() {
            self.error(Diagnostic::new(span, "`all` is given twice"));
        } else if !rule.targets.is_empty() {
            self.error(Diagnostic::new(span, "constraints stand before the targets"));
        }
        rule.all = Some(span);
    }

    /// `[!] FIELD [[COND] VALUE]`
    pub(super) fn constraint(&mut self, rule: &mut RuleSyntax<'t>) {
        let start = self.peek().span;
        let mut negated = false;
        if self.peek().kind == TokenKind::Bang {
            self.next();
            negated = true;
        }
        match self.constraint_behind_bang(start, negated) {
            Some(constraint) => {
                if !rule.targets.is_empty() {
                    let error = Diagnostic::new(constraint.span, "constraints stand before the targets");
                    self.error(error.expected("a target or the end of the command"));
                }
                rule.matches.push(constraint);
            }
            None => self.recover(),
        }
    }

    fn constraint_behind_bang(&mut self, start: TextSpan, negated: bool) -> Option<MatchSyntax<'t>> {
        let field = self.field("a field")?;
        let info = field.field.info();
        let mut cond = None;
        let token = self.peek();
        match &token.kind {
            TokenKind::Cond(c) => {
                self.next();
                cond = Some((*c, token.span));
            }
            TokenKind::Assign => {
                self.next();
                self.error(
                    Diagnostic::new(token.span, "`=` is no condition")
                        .expected("`==`, `!=`, `<`, `<=`, `>` or `>=`")
                        .suggest(Some("==")),
                );
                cond = Some((mmb_policy::rule::Cond::Eq, token.span));
            }
            _ => {}
        }
        let value = match cond {
            Some((_, span)) => Some(self.value(info, span, value::expectation)?),
            None => self.optional_value(info)?,
        };
        Some(MatchSyntax { negated, field, cond, value, span: start.to(self.last_span()) })
    }

    /// A field's name, with the kind of `tcp-opt KIND` and the name of `http-header NAME`.
    pub(super) fn field(&mut self, expected: &str) -> Option<FieldSyntax<'t>> {
        let token = self.peek();
        let word = self.peek_word().unwrap_or("");
        let Some(id) = FieldId::named(word) else {
            let message = match (&token.kind, word) {
                (TokenKind::End, _) => "a field is missing".to_owned(),
                (_, "") => "this is no field".to_owned(),
                (_, "all") => "`all` is no field".to_owned(),
                (_, word) if target::named(word).is_some() => {
                    format!("`{word}` is a target, not a field")
                }
                (_, word) => format!("unknown field `{word}`"),
            };
            self.error(Diagnostic::new(token.span, message).expected(expected).suggest(unknown::field(word)));
            if !word.is_empty() && target::named(word).is_none() {
                self.next();
            }
            return None;
        };
        self.next();
        let plain = FieldSyntax { field: Field::new(id), header: None, span: token.span };
        if id.info().values == ValueKind::Header {
            let header = self.header_name(token.span)?;
            return Some(FieldSyntax { header: Some(header), span: token.span.to(header.span), ..plain });
        }
        let Some(kind) =
            self.peek_word().filter(|word| id == FieldId::TcpOpt && word.starts_with(is_digit_like))
        else {
            return Some(plain);
        };
        let kind_span = self.peek().span;
        match value::number(kind) {
            Ok(kind @ 0..=255) => {
                self.next();
                let field = Field::option(kind as u8);
                Some(FieldSyntax { field, header: None, span: token.span.to(kind_span) })
            }
            Ok(_) => {
                self.error(
                    Diagnostic::new(kind_span, "option kinds are 0 to 255").expected("a number 0 to 255"),
                );
                None
            }
            // `tcp-opt xyz`: no kind, the next word speaks for itself.
            Err(_) if !kind.starts_with(|c: char| c.is_ascii_digit()) => Some(plain),
            Err(_) => {
                let error = Diagnostic::new(kind_span, format!("`{kind}` is no option kind"));
                self.error(error.expected("a number 0 to 255"));
                None
            }
        }
    }

    /// The name behind `http-header`, which stands at `behind`.
    fn header_name(&mut self, behind: TextSpan) -> Option<ItemSyntax<'t>> {
        let token = self.peek();
        let kind = match &token.kind {
            TokenKind::Text(text) if text.contains(&b':') => {
                let remedy = remedy::header_field(text);
                let error = Diagnostic::new(token.span, "name and value of a header field are two texts");
                self.error(error.expected(remedy));
                self.next();
                return None;
            }
            TokenKind::Text(text) => ItemKind::Bytes(text),
            TokenKind::Word(word) if !unknown::is_keyword(word) => ItemKind::Word(word),
            kind => {
                let at = if *kind == TokenKind::End { behind } else { token.span };
                let error = Diagnostic::new(at, "the name of a header field is missing");
                self.error(
                    error.expected("a name right behind `http-header`, as in `http-header \"Server\"`"),
                );
                return None;
            }
        };
        self.next();
        Some(ItemSyntax { kind, span: token.span })
    }

    /// A value where none need be. The outer `None` is an error.
    pub(super) fn optional_value(&mut self, info: &'static FieldInfo) -> Option<Option<ValueSyntax<'t>>> {
        let token = self.peek();
        match &token.kind {
            TokenKind::Word(_) if info.values == ValueKind::Port => {}
            TokenKind::Word(word) if unknown::ends_value(info, word) || self.options.contains(&&**word) => {
                return Some(None);
            }
            TokenKind::Word(word) if !value::looks_like_value(info, word) => {
                self.unknown_value(info, word, token.span);
                return None;
            }
            TokenKind::Word(_) | TokenKind::Text(_) | TokenKind::Bytes(_) => {}
            TokenKind::Replacement(_) | TokenKind::Regex(_) | TokenKind::Open => {}
            _ => return Some(None),
        }
        self.value(info, token.span, value::expectation).map(Some)
    }

    /// Reports a word that is neither a value of the field nor the beginning of something else.
    fn unknown_value(&mut self, info: &FieldInfo, word: &str, span: TextSpan) {
        let mut expected = self.expected_next();
        if info.values != ValueKind::Nothing {
            expected = format!("{}, {expected}", value::expectation(info));
        }
        let mut suggestion = unknown::value_or_keyword(info, word).map(str::to_owned);
        let takes_text = info.values == ValueKind::Bytes || info.values.has_patterns();
        let is_quote = word == "'";
        if takes_text && suggestion.is_none() && !is_quote {
            suggestion = Some(value::quoted(word));
        }
        let message = match is_quote {
            true => "`'` is a quote of the shell, and has no place here".to_owned(),
            false => format!("unknown word `{word}`"),
        };
        self.error(Diagnostic::new(span, message).expected(expected).suggest(suggestion));
        self.next();
    }

    /// A value that must be there, behind what stands at `behind`; `form` is its form as a text for people.
    pub(super) fn value(
        &mut self,
        info: &'static FieldInfo,
        behind: TextSpan,
        form: fn(&FieldInfo) -> String,
    ) -> Option<ValueSyntax<'t>> {
        let token = self.peek();
        if let Some(item) = self.item(info) {
            return Some(ValueSyntax::One(item));
        }
        if token.kind == TokenKind::Open {
            return self.set(info, None);
        }
        let at = if token.kind == TokenKind::End { behind } else { token.span };
        let error = Diagnostic::new(at, format!("a value of `{}` is missing", info.name));
        self.error(error.expected(form(info)));
        None
    }

    /// One value, if the next token is one.
    fn item(&mut self, info: &FieldInfo) -> Option<ItemSyntax<'t>> {
        let token = self.peek();
        let kind = match &token.kind {
            TokenKind::Word(word) if info.values != ValueKind::Port && unknown::ends_value(info, word) => {
                return None;
            }
            TokenKind::Word(word) => ItemKind::Word(word),
            TokenKind::Text(bytes) | TokenKind::Bytes(bytes) => ItemKind::Bytes(bytes),
            TokenKind::Replacement(replacement) => ItemKind::Replacement(replacement),
            TokenKind::Regex(regex) => ItemKind::Regex(regex),
            _ => return None,
        };
        self.next();
        Some(ItemSyntax { kind, span: token.span })
    }

    /// `{VALUE, …}`; with `weights`, members may be followed by `weight N`.
    pub(super) fn set(
        &mut self,
        info: &FieldInfo,
        mut weights: Option<&mut Vec<WeightSyntax>>,
    ) -> Option<ValueSyntax<'t>> {
        let start = self.next().span;
        let mut items = Vec::new();
        loop {
            let Some(item) = self.item(info) else {
                let error = Diagnostic::new(self.peek().span, "a member of the set is missing");
                self.error(error.expected(value::expectation(info)));
                self.skip_set();
                return None;
            };
            if let Some(weights) = &mut weights
                && self.take_word(WEIGHT)
            {
                let Some(weight) = self.weight() else {
                    self.skip_set();
                    return None;
                };
                weights.push(WeightSyntax { member: items.len(), weight });
            }
            items.push(item);
            match &self.peek().kind {
                TokenKind::Comma => self.next(),
                TokenKind::Close => {
                    let end = self.next().span;
                    return Some(ValueSyntax::Set(items, start.to(end)));
                }
                _ => {
                    let error = Diagnostic::new(self.peek().span, "the set goes on or ends here");
                    self.error(error.expected("`,` or `}`"));
                    self.skip_set();
                    return None;
                }
            };
        }
    }

    /// The number behind `weight`.
    fn weight(&mut self) -> Option<u8> {
        let token = self.peek();
        if let TokenKind::Word(word) = &token.kind
            && let Ok(number) = value::number(word)
            && let Ok(weight @ 0..=ServerList::MAX_WEIGHT) = u8::try_from(number)
        {
            self.next();
            return Some(weight);
        }
        let message = match &token.kind {
            TokenKind::Word(word) => format!("`{word}` is no weight"),
            _ => "a weight is missing".to_owned(),
        };
        self.error(Diagnostic::new(token.span, message).expected("a number 0 (no new connections) to 100"));
        None
    }

    /// Skips the rest of a set that went wrong.
    fn skip_set(&mut self) {
        loop {
            match self.next().kind {
                TokenKind::Close | TokenKind::End => return,
                _ => {}
            }
        }
    }
}
