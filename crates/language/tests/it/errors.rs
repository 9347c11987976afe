//! What is said about wrong texts, as it is shown.

use mmb_language::{RenderStyle, parse_command, parse_policy};

/// Everything that is said about a command.
#[track_caller]
fn messages(line: &str) -> String {
    match parse_command(line) {
        Ok((command, _)) => panic!("taken: {command}"),
        Err(errors) => errors.iter().map(|error| error.render("", line)).collect(),
    }
}

#[test]
fn an_error_shows_line_caret_expectation_and_nearest_word() {
    assert_eq!(
        messages("add tcp-dprt 80 drop"),
        "\
error: unknown word `tcp-dprt`
  |
1 | add tcp-dprt 80 drop
  |     ^^^^^^^^
  = expected a field, `!` or a target
  = did you mean `tcp-dport`?
"
    );
    assert_eq!(
        messages("add ip-ttl 256 drop"),
        "\
error: `256` is too large: `ip-ttl` has 1 byte
  |
1 | add ip-ttl 256 drop
  |            ^^^
  = expected a number 0 to 255
"
    );
}

/// CVE-2021-42574: they would move the cursor, or change the order of what follows.
#[test]
fn hidden_characters_of_a_line_are_escaped_over_their_carets() {
    assert_eq!(
        messages("add\tprio \u{202e}1\u{85}2 all drop"),
        "\
error: `\\u{202e}1` is no priority
  |
1 | add prio \\u{202e}1\\u{85}2 all drop
  |          ^^^^^^^^^
  = expected a number 0 (best) to 4294967295
"
    );
}

#[test]
fn all_errors_of_a_file_are_reported() {
    let file = "\
# a policy with mistakes
add tcp-dport {80, 70000} ip-saddr 10.0.0.0/33 drop
add ip-proto udp \\
    tcp-dport 80 drop
\tadd all dorp
show ports
del 7
add id 1 all accept
add id 1 all drop
";
    let errors = parse_policy(file).expect_err("has errors");
    let said: String = errors.iter().map(|error| error.render("edge.mmb", file)).collect();
    assert_eq!(
        said,
        "\
error: `70000` is too large: `tcp-dport` has 2 bytes
 --> edge.mmb:2:20
  |
2 | add tcp-dport {80, 70000} ip-saddr 10.0.0.0/33 drop
  |                    ^^^^^
  = expected a number 0 to 65535 or a name such as `ftp-data` or `wireguard`
error: the prefix of `10.0.0.0/33` is too long
 --> edge.mmb:2:36
  |
2 | add tcp-dport {80, 70000} ip-saddr 10.0.0.0/33 drop
  |                                    ^^^^^^^^^^^
  = expected a length 0 to 32
error: this rule can never match: `tcp-dport 80` is about TCP packets, which `ip-proto udp` excludes
 --> edge.mmb:4:5
  |
4 |     tcp-dport 80 drop
  |     ^^^^^^^^^^^^
error: unknown word `dorp`
 --> edge.mmb:5:10
  |
5 |  add all dorp
  |          ^^^^
  = expected a field, `!` or a target
  = did you mean `drop`?
error: `show` has no place in a policy file: it changes nothing
 --> edge.mmb:6:1
  |
6 | show ports
  | ^^^^
error: there is a rule 1 already; delete it first or leave the id to mmb
 --> edge.mmb:9:1
  |
9 | add id 1 all drop
  | ^^^
"
    );
}

#[test]
fn colours_are_the_callers_choice() {
    let line = "flush now";
    let error = &parse_command(line).expect_err("is wrong")[0];
    let colored = error.render_in("x", line, RenderStyle::Colored);
    assert!(
        colored.starts_with("\x1b[1;31merror\x1b[0m\x1b[1m: nothing follows `flush`\x1b[0m\n"),
        "{colored:?}"
    );
    let mut plain = colored;
    while let Some(at) = plain.find('\x1b') {
        let end = plain[at..].find('m').expect("ends") + at;
        plain.replace_range(at..=end, "");
    }
    assert_eq!(plain, error.render("x", line));
}

#[test]
fn columns_count_characters_and_long_lines_are_cut() {
    let line = format!("add payload \"üü\" {} tcp-dprt 80 drop", "tcp-syn ".repeat(40));
    let errors = parse_command(&line).expect_err("is wrong");
    assert_eq!(errors[0].column, line[..errors[0].span.start].chars().count() + 1);
    let said = errors[0].render("", &line);
    assert!(said.lines().all(|line| line.chars().count() <= 200), "{said}");
    let (shown, caret) = (said.lines().nth(2).expect("line"), said.lines().nth(3).expect("caret"));
    let at = caret.chars().position(|c| c == '^').expect("a caret");
    assert!(shown.chars().skip(at).collect::<String>().starts_with("tcp-dprt"), "{said}");
}

#[test]
fn control_characters_of_a_text_do_not_reach_the_terminal() {
    let line = "add \x1b[2J drop";
    assert!(messages(line).chars().all(|c| c == '\n' || !c.is_control()));
}

#[test]
fn the_number_of_reported_errors_of_a_file_is_limited() {
    let file = "nonsense\n".repeat(100_000);
    let errors = parse_policy(&file).expect_err("is wrong");
    assert_eq!(errors.len(), 200);
    assert_eq!(errors[199].message, "too many errors: only the first 199 are told");
}

#[test]
fn the_number_of_reported_notes_is_limited() {
    let line = "add ip-saddr 10.0.0.9/24 drop\n";
    let (_, notes) = parse_policy(&line.repeat(300)).expect("is right");
    assert_eq!((notes.len(), notes[198].line), (200, 199));
    assert_eq!(notes[199].message, "too many notes: only the first 199 are told");
    let many = format!("add ip-saddr {{10.0.0.9/24{}}} drop", ", 10.0.0.9/24".repeat(300));
    assert_eq!(parse_command(&many).expect("is right").1.len(), 200);
}

#[test]
fn the_number_of_reported_errors_of_a_command_is_limited() {
    for mistake in ["! ", "\\ ", "mod net-proto 4 ", "|x| "] {
        let errors = parse_command(&format!("add all {}", mistake.repeat(10_000))).expect_err(mistake);
        assert_eq!(errors.len(), 200, "{mistake}");
    }
}

#[test]
fn sets_of_very_many_texts_are_not_held_against_each_other() {
    let set = |from: u32| (from..from + 20_000).map(|n| format!("\"{n}\"")).collect::<Vec<_>>().join(", ");
    let line = format!("add payload {{{}}} payload {{{}}} drop", set(100_000), set(200_000));
    assert!(parse_command(&line).is_ok(), "whether it can match is not found out");
    let few = parse_command("add payload {\"a\", \"b\"} payload {\"c\", \"d\"} drop");
    assert!(few.is_err());
}

#[test]
fn errors_repeat_no_more_than_the_beginning_of_a_long_constraint() {
    let line = format!("add ip-proto {{17{}}} {}", ", 17".repeat(10_000), "mod tcp-dport 1 ".repeat(1000));
    let errors = parse_command(&line).expect_err("no UDP packet has a TCP port");
    assert_eq!(errors.len(), 200);
    for error in errors {
        assert!(error.message.contains(" `ip-proto {udp, udp,"), "{error}");
        assert!(error.message.len() < 400, "{error}");
    }
}

#[test]
fn a_command_without_end_is_refused() {
    let line = format!("add ip-id {{{}1}} drop", format!("{},", "1".repeat(1 << 20)).repeat(17));
    let errors = parse_command(&line).expect_err("is too long");
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].message, "this command is longer than 16 MiB");
}
