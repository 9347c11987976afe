//! What is refused, and why; limits; digests.

use mmb_scan::{
    EditPatterns, MAX_EDIT_MATCH_BYTES, MAX_EDIT_TEXT_BYTES, MAX_PATTERNS, MAX_REGEX_BYTES, MAX_REGEXES,
    MAX_REPEATS, MAX_TEXT_BYTES, Pattern, PatternError, PatternRefusal, PatternSet,
};
use std::time::Instant;

/// Why a pattern behind a good one is refused.
fn refusal(pattern: Pattern) -> PatternRefusal {
    match PatternSet::compile(&[Pattern::text(0, "good"), pattern.clone()]) {
        Err(PatternError::Refused { index: 1, refusal }) => {
            assert!(
                PatternError::Refused { index: 1, refusal: refusal.clone() }
                    .to_string()
                    .starts_with("pattern 1: ")
            );
            refusal
        }
        other => panic!("{pattern:?}: {other:?}"),
    }
}

fn regex_refusal(source: &str) -> PatternRefusal {
    refusal(Pattern::regex(1, source))
}

#[test]
fn what_the_matcher_cannot_do_is_refused_with_the_reason() {
    for source in ["a(?=b)", "a(?!b)", "(?<=a)b", "(?<!a)b"] {
        assert_eq!(regex_refusal(source), PatternRefusal::LookAround, "{source}");
    }
    assert_eq!(regex_refusal("(a)\\1"), PatternRefusal::BackReference);
    for source in ["\\bfoo", "foo\\b", "foo\\B", "\\<foo"] {
        assert_eq!(regex_refusal(source), PatternRefusal::WordBoundary, "{source}");
    }
    for source in ["(?m)foo$", "(?mR)^foo"] {
        assert_eq!(regex_refusal(source), PatternRefusal::LineEnd, "{source}");
    }
    for source in ["(?u)\\pL", "\\pL", "[é]", "(?u:é|.)"] {
        assert_eq!(regex_refusal(source), PatternRefusal::Unicode, "{source}");
    }
    for source in ["a*", "(a|b?)", "^", "$", "\\A\\z", "(?m)^", "(?:)", "", "a|"] {
        assert_eq!(regex_refusal(source), PatternRefusal::MatchesEmpty, "{source}");
    }
    for source in ["[^\\x00-\\xff]", "a[^\\x00-\\xff]+"] {
        assert_eq!(regex_refusal(source), PatternRefusal::MatchesNothing, "{source}");
    }
    for source in ["a^b", "a$b", "a\\Ab"] {
        assert_eq!(regex_refusal(source), PatternRefusal::InnerAnchor, "{source}");
    }
    for source in ["(", "a{2,1}", "[z-a]", "*a", "\\q", "(?P<n>a", "a\\"] {
        assert!(matches!(regex_refusal(source), PatternRefusal::Syntax(_)), "{source}");
    }
}

#[test]
fn what_is_too_large_is_refused() {
    assert_eq!(refusal(Pattern::text(1, "")), PatternRefusal::EmptyText);
    assert_eq!(
        refusal(Pattern::text(1, vec![0; MAX_TEXT_BYTES + 1])),
        PatternRefusal::LongText(MAX_TEXT_BYTES + 1)
    );
    assert_eq!(
        regex_refusal(&"a".repeat(MAX_REGEX_BYTES + 1)),
        PatternRefusal::LongRegex(MAX_REGEX_BYTES + 1)
    );
    assert_eq!(regex_refusal("xa{0,5000}"), PatternRefusal::Repeats(5000));
    assert_eq!(regex_refusal("x(ab){5000,}"), PatternRefusal::Repeats(5000));
    assert_eq!(regex_refusal("(ab){4096}"), PatternRefusal::TooLarge(8192));
    for source in ["((((a{9}){99}){99}){99}){99}", "(((ab){4000}){4000}){4000}((ab){4000}){4000}"] {
        assert!(matches!(regex_refusal(source), PatternRefusal::TooLarge(_)), "{source}");
    }
    let nested = format!("{}a{}", "(".repeat(500), ")".repeat(500));
    assert!(matches!(regex_refusal(&nested), PatternRefusal::Syntax(_)));
    assert_eq!(PatternSet::compile(&[]).err(), Some(PatternError::NoPatterns));
    let many = vec![Pattern::text(0, "a"); MAX_PATTERNS + 1];
    assert_eq!(PatternSet::compile(&many).err(), Some(PatternError::TooManyPatterns(MAX_PATTERNS + 1)));
    let regexes = vec![Pattern::regex(0, "ab+"); MAX_REGEXES + 1];
    assert_eq!(PatternSet::compile(&regexes).err(), Some(PatternError::TooManyRegexes(MAX_REGEXES + 1)));
    let texts: Vec<_> = (0..2000).map(|id| Pattern::regex(id, format!("(?i)cmd{id}\\.exe"))).collect();
    assert!(PatternSet::compile(&texts).is_ok(), "regexes that are texts");
    let large: Vec<_> = (0..9).map(|id| Pattern::regex(id, format!("{id}(ab+){{2000}}"))).collect();
    assert!(matches!(PatternSet::compile(&large), Err(PatternError::TooLarge(_))));
}

/// Regexes at the limits that need long: none may take a minute, even in a debug build on a busy machine.
#[test]
fn the_time_to_compile_is_bounded() {
    let sources = [
        format!("a.{{0,{MAX_REPEATS}}}b"),
        format!("<[^>]{{0,{MAX_REPEATS}}}>"),
        format!("x[ab]{{{MAX_REPEATS}}}[^a]{{{MAX_REPEATS}}}y"),
        "x(ab|cde){1,800}y".to_owned(),
        "x(a.{0,20}b|c[d-f]{3,50}){1,300}y".to_owned(),
        "(x+x+)+y".to_owned(),
        "(.*a){1000}".to_owned(),
        "(.*[ab].{10}){300}".to_owned(),
        "x(a?){2000}b".to_owned(),
        "((a{0,10}){0,10}b){0,10}c".to_owned(),
        "x(a|b|ab|ba|aab){100,400}y".to_owned(),
        "(?i)x([a-c][b-d]?[c-e]*){1,500}y".to_owned(),
        "x(.?.?.?.?a){1,500}y".to_owned(),
    ];
    for source in sources {
        let begin = Instant::now();
        let set = PatternSet::compile(&[Pattern::regex(0, source.clone())]);
        let time = begin.elapsed();
        println!("{time:?}\t{source}\t{:?}", set.map(|set| set.state_bytes()));
        assert!(time.as_secs() < 60, "{time:?} for {source}");
    }
}

#[test]
fn a_set_of_the_most_regexes_compiles_in_bounded_time() {
    let kinds = ["[Cc][Mm][Dd]ID\\.exe[0-9]{1,3}[a-f]+x", "xID[ab]{0,90}y", "ID.*ID", "(aID|bID.{3})+z"];
    let regex = |id: u32| Pattern::regex(id, kinds[id as usize % 4].replace("ID", &id.to_string()));
    let patterns: Vec<_> = (0..MAX_REGEXES as u32).map(regex).collect();
    let begin = Instant::now();
    let set = PatternSet::compile(&patterns);
    println!("{:?} {:?}", begin.elapsed(), set.map(|set| set.state_bytes()));
    assert!(begin.elapsed().as_secs() < 60);
}

#[test]
fn ten_thousand_texts_compile_soon() {
    let text = |id: u32| {
        let bytes =
            (0..8 + id % 17).map(|at| (id.wrapping_mul(2_654_435_761).rotate_left(at * 5) >> 13) as u8);
        Pattern::text(id, bytes.collect::<Vec<_>>())
    };
    let patterns: Vec<_> = (0..10_000).map(text).collect();
    let begin = Instant::now();
    let set = PatternSet::compile(&patterns).expect("texts");
    println!("{:?}, {} bytes for each stream", begin.elapsed(), set.state_bytes());
    assert!(begin.elapsed().as_secs() < 20, "about a quarter of a second on a quiet core");
    assert_eq!((set.len(), set.state_bytes()), (10_000, 64));
    assert_eq!(set.pool_bytes(1000), 4 * mmb_scan::POOL_PAGE);
}

#[test]
fn digests_are_equal_for_equal_lists_only() {
    let lists = [
        vec![Pattern::text(0, "a")],
        vec![Pattern::text(1, "a")],
        vec![Pattern::text(0, "a").ignoring_case()],
        vec![Pattern::regex(0, "a")],
        vec![Pattern::text(0, "ab")],
        vec![Pattern::text(0, "a"), Pattern::text(1, "b")],
        vec![Pattern::text(1, "b"), Pattern::text(0, "a")],
        vec![Pattern::text(0, "a"), Pattern::text(0, "a")],
    ];
    let digest = |list: &Vec<Pattern>| PatternSet::compile(list).expect("patterns").digest();
    for (number, list) in lists.iter().enumerate() {
        for (other_number, other) in lists.iter().enumerate() {
            assert_eq!(digest(list) == digest(other), number == other_number);
        }
    }
}

/// Why an edit refuses a regex behind a good one.
fn edit_refusal(source: &str) -> PatternRefusal {
    match EditPatterns::compile(&[Pattern::text(0, "good"), Pattern::regex(1, source)]) {
        Err(PatternError::Refused { index: 1, refusal }) => refusal,
        other => panic!("{source}: {other:?}"),
    }
}

#[test]
fn edits_refuse_what_has_no_longest_match_or_ends_with_the_stream() {
    for source in ["a+", "ab*", "<[^>]*>", "a{3,}", "a(b|c+)"] {
        assert_eq!(edit_refusal(source), PatternRefusal::UnboundedMatch, "{source}");
    }
    for source in ["ab$", "ab\\z", "(a|b$)"] {
        assert_eq!(edit_refusal(source), PatternRefusal::EditAtEnd, "{source}");
    }
    assert_eq!(edit_refusal("<[^>]{0,4095}>"), PatternRefusal::LongMatch(MAX_EDIT_MATCH_BYTES + 1));
    let longest = EditPatterns::compile(&[Pattern::regex(0, "<[^>]{0,4094}>")]).expect("a regex");
    assert_eq!(longest.longest(), MAX_EDIT_MATCH_BYTES);
    for source in ["a^b", "ab^", "a\\Ab", "(?:^|a){2}b"] {
        assert_eq!(edit_refusal(source), PatternRefusal::InnerAnchor, "{source}");
    }
    let begun = Instant::now();
    for source in ["[ab]{0,100}a[ab]{100}", "x.{0,99}a.{50}c"] {
        assert_eq!(edit_refusal(source), PatternRefusal::TooManyStates, "{source}");
    }
    for source in [
        "(a?){2000}b",
        "a.{0,20}a.{0,20}a.{0,20}b",
        "<a[^>]{0,200}href=.{0,100}>",
        "<a[^>]{0,50}>.{0,2000}</a>",
        "a(?:x{0,200}|y{0,200}){20}",
    ] {
        assert!(EditPatterns::compile(&[Pattern::regex(0, source)]).is_ok(), "{source}");
    }
    assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
}

#[test]
fn edits_refuse_what_sets_refuse() {
    for source in [
        "a(?=b)",
        "(a)\\1",
        "\\bfoo",
        "(?m)foo$",
        "\\pL",
        "a?",
        "a[^\\x00-\\xff]",
        "(",
        "xa{0,5000}",
        "(ab){4096}",
    ] {
        assert_eq!(edit_refusal(source), regex_refusal(source), "{source}");
    }
    assert_eq!(EditPatterns::compile(&[]).err(), Some(PatternError::NoPatterns));
    let many = vec![Pattern::text(0, "a"); MAX_PATTERNS + 1];
    assert_eq!(EditPatterns::compile(&many).err(), Some(PatternError::TooManyPatterns(MAX_PATTERNS + 1)));
    let regexes = vec![Pattern::regex(0, "ab?"); MAX_REGEXES + 1];
    assert_eq!(EditPatterns::compile(&regexes).err(), Some(PatternError::TooManyRegexes(MAX_REGEXES + 1)));
    let texts = vec![Pattern::text(0, vec![1; MAX_TEXT_BYTES]); MAX_EDIT_TEXT_BYTES / MAX_TEXT_BYTES + 1];
    assert_eq!(
        EditPatterns::compile(&texts).err(),
        Some(PatternError::LongTexts(MAX_EDIT_TEXT_BYTES + MAX_TEXT_BYTES))
    );
    let empty = EditPatterns::compile(&[Pattern::text(0, "")]).err();
    assert_eq!(empty, Some(PatternError::Refused { index: 0, refusal: PatternRefusal::EmptyText }));
}

/// Regexes that make too many states together are matched apart.
#[test]
fn many_regexes_are_taken() {
    let list = |count: u32| -> Vec<_> {
        (0..count)
            .map(|id| Pattern::regex(id, format!("[^{}]{{2,150}}x{{2}}{id}", char::from(b'a' + id as u8))))
            .collect()
    };
    assert_eq!(EditPatterns::compile(&list(3)).map(|patterns| patterns.longest()), Ok(153));
    let words: Vec<_> =
        (0..MAX_REGEXES as u32).map(|id| Pattern::regex(id, format!("cmd{id}[0-9]{{1,3}}x"))).collect();
    assert_eq!(EditPatterns::compile(&words).map(|patterns| patterns.longest()), Ok(10));
}

#[test]
fn equal_edits_have_equal_digests() {
    let digest = |patterns: &[Pattern]| EditPatterns::compile(patterns).expect("patterns").digest();
    let (one, other) = (Pattern::text(0, "one"), Pattern::regex(1, "tw{1,2}o"));
    assert_eq!(digest(&[one.clone(), other.clone()]), digest(&[one.clone(), other.clone()]));
    assert_ne!(digest(&[one.clone(), other.clone()]), digest(&[other, one]));
}
