//! Named sets as text: what is taken, what it prints as, what is refused and why.

use crate::messages::assert_words;
use mmb_language::{Change, Command, FileReader, Print, parse_command, parse_policy, parse_policy_with};
use mmb_policy::sets::{ElementKind, ElementList};
use mmb_policy::{PatternList, Policy, SetOperation};

const TABLE: &[(&str, &[&str])] = &[
    (
        "set bad",
        &[
            "5: unknown setting `bad`; expected `ip6-max-headers`, `poll`, `offload`, `flow-cache`, `answer`, `mtu-errors`, `conn`, `timeout`, `nat`, `stream`, `http`, `log` or `limit`",
        ],
    ),
    ("set poll {1}", &["5: `poll` is the name of a setting; expected another name for the set"]),
    ("set conn += {1}", &["5: `conn` is the name of a setting; expected another name for the set"]),
    (
        "set @bad {1}",
        &["5: `@bad` is no name of a set; expected letters, digits, `-`, `_` and `.`; did you mean `bad`?"],
    ),
    ("set bad = {1}", &["9: `=` has no place here; expected `{`, `+=`, `-=` or `file`"]),
    (
        "set bad += 10.0.0.1",
        &["12: the elements of the set are missing; expected `{ELEMENT, …}` or `file FILE`"],
    ),
    (
        "set bad {http}",
        &[
            "10: `http` is no element of a set; expected an address, a prefix, a range, or a number of at most 32 bits",
        ],
    ),
    (
        "set bad {10.0.0.0/33}",
        &["10: `10.0.0.0/33` has a prefix that is too long; expected a length 0 to 32"],
    ),
    ("set bad {::/129}", &["10: `::/129` has a prefix that is too long; expected a length 0 to 128"]),
    (
        "set bad {10.0.0.2-10.0.0.1}",
        &["10: `10.0.0.2-10.0.0.1` ends before it begins; expected the smaller value first"],
    ),
    (
        "set bad {4294967296}",
        &[
            "10: `4294967296` is too large for a number of 32 bits; expected an address, a prefix, a range, or a number of at most 32 bits",
        ],
    ),
    (
        "set bad {1,}",
        &[
            "12: an element is missing; expected an address, a prefix, a range, or a number of at most 32 bits",
        ],
    ),
    ("set bad {1", &["11: the set has no end; expected `,`, `timeout` or `}`"]),
    ("set bad {1 2}", &["12: this has no place in a set; expected `,`, `timeout` or `}`"]),
    (
        "set bad {1 timeout}",
        &[
            "19: the time is missing; expected a time such as `90s`, `10m`, `1h30m` or `7d`, at most 3650 days",
        ],
    ),
    (
        "set bad {1 timeout 5x}",
        &["20: `5x` is no timeout; expected a time such as `90s`, `10m`, `1h30m` or `7d`, at most 3650 days"],
    ),
    ("set bad {1} 2", &["13: nothing more follows the elements of a set; expected the end of the command"]),
    (
        "set bad file",
        &["13: the name of a file is missing; expected a word, or a \"text\" if the name has blanks"],
    ),
    ("del set", &["8: the name of a set is missing; expected a word, by which rules name the set as @NAME"]),
    (
        "show set @bad",
        &["10: `@bad` is no name of a set; expected letters, digits, `-`, `_` and `.`; did you mean `bad`?"],
    ),
    (
        "add ip-saddr {@bad, 10.0.0.1} drop",
        &["15: a named set stands alone; expected `@bad` without braces, and other values in the set itself"],
    ),
    (
        "add ip-saddr < @bad drop",
        &["14: named sets are compared only with `==` and `!=`; expected `==` or `!=`"],
    ),
    (
        "add ip-saddr @ drop",
        &["14: `@` is no name of a set; expected letters, digits, `-`, `_` and `.` behind the `@`"],
    ),
    (
        "add tcp-opt-mss @bad drop",
        &[
            "17: `tcp-opt-mss` cannot be compared with a named set; expected a number 0 to 65535, a \"text\" or |bytes|",
        ],
    ),
    (
        "add all mod ip-saddr @bad",
        &["22: `@bad` is no value of `ip-saddr`; expected an IPv4 address, prefix or range"],
    ),
];

#[test]
fn a_wrong_set_is_refused_with_the_reason() {
    assert_words(TABLE);
}

#[test]
fn commands_about_sets_print_as_themselves() {
    for text in [
        "set bad {}",
        "set bad {10.0.0.0/8, 192.0.2.7 timeout 1h}",
        "set bad += {2001:db8::/32, ::1-::3 timeout 1d2h3m4s}",
        "set bad -= {80, 1024-65535}",
        "del set bad",
        "show set bad",
        "show sets",
        "add ip-saddr @bad drop",
        "add ! ip6-daddr @bad drop",
        "add ip-saddr != @bad drop",
        "add vlan-id @bad tcp-dport @ports drop",
    ] {
        let (command, _) = parse_command(text).expect(text);
        assert_eq!(command.to_string(), text);
    }
    // Elements print by kind, and in the shortest form.
    let (command, notes) = parse_command("set bad+={8, 0x10-0x1f, ::ffff, 10.1.2.3/8, 10.0.0.0-10.0.0.1}")
        .unwrap_or_else(|_| {
            parse_command("set bad += {8, 0x10-0x1f, ::ffff, 10.1.2.3/8, 10.0.0.0-10.0.0.1}").expect("parses")
        });
    assert_eq!(command.to_string(), "set bad += {10.0.0.0/8, 10.0.0.0/31, ::ffff, 8, 16-31}");
    assert_eq!(notes.len(), 1);
    assert_eq!(notes[0].message, "`10.1.2.3/8` has host bits set; they are taken as zero");
    // A setting stays a setting.
    assert!(matches!(parse_command("set poll spin"), Ok((Command::Set(_), _))));
}

fn errors(text: &str) -> Vec<(usize, String, Option<String>)> {
    let errors = parse_policy(text).expect_err(text);
    errors.into_iter().map(|error| (error.column, error.message, error.suggestion)).collect()
}

#[test]
fn what_a_rule_names_must_be_there_and_fit() {
    let known = "set bad {10.0.0.0/8}\nset web {80, 443}\nset none {}\nset large {70000}\n";
    let said = |rule: &str| errors(&format!("{known}{rule}")).remove(0);
    let no_set = "there is no set called 'bat'; make it before: set bat {…}".to_owned();
    assert_eq!(said("add ip-saddr @bat drop"), (14, no_set, Some("@bad".to_owned())));
    let numbers = "@web has numbers, which `ip-saddr` cannot be compared with".to_owned();
    assert_eq!(said("add ip-ttl 3 ip-saddr != @web drop"), (26, numbers, None));
    let addresses = "@bad has IPv4 addresses, which `tcp-dport` cannot be compared with".to_owned();
    assert_eq!(said("add tcp-dport @bad drop"), (15, addresses, None));
    let large = "@large has the number 70000, which `tcp-dport` cannot be compared with".to_owned();
    assert_eq!(said("add tcp-dport @large drop"), (15, large, None));
    let missing = "there is no set called 'bat'; make it before: set bat {…}".to_owned();
    assert_eq!(said("set bat += {10.0.0.1}"), (5, missing.clone(), Some("@bad".to_owned())));
    assert_eq!(said("del set bat"), (9, missing, Some("@bad".to_owned())));
    let gone = "set bad: the set has no element 10.0.0.1; `show set` tells its elements".to_owned();
    assert_eq!(said("set bad -= {10.0.0.1}"), (5, gone, None));
    let mixed = "set bad: a set has either addresses or numbers; use two sets".to_owned();
    assert_eq!(said("set bad += {80}"), (5, mixed, None));
    let used = "rule 1 names @bad; delete it first".to_owned();
    assert_eq!(said("add ip-saddr @bad drop\ndel set bad"), (9, used, None));
    let used = "rules 1 and 2 name @bad; delete them first".to_owned();
    assert_eq!(said("add ip-saddr @bad drop\nadd ip6-daddr @bad drop\ndel set bad"), (9, used, None));
    let by_rule = "@none has addresses, which `tcp-dport` of rule 1 cannot be compared with".to_owned();
    assert_eq!(said("add tcp-dport @none drop\nset none {10.0.0.1}"), (5, by_rule, None));
    // An empty set fits all fields, and one of addresses those of both versions.
    let taken =
        "add tcp-dport @none drop\nadd ip6-saddr @none drop\nadd ip6-saddr @bad drop\ndel 2\nset none {80}";
    assert!(parse_policy(&format!("{known}{taken}")).is_ok());
}

#[test]
fn a_policy_prints_its_sets_with_the_times_that_are_left() {
    let text = "set a {10.0.0.0/8, 192.0.2.7 timeout 1h}\nset b {}\nadd id 1 ip-saddr @a drop\n";
    let (mut policy, _) = parse_policy(text).expect("parses");
    assert_eq!(policy.text().to_string(), text);
    policy.begin_timeouts(5_000);
    assert_eq!(policy.text().to_string(), text);
    policy.now_ms = 65_000;
    assert_eq!(policy.text().to_string(), text.replace("1h", "59m"));
    // Given again, an element has its new time from now on; without one it stays.
    let run = |policy: &mut Policy, text: &str| parse_command(text).expect("parses").0.run(policy);
    let changed =
        run(&mut policy, "set a += {192.0.2.7 timeout 10s, 192.0.2.8 timeout 20s, 192.0.2.9 timeout 20s}");
    assert_eq!(changed, Ok(Change::SetChanged("a".to_owned())));
    assert_eq!(policy.expires_ms(), 75_000);
    run(&mut policy, "set a += {192.0.2.8}").expect("is there");
    assert_eq!(policy.expire(74_999), 0);
    assert_eq!(policy.expire(75_000), 1);
    assert_eq!(policy.expire(85_000), 1);
    let has = |policy: &Policy, last: u32| {
        policy.sets["a"].contains(ElementKind::Ip4, u128::from(0xc000_0200 | last))
    };
    assert_eq!([7, 8, 9].map(|last| has(&policy, last)), [false, true, false]);
}

#[test]
fn a_large_set_prints_as_several_commands() {
    let mut list = ElementList::default();
    list.ip4.extend((0..5000u32).map(|n| mmb_policy::sets::Element::of(n * 7, n * 7 + 3)));
    let mut policy = Policy::default();
    policy.change_set("many", SetOperation::Replace, list).expect("a new set");
    let text = policy.text().to_string();
    assert_eq!(text.lines().count(), 3);
    assert!(text.lines().skip(1).all(|line| line.starts_with("set many += {")));
    assert_eq!(parse_policy(&text).expect("parses").0, policy);
}

struct Files;

impl FileReader for Files {
    fn patterns(&self, file: &str) -> Result<PatternList, String> {
        Err(format!("{file}: no patterns here"))
    }

    fn elements(&self, file: &str) -> Result<ElementList, String> {
        match file {
            "good" => {
                mmb_language::read_elements(b"# bad ones\n10.0.0.0/8\n2001:db8::/32 timeout 1d ; why\n")
            }
            _ => mmb_language::read_elements(b"10.0.0.0/8\nten\n"),
        }
    }
}

#[test]
fn elements_come_from_files() {
    let (policy, _) =
        parse_policy_with("set bad {10.0.0.1}\nset bad += file good\nset bad -= file \"good\"", &Files)
            .expect("parses");
    assert_eq!(policy.text().to_string(), "set bad {10.0.0.1}\n");
    let errors = parse_policy_with("set bad file other", &Files).expect_err("a bad file");
    let expected = "other: line 2: `ten` is no element of a set; expected an address, a prefix, a range, or a number of at most 32 bits";
    assert_eq!((errors[0].column, errors[0].message.as_str()), (14, expected));
    let errors = parse_policy("set bad file other").expect_err("no files here");
    assert_eq!(errors[0].message, "other: files of elements are not read here");
}
