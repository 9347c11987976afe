//! Rules and chains by example.

use super::*;

/// Translates rules in the chain FORWARD, whose policy is ACCEPT, and others that `chains` declares.
fn import(chains: &str, rules: &str) -> PolicyDraft {
    let text = format!("*filter\n:FORWARD ACCEPT [0:0]\n{chains}{rules}COMMIT\n");
    let mut draft = PolicyDraft::default();
    translate(&text, "FORWARD", &IptablesOptions::default(), &mut draft).expect("a dump");
    draft
}

/// The rules of a policy without priorities, comments and the rule of the chain's policy.
fn rules(draft: &PolicyDraft) -> Vec<String> {
    let lines = draft.text().lines().filter(|line| line.starts_with("add "));
    let mut rules: Vec<String> = lines
        .map(|line| line.split("  #").next().unwrap_or(line))
        .map(|line| line.splitn(4, ' ').last().unwrap_or(line).to_owned())
        .collect();
    rules.pop();
    rules.retain(|rule| rule != LATER_FRAGMENTS);
    rules
}

/// The rule of policies that track connections, of which the kernel reassembles datagrams.
const LATER_FRAGMENTS: &str = "ip-frag-offset != 0 accept";

#[track_caller]
fn is(matches: &str, expected: &[&str]) {
    let draft = import("", &format!("-A FORWARD {matches} -j DROP\n"));
    assert_eq!(draft.left_out, [], "{matches}");
    let expected: Vec<String> = expected.iter().map(|rule| format!("{rule} drop")).collect();
    assert_eq!(rules(&draft), expected, "{matches}");
}

#[test]
fn matches_of_every_rule() {
    is("-s 10.1.2.3/8", &["ip-saddr 10.0.0.0/8"]);
    is("-d 10.1.2.3/255.255.0.0", &["ip-daddr 10.1.0.0/16"]);
    is("! -s 10.0.0.1,10.0.0.4", &["ip-saddr != {10.0.0.1, 10.0.0.4}"]);
    is("-i eth0 ! -o eth1.5", &["net-proto ip4 in eth0 out != eth1.5"]);
    is("-i lo", &[]);
    is("! -i lo", &["net-proto ip4"]);
    is("-p tcp", &["net-proto ip4 ip-proto tcp"]);
    is("! -p ipip", &["net-proto ip4 ip-proto != 94"]);
    is("-f", &["ip-frag-offset != 0"]);
    is("-p udp ! -f", &["net-proto ip4 udp-dport"]);
    is("-s 2001:db8::/32 -p tcp -m tcp", &["ip6-saddr 2001:db8::/32 tcp-dport"]);
}

#[test]
fn matches_of_transport_headers() {
    is("-p tcp -m tcp --sport 1024: ! --dport ssh", &["net-proto ip4 tcp-sport 1024-65535 tcp-dport != 22"]);
    is("-p udp -m multiport --dports 53,123,8000:8010", &["net-proto ip4 udp-dport {53, 123, 8000-8010}"]);
    is("-p tcp -m multiport --ports 22", &["net-proto ip4 tcp-sport 22", "net-proto ip4 tcp-dport 22"]);
    is("-p tcp -m multiport ! --ports 22", &["net-proto ip4 tcp-sport != 22 tcp-dport != 22"]);
    is(
        "-p tcp -m tcp --tcp-flags ALL NONE",
        &["net-proto ip4 ! tcp-fin ! tcp-syn ! tcp-rst ! tcp-push ! tcp-ack ! tcp-urg"],
    );
    is("-p tcp -m tcp --syn", &["net-proto ip4 ! tcp-fin tcp-syn ! tcp-rst ! tcp-ack"]);
    is("-p tcp -m tcp ! --tcp-flags ACK ACK", &["net-proto ip4 ! tcp-ack"]);
    is("-p tcp -m tcp --tcp-flags SYN ACK", &[]);
    is("-p icmp -m icmp --icmp-type port-unreachable", &["icmp-type 3 icmp-code 3"]);
    is("-p icmp -m icmp --icmp-type any", &["icmp-type"]);
    is("-p icmp -m icmp ! --icmp-type 3/4", &["icmp-type != 3", "icmp-type 3 icmp-code != 4"]);
    is("-p ipv6-icmp -m icmp6 --icmpv6-type neighbour-solicitation", &["icmp6-type 135"]);
}

#[test]
fn matches_of_ip_headers() {
    is("-m iprange --src-range 10.0.0.5-10.0.0.9", &["ip-saddr 10.0.0.5-10.0.0.9"]);
    is("-m length --length 1400:", &["ip-len 1400-65535"]);
    is("-m ttl --ttl-lt 1", &["ip-ttl 0"]);
    is("-m ttl --ttl-lt 0", &[]);
    is("-s ::/0 -m hl --hl-gt 254", &["ip6-hop-limit 255"]);
    is("-s ::/0 -m length --length :1280", &["ip6-len 0-1240"]);
    is("-m dscp --dscp-class EF", &["ip-dscp 46"]);
    is("-m tos ! --tos 0x01/0x03", &["ip-ecn != 1"]);
    is("-m ecn --ecn-ip-ect 3", &["ip-ecn 3"]);
    is("-m addrtype --dst-type MULTICAST", &["ip-daddr 224.0.0.0/4"]);
}

#[test]
fn matches_of_states() {
    is("-m conntrack --ctstate RELATED,ESTABLISHED", &["net-proto ip4 ct {established, related}"]);
    is("-m state --state INVALID", &["net-proto ip4 ct invalid"]);
    is("-m state ! --state NEW,INVALID", &["net-proto ip4 ct != {new, invalid}"]);
    is("-m conntrack --ctstate UNTRACKED", &["net-proto ip4 ct != {new, established, related, invalid}"]);
    is("-m conntrack --ctdir REPLY", &["net-proto ip4 ct reply"]);
    is("-m conntrack --ctdir ORIGINAL", &["net-proto ip4 ct {new, established, related} ct != reply"]);
    is("-m conntrack --ctstate DNAT", &[]);
    is("-m conntrack --ctstate RELATED,DNAT", &["net-proto ip4 ct related"]);
    is("-m conntrack --ctstate NEW,UNTRACKED", &["net-proto ip4 ct != {established, related, invalid}"]);
}

/// Packets that are accepted before a rule matches states are tracked too: their replies are established.
#[test]
fn connections_are_followed_where_states_are_asked_for() {
    let draft = import(
        "",
        "-A FORWARD -m state --state ESTABLISHED,RELATED -j ACCEPT\n-A FORWARD -i lan -j ACCEPT\n",
    );
    let last = draft.text().lines().last().expect("a rule");
    assert!(last.starts_with("add-stateful prio 5 net-proto ip4 accept  #"), "{last}");
    let without = import("", "-A FORWARD -i lan -j ACCEPT\n");
    assert!(!without.text().contains("add-stateful"));
}

#[test]
fn untranslatable_matches_have_a_reason_and_an_effect() {
    for (rule, reason, effect) in [
        ("-m conntrack --ctorigdst 1.2.3.4 -j DROP", "--ctorigdst: the rule language has", Effect::Looser),
        ("-m unheard --of -s 1.2.3.4 -j DROP", "-m unheard: the rule language has nothing", Effect::Looser),
        ("-p sctp --dport 5 -j ACCEPT", "no ports for protocol 132", Effect::Stricter),
        ("-i eth+ -j DROP", "whole names of ports", Effect::Looser),
        ("-i eth{ -j DROP", "a port cannot be called so", Effect::Looser),
        ("-s 10.0.0.0/255.0.255.0 -j DROP", "is no prefix", Effect::Looser),
        ("-s example.org -j DROP", "`example.org` is no address", Effect::Looser),
        ("-p tcp -m tcp --tcp-option 8 -j ACCEPT", "behind the end of the list", Effect::Stricter),
        ("-m limit --limit 5/s -j MARK", "what exceeds it is dropped", Effect::None),
        ("-m limit --limit 5/s -j only-drops", "what exceeds it is dropped", Effect::Looser),
        ("-m limit --limit 5/s -g only-drops", "what exceeds it is dropped", Effect::Either),
        ("-m limit --limit 5/s -j RETURN", "what exceeds it is dropped", Effect::Looser),
        ("-p tcp -m limit --limit 5/s -m tcp --dport 22 -j ACCEPT", "their last match", Effect::Stricter),
        ("-m limit --limit 0/s -j RETURN", "--limit: `0/s` is not known", Effect::Looser),
        ("-m limit --limit 5/s -m hashlimit --hashlimit-above 5/s -j DROP", "one rate", Effect::Looser),
        ("-m hashlimit --hashlimit-above 5/s -j ACCEPT", "what exceeds it is dropped", Effect::Stricter),
        ("-m hashlimit --hashlimit-above 5/s --hashlimit-mode srcip,dstip -j DROP", "of one", Effect::Looser),
        ("-m hashlimit --hashlimit-above 5/s --hashlimit-rate-match -j DROP", "nothing like", Effect::Looser),
        ("-m hashlimit --hashlimit-mode srcip -j DROP", "its rate is missing", Effect::Looser),
        ("-j MARK --set-mark 1", "a filter has no target MARK", Effect::None),
        ("-j NFQUEUE --queue-num 1", "the target NFQUEUE is not known", Effect::Either),
    ] {
        let draft = import(
            ":only-drops - [0:0]\n",
            &format!(
                "-A only-drops -s 1.0.0.0/8 -j DROP\n-A FORWARD {rule}\n-A FORWARD -d 9.9.9.9 -j ACCEPT\n"
            ),
        );
        let [left_out] = &draft.left_out[..] else { panic!("{rule}: {:?}", draft.left_out) };
        assert!(left_out.reason.contains(reason) && left_out.place == Place::line(5), "{rule}: {left_out}");
        assert_eq!(left_out.effect, effect, "{rule}");
        assert_eq!(left_out.text, format!("-A FORWARD {rule}"));
        assert_eq!(rules(&draft), ["ip-daddr 9.9.9.9 accept"], "{rule}");
    }
}

#[test]
fn a_table_that_is_not_known_is_left_out_if_it_does_anything() {
    let text = "*one\n:PREROUTING ACCEPT\nCOMMIT\n*two\n:POSTROUTING ACCEPT\n-A POSTROUTING -j DROP\nCOMMIT\n\
                *filter\n:FORWARD DROP\nCOMMIT\n";
    let mut draft = PolicyDraft::default();
    translate(text, "FORWARD", &IptablesOptions::default(), &mut draft).expect("a dump");
    let [two] = &draft.left_out[..] else { panic!("{:?}", draft.left_out) };
    assert_eq!((&two.place, two.text.as_str(), two.effect), (&Place::line(4), "*two", Effect::Either));
    assert_eq!(draft.rules, 1);
}

#[test]
fn exceptions_are_taken_out_of_the_rest_of_their_chain() {
    let chains = ":one - [0:0]\n:two - [0:0]\n";
    let jump = import(
        chains,
        "-A FORWARD -d 10.0.0.0/8 -j one\n-A FORWARD -i b -j DROP\n-A one -s 1.0.0.0/8 -j RETURN\n-A one -j ACCEPT\n",
    );
    assert_eq!(rules(&jump), ["ip-saddr != 1.0.0.0/8 ip-daddr 10.0.0.0/8 accept", "net-proto ip4 in b drop"]);
    let goto = import(
        chains,
        "-A FORWARD -d 10.0.0.0/8 -g two\n-A FORWARD -i b -j DROP\n-A two -s 1.0.0.0/8 -j ACCEPT\n",
    );
    assert_eq!(
        rules(&goto),
        ["ip-saddr 1.0.0.0/8 ip-daddr 10.0.0.0/8 accept", "in b ip-daddr != 10.0.0.0/8 drop"]
    );
}

#[test]
fn comments_are_names_where_they_can_be() {
    let draft = import(
        "",
        "-A FORWARD -s 1.0.0.1 -m comment --comment web -j DROP\n\
         -A FORWARD -s 1.0.0.2 -m comment --comment \"x drop # \\\\\" -j DROP\n",
    );
    let lines: Vec<&str> = draft.text().lines().collect();
    assert_eq!(lines[1], "add prio 1 name web ip-saddr 1.0.0.1 drop  # line 3");
    assert_eq!(lines[2], "add prio 2 ip-saddr 1.0.0.2 drop  # line 4: x drop #");
}

#[test]
fn rules_that_only_log_are_no_omissions() {
    let draft = import("", "-A FORWARD -m mark --mark 5 -j LOG --log-prefix \"x \"\n");
    assert_eq!(draft.left_out, []);
    assert_eq!(draft.notes, ["line 3: nothing is logged: the rule language cannot tell these packets"]);
}

#[test]
fn logs_tell_of_the_packets_that_get_to_them() {
    let draft = import(
        "",
        "-A FORWARD -s 1.0.0.0/9 -j ACCEPT\n-A FORWARD -s 1.0.0.0/8 -j LOG --log-prefix \"a \\\"b\\\" \"\n\
         -A FORWARD -p udp -j NFLOG\n-A FORWARD -s 1.0.0.0/8 -j DROP\n",
    );
    assert_eq!(
        rules(&draft),
        [
            "ip-saddr 1.128.0.0/9 log \"a \\\"b\\\"\"",
            "ip-saddr != 1.0.0.0/9 ip-proto udp log",
            "ip-saddr 1.0.0.0/9 accept",
            "ip-saddr 1.0.0.0/8 drop"
        ]
    );
}

#[test]
fn a_rate_beyond_which_a_rule_drops_is_a_limit() {
    let is = |rate: &str, expected: &str| {
        let draft =
            import("", &format!("-A FORWARD -p udp -m hashlimit {rate} --hashlimit-name n -j DROP\n"));
        assert_eq!(draft.left_out, [], "{rate}");
        assert_eq!(rules(&draft), [format!("net-proto ip4 ip-proto udp limit {expected}")], "{rate}");
    };
    is("--hashlimit-above 200/sec --hashlimit-burst 7 --hashlimit-mode srcip", "200/s burst 7 per ip-saddr");
    is(
        "! --hashlimit-upto 3/min --hashlimit-mode dstip --hashlimit-dstmask 24",
        "3/m burst 5 per ip-daddr/24",
    );
    is("--hashlimit-above 1/day --hashlimit-htable-max 100", "1/d burst 5");
    is("--hashlimit-above 512kb/s --hashlimit-mode srcip --hashlimit-srcmask 0", "524288B/s burst 524288B");
    is("--hashlimit-above 512kb/s --hashlimit-burst 1mb", "524288B/s burst 1048576B");
    let six = import(
        "",
        "-A FORWARD -s 2001:db8::/32 -m hashlimit --hashlimit-above 9/h --hashlimit-mode srcip -j DROP\n",
    );
    assert_eq!(rules(&six), ["ip6-saddr 2001:db8::/32 limit 9/h burst 5 per ip6-saddr/128"]);
}

/// The usual idioms: what is within the rate goes on, and the rest of the chain drops what exceeds it.
#[test]
fn a_rate_within_which_a_rule_accepts_is_a_limit_if_the_rest_is_dropped() {
    let flood = import(
        ":syn-flood - [0:0]\n",
        "-A FORWARD -p tcp --syn -j syn-flood\n-A FORWARD -i lan -j ACCEPT\n\
         -A syn-flood -m limit --limit 25/s --limit-burst 50 -j RETURN\n-A syn-flood -m limit --limit 1/m -j LOG\n\
         -A syn-flood -j REJECT\n",
    );
    assert_eq!(flood.left_out, []);
    assert_eq!(
        rules(&flood),
        [
            "net-proto ip4 ! tcp-fin tcp-syn ! tcp-rst ! tcp-ack limit 25/s burst 50",
            "net-proto ip4 in lan accept"
        ]
    );
    assert_eq!(
        flood.notes,
        [
            "line 8: what exceeds the rate is dropped, and not answered",
            "line 7: what exceeds the rate is dropped, and not logged"
        ]
    );
    // A chain that logs and drops drops what exceeds the rate.
    let called = import(
        ":log-drop - [0:0]\n",
        "-A FORWARD -p icmp -m limit --limit 5/s -j ACCEPT\n-A FORWARD -p icmp -j log-drop\n-A FORWARD -p udp -j log-drop\n\
         -A log-drop -p icmp -m limit --limit 1/m -j LOG\n-A log-drop -j DROP\n",
    );
    assert_eq!(called.left_out, []);
    assert_eq!(rules(&called)[0], "net-proto ip4 ip-proto icmp limit 5/s burst 5");
    let passing = import(
        ":log-drop - [0:0]\n",
        "-A FORWARD -p icmp -m limit --limit 5/s -j ACCEPT\n-A FORWARD -p icmp -j log-drop\n\
         -A log-drop -s 10.0.0.0/8 -j RETURN\n-A log-drop -j DROP\n",
    );
    assert_eq!(passing.left_out.len(), 1);
    let ping = import(
        "",
        "-A FORWARD -p icmp -m limit --limit 5/s -j ACCEPT\n-A FORWARD -p udp -j ACCEPT\n-A FORWARD -j DROP\n",
    );
    assert_eq!(
        rules(&ping),
        [
            "net-proto ip4 ip-proto icmp limit 5/s burst 5",
            "net-proto ip4 ip-proto icmp accept",
            "net-proto ip4 ip-proto udp accept",
            "net-proto ip4 drop"
        ]
    );
    // Some of what exceeds the rate passes.
    let passing = import(
        "",
        "-A FORWARD -p icmp -m limit --limit 5/s -j ACCEPT\n-A FORWARD -s 1.0.0.0/8 -j ACCEPT\n-A FORWARD -j DROP\n",
    );
    assert_eq!(passing.left_out[0].effect, Effect::Stricter);
    assert!(rules(&passing).iter().all(|rule| !rule.contains("limit")), "{}", passing.text());
}

#[test]
fn the_policy_of_a_chain_drops_what_exceeds_a_rate() {
    let text = |policy: &str| {
        format!(
            "*filter\n:FORWARD {policy} [0:0]\n-A FORWARD -p icmp -m limit --limit 5/s -j ACCEPT\nCOMMIT\n"
        )
    };
    for (policy, limits) in [("DROP", 1), ("ACCEPT", 0)] {
        let mut draft = PolicyDraft::default();
        translate(&text(policy), "FORWARD", &IptablesOptions::default(), &mut draft).expect("a dump");
        let rules = draft.text().lines().filter(|line| line.starts_with("add "));
        assert_eq!(rules.filter(|rule| rule.contains(" limit 5/s ")).count(), limits, "{policy}");
        assert_eq!(draft.left_out.len(), 1 - limits, "{policy}");
    }
}

#[test]
fn what_exceeds_a_rate_is_not_logged() {
    let draft = import("", "-A FORWARD -m hashlimit --hashlimit-above 5/s --hashlimit-name n -j LOG\n");
    assert_eq!(rules(&draft), Vec::<String>::new());
    assert_eq!(draft.notes, ["line 3: nothing is logged: the rule language cannot tell these packets"]);
    let within = import("", "-A FORWARD -m limit --limit 5/s -m comment --comment x -j LOG\n");
    assert_eq!(rules(&within), ["name x net-proto ip4 log"]);
}

/// Chains whose drops come in another order than in the kernel.
#[test]
fn a_limit_that_counts_what_another_chain_drops_is_listed() {
    let limit = |chain: &str| {
        format!("-A {chain} -p udp -m hashlimit --hashlimit-above 5/s --hashlimit-name n -j DROP\n")
    };
    let long = |chain: &str, first: &str| {
        let more: String = (0..9).map(|n| format!("-A {chain} -d 1.0.0.{n} -p tcp -j DROP\n")).collect();
        format!("{first}{more}")
    };
    let dropping = "-A FORWARD -s 9.0.0.0/8 -j DROP\n";
    for (mangle, filter, effect) in [
        (long("FORWARD", dropping), limit("FORWARD"), Some(Effect::Stricter)),
        (long("FORWARD", ""), limit("FORWARD"), None),
        (dropping.to_owned(), long("FORWARD", &limit("FORWARD")), None),
        (limit("FORWARD"), long("FORWARD", dropping), None),
        (long("FORWARD", &limit("FORWARD")), dropping.to_owned(), Some(Effect::Looser)),
    ] {
        let text =
            format!("*mangle\n:FORWARD ACCEPT\n{mangle}COMMIT\n*filter\n:FORWARD ACCEPT\n{filter}COMMIT\n");
        let mut draft = PolicyDraft::default();
        translate(&text, "FORWARD", &IptablesOptions::default(), &mut draft).expect("a dump");
        let listed: Vec<Effect> = draft.left_out.iter().map(|left_out| left_out.effect).collect();
        assert_eq!(listed, effect.into_iter().collect::<Vec<_>>(), "{text}");
        assert!(draft.text().contains(" limit 5/s burst 5"));
    }
}

/// Looking for what drops the packets beyond a rate ends, and then leaves rules out.
#[test]
fn a_chain_of_many_rates_is_translated_as_far_as_it_goes() {
    for (rules, left_out) in [(500, false), (2100, true)] {
        let mut text = "*filter\n:FORWARD DROP\n".to_owned();
        for n in 0..rules {
            text += &format!("-A FORWARD -s 10.{}.{}.1 -m limit --limit 5/s -j ACCEPT\n", n / 200, n % 200);
        }
        let mut draft = PolicyDraft::default();
        translate(&text, "FORWARD", &IptablesOptions::default(), &mut draft).expect("a policy");
        assert_eq!(!draft.left_out.is_empty(), left_out);
        assert!(draft.text().contains("add prio 1 ip-saddr 10.0.0.1 limit 5/s burst 5"));
    }
}

/// Each rule of the policy has the rate for itself.
#[test]
fn a_rate_that_becomes_that_of_several_rules_is_listed() {
    let draft = import(
        "",
        "-A FORWARD -p udp -m multiport --ports 53 -m hashlimit --hashlimit-above 5/s --hashlimit-name a -j DROP\n\
         -A FORWARD -p tcp -m hashlimit --hashlimit-above 5/s --hashlimit-name b -j DROP\n\
         -A FORWARD -p icmp -m hashlimit --hashlimit-above 5/s --hashlimit-name b -j DROP\n",
    );
    let listed: Vec<_> = draft.left_out.iter().map(|left_out| (&left_out.place, left_out.effect)).collect();
    assert_eq!(listed, [(&Place::line(3), Effect::Looser), (&Place::line(4), Effect::Looser)]);
    assert_eq!(draft.text().matches(" limit 5/s burst 5").count(), 4, "{}", draft.text());
}

#[test]
fn rejects_answer_as_the_kernel_does() {
    let draft = import(
        "",
        "-A FORWARD -p tcp -j REJECT --reject-with tcp-reset\n-A FORWARD -s 1.0.0.0/8 -j REJECT\n\
         -A FORWARD -s 2.0.0.0/8 -j REJECT --reject-with icmp-admin-prohibited\n\
         -A FORWARD -s 3.0.0.0/8 -j REJECT --reject-with echo-reply\n",
    );
    assert_eq!(
        rules(&draft),
        [
            "net-proto ip4 ip-proto tcp reject tcp-rst",
            "ip-saddr 1.0.0.0/8 reject icmp port-unreachable",
            "ip-saddr 2.0.0.0/8 reject icmp admin-prohibited",
            "ip-saddr 3.0.0.0/8 drop"
        ]
    );
    assert_eq!(draft.notes, ["line 6: REJECT becomes drop: mmb does not know the answer"]);
}

#[test]
fn large_sets_and_those_that_expire_stay_sets() {
    let mut sets =
        "create big hash:net\ncreate soon hash:ip timeout 60\nadd soon 1.2.3.4 timeout 59\n".to_owned();
    (0..100).for_each(|n| sets += &format!("add big 10.0.{n}.0/25\n"));
    let options =
        IptablesOptions { sets: Some(IpSets::read(&sets).expect("sets")), ..IptablesOptions::default() };
    let text = "*filter\n:FORWARD ACCEPT\n-A FORWARD -m set --match-set big src -j DROP\n\
                -A FORWARD -m set ! --match-set soon dst -j ACCEPT\nCOMMIT\n";
    let mut draft = PolicyDraft::default();
    translate(text, "FORWARD", &options, &mut draft).expect("a policy");
    let (policy, _) = mmb_language::parse_policy(draft.text()).expect("a policy");
    assert_eq!((policy.sets["big"].len(), policy.sets["soon"].len()), (100, 1));
    assert!(draft.text().contains("set soon {1.2.3.4 timeout 59s}\n"), "{}", draft.text());
    assert!(
        draft.text().contains(" ip-saddr @big drop") && draft.text().contains(" ip-daddr != @soon accept")
    );
}

#[test]
fn loops_and_floods_end() {
    let mut draft = PolicyDraft::default();
    let text = ":FORWARD ACCEPT\n:one -\n-A FORWARD -j one\n-A one -j one\n";
    assert!(matches!(
        translate(text, "FORWARD", &IptablesOptions::default(), &mut draft),
        Err(IptablesError::Ruleset(RulesetError::Loop(Place::Line { line: 4 }, _)))
    ));

    let calls = |chains: u32, times: usize| {
        let mut text =
            ":FORWARD ACCEPT\n:c0 -\n-A FORWARD -m mark --mark 1 -j c0\n-A FORWARD -j c0\n".to_owned();
        for n in 0..chains {
            text += &format!(":c{} -\n", n + 1);
            text += &format!("-A c{n} -j c{}\n", n + 1).repeat(times);
        }
        translate(&text, "FORWARD", &IptablesOptions::default(), &mut PolicyDraft::default())
    };
    assert!(calls(200, 1).is_ok());
    assert!(matches!(calls(50_000, 1), Err(IptablesError::Ruleset(RulesetError::TooDeep(..)))));
    assert!(matches!(calls(40, 2), Err(IptablesError::Ruleset(RulesetError::TooLong(_)))));

    // Each exception splits the remaining packets in every dimension that it matches.
    let mut text = ":FORWARD ACCEPT\n".to_owned();
    for n in 0..200u32 {
        let (a, b) = (n % 14, n / 14);
        text += &format!(
            "-A FORWARD -s 10.{a}.0.0/12 -d 10.{b}.0.0/16 -m ttl --ttl-gt {n} -p tcp --dport {n} -j RETURN\n"
        );
        text += &format!("-A FORWARD -m length --length {n} -m dscp --dscp {} -j RETURN\n", n % 64);
    }
    let flooded = translate(&text, "FORWARD", &IptablesOptions::default(), &mut PolicyDraft::default());
    assert!(matches!(flooded, Err(IptablesError::Ruleset(RulesetError::TooMany(_)))));
}

const NO_PACKET: &str = "no packet gets to the rule and matches it";

#[test]
fn a_rule_that_only_one_of_two_calls_reaches_is_not_reported() {
    let draft = import(
        ":shared - [0:0]\n",
        "-A FORWARD -p tcp -j shared\n-A FORWARD -p udp -j shared\n\
         -A shared -p tcp -m tcp --dport 80 -j ACCEPT\n-A shared -p udp -m udp --dport 53 -j ACCEPT\n",
    );
    assert_eq!(draft.notes, Vec::<String>::new());
    assert!(!draft.text().contains("no packet gets"), "{}", draft.text());
    assert_eq!(rules(&draft), ["net-proto ip4 tcp-dport 80 accept", "net-proto ip4 udp-dport 53 accept"]);
}

#[test]
fn a_rule_that_no_call_reaches_is_reported_once() {
    let draft = import(
        ":web - [0:0]\n",
        "-A FORWARD -p tcp -m tcp --dport 80 -j web\n-A FORWARD -p tcp -m tcp --dport 443 -j web\n\
         -A web -p udp -j DROP\n-A web -j ACCEPT\n-A FORWARD -i lo -j ACCEPT\n",
    );
    assert_eq!(draft.notes, [format!("lines 6, 8: {NO_PACKET}")]);
    assert_eq!(draft.text().matches("no packet gets").count(), 1);
}
