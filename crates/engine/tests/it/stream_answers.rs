//! RSTs of connections that stream rules end, under `answer rate`.

use crate::http_site::{ACK, Site};
use mmb_engine::{DropReason, GeneratedKind, Verdict};
use mmb_rewrite::NotApplied;

const CLOSES: &str = "add-stateful tcp-dport 80 stream-forward \"ATTACK\" close";

/// The client sends what the rule closes, or sends it again.
fn attack(site: &mut Site) {
    site.segment(0, ACK, b"ATTACK");
    assert_eq!(site.last, Some(Verdict::Drop(DropReason::Rule)));
    assert_eq!(site.text(1), "");
    site.next[0] -= 6;
}

/// Each packet has two, for its sender and its receiver: both or none.
#[test]
fn resets_count_against_the_rate_of_answers() {
    let mut site = Site::new(&format!("set answer rate 1\n{CLOSES}"));
    (0..8).for_each(|_| attack(&mut site));
    // At least ten may come at once.
    assert_eq!((site.resets, site.mmb.engine.generated()), (10, vec![(GeneratedKind::Reset, 10)]));
    assert_eq!(site.mmb.engine.not_applied(), [(NotApplied::AnswerRate, 3)]);
    site.later(1000);
    attack(&mut site);
    assert_eq!(site.resets, 10, "there is room for one");
    site.later(1000);
    attack(&mut site);
    assert_eq!(site.resets, 12);
    let mut site = Site::new(&format!("set answer rate off\n{CLOSES}"));
    (0..8).for_each(|_| attack(&mut site));
    assert_eq!((site.resets, site.mmb.engine.not_applied()), (16, vec![]));
}

/// Its packets are dropped, and both ends get their RSTs when the sender sends again.
#[test]
fn a_connection_that_ends_without_a_reset_gets_it_later() {
    for rule in [CLOSES, "add-stateful tcp-dport 80 http add http-header \"X-By\" \"mmb\""] {
        let mut site = Site::new(&format!("set answer rate 1\n{rule}"));
        let ends = |port, site: &mut Site| {
            site.begin_from(port);
            site.segment(0, ACK, b"ATTACK\n");
            site.next[0] -= 7;
        };
        (0..5).for_each(|port| ends(6000 + port, &mut site));
        assert_eq!(site.resets, 10, "{rule}");
        ends(7000, &mut site);
        assert_eq!((site.resets, site.text(1).as_str()), (10, ""), "{rule}");
        site.later(2000);
        site.segment(0, ACK, b"ATTACK\n");
        assert!(matches!(site.last, Some(Verdict::Drop(DropReason::Rule | DropReason::HttpUnfit))), "{rule}");
        assert_eq!((site.resets, site.text(1).as_str()), (12, ""), "{rule}");
    }
}

/// Rejects have a rate of their own, and do not use up that of RSTs.
#[test]
fn rejects_do_not_use_up_the_rate_of_resets() {
    let mut site = Site::new(&format!("set answer rate 1\nadd tcp-dport 81 reject\n{CLOSES}"));
    attack(&mut site);
    assert_eq!(site.resets, 2);
}
