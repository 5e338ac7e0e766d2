"""``calipers.compare`` on files and on tables in memory."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from analyses.compare.writing import pair_of, put, run
from making import GAP

import calipers
from calipers.errors import Incomplete, InputError, UnknownName
from calipers.reports.remark_texts import note_of

SECOND = [[1], [1], [1], [0], [1], [0], [1], [1], [0], [1]]  # B11 of the statistics paper, its A
FIRST = [[1], [0], [1], [0], [0], [0], [1], [1], [1], [0]]  # its B


def test_the_anchor_of_the_paired_difference():
    found = calipers.compare(FIRST, SECOND)["mean_reward"]
    assert (found.first, found.second, found.delta) == (0.5, 0.7, pytest.approx(0.2))
    assert found.stderr == pytest.approx(0.2)
    assert found.floored_stderr == pytest.approx(0.206155, abs=1e-6)  # by which it is tested
    assert found.p == pytest.approx(0.357324, abs=1e-6)
    assert found.interval == pytest.approx((-0.266356, 0.666356), abs=1e-6)
    assert (found.verdict, found.tasks, found.samples) == ("undecided", 10, (10, 10))
    assert (found.mcnemar.first_only, found.mcnemar.second_only, found.mcnemar.exact) == (1, 3, pytest.approx(0.625))


@pytest.mark.parametrize(
    ("test", "p"),
    [
        ("default", 0.357324),
        ("mcnemar", 0.625),
        ("mid-p", 0.375),
        ("sign-flip", 0.625),  # four tasks differ: 10 of 16 sign patterns are as far out
    ],
)
def test_the_test_asked_for(test, p):
    assert calipers.compare(FIRST, SECOND, test=test)["mean_reward"].p == pytest.approx(p, abs=1e-6)


def test_the_strict_test_and_the_bootstrap_answer_too():
    strict, drawn = (calipers.compare(FIRST, SECOND, test=test)["mean_reward"] for test in ("strict", "bootstrap"))
    assert (strict.method, drawn.method) == ("strict", "paired_bootstrap")
    assert strict.p > 0.357  # it sees less
    assert 0.2 < drawn.p < 0.6


@pytest.mark.parametrize("metric", ["mean_reward", "median(column=reward)"])
def test_a_difference_without_a_standard_error_is_within_no_margin(metric):
    """The draws of few tasks have a p and no standard error: that no margin can be tested is no equivalence."""
    first, second = [[0.1], [0.3], [0.2]], [[0.5], [0.9], [0.7]]
    found = calipers.compare(first, second, metrics=[metric], test="bootstrap", margin=0.2)[metric]
    assert (found.delta, found.stderr, found.verdict) == (pytest.approx(0.5), None, "undecided")
    assert (found.p_equivalent, found.p_not_worse) == (None, None)


def test_a_true_difference_is_found_and_none_where_there_is_none():
    """Fifty pairs of runs: a shift of ten points on 300 tasks is nearly always found, no shift nearly never."""
    rng = np.random.default_rng(7)
    words = {shift: [_word(*pair_of(rng, 300, 4, shift)) for _ in range(50)] for shift in (0.1, 0.0)}
    assert words[0.1].count("better") >= 48
    assert words[0.1].count("worse") == 0
    assert words[0.0].count("undecided") >= 44  # 47.5 are expected


def _word(first, second):
    return calipers.compare(first, second, metric="mean_reward")["mean_reward"].verdict


def test_a_lower_cost_is_better(tmp_path):
    rows = [{"task": f"t{n}", "reward": 1, "usage": {"cost_usd": 1 + n % 3}} for n in range(30)]
    cheap = [{**row, "usage": {"cost_usd": row["usage"]["cost_usd"] / 2}} for row in rows]
    a, b = put(tmp_path / "a.jsonl", *rows), put(tmp_path / "b.jsonl", *cheap)
    found = calipers.compare(a, b, metric=["cost_per_task", "cost_per_solved", "mean(column=cost_usd)"])
    assert [found[name].verdict for name in ("cost_per_task", "cost_per_solved")] == ["better", "better"]
    assert found["mean(column=cost_usd)"].verdict == "lower"  # nobody said that a column's mean should be low
    assert found["cost_per_task"].delta == pytest.approx(-1.0)


def test_equivalence_is_shown_and_never_assumed():
    rng = np.random.default_rng(3)
    first, second = pair_of(rng, 400, 8, 0.0)
    shown = calipers.compare(first, second, margin=0.1)["mean_reward"]
    assert (shown.verdict, shown.p_equivalent < 0.05, shown.p_not_worse < 0.05) == ("equivalent", True, True)
    open_ = calipers.compare(first[:8], second[:8], margin=0.01)["mean_reward"]
    assert (open_.verdict, open_.p_equivalent > 0.05) == ("undecided", True)


def test_what_a_new_comparison_needs():
    rng = np.random.default_rng(11)
    first, second = pair_of(rng, 40, 2, 0.05)
    found = calipers.compare(first, second)["mean_reward"]
    assert found.verdict == "undecided"
    assert found.more_tasks > 0
    assert (
        f"about {found.more_tasks:,} new tasks (or 40 with {found.more_samples} samples each), tested on their own,"
        in found.sentence
    )
    assert found.new_tasks[0] < found.more_tasks
    assert found.new_tasks[1] is None


def test_clusters_widen_the_interval(tmp_path):
    rng = np.random.default_rng(0)
    gain = np.repeat(rng.normal(0.05, 0.3, 20), 10)  # ten tasks of a document go the same way
    rows = [{"task": f"t{n}", "reward": 0.5, "metadata": {"doc": n // 10}} for n in range(200)]
    a = put(tmp_path / "a.jsonl", *rows)
    b = put(tmp_path / "b.jsonl", *({**row, "reward": 0.5 + gain[n]} for n, row in enumerate(rows)))
    alone, together = calipers.compare(a, b)["mean_reward"], calipers.compare(a, b, cluster="doc")["mean_reward"]
    assert (alone.units, together.units) == (200, 20)
    assert together.stderr > 2 * alone.stderr


def test_one_run_without_the_clusters_takes_them_from_the_other(tmp_path):
    rows = [{"task": f"t{n}", "reward": n % 2} for n in range(20)]
    a = put(tmp_path / "a.jsonl", *rows)
    b = put(tmp_path / "b.jsonl", *({**row, "reward": 1, "metadata": {"doc": n % 5}} for n, row in enumerate(rows)))
    assert calipers.compare(a, b, cluster="doc")["mean_reward"].units == 5
    assert [f.slice for f in _findings(calipers.compare(a, b, by="doc")) if f.metric == "mean_reward" and f.by] == [
        *"01234"
    ]


def _findings(comparison):
    return [finding for contest in comparison.contests for pair in contest.pairs for finding in pair.findings]


def test_the_same_test_under_two_names_counts_once():
    """Otherwise pass_rate beside mean_reward would double the adjusted p without any new test."""
    once = calipers.compare(FIRST, SECOND)
    assert once.tests == 1
    assert once["mean_reward"].p_holm == once["mean_reward"].p == pytest.approx(once["pass_rate"].p)


def test_two_tests_that_happen_to_agree_are_two(tmp_path):
    """The same p on other tasks is a different test."""
    swapped = {"x": "y", "y": "x"}
    rows = [{"task": f"t{n}", "rewards": {"x": n % 2, "y": n // 5}} for n in range(10)]
    moved = [{**row, "rewards": {key: row["rewards"][swapped[key]] for key in "xy"}} for row in rows]
    a, b = put(tmp_path / "a.jsonl", *rows), put(tmp_path / "b.jsonl", *moved)
    found = calipers.compare(a, b, metric="mean_reward")
    x, y = (found[f"mean_reward(reward={key})"] for key in "xy")
    assert x.p == pytest.approx(y.p)
    assert found.tests == 2


def test_p_is_adjusted_over_metrics_slices_and_runs(tmp_path):
    rng = np.random.default_rng(5)
    paths = []
    for name in "abc":
        rows = [
            {"task": f"t{n}", "sample": s, "reward": float(rng.random() < 0.5), "metadata": {"half": n % 2}}
            for n in range(40)
            for s in range(2)
        ]
        paths.append(put(tmp_path / f"{name}.jsonl", *rows))
    found = calipers.compare(*paths, metric=["mean_reward", "pass@2"], by="half")
    assert found.tests == 3 * 2 * 3  # pairs, metrics, all tasks and two slices
    p = [finding.p for finding in _findings(found)]
    assert min(finding.p_holm for finding in _findings(found)) == pytest.approx(min(1, min(p) * len(p)))
    assert all(f.p <= f.p_bh <= f.p_holm + 1e-12 for f in _findings(found))


def test_several_runs_are_ranked_and_the_best_is_taken_down_a_peg(tmp_path):
    rng = np.random.default_rng(2)
    chances = rng.uniform(0.2, 0.6, 150)
    paths = [
        run(
            tmp_path / f"{name}.jsonl",
            {f"t{n}": (rng.random(4) < chance + shift).astype(float).tolist() for n, chance in enumerate(chances)},
            model=name,
        )
        for name, shift in (("low", 0.0), ("high", 0.3), ("middle", 0.1))
    ]
    found = calipers.compare(*paths, metric="mean_reward")
    (contest,) = found.contests
    (ranks,) = contest.ranks
    assert [contest.runs[place.run].name for place in ranks.places] == ["high", "middle", "low"]
    assert ranks.places[0].ranks == (1, 1)
    assert ranks.places[0].chance_best == 1
    assert ranks.corrected == pytest.approx(ranks.places[0].value - ranks.optimism)
    assert 0 < ranks.optimism < 0.1
    against = calipers.compare(*paths, metric="mean_reward", baseline="middle")
    assert [(p.first, p.second, p.findings[0].verdict) for p in against.contests[0].pairs] == [
        (2, 0, "worse"),
        (2, 1, "better"),
    ]


def test_what_only_all_rollouts_have_is_drawn_again(tmp_path):
    rows = [{"task": f"t{n}", "reward": 1, "usage": {"latency_s": 1 + n / 10}} for n in range(30)]
    slow = [{**row, "usage": {"latency_s": row["usage"]["latency_s"] + 5}} for row in rows]
    a, b = put(tmp_path / "a.jsonl", *rows), put(tmp_path / "b.jsonl", *slow)
    found = calipers.compare(a, b, metric=["latency_p50", "max(column=latency_s)"])
    assert (found["latency_p50"].delta, found["latency_p50"].method) == (pytest.approx(5), "paired_bootstrap")
    assert found["latency_p50"].verdict == "worse"
    largest = found["max(column=latency_s)"]
    assert (largest.delta, largest.p, largest.verdict) == (
        pytest.approx(5),
        None,
        "undecided",
    )  # draws say nothing of it


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ([[1], [0]], [[GAP], [GAP]], "no task has a value in both runs"),
        ([[1]], [[0]], "one task says nothing about others"),
        ([[math.nan], [1]], [[1], [1]], "a difference is not a finite number"),
    ],
)
def test_no_number_where_there_is_none(first, second, why):
    found = calipers.compare(first, second)["mean_reward"]
    assert (found.p, found.interval, found.verdict, found.why) == (None, None, "undecided", why)
    assert found.mcnemar is None
    result = calipers.compare(first, second)
    json.loads(result.to_json())
    assert not [note for note in result.contests[0].pairs[0].notes if "the reward is" in note]  # nothing has no name


def test_all_equal_is_undecided_with_an_interval_that_says_how_little_was_seen():
    found = calipers.compare([[1]] * 30, [[1]] * 30)["mean_reward"]
    assert (found.delta, found.p, found.verdict) == (0, 1, "undecided")
    assert found.interval == pytest.approx((-0.115703, 0.115703), abs=1e-6)
    assert "only a margin (--margin) can show that there is none" in found.sentence


def test_gaps_leave_the_task_or_count_zero():
    first, second = [[1], [1], [0]], [[1], [GAP], [1]]
    assert calipers.compare(first, second)["mean_reward"].undefined_tasks == 1
    assert calipers.compare(first, second, missing="zero")["mean_reward"].second == pytest.approx(2 / 3)
    with pytest.raises(Incomplete, match="1 of 3 rollouts is missing"):
        calipers.compare(first, second, missing="fail")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"metric": "pas@1"}, "did you mean 'pass@{k}'"),
        ({"test": "sign-flop"}, "did you mean 'sign-flip'"),
        ({"adjust": "homl"}, "did you mean 'holm'"),
        ({"margin": 0}, "margin is 0; expected a number above 0"),
        ({"flips": -1}, "flips is -1"),
        ({"reward": "rewrad"}, "no reward named 'rewrad'; did you mean 'reward'"),
        ({"metric": "mean_reward(reward=x)"}, "no reward named 'x'"),
        ({"baseline": "x"}, "no run named 'x'"),
        ({"cluster": "doc", "test": "mid-p"}, "needs independent tasks"),
        ({"cluster": "doc"}, "has no 'doc'"),
        ({"metric": "mean(column=f1)"}, "run 1 has no data for it: no column of numbers named 'f1'"),
    ],
)
def test_what_cannot_be_asked(asked, said):
    with pytest.raises((InputError, UnknownName), match=said):
        calipers.compare(FIRST, SECOND, **asked)


def test_mcnemar_needs_one_verdict_a_task():
    with pytest.raises(InputError, match="needs one pass or fail for each task, which mean_reward does not have"):
        calipers.compare([[1, 0], [1, 1]], [[1, 0], [0, 1]], test="mcnemar")


def test_a_metric_of_ones_own_is_drawn_again():
    from calipers.names import METRICS

    class Best:
        def compute(self, tasks):
            return max(sum(task) / len(task) for task in tasks)

    METRICS.added["best_task"] = Best
    try:
        found = calipers.compare([[0, 1], [0, 0]] * 10, [[1, 1], [0, 0]] * 10, metric="best_task")["best_task"]
    finally:
        del METRICS.added["best_task"]
    assert (found.first, found.second, found.delta, found.method) == (0.5, 1.0, 0.5, "paired_bootstrap")
    assert found.higher_is_better is None


@pytest.mark.parametrize("test", ["default", "strict", "sign-flip", "bootstrap"])
def test_a_rounding_error_that_all_tasks_share_is_no_difference(test):
    """0.1 + 0.2 exceeds 0.3 by 5e-17 in all of twenty tasks."""
    found = calipers.compare([[0.3]] * 20, [[0.1 + 0.2]] * 20, metric="mean_reward", test=test)["mean_reward"]
    assert (found.delta, found.p, found.verdict) == (0, 1, "undecided")


@pytest.mark.parametrize(
    ("low", "high", "settings", "findings"),
    [  # rewards above 1 count no passes without a threshold
        (-5e307, 5e307, {}, 3),
        (0, 1e305, {"anytime": True}, 3),
        (0, 1, {"margin": 1e-300, "range": (0, 1e150)}, 6),
        (0, 1, {"test": "strict", "range": (0, 1e150)}, 6),
    ],
)
def test_huge_rewards_and_ranges_are_strict_json(low, high, settings, findings):
    runs = [[[high if n % k else low] for n in range(12)] for k in (2, 3, 4)]
    found = calipers.compare(*runs, **settings)
    assert type(found).from_json(found.to_json()).digest == found.digest
    assert len(found.to_polars()) == findings  # its integers fit into 64 bits


def test_the_range_of_rewards_says_nothing_about_a_column_beyond_it():
    rows = [{"task": f"t{n}", "reward": n % 2, "words": float(n)} for n in range(10)]
    longer = [{**row, "words": row["words"] * 2} for row in rows]
    for settings in ({"range": (0, 1)}, {}):
        estimate = calipers.score(rows, "mean(column=words)", **settings)["mean(column=words)"]
        assert estimate.interval == pytest.approx((2.334149, 6.665851), abs=1e-6)
        found = calipers.compare(rows, longer, metrics="mean(column=words)", **settings)["mean(column=words)"]
        assert found.interval == pytest.approx((2.106849, 6.893151), abs=1e-6)


def test_a_range_whose_square_overflows_is_refused():
    with pytest.raises(InputError, match="expected ends that are at most"):
        calipers.compare([[0], [1]], [[1], [1]], range=(0, 1e308))


def test_a_rounding_error_makes_no_run_the_best():
    exact, rounded = [[0.3], [0.6]] * 10, [[0.1 + 0.2], [0.6]] * 10
    (ranks,) = calipers.compare(exact, rounded, exact, metric="mean_reward").contests[0].ranks
    assert [place.chance_best for place in ranks.places] == pytest.approx([1 / 3] * 3)


def test_one_cluster_has_no_ranks(tmp_path):
    rewards = {"t": [1], "u": [0], "v": [1]}
    paths = [run(tmp_path / f"{name}.jsonl", rewards, model=name, metadata={"book": "one"}) for name in "abc"]
    (ranks,) = calipers.compare(*paths, metric="mean_reward", cluster="book").contests[0].ranks
    assert (ranks.places, ranks.why) == ([], "one cluster says nothing about others")


def test_gaps_are_told_and_not_only_left_out(tmp_path):
    """Missing rollouts in one run must not raise its score without a note."""
    one = run(tmp_path / "a.jsonl", {"t": [1, 0], "u": [1, 1]}, model="a")
    two = run(tmp_path / "b.jsonl", {"t": [1, None], "u": [1, 1]}, model="b")
    for missing, what in (("gap", "excluded"), ("zero", "counted as 0")):
        found = calipers.compare(one, two, metric="mean_reward", missing=missing)
        assert f"b: 1 of 4 rollouts of these tasks is missing ({what})" in map(
            note_of, found.contests[0].pairs[0].remarks
        )


def test_samples_are_not_advised_where_clusters_are_the_units(tmp_path):
    """The variances of tasks do not determine the effect of more samples on clusters."""
    rng = np.random.default_rng(3)
    tables = [{f"t{n}": [float(x) for x in rng.random(4) < 0.5] for n in range(12)} for _ in range(2)]
    paths = []
    for name, tasks in zip("ab", tables, strict=True):
        rows = [
            {
                "task": task,
                "sample": at,
                "reward": reward,
                "model": name,
                "metadata": {"book": f"b{int(task[1:]) // 3}"},
            }
            for task, rewards in tasks.items()
            for at, reward in enumerate(rewards)
        ]
        paths.append(put(tmp_path / f"{name}.jsonl", *rows))
    found = calipers.compare(*paths, metric="mean_reward", cluster="book")["mean_reward"]
    assert found.more_samples is None
    assert found.more_tasks is None or "cluster" in found.sentence
