"""The order of runs and their statistics."""

import pytest

from evaluation import method


def test_every_system_runs_once_a_round_in_orders_that_differ():
    systems = list("abcdef")
    orders = list(method.rounds(systems, 5, "seed"))
    assert len(orders) == 5
    assert all(sorted(order) == systems for order in orders)
    assert len({tuple(order) for order in orders}) > 1


def test_who_is_done_runs_no_more_and_the_others_do():
    done, seen = set(), []
    for chosen in method.rounds(list("abc"), 5, "seed", done):
        seen.append(sorted(chosen))
        done |= {"a"} if len(seen) == 2 else {"b", "c"} if len(seen) == 4 else set()
    assert seen == [["a", "b", "c"]] * 2 + [["b", "c"]] * 2


def test_the_half_width_is_students():
    # n = 3, mean 10, standard deviation 1: 4.303 / √3.
    assert method.half_width([9.0, 10.0, 11.0]) == pytest.approx(0.2484, abs=1e-4)
    assert method.half_width([5.0, 5.0, 5.0]) == 0
    assert method.half_width([5.0]) == float("inf")


def runs_of(*values):
    """Runs with these values; None is one that failed."""
    return [{"ok": False, "error": "x"} if value is None else {"ok": True, "metrics": {"mpps": value}} for value in values]


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([5.0, 5.0], None),
        ([5.0, 5.0, 5.0], method.STEADY),
        ([5.0, 5.1, 5.05], method.STEADY),
        ([5.0, 6.0, 7.0], None),
        ([5.0, None, 5.0], None),
        ([5.0, None, 5.0, 5.0], method.STEADY),
        ([None, None], None),
        ([None, None, None], method.FAILED),
        ([5.0, 6.0, 7.0, 5.0, 6.0], method.MOST),
        ([5.0, None, None, None, None], method.MOST),
    ],
)
def test_a_point_stops_when_it_is_steady_or_has_the_most_runs(values, why):
    assert method.Repetitions(3, 5, 0.05).stop(runs_of(*values), "mpps") == why


def test_the_order_follows_from_the_seed():
    assert list(method.rounds("abcd", 5, 1)) == list(method.rounds("abcd", 5, 1))
    assert list(method.rounds("abcd", 5, 1)) != list(method.rounds("abcd", 5, 2))


@pytest.mark.parametrize(
    ("values", "expected"),
    [([7.0], (7, 7, 7)), ([1, 2, 3, 4, 5], (2, 3, 4)), ([5, 1, 4, 2, 3], (2, 3, 4)), ([1, 2], (1.25, 1.5, 1.75))],
)
def test_the_spread_is_the_median_between_its_quartiles(values, expected):
    assert method.spread(values) == expected


def test_no_values_have_no_median():
    with pytest.raises(ValueError, match="no values"):
        method.spread([])


def test_failed_runs_give_no_values():
    point = {"runs": [{"ok": True, "metrics": {"mpps": 1.0}}, {"ok": False, "error": "x"}, {"ok": True, "metrics": {}}]}
    assert method.values(point, "mpps") == [1.0]


@pytest.mark.parametrize(
    ("ours", "theirs", "more", "expected"),
    [
        ([4, 4, 4], [2, 2, 2], True, (2.0, "ahead")),
        ([4, 4, 4], [2, 2, 2], False, (2.0, "behind")),
        ([2, 2, 2], [4, 4, 4], True, (0.5, "behind")),
        ([2, 2, 2], [4, 4, 4], False, (0.5, "ahead")),
        ([1, 4, 7], [2, 5, 8], True, (0.8, "level")),
    ],
)
def test_only_quartiles_that_do_not_overlap_make_one_ahead(ours, theirs, more, expected):
    assert method.compare(ours, theirs, more) == expected


def test_the_knee_is_where_less_than_the_share_is_left():
    falling = [(1, 10.0), (10, 9.0), (100, 7.9), (1000, 9.5)]
    assert method.knee(falling) == 100
    assert method.knee(falling, share=0.5) is None
    assert method.knee([]) is None
