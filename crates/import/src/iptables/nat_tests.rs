//! Translations and changes of packets by example.

use super::*;

/// Translates a dump with a table nat, mangle or raw before a table filter that accepts what it forwards.
fn import(table: &str, rules: &str) -> PolicyDraft {
    import_all(&format!("{table}\n{rules}COMMIT\n*filter\n:INPUT DROP\n:FORWARD ACCEPT\nCOMMIT\n"))
}

fn import_all(text: &str) -> PolicyDraft {
    let mut addresses = HostAddresses::default();
    for (port, address) in
        [("lan", "10.0.0.1"), ("wan", "203.0.113.1"), ("lan", "fd00::1"), ("wan", "2001:db8::1")]
    {
        addresses.add(port, address.parse().expect("an address"), Some(24));
    }
    let sets = IpSets::read("create bad hash:net family inet\nadd bad 192.0.2.0/24\n").expect("sets");
    let options = IptablesOptions { family: None, addresses, sets: Some(sets), path_mtu: Some(1492) };
    let mut draft = PolicyDraft::default();
    translate(text, "FORWARD", &options, &mut draft).expect("a dump");
    draft
}

/// The rules of a policy that contain a word, without comments.
fn rules(draft: &PolicyDraft, word: &str) -> Vec<String> {
    let lines = draft.text().lines().filter(|line| line.starts_with("add") && line.contains(word));
    let plain = lines.map(|line| line.split("  #").next().unwrap_or(line));
    plain.map(|line| line.splitn(4, ' ').last().unwrap_or(line).to_owned()).collect()
}

const NAT: &str = "*nat\n:PREROUTING ACCEPT\n:POSTROUTING ACCEPT\n:own -";

#[track_caller]
fn maps(rule: &str, expected: &[&str]) {
    let draft = import(NAT, &format!("-A {rule}\n"));
    assert_eq!(draft.left_out, [], "{rule}");
    let found: Vec<String> =
        draft.text().lines().filter(|line| line.starts_with("add-stateful")).map(str::to_owned).collect();
    let words = found.iter().map(|line| line.split("  #").next().unwrap_or(line));
    let mut words: Vec<&str> = words.map(|line| line.splitn(4, ' ').last().unwrap_or(line)).collect();
    assert_eq!(words.pop().map(|last| last.ends_with(" accept")), Some(true));
    assert_eq!(words, expected, "{rule}");
}

#[test]
fn sources_are_mapped() {
    maps("POSTROUTING -o wan -j MASQUERADE", &["net-proto ip4 out wan map ip-saddr 203.0.113.1"]);
    maps(
        "POSTROUTING -s 10.0.0.0/24 ! -o lan -j MASQUERADE --random",
        &["out wan ip-saddr 10.0.0.0/24 map ip-saddr 203.0.113.1 shuffle tcp-sport shuffle udp-sport"],
    );
    maps(
        "POSTROUTING -p tcp -j MASQUERADE --to-ports 1024-2047",
        &[
            "net-proto ip4 out lan ip-proto tcp map ip-saddr 10.0.0.1 map tcp-sport 1024-2047",
            "net-proto ip4 out wan ip-proto tcp map ip-saddr 203.0.113.1 map tcp-sport 1024-2047",
        ],
    );
    maps(
        "POSTROUTING -o wan -j SNAT --to-source 203.0.113.4-203.0.113.9 --persistent",
        &["net-proto ip4 out wan map ip-saddr 203.0.113.4-203.0.113.9"],
    );
    maps(
        "POSTROUTING -p udp -j SNAT --to-source 203.0.113.4:5000-5999 --random",
        &["net-proto ip4 ip-proto udp map ip-saddr 203.0.113.4 shuffle udp-sport 5000-5999"],
    );
    maps(
        "POSTROUTING -s fd00::/64 -j SNAT --to-source 2001:db8::5",
        &["ip6-saddr fd00::/64 map ip6-saddr 2001:db8::5"],
    );
}

#[test]
fn destinations_are_mapped() {
    maps(
        "PREROUTING -i wan -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.0.0.2:80",
        &["net-proto ip4 in wan tcp-dport 8080 map ip-daddr 10.0.0.2 map tcp-dport 80"],
    );
    maps(
        "PREROUTING -d 203.0.113.9 -j DNAT --to-destination 10.0.0.2-10.0.0.5",
        &["ip-daddr 203.0.113.9 map ip-daddr 10.0.0.2-10.0.0.5"],
    );
    maps(
        "PREROUTING -d 203.0.113.9 -p udp -j DNAT --to-destination :7000-7010",
        &["ip-daddr 203.0.113.9 udp-dport map udp-dport 7000-7010"],
    );
    maps(
        "PREROUTING -i lan -p tcp -m tcp --dport 80 -j REDIRECT --to-ports 3128",
        &["net-proto ip4 in lan tcp-dport 80 map ip-daddr 10.0.0.1 map tcp-dport 3128"],
    );
    maps(
        "PREROUTING -d 2001:db8::9 -p tcp -m tcp --dport 80 -j DNAT --to-destination [fd00::2]:8080",
        &["ip6-daddr 2001:db8::9 tcp-dport 80 map ip6-daddr fd00::2 map tcp-dport 8080"],
    );
}

#[test]
fn the_first_translation_counts() {
    let draft = import(
        NAT,
        "-A POSTROUTING -d 10.0.0.0/8 -j ACCEPT\n-A POSTROUTING -j own\n-A POSTROUTING -j SNAT --to-source 203.0.113.2\n\
         -A own -s 10.0.0.3 -j RETURN\n-A own -s 10.0.0.0/30 -j SNAT --to-source 203.0.113.3\n",
    );
    assert_eq!(
        rules(&draft, " map "),
        [
            "ip-saddr {10.0.0.0-10.0.0.2} ip-daddr != 10.0.0.0/8 map ip-saddr 203.0.113.3"
                .replace(['{', '}'], ""),
            "ip-saddr != 10.0.0.0-10.0.0.2 ip-daddr != 10.0.0.0/8 map ip-saddr 203.0.113.2".to_owned(),
        ]
    );
}

/// Filters see packets behind the translation of destinations; a policy sees them as they arrive.
#[test]
fn filters_see_the_translated_destination() {
    let draft = import_all(
        "*nat\n:PREROUTING ACCEPT\n:POSTROUTING ACCEPT\n\
         -A PREROUTING -i wan -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.0.0.2:80\n\
         -A POSTROUTING -o wan -j MASQUERADE\nCOMMIT\n\
         *filter\n:FORWARD DROP\n-A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT\n\
         -A FORWARD -i lan -j ACCEPT\n-A FORWARD -d 10.0.0.2 -p tcp -m tcp --dport 80 -j ACCEPT\nCOMMIT\n",
    );
    assert_eq!(draft.left_out, []);
    let forwarded = "net-proto ip4 in wan ct {new, established, related} ct != reply tcp-dport 8080";
    assert_eq!(
        rules(&draft, "tcp-dport 8080"),
        [
            "net-proto ip4 in wan tcp-dport 8080 map ip-daddr 10.0.0.2 map tcp-dport 80".to_owned(),
            "net-proto ip4 in wan ct {established, related} ct != reply tcp-dport 8080 accept".to_owned(),
            format!("{forwarded} accept"),
        ]
    );
    // Replies are established, whatever their destination.
    assert_eq!(rules(&draft, "10.0.0.1 ").len(), 0);
    assert_eq!(
        rules(&draft, "203.0.113.1} drop"),
        ["ct != {established, related} ip-daddr {10.0.0.1, 203.0.113.1} drop"]
    );
}

/// Replies to masqueraded packets arrive with the host's address, and filters see the address behind it.
#[test]
fn filters_see_replies_with_the_inside_address() {
    let filter = |rule: &str| {
        import_all(&format!(
            "*nat\n:POSTROUTING ACCEPT\n-A POSTROUTING -s 10.0.0.0/24 -o wan -j MASQUERADE\nCOMMIT\n\
             *filter\n:FORWARD DROP\n-A FORWARD -i lan -j ACCEPT\n-A FORWARD {rule}\nCOMMIT\n"
        ))
    };
    let all = filter("-d 10.0.0.0/24 -m conntrack --ctstate ESTABLISHED -j ACCEPT");
    assert_eq!(all.left_out, []);
    assert!(
        all.text().contains("in wan ct established ct reply ip-daddr 203.0.113.1 accept"),
        "{}",
        all.text()
    );
    let some = filter("-d 10.0.0.7 -m conntrack --ctstate ESTABLISHED -j ACCEPT");
    let [left_out] = &some.left_out[..] else { panic!("{:?}", some.left_out) };
    assert!(left_out.reason.contains("the translation hides"), "{left_out}");
    assert_eq!((&left_out.place, left_out.effect), (&Place::line(8), Effect::Stricter));
}

#[test]
fn connections_tell_whether_they_are_translated() {
    let draft = import_all(
        "*nat\n:PREROUTING ACCEPT\n-A PREROUTING -i wan -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.0.0.2:80\nCOMMIT\n\
         *filter\n:FORWARD DROP\n-A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT\n\
         -A FORWARD -m conntrack --ctstate DNAT -j ACCEPT\nCOMMIT\n",
    );
    assert_eq!(draft.left_out, []);
    assert_eq!(rules(&draft, "accept").iter().filter(|rule| rule.contains("8080")).count(), 2);
}

/// Conntrack calls a connection translated if its addresses or ports changed.
#[test]
fn a_translation_that_changes_nothing_is_none() {
    let text = |rules: &str| {
        format!(
            "*nat\n:PREROUTING ACCEPT\n:POSTROUTING ACCEPT\n{rules}COMMIT\n*filter\n:FORWARD DROP\n\
             -A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT\n\
             -A FORWARD -m conntrack --ctstate DNAT -j ACCEPT\n-A FORWARD -m conntrack --ctstate SNAT -j ACCEPT\nCOMMIT\n"
        )
    };
    let dnat = "-A PREROUTING -p tcp -m tcp --dport 443 -j DNAT --to-destination 10.0.0.2";
    let draft = import_all(&text(&format!("{dnat}\n")));
    assert_eq!(draft.left_out, []);
    let new = "ct {new, established, related} ct != reply";
    assert_eq!(
        rules(&draft, new),
        [
            format!("{new} ip-daddr 10.0.0.2 tcp-dport 443 drop"),
            format!("{new} ip-daddr != 10.0.0.2 tcp-dport 443 accept"),
        ]
    );
    // Of a pool, the kernel may choose the address that the packet has.
    let draft = import_all(&text(&format!("{dnat}-10.0.0.3\n")));
    assert!(draft.left_out[0].reason.contains("do not tell whether"), "{:?}", draft.left_out);
    // Replies do not tell whether the initiator had the new address.
    for (source, is_told) in [("10.0.0.0/24", true), ("0.0.0.0/0", false)] {
        let snat = format!("-A POSTROUTING -s {source} -o wan -j SNAT --to-source 192.0.2.7\n");
        let draft = import_all(
            &text(&snat).replace("-A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT\n", ""),
        );
        let replies = "in wan ct reply ip-daddr 192.0.2.7 accept".to_owned();
        assert_eq!(rules(&draft, "accept").contains(&replies), is_told, "{}", draft.text());
    }
}

/// Redirected packets are for the host: its INPUT decides about them.
#[test]
fn redirected_packets_are_judged_by_input() {
    let draft = import_all(
        "*nat\n:PREROUTING ACCEPT\n-A PREROUTING -i lan -p tcp -m tcp --dport 80 -j REDIRECT --to-ports 3128\nCOMMIT\n\
         *filter\n:INPUT DROP\n:FORWARD DROP\n-A INPUT -s 10.0.0.0/24 -p tcp -m tcp --dport 3128 -j ACCEPT\nCOMMIT\n",
    );
    let forwarded = "in lan ct {new, established, related} ct != reply";
    assert_eq!(
        rules(&draft, "tcp-dport 80 ")[1..],
        [
            format!("{forwarded} ip-saddr 10.0.0.0/24 tcp-dport 80 accept"),
            format!("net-proto ip4 {forwarded} tcp-dport 80 drop"),
        ]
    );
}

/// Rules of INPUT that are left out are listed where redirected packets may get to them.
#[test]
fn omissions_of_input_are_listed_if_they_concern_redirected_packets() {
    let text = |input: &str| {
        format!(
            "*nat\n:PREROUTING ACCEPT\n-A PREROUTING -i wan -p tcp -m tcp --dport 2222 -j REDIRECT --to-ports 22\nCOMMIT\n\
             *filter\n:INPUT ACCEPT\n:FORWARD DROP\n:ssh -\n{input}COMMIT\n"
        )
    };
    let recent = "-m recent --update --seconds 30 --hitcount 6 --name D --rsource -j DROP";
    for (input, listed) in [
        (format!("-A INPUT -p tcp -m tcp --dport 22 {recent}\n"), vec![Place::line(9)]),
        (format!("-A INPUT -p tcp -m tcp --dport 23 {recent}\n"), vec![]),
        (format!("-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\n-A INPUT {recent}\n"), vec![]),
        (
            format!("-A INPUT -p udp -j ssh\n-A INPUT -p tcp -m tcp --dport 22 -j ssh\n-A ssh {recent}\n"),
            vec![Place::line(11)],
        ),
        (format!("-A INPUT -p udp -j ssh\n-A ssh {recent}\n"), vec![]),
    ] {
        let draft = import_all(&text(&input));
        let places: Vec<Place> = draft.left_out.iter().map(|left_out| left_out.place.clone()).collect();
        assert_eq!(places, listed, "{input}");
        assert!(draft.left_out.iter().all(|left_out| left_out.effect == Effect::Looser));
    }
}

const MANGLE: &str = "*mangle\n:PREROUTING ACCEPT\n:FORWARD ACCEPT";

#[test]
fn packets_are_changed() {
    let draft = import(
        MANGLE,
        "-A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --set-mss 1400\n\
         -A FORWARD -o wan -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu\n\
         -A PREROUTING -p udp -m udp --dport 53 -j DSCP --set-dscp-class EF\n-A FORWARD -i lan -j TTL --ttl-set 64\n\
         -A FORWARD -i lan -j TTL --ttl-dec 1\n-A FORWARD -m dscp --dscp 1 -j DROP\n-A FORWARD -j MARK --set-mark 1\n",
    );
    assert_eq!(
        rules(&draft, "mod ip-"),
        ["net-proto ip4 udp-dport 53 mod ip-dscp 46", "net-proto ip4 in lan mod ip-ttl 64",]
    );
    assert_eq!(
        rules(&draft, "tcp-opt-mss"),
        [
            "net-proto ip4 tcp-syn ! tcp-rst tcp-opt-mss > 1400 mod tcp-opt-mss 1400",
            "net-proto ip4 tcp-syn ! tcp-rst ! tcp-opt-mss ! tcp-payload add tcp-opt-mss 536",
            "net-proto ip4 out wan tcp-syn ! tcp-rst tcp-opt-mss > 1452 mod tcp-opt-mss 1452",
            "net-proto ip4 out wan tcp-syn ! tcp-rst ! tcp-opt-mss ! tcp-payload add tcp-opt-mss 536",
        ]
    );
    let reasons: Vec<&str> = draft.left_out.iter().map(|left_out| left_out.reason.as_str()).collect();
    assert_eq!(reasons.len(), 3, "{reasons:?}");
    assert!(
        reasons[0].contains("neither adds nor subtracts") && reasons[1].contains("an earlier rule writes")
    );
    let six = import(MANGLE, "-A PREROUTING -s fd00::/64 -j DSCP --set-dscp 1\n");
    assert_eq!(rules(&six, "mod ip6-traffic-class").len(), 4);
}

#[test]
fn earlier_tables_drop_before() {
    let draft = import(
        "*raw\n:PREROUTING ACCEPT",
        "-A PREROUTING -s 192.0.2.1 -j ACCEPT\n-A PREROUTING -m set --match-set bad src -j DROP\n\
         -A PREROUTING -m set ! --match-set bad src -d 10.0.0.9 -j DROP\n-A PREROUTING -p udp -j CT --notrack\n",
    );
    assert_eq!(
        rules(&draft, "drop")[..2],
        [
            "ip-saddr {192.0.2.0, 192.0.2.2-192.0.2.255} drop",
            "ip-saddr != 192.0.2.0/24 ip-daddr 10.0.0.9 drop",
        ]
    );
    let [notrack] = &draft.left_out[..] else { panic!("{:?}", draft.left_out) };
    assert!(notrack.reason.contains("tracks all connections") && notrack.effect == Effect::Either);
}

#[test]
fn what_the_dump_does_not_contain_is_asked_for() {
    for (rule, reason, effect) in [
        ("POSTROUTING -o ppp0 -j MASQUERADE", "--address ppp0=ADDRESS", Effect::None),
        ("PREROUTING -i ppp0 -p tcp -j REDIRECT --to-ports 1", "--address ppp0=ADDRESS", Effect::Either),
        ("PREROUTING -p sctp -j DNAT --to-destination 10.0.0.2:80", "TCP and UDP only", Effect::Either),
        ("PREROUTING -p tcp -j DNAT --to-destination 10.0.0.2:80-90/80", "is not known", Effect::Either),
        (
            "PREROUTING -m set --match-set none src -j DNAT --to-destination 10.0.0.2",
            "not in the file",
            Effect::Either,
        ),
        ("POSTROUTING -m mark --mark 1 -j SNAT --to-source 10.0.0.2", "packets have no marks", Effect::None),
        ("POSTROUTING -m mark --mark 1 -j RETURN", "translate the source of its packets too", Effect::Either),
        ("POSTROUTING -m mark --mark 1 -j own", "packets have no marks", Effect::None),
    ] {
        let draft = import(NAT, &format!("-A {rule}\n"));
        let [left_out] = &draft.left_out[..] else { panic!("{rule}: {:?}", draft.left_out) };
        assert!(left_out.reason.contains(reason), "{rule}: {left_out}");
        assert_eq!((&left_out.place, left_out.effect), (&Place::line(5), effect), "{rule}");
    }
    let mut draft = PolicyDraft::default();
    let text = "*nat\n:PREROUTING ACCEPT\n:POSTROUTING ACCEPT\n-A PREROUTING -m addrtype --dst-type LOCAL -p tcp -j DNAT --to-destination 1.2.3.4\n\
                -A POSTROUTING ! -o lan -j MASQUERADE\nCOMMIT\n*filter\n:FORWARD ACCEPT\nCOMMIT\n";
    translate(text, "FORWARD", &IptablesOptions::default(), &mut draft).expect("a dump");
    assert_eq!(draft.left_out.len(), 2);
    assert!(draft.left_out.iter().all(|left_out| left_out.reason.contains("--address PORT=ADDRESS")));
}

/// Replies arrive with the public address, and the kernel counts them for the address inside.
#[test]
fn a_rate_of_each_destination_is_not_that_of_a_translated_one() {
    let text = |mode: &str| {
        format!(
            "*nat\n:POSTROUTING ACCEPT\n-A POSTROUTING -o wan -j MASQUERADE\nCOMMIT\n*filter\n:FORWARD ACCEPT\n\
             -A FORWARD -p udp -m hashlimit --hashlimit-above 5/s --hashlimit-mode {mode} --hashlimit-name n -j DROP\n\
             COMMIT\n"
        )
    };
    let draft = import_all(&text("dstip"));
    let [left_out] = &draft.left_out[..] else { panic!("{:?}", draft.left_out) };
    assert!(left_out.reason.contains("hides the address that has the rate"), "{left_out}");
    assert_eq!(left_out.effect, Effect::Looser);
    assert_eq!(rules(&draft, " limit "), ["net-proto ip4 ip-proto udp limit 5/s burst 5 per ip-daddr"]);
    let draft = import_all(&text("srcip"));
    assert_eq!(draft.left_out, []);
    assert_eq!(rules(&draft, " limit "), ["net-proto ip4 ip-proto udp limit 5/s burst 5 per ip-saddr"]);
}
