"""Missing rollouts in a comparison: bounds, the verdict in the worst case, the tipping point and the sentences."""

import itertools

import numpy as np
import pytest
from analyses.compare.tables import home, ran
from analyses.compare.writing import run

import calipers
from calipers.analyses.compare import Tipping
from calipers.analyses.compare.compare import compare
from calipers.analyses.compare.document import document, of_missing
from calipers.reports import csv, markdown, terminal

AB = ("A", "B")


def runs(tmp_path, first, second):
    """Two files of rewards, task by task; None is a missing rollout."""
    return [
        run(tmp_path / f"{name}.jsonl", {f"t{n:02}": task for n, task in enumerate(tasks)})
        for name, tasks in (("a", first), ("b", second))
    ]


def found(tmp_path, first, second, metric="mean_reward", **settings):
    return compare(*runs(tmp_path, first, second), metric=metric, **settings)[metric]


def test_better_whatever_the_missing_rollouts_hold(tmp_path):
    """A fails 12 tasks, B passes 8 of them and 4 are missing: floored t 4.500999 with all four failed."""
    first, second = [[0]] * 12, [[1]] * 8 + [[None]] * 4
    one = found(tmp_path, first, second)
    assert one.missing == (0, 4)
    assert one.bounds == pytest.approx((0.666667, 1), abs=1e-6)
    assert (one.worst_verdict, one.tipping) == ("better", Tipping("second", "failed", 4, 4, True, 12))
    (evidence,) = compare(*(tmp_path / f"{name}.jsonl" for name in "ab"), metric="mean_reward").evidences
    worst = evidence.worst[0]
    assert worst.value == pytest.approx(0.666667, abs=1e-6)
    assert (worst.plain_stderr, worst.stderr) == pytest.approx((0.142134, 0.148115), abs=1e-6)
    assert worst.value / worst.stderr == pytest.approx(4.500999, abs=1e-6)
    assert worst.p == pytest.approx(0.000900, abs=1e-6)
    assert of_missing(one, AB) == (
        "better even if all 4 missing rollouts of B failed; the difference is +0.6667 to +1.0000, "
        "depending on the missing rollouts"
    )


def test_not_if_more_of_them_failed(tmp_path):
    first, second = [[0]] * 14 + [[1]] * 10, [[1]] * 7 + [[0]] * 7 + [[1]] * 2 + [[None]] * 8
    one = found(tmp_path, first, second)
    assert (one.verdict, one.undecided_by, one.as_observed) == ("undecided", "missing", "better")
    assert (one.missing, one.worst_verdict) == ((0, 8), "undecided")
    assert one.tipping == Tipping("second", "failed", 1, 8, True, 24)
    assert of_missing(one, AB).startswith(
        "better unless more than 1 of the 8 missing rollouts of B failed; the difference"
    )


def test_worse_is_the_mirror(tmp_path):
    """With the runs swapped, better becomes worse and failures become passes."""
    first, second = [[0]] * 14 + [[1]] * 10, [[1]] * 7 + [[0]] * 7 + [[1]] * 2 + [[None]] * 8
    turned = [[[None if r is None else 1 - r for r in task] for task in side] for side in (first, second)]
    (tmp_path / "turned").mkdir()
    one, two = found(tmp_path, first, second), found(tmp_path / "turned", *turned)
    assert (two.verdict, two.as_observed, two.worst_verdict) == ("undecided", "worse", "undecided")
    assert two.bounds == pytest.approx((-one.bounds[1], -one.bounds[0]))
    assert two.tipping == Tipping("second", "passed", one.tipping.most, 8, True, 24)
    assert of_missing(two, AB).startswith("worse unless more than 1 of the 8 missing rollouts of B passed")


def test_no_page_leaves_out_the_warning_that_decides(tmp_path):
    """Rewards 0 and 7.5, 45 of 100 rollouts of B missing: the page said "better", and its warning was cut out."""
    first = [[7.5]] * 60 + [[0.0]] * 40
    second = [[7.5]] * 30 + [[None]] * 30 + [[7.5]] * 20 + [[0.0]] * 5 + [[None]] * 15
    both = compare(*runs(tmp_path, first, second), metric="mean_reward")
    one = both["mean_reward"]
    assert (one.verdict, one.undecided_by, one.as_observed) == ("undecided", "missing", "better")
    page = " ".join(terminal.render(document(both)).split()).replace("\xa0", " ")
    assert "warning: 45 % of the rollouts of b.jsonl are missing" in page
    assert "missing rollouts count as 0.000 or 7.500, the ends seen; --range sets them" in page
    gate = calipers.gate(tmp_path / "b.jsonl", baseline=tmp_path / "a.jsonl", require="lower(delta(mean_reward)) > 0")
    assert gate.exit_code == 3


def test_rollouts_of_both_runs_are_missing(tmp_path):
    first, second = [[0]] * 14 + [[None]] * 2, [[1]] * 12 + [[None]] * 3 + [[1]]
    one = found(tmp_path, first, second)
    assert one.missing == (2, 3)
    assert of_missing(one, AB).startswith(
        "better even if all 3 missing rollouts of B failed and all 2 of A passed; the difference"
    )
    only = found(tmp_path, first, [[1]] * 16)  # then it is those of A that are counted
    assert only.tipping == Tipping("first", "passed", 2, 2, True, 16)
    assert of_missing(only, AB).startswith("better even if all 2 missing rollouts of A passed; the difference")


def test_not_even_if_all_of_them_passed(tmp_path):
    """The missing rollouts of A alone undo it: on the tasks they are of, all that B has are passes."""
    first, second = [[0]] * 6 + [[None]] * 12, [[1]] * 6 + [[0]] * 11 + [[None]]
    one = found(tmp_path, first, second)
    assert (one.as_observed, one.verdict, one.tipping.most) == ("better", "undecided", -1)
    assert of_missing(one, AB).startswith("better unless all 12 of A passed; the difference")


@pytest.mark.parametrize(
    "metric", ["mean_reward", "pass_rate", "pass@2", "pass^2", "solved_rate", "max@2", "bayes_mean"]
)
def test_the_tipping_point_is_that_of_every_placement(tmp_path, metric):
    """Compare with brute force: every choice of adverse missing rollouts, each compared as a run of its own."""
    rng = np.random.default_rng(3)
    tried = 0
    while tried < 4:
        chances = rng.uniform(0.1, 0.5, 9)[:, None]
        first = (rng.random((9, 2)) < chances).astype(float).tolist()
        second = (rng.random((9, 2)) < chances + 0.5).astype(float).tolist()
        spots = [divmod(int(spot), 2) for spot in rng.choice(18, 4, replace=False)]
        for task, sample in spots:
            second[task][sample] = None
        first.append([1.0, 1.0])
        second.append([1.0])  # too few samples for k = 2: undefined, whatever the missing ones are
        one = found(tmp_path, first, second, metric, flips=0)
        if one.as_observed != "better":
            continue
        tried += 1
        assert one.tipping.exact
        assert one.tipping.most == _brute(tmp_path, first, second, spots, metric)


def _brute(tmp_path, first, second, spots, metric):
    for x in range(len(spots) + 1):
        for failed in itertools.combinations(spots, x):
            full = [list(task) for task in second]
            for task, sample in spots:
                full[task][sample] = float((task, sample) not in failed)
            if calipers.compare(first, full, metric=metric, flips=0)[metric].verdict != "better":
                return x - 1
    return len(spots)


def test_an_undecided_difference_shows_its_bounds_alone(tmp_path):
    one = found(tmp_path, [[1], [0], [0], [None]], [[1], [1], [None], [0]])
    assert (one.verdict, one.worst_verdict, one.tipping) == ("undecided", None, None)
    assert one.bounds == (0.0, 0.5)
    said = "the difference is 0.0000 to +0.5000, depending on the 1 missing rollout of B and 1 of A"
    assert of_missing(one, AB) == said


def test_undefined_is_not_missing(tmp_path):
    """A task with too few samples for pass@2 is not missing and does not change the bounds."""
    one = found(tmp_path, [[1, 0], [0, 0], [1]], [[1, 1], [0, 1], [0]], "pass@2")
    assert (one.undefined_tasks, one.missing, one.bounds) == (1, (0, 0), None)
    lacking = found(tmp_path, [[1, 0], [0, 0], [1]], [[1, None], [0, 1], [0]], "pass@2")
    assert (lacking.missing, lacking.bounds) == ((0, 1), (0.5, 0.5))  # the task of one sample stays undefined


@pytest.mark.parametrize("missing", ["gap", "zero"])
def test_counting_them_0_changes_the_value_and_no_bound(tmp_path, missing):
    one = found(tmp_path, [[0]] * 12, [[1]] * 8 + [[None]] * 4, missing=missing)
    assert one.delta == pytest.approx(1 if missing == "gap" else 2 / 3)
    assert one.bounds == pytest.approx((2 / 3, 1))
    assert one.tipping.most == 4


def test_no_bounds_are_known_of_rewards_without_a_range_and_of_costs(tmp_path):
    wide = found(tmp_path, [[0]] * 6, [[3], [3], [3], [3], [3], [None]])
    assert (wide.missing, wide.bounds, wide.worst_verdict) == ((0, 1), None, None)
    assert of_missing(wide, AB) == "no bounds are known for mean_reward with 1 missing rollout of B"
    rows = [{"usage": {"cost_usd": 1.0}}, {"usage": {"cost_usd": 2.0}}]
    paths = [
        run(tmp_path / f"{name}.jsonl", {"t": [1], "u": [reward]}, **row)
        for name, row, reward in zip("cd", rows, (1, None))
    ]
    cost = compare(*paths, metric="cost_per_task")["cost_per_task"]
    assert (cost.missing, cost.bounds) == ((0, 1), None)
    assert of_missing(cost, AB).startswith("no bounds are known for cost_per_task with 1 missing rollout of B")


def test_no_bounds_are_known_of_the_numbers_of_a_table(tmp_path):
    """A run of one of lm-evaluation-harness' tasks that lacks two answers: its BLEU is not one of rewards."""
    place = home(tmp_path)
    lossy = """
asked = []

def lossy(prompt):
    asked.append(prompt)
    if len(asked) in (3, 9):
        raise OSError("gone")
    return after(prompt)
"""
    with open(place / "models.py", "a") as file:
        file.write(lossy)
    pair = compare(ran(place, "said", "before"), ran(place, "said", "lossy", retries=0), metric=["bleu", "exact_match"])
    told = {one.metric: one for one in pair.contests[0].pairs[0].findings}
    assert {name: (one.missing, one.bounds) for name, one in told.items()} == {
        "bleu": ((0, 2), None), "exact_match": ((0, 2), None),
    }  # fmt: skip
    assert of_missing(told["bleu"], AB) == "no bounds are known for bleu with 2 missing rollouts of B"


def test_mcnemar_of_what_is_no_pass_or_fail_once_filled_has_bounds_alone(tmp_path):
    first, second = [[0, 0]] * 9, [[1, 1]] * 8 + [[1, None]]
    one = found(tmp_path, first, second, test="mcnemar")
    assert (one.verdict, one.bounds, one.tipping) == ("better", (pytest.approx(17 / 18), 1.0), None)


@pytest.mark.parametrize("test", ["strict", "sign-flip", "bootstrap", "mcnemar"])
def test_other_tests_have_tipping_points_of_their_own(tmp_path, test):
    first, second = [[0]] * 20 + [[1]] * 10, [[1]] * 14 + [[0]] * 6 + [[1]] * 2 + [[None]] * 8
    one = found(tmp_path, first, second, test=test)
    assert (one.verdict, one.as_observed) == ("undecided", "better")
    most = one.tipping.most
    assert 0 <= most < 8
    for failed in (most, most + 1):
        full = second[:-8] + [[0]] * failed + [[1]] * (8 - failed)
        again = calipers.compare(first, full, metric="mean_reward", test=test)["mean_reward"]
        assert (again.verdict == "better") == (failed == most)


def test_each_slice_has_its_own(tmp_path):
    paths = []
    for name, rewards in (("a", [0] * 24), ("b", [1] * 8 + [None] * 4 + [1] * 12)):
        path = tmp_path / f"{name}.jsonl"
        rows = {f"t{n:02}": [reward] for n, reward in enumerate(rewards)}
        paths.append(run(path, rows))
        text = path.read_text().splitlines()
        cut = [line[:-1] + f', "level": "{"x" if n < 12 else "y"}"}}' for n, line in enumerate(text)]
        path.write_text("\n".join(cut) + "\n")
    pair = compare(*paths, metric="mean_reward", by="level").contests[0].pairs[0]
    assert [(one.slice, one.missing) for one in pair.findings] == [(None, (0, 4)), ("x", (0, 4)), ("y", (0, 0))]
    assert pair.findings[1].bounds == pytest.approx((2 / 3, 1))
    page = terminal.render(document(compare(*paths, metric="mean_reward", by="level"), details=True))
    assert "better even if all 4 missing rollouts of B failed" in " ".join(page.split())


def test_runs_without_missing_rollouts_say_nothing_new(tmp_path):
    both = compare(*runs(tmp_path, [[0]] * 12, [[1]] * 12))
    assert [one.bounds for one in both.contests[0].pairs[0].findings] == [None, None]
    for text in (terminal.render(document(both, details=True)), markdown.render(document(both, details=True))):
        assert "missing rollout" not in text.replace("missing rollouts excluded", "")
        assert "warning" not in text


def test_what_every_report_says(tmp_path):
    both = compare(*runs(tmp_path, [[0]] * 12, [[1]] * 8 + [[None]] * 4))
    said = "better even if all 4 missing rollouts of b.jsonl failed; the difference is +0.6667 to +1.0000"
    assert said in " ".join(terminal.render(document(both, details=True)).split())
    assert f"  - {said}" in markdown.render(document(both, details=True))
    assert (
        terminal.render(document(both, details=True)).count("even if all 4") == 1
    )  # two metrics of which the same is true share it
    row = csv.render(document(both, details=True)).splitlines()
    told = dict(zip(row[0].split(",")[-13:], row[1].split(",")[-13:]))
    assert (float(told["lowest"]), float(told["highest"])) == pytest.approx((2 / 3, 1))
    assert (told["second_missing"], told["worst_verdict"], told["tipping"], told["tipping_of"]) == (
        *("4", "better", "4", "4"),
    )
    kept = both.to_dict()["contests"][0]["pairs"][0]["findings"][0]
    assert kept["tipping"]["most"] == 4
    assert kept["missing"] == (0, 4)


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ((0, 0), []),
        ((1, 1), []),  # 1 of 20 is 5 %, and no more
        ((2, 2), ["warning: 10 % of the rollouts of a.jsonl", "warning: 10 % of the rollouts of b.jsonl"]),
        ((0, 2), ["warning: 10 % of the rollouts of b.jsonl are missing and 0 % of a.jsonl: the verdict may"]),
        ((3, 2), ["warning: 15 % of the rollouts of a.jsonl", "warning: 10 % of the rollouts of b.jsonl"]),
        ((4, 2), ["warning: 20 % of the rollouts of a.jsonl are missing and 10 % of b.jsonl: the verdict may"]),
    ],
)
def test_warnings_above_five_per_cent_and_of_shares_that_differ(tmp_path, lost, said):
    sides = [[[1]] * (20 - count) + [[None]] * count for count in lost]
    both = compare(*runs(tmp_path, *sides))
    notes = both.to_dict()["contests"][0]["pairs"][0]["notes"]
    warned = [note.replace("\xa0", " ") for note in notes if note.startswith("warning")]
    page = " ".join(terminal.render(document(both)).replace("\xa0", " ").split())
    assert all(text in page for text in said)  # the default page leaves out no warning
    assert len(warned) == len(said)
    assert all(note.startswith(text) for note, text in zip(warned, said))


def test_a_named_range_is_where_missing_rollouts_lie(tmp_path):
    """Rewards range from -1 to 1: a missing one may be -1 even if all observed ones are between 0 and 1."""
    first, second = [[0.0]] * 12, [[1.0]] * 10 + [[None]] * 2
    unit = found(tmp_path, first, second)
    named = found(tmp_path, first, second, range=(-1, 1))
    assert unit.bounds == pytest.approx((10 / 12, 1.0))
    assert named.bounds == pytest.approx((8 / 12, 1.0))
