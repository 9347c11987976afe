//! Which rules stay, and under which numbers, where one policy replaces another.

use mmb_language::{Print, parse_policy, parse_policy_with};
use mmb_policy::{PatternList, Policy, PolicyDiff, PolicyError, Rule, RuleId, RuleStore, successors};

fn policy(text: &str) -> Policy {
    parse_policy(text).expect("parses").0
}

fn ids(ids: &[RuleId]) -> Vec<u32> {
    ids.iter().map(|id| id.0).collect()
}

fn plan(old: &str, new: &str) -> (Vec<u32>, Vec<u32>, Vec<u32>, String) {
    let plan = PolicyDiff::new(&policy(old), policy(new));
    (ids(&plan.kept), ids(&plan.added), ids(&plan.removed), plan.policy.text().to_string())
}

#[test]
fn rules_that_stay_keep_their_numbers() {
    let old = "add id 7 tcp-dport 80 drop\nadd id 9 udp-dport 53 accept\nadd id 12 all mod ip-ecn 0\n";
    let (kept, added, removed, text) =
        plan(old, "add all mod ip-ecn 0\nadd tcp-dport 81 drop\nadd tcp-dport 80 drop\n");
    assert_eq!((kept, added, removed), (vec![7, 12], vec![13], vec![9]));
    assert_eq!(text, "add id 7 tcp-dport 80 drop\nadd id 12 all mod ip-ecn 0\nadd id 13 tcp-dport 81 drop\n");
}

/// A list that only rules which drain name would be missing when their connections are followed.
#[test]
fn draining_rules_bring_the_lists_that_they_name() {
    let list = |file: &str| Ok(PatternList::new(file.to_owned(), vec![b"a".to_vec()]));
    let parse = |text: &str| parse_policy_with(text, &list).expect("parses").0;
    let old = parse(
        "patterns one /1\npatterns two /2\npatterns three /3\nadd-stateful draining stream {\"x\", @one, @two} close\n\
         add-stateful tls-sni @three close\n",
    );
    let lists = |policy: &Policy| -> Vec<String> {
        policy.lists.iter().map(|(name, list)| format!("{name} {}", list.file)).collect()
    };
    let mut next = PolicyDiff::new(&old, parse("patterns two /other\n")).policy;
    assert_eq!(lists(&next), ["one /1", "two /other"]);
    next.drain_removed(&old);
    assert_eq!(lists(&next), ["one /1", "three /3", "two /other"]);
    assert!(parse_policy_with("add-stateful stream @one close", &list).is_err());
}

/// Edits of one place are made in the order of their rules, and their texts are values.
#[test]
fn edits_keep_their_numbers_and_their_order() {
    let old = "add-stateful stream \"a\" mod stream \"b\"\nadd-stateful stream \"ab\" strip stream\n\
               add-stateful http add http-header \"A\" \"1\" mod http-uri \"/x\"\n";
    let new = "add-stateful stream \"a\" mod stream \"c\\m\"\nadd-stateful stream \"ab\" strip stream\n\
               add-stateful http add http-header \"A\" \"2\" mod http-uri \"/\\m\"\n";
    assert_eq!(PolicyDiff::new(&policy(old), policy(new)).policy.rules.keys().map(|id| id.0).max(), Some(3));
    let pairs = successors(&policy(old).rules, &policy(new).rules);
    assert!((1..=3).map(RuleId).all(|id| pairs.get(&id) == Some(&id)), "{pairs:?}");
    let other = "add-stateful http add http-header \"B\" \"1\" mod http-uri \"/x\"\n\
                 add-stateful stream \"a\" mask stream \"b\"\n";
    assert!(
        successors(&policy(old).rules, &policy(other).rules).is_empty(),
        "another header field, another target"
    );
    let swapped = "add-stateful stream \"ab\" strip stream\nadd-stateful stream \"a\" mod stream \"b\"\n";
    let (kept, added, _, text) = plan(old, swapped);
    assert_eq!((kept, added), (vec![2], vec![4]), "{text}");
}

/// A list is also named by patterns of header fields.
#[test]
fn a_list_of_values_of_a_header_field_is_needed() {
    let list = |file: &str| Ok(PatternList::new(file.to_owned(), vec![b"a".to_vec()]));
    let rule = "add-stateful http-header \"A\" {@one, \"b\"} close\n";
    assert!(parse_policy_with(rule, &list).is_err());
    assert!(parse_policy_with(&format!("patterns one /1\n{rule}"), &list).is_ok());
}

#[test]
fn lists_are_bounded_together() {
    let mut policy = Policy::default();
    let many = PatternList::new("/f".to_owned(), vec![Vec::new(); Policy::MAX_PATTERNS]);
    policy.set_list("a", many.clone()).expect("as many as may be");
    policy.set_list("a", many.clone()).expect("it replaces the other");
    assert_eq!(policy.set_list("b", many), Err(PolicyError::ListsTooLarge));
}

#[test]
fn the_same_file_again_changes_nothing() {
    let file = "add all mod ip-ecn 0\nadd tcp-dport 80 drop\nadd tcp-dport 80 drop\n";
    let (kept, added, removed, _) = plan(file, file);
    assert_eq!((kept, added, removed), (vec![1, 2, 3], vec![], vec![]));
}

#[test]
fn a_rule_whose_values_changed_keeps_its_number() {
    let old = "add ip-proto tcp drop\nadd-stateful ip-proto tcp map ip-saddr 200.0.0.1-200.0.0.4 accept\n\
               add-stateful tcp-dport 80 lb ip-daddr {10.0.0.1, 10.0.0.2}\n";
    let new = "add-stateful ip-proto tcp map ip-saddr 200.0.0.1-200.0.0.5 accept\nadd ip-proto tcp drop\n\
               add-stateful name web tcp-dport 80 lb ip-daddr {10.0.0.2} hash\nadd-stateful tcp-dport 81 shuffle tcp-sport\n";
    let (kept, added, removed, text) = plan(old, new);
    assert_eq!((kept, added, removed), (vec![1], vec![2, 3, 4], vec![2, 3]));
    let [_, pool, servers, _] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
    assert!(pool.contains("id 2") && pool.contains("200.0.0.5") && servers.contains("id 3"), "{text}");
    // The same rule goes before one with other values.
    let (kept, added, removed, _) =
        plan("add all mod ip-ttl 5\nadd all mod ip-ttl 6\n", "add all mod ip-ttl 6\n");
    assert_eq!((kept, added, removed), (vec![2], vec![], vec![1]));
}

#[test]
fn what_save_wrote_changes_nothing() {
    let old =
        policy("add id 7 tcp-dport 80 drop\nadd id 9 udp-dport 53 accept\nset poll spin\ndisable wan\n");
    let plan = PolicyDiff::new(&old, policy(&old.text().to_string()));
    assert_eq!(plan.policy, old);
    assert_eq!((ids(&plan.kept), ids(&plan.added), ids(&plan.removed)), (vec![7, 9], vec![], vec![]));
}

#[test]
fn numbers_that_the_file_asks_for_are_given() {
    let old = "add id 1 tcp-dport 80 drop\nadd id 2 tcp-dport 81 drop\n";
    let (kept, added, removed, text) = plan(old, "add id 1 tcp-dport 82 drop\nadd tcp-dport 80 drop\n");
    assert_eq!((kept, added, removed), (vec![], vec![1, 3], vec![1, 2]));
    assert_eq!(text, "add id 1 tcp-dport 82 drop\nadd id 3 tcp-dport 80 drop\n");
}

#[test]
fn rules_that_write_one_field_keep_the_order_of_the_file() {
    let old = "add tcp-dport 80 mod ip-dscp 1\nadd tcp-dport 80 mod ip-dscp 2\n";
    let (kept, added, removed, text) =
        plan(old, "add tcp-dport 80 mod ip-dscp 2\nadd tcp-dport 80 mod ip-dscp 1\n");
    assert_eq!((kept, added, removed), (vec![2], vec![3], vec![1]));
    assert_eq!(text, "add id 2 tcp-dport 80 mod ip-dscp 2\nadd id 3 tcp-dport 80 mod ip-dscp le\n");
}

#[test]
fn where_the_file_fixes_numbers_between_competing_rules_they_all_stand() {
    let old = "add id 5 tcp-dport 80 mod ip-dscp ef\n";
    let new = "add tcp-dport 80 mod ip-dscp ef\nadd id 3 tcp-dport 80 mod ip-dscp cs1\n";
    let (kept, added, removed, text) = plan(old, new);
    assert_eq!((kept, added, removed), (vec![], vec![1, 3], vec![5]));
    assert_eq!(text, "add id 1 tcp-dport 80 mod ip-dscp ef\nadd id 3 tcp-dport 80 mod ip-dscp cs1\n");
}

#[test]
fn what_stays_is_shared() {
    let file = |last: u32| (0..=last).map(|i| format!("add ip-id {i} drop\n")).collect::<String>();
    let old = policy(&file(30_000));
    let plan = PolicyDiff::new(&old, policy(&file(30_001)));
    assert_eq!((plan.kept.len(), ids(&plan.added)), (30_001, vec![30_002]));
    assert!(RuleStore::diff(&old.rules, &plan.policy.rules).bounds().1 < 3000);
}

#[test]
fn numbers_of_removed_rules_do_not_come_back() {
    let mut policy = PolicyDiff::new(&policy("add id 40 all drop\n"), policy("add all accept\n")).policy;
    assert_eq!(policy.rules.keys().map(|id| id.0).collect::<Vec<_>>(), [41]);
    let rule = policy.rules.iter().next().map(|rule| Rule { id: None, ..rule }).expect("one");
    assert_eq!(policy.add(&rule), Ok(RuleId(42)));
}

#[test]
fn a_number_alone_does_not_make_two_rules_the_same() {
    let pairs = |before: &str, now: &str| {
        let mut pairs: Vec<_> = successors(&policy(before).rules, &policy(now).rules)
            .into_iter()
            .map(|(old, new)| (old.0, new.0))
            .collect();
        pairs.sort_unstable();
        pairs
    };
    let nat = "ip-proto udp map ip-saddr 200.0.0.1";
    let before = format!("add-stateful id 1 {nat}\nadd-stateful id 2 tcp-dport 80 accept\n");
    assert_eq!(pairs(&before, &before), [(1, 1), (2, 2)]);
    let moved = format!("add-stateful id 1 tcp-dport 80 accept\nadd-stateful id 7 {nat}\n");
    assert_eq!(pairs(&before, &moved), [(1, 7), (2, 1)]);
    // The values of targets may differ; the same rule goes before one with other values, and a rule under its own number before both.
    let larger = "add-stateful id 4 ip-proto udp map ip-saddr 200.0.0.1-200.0.0.9\n";
    assert_eq!(pairs(&before, larger), [(1, 4)]);
    assert_eq!(pairs(&before, &format!("{larger}add-stateful id 5 {nat}\n")), [(1, 5)]);
    let own = format!("add-stateful id 1 ip-proto udp map ip-saddr 200.0.0.2\nadd-stateful id 5 {nat}\n");
    assert_eq!(pairs(&before, &own), [(1, 1)]);
    assert_eq!(
        pairs(&before, "add-stateful id 1 ip-proto udp accept\nadd-stateful id 2 tcp-dport 81 accept\n"),
        []
    );
}
