//! Tokens of one command to its syntax tree.
//!
//! Recursive descent, one function a production. On a mistake the parser reports it, skips to the next word
//! that begins something (a field, a target, `!`) and goes on, so that one line can have several errors.

mod filter;
pub(crate) mod keyword;
pub(crate) mod look;
mod remedy;
pub(crate) mod rule;
pub(crate) mod server;
mod sets;
mod target;
mod unknown;
pub(crate) mod word_list;

use crate::check::stream::{is_list_name, no_list_name};
use crate::command::{Command, Deletion, Show};
use crate::diagnostic::{Diagnostic, Errors, Notes, TextSpan};
use crate::lexer::{Token, TokenKind};
use crate::nearest::nearest;
use crate::phrase;
use crate::setting;
use crate::syntax::{CommandSyntax, PatternsSyntax, RuleSyntax};
use crate::value;
use crate::verb;
use crate::verb::{Argument, COMMANDS, CommandInfo, SHOWS, Verb};
use keyword::{COUNTERS, KEEP, KILL, NAME, SET, SUMMARY, TERSE};
use mmb_policy::rule::RuleId;
use mmb_policy::setting_table::{self, Setting, SettingInfo};
use word_list::list;

/// Parses the tokens of one command; `None` for an empty line, or if nothing could be made of it.
///
/// Errors from `errors_before` on are those of this command, found by the lexer.
pub(crate) fn parse<'t>(
    tokens: &'t [Token<'_>],
    (errors, notes): (&mut Errors, &mut Notes),
    errors_before: usize,
) -> Option<CommandSyntax<'t>> {
    Parser { tokens, at: 0, errors, notes, errors_before, options: &[] }.command()
}

struct Parser<'t, 'a, 'e> {
    /// The last one is [`TokenKind::End`].
    tokens: &'t [Token<'a>],
    at: usize,
    errors: &'e mut Errors,
    notes: &'e mut Notes,
    /// The number of errors that are not of this command.
    errors_before: usize,
    /// In a filter of packets: the words that may stand behind its constraints.
    options: &'static [&'static str],
}

impl<'t, 'a> Parser<'t, 'a, '_> {
    fn peek(&self) -> &'t Token<'a> {
        // `next` never goes past the last token.
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn next(&mut self) -> &'t Token<'a> {
        let token = self.peek();
        if token.kind != TokenKind::End {
            self.at += 1;
        }
        token
    }

    fn peek_word(&self) -> Option<&'t str> {
        match &self.peek().kind {
            TokenKind::Word(word) => Some(word),
            _ => None,
        }
    }

    fn take_word(&mut self, word: &str) -> bool {
        let taken = self.peek_word() == Some(word);
        if taken {
            self.next();
        }
        taken
    }

    /// The span of the token before the next one.
    fn last_span(&self) -> TextSpan {
        self.tokens[self.at.saturating_sub(1)].span
    }

    fn error(&mut self, error: Diagnostic) {
        self.errors.push(error);
    }

    fn is_broken(&self) -> bool {
        self.errors.len() > self.errors_before
    }

    fn command(mut self) -> Option<CommandSyntax<'t>> {
        self.take_word("mmb");
        if self.peek().kind == TokenKind::End {
            return None;
        }
        let first = self.next();
        let TokenKind::Word(word) = &first.kind else {
            self.error(Diagnostic::new(first.span, "a command begins with a word").expected(first_words()));
            return None;
        };
        let Some(info) = verb::named(word) else {
            let error = Diagnostic::new(first.span, format!("unknown command `{word}`"))
                .expected(first_words())
                .suggest(unknown::command(word));
            self.error(error);
            return None;
        };
        if info.argument == Argument::Rule {
            let rule = self.rule(RuleSyntax::new(info.verb == Verb::AddStateful), false);
            return Some(CommandSyntax::Rule(rule));
        }
        let command = match info.verb {
            Verb::Replace => self.replacement()?,
            Verb::Show => self.show()?,
            Verb::Conn => self.conn()?,
            Verb::Clear => self.clear()?,
            Verb::Patterns => self.patterns()?,
            Verb::Server => CommandSyntax::Other(self.server()?),
            Verb::Trace => self.look(false),
            Verb::Capture => self.look(true),
            Verb::Set if self.is_set() => CommandSyntax::Set(self.set_of_elements()?),
            _ => CommandSyntax::Other(self.simple(info)?),
        };
        self.end(info)?;
        Some(command)
    }

    fn simple(&mut self, info: &'static CommandInfo) -> Option<Command> {
        Some(match info.verb {
            Verb::Del if self.take_word(NAME) => {
                let name = self.name()?;
                Command::DelNamed(name, self.deletion())
            }
            Verb::Del if self.take_word(SET) => Command::DelSet(self.set_name()?.to_owned()),
            Verb::Del => {
                let id = self.rule_id()?;
                match self.deletion() {
                    Deletion::Kill => Command::DelKill(id),
                    Deletion::Drain => Command::DelKeep(id),
                    Deletion::Plain => Command::Del(id),
                }
            }
            Verb::Flush => Command::Flush,
            Verb::List => Command::List { terse: self.take_word(TERSE) },
            Verb::Enable => Command::Enable(self.port()?),
            Verb::Disable => Command::Disable(self.port()?),
            Verb::Set => Command::Set(self.setting()?),
            Verb::Monitor => Command::Monitor,
            Verb::Confirm => Command::Confirm(self.optional_number()),
            Verb::History => Command::History(self.optional_number()),
            Verb::Diff => {
                let from = self.optional_number();
                Command::Diff(from, from.and_then(|_| self.optional_number()))
            }
            Verb::Rollback => {
                let version = self.optional_number();
                Command::Rollback(version, self.deletion())
            }
            Verb::Add | Verb::AddStateful | Verb::Replace | Verb::Show => return None,
            Verb::Conn | Verb::Clear | Verb::Patterns | Verb::Server | Verb::Trace | Verb::Capture => {
                return None;
            }
            Verb::Apply | Verb::Batch | Verb::Save | Verb::Check | Verb::SaveState | Verb::LoadState => {
                let span = self.last_span();
                let message =
                    format!("`{}` is no command of a policy: give it to the shell or to mmb", info.name);
                self.error(Diagnostic::new(span, message));
                return None;
            }
        })
    }

    fn end(&mut self, info: &CommandInfo) -> Option<()> {
        let token = self.peek();
        if token.kind == TokenKind::End {
            return Some(());
        }
        let message = match info.argument {
            Argument::None => format!("nothing follows `{}`", info.name),
            Argument::Setting if self.tokens[self.at - 1].kind == TokenKind::Close => {
                "nothing more follows the elements of a set".to_owned()
            }
            Argument::Setting => "nothing more follows `set NAME VALUE`".to_owned(),
            Argument::Show => "nothing more follows what is to be shown".to_owned(),
            _ => format!("nothing more follows `{} {}`", info.name, info.arguments),
        };
        let meant = match &token.kind {
            TokenKind::Word(word) if info.argument == Argument::Terse => nearest(word, [TERSE]),
            TokenKind::Word(word) if matches!(info.argument, Argument::RuleId | Argument::Rollback) => {
                nearest(word, [KILL, KEEP])
            }
            _ => None,
        };
        self.error(Diagnostic::new(token.span, message).expected("the end of the command").suggest(meant));
        None
    }

    /// A number, if the next word is one.
    fn optional_number(&mut self) -> Option<u64> {
        let number = u64::try_from(value::number(self.peek_word()?).ok()?).ok()?;
        self.next();
        Some(number)
    }

    /// `[--kill|--keep]`
    fn deletion(&mut self) -> Deletion {
        let deletion = match self.peek_word() {
            Some(KILL) => Deletion::Kill,
            Some(KEEP) => Deletion::Drain,
            _ => return Deletion::Plain,
        };
        let first = self.next().word();
        let token = self.peek();
        if self.take_word(KILL) || self.take_word(KEEP) {
            let message = match token.word() {
                second if second == first => format!("`{first}` is given twice"),
                _ => "connections either end or keep their rules".to_owned(),
            };
            let expected = format!("one of `{KILL}` and `{KEEP}`");
            self.error(Diagnostic::new(token.span, message).expected(expected));
        }
        deletion
    }

    /// `ID [prio N] [name WORD] MATCH… TARGET… [--kill]`
    fn replacement(&mut self) -> Option<CommandSyntax<'t>> {
        let id = self.rule_id()?;
        let rule = self.rule(RuleSyntax { id: Some(id), ..RuleSyntax::new(true) }, true);
        let kill = self.take_word(KILL);
        Some(CommandSyntax::Replace(rule, kill))
    }

    fn rule_id(&mut self) -> Option<RuleId> {
        let token = self.next();
        if let TokenKind::Word(word) = &token.kind
            && let Ok(n) = value::number(word)
            && let Ok(n @ 1..) = u32::try_from(n)
        {
            return Some(RuleId(n));
        }
        let message = match &token.kind {
            TokenKind::Word(word) if !unknown::is_keyword(word) => format!("`{word}` is no id of a rule"),
            _ => "a rule's id is missing".to_owned(),
        };
        self.error(Diagnostic::new(token.span, message).expected("a number 1 to 4294967295"));
        None
    }

    fn port(&mut self) -> Option<String> {
        let token = self.next();
        match &token.kind {
            TokenKind::Word(word) => Some(word.to_string()),
            _ => {
                self.error(Diagnostic::new(token.span, "a port is missing").expected("the name of a port"));
                None
            }
        }
    }

    /// `LIST FILE`
    fn patterns(&mut self) -> Option<CommandSyntax<'t>> {
        let token = self.next();
        let name = match &token.kind {
            TokenKind::Word(word) if is_list_name(word) => &**word,
            TokenKind::Word(word) => {
                let bare = word.strip_prefix('@').filter(|bare| is_list_name(bare));
                self.error(no_list_name(token.span, word).suggest(bare.map(str::to_owned)));
                return None;
            }
            _ => {
                let error = Diagnostic::new(token.span, "the name of a list is missing");
                self.error(error.expected("a word, by which rules name the list as @LIST"));
                return None;
            }
        };
        let (file, span) = self.file()?;
        Some(CommandSyntax::Patterns(PatternsSyntax { name, file, span }))
    }

    fn clear(&mut self) -> Option<CommandSyntax<'t>> {
        let token = self.next();
        let message = match token.word() {
            COUNTERS => return Some(CommandSyntax::Other(Command::ClearCounters)),
            "" => "what to clear?".to_owned(),
            word => format!("`{word}` cannot be cleared"),
        };
        let meant = nearest(token.word(), [COUNTERS]);
        self.error(Diagnostic::new(token.span, message).expected(format!("`{COUNTERS}`")).suggest(meant));
        None
    }

    fn show(&mut self) -> Option<CommandSyntax<'t>> {
        if self.take_word(SET) {
            return Some(CommandSyntax::Other(Command::ShowSet(self.set_name()?.to_owned())));
        }
        let names = || SHOWS.iter().map(|(name, ..)| *name);
        let mut begun = "";
        loop {
            if let Some((_, show, _)) = SHOWS.iter().find(|(name, ..)| *name == begun) {
                return match show {
                    Show::Connections { .. } => self
                        .shown_connections()
                        .map(|(filter, verbose)| CommandSyntax::Connections(filter, verbose)),
                    Show::Streams { .. } if self.take_word(SUMMARY) => {
                        Some(CommandSyntax::Other(Command::Show(Show::StreamSummary)))
                    }
                    Show::Streams { .. } => self
                        .shown_connections()
                        .map(|(filter, verbose)| CommandSyntax::Streams(filter, verbose)),
                    Show::Servers { .. } => {
                        let terse = self.take_word(TERSE);
                        Some(CommandSyntax::Other(Command::Show(Show::Servers { terse })))
                    }
                    show => Some(CommandSyntax::Other(Command::Show(*show))),
                };
            }
            let token = self.next();
            let word = token.word();
            if let Some(longer) = phrase::longer(names(), begun, word) {
                begun = longer;
                continue;
            }
            let message = match (begun, word) {
                (_, "") => "what to show?".to_owned(),
                ("", _) => format!("`{word}` cannot be shown"),
                _ => format!("`{begun} {word}` cannot be shown"),
            };
            let set = begun.is_empty().then_some(SET);
            let words = || phrase::next_words(names(), begun).map(|(word, _)| word).chain(set);
            let (expected, nearest) = (list(words()), unknown::shown(word, words));
            self.error(Diagnostic::new(token.span, message).expected(expected).suggest(nearest));
            return None;
        }
    }

    fn setting(&mut self) -> Option<Setting> {
        let info = self.setting_name()?;
        let token = self.next();
        let word = token.word();
        let setting = setting::read(info, word);
        if setting.is_none() {
            let message = match word {
                "" => format!("the value of `{}` is missing", info.name),
                _ => format!("`{word}` is no value of `{}`", info.name),
            };
            let nearest = nearest(word, info.words().iter().map(|(word, _)| *word));
            self.error(
                Diagnostic::new(token.span, message).expected(info.values.describe()).suggest(nearest),
            );
        }
        setting
    }

    /// The name of a setting, which may be of several words.
    fn setting_name(&mut self) -> Option<&'static SettingInfo> {
        let mut begun = "";
        loop {
            if let Some(info) = setting_table::named(begun) {
                return Some(info);
            }
            let token = self.next();
            let word = token.word();
            if let Some(longer) = phrase::longer(setting::names(), begun, word) {
                begun = longer;
                continue;
            }
            let message = match (begun, word) {
                ("", "") => "a setting is missing".to_owned(),
                (_, "") => format!("the rest of the setting's name is missing behind `{begun}`"),
                ("", _) => format!("unknown setting `{word}`"),
                _ => format!("unknown setting `{begun} {word}`"),
            };
            let words = || setting::next_words(begun).map(|(word, _)| word);
            let (expected, nearest) = (list(words()), nearest(word, words()));
            self.error(Diagnostic::new(token.span, message).expected(expected).suggest(nearest));
            return None;
        }
    }
}

fn first_words() -> String {
    let is_of_files = |info: &&CommandInfo| matches!(info.argument, Argument::File | Argument::OptionalFile);
    list(COMMANDS.iter().filter(|info| !is_of_files(info)).map(|info| info.name))
}
