"""Matrices: compared tasks, the mean over benchmarks, adjusted verdicts, and notes."""

import json
import math

import numpy as np
import pytest
from analyses.matrix.rows import NEW, OLD, rows_of, share, suite_rows
from running.stopping import stopped

import calipers
from calipers.analyses.matrix import FINISHED, NO_COMMON
from calipers.errors import Incomplete, InputError
from calipers.stats.ranks import holm


@pytest.fixture(scope="module")
def found():
    return calipers.matrix(suite_rows())


def only(rows, **wanted):
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def test_values_are_those_of_score_and_differences_those_of_compare(found):
    rows = suite_rows()
    for row in found.benchmarks:
        sides = [only(rows, dataset=row.benchmark, model=model) for model in (OLD, NEW)]
        for cell, side in zip(row.cells, sides, strict=True):
            alone = calipers.score(side)["mean_reward"]
            assert (cell.value, cell.interval, cell.stderr) == (alone.value, alone.interval, alone.stderr)
        compared = calipers.compare(*sides, metric="mean_reward")["mean_reward"]
        (pair,) = row.pairs
        assert (pair.delta, pair.interval, pair.p) == (compared.delta, compared.interval, compared.p)
        assert (pair.stderr, pair.floored_stderr) == (compared.stderr, compared.floored_stderr)
        assert pair.delta == pytest.approx(row.cells[1].value - row.cells[0].value)


def test_no_models_are_no_choice():
    with pytest.raises(InputError, match="models is empty; expected the names of the models to show"):
        calipers.matrix(suite_rows(), models=[])


@pytest.mark.parametrize(("models", "cluster", "unseen"), [("ab", None, "task lost"), ("ba", "group", "cluster won")])
def test_what_would_undo_a_verdict_is_said_in_its_direction(models, cluster, unseen):
    """Twelve tasks and one constant run: the spread is estimated from the observed tasks."""
    rows = [
        {"task": f"t{n}", "group": f"g{n}", "dataset": "x", "model": model, "reward": reward}
        for n in range(12)
        for model, reward in (("a", 0.90), ("b", 0.91 + 0.001 * n))
    ]
    found = calipers.matrix(rows, models=list(models), cluster=cluster)
    assert f"x: one more {unseen} outright would undo a verdict" in found.notes


def test_nothing_is_decided_alone_and_the_mean_is(found):
    singles = [row.pairs[0] for row in found.benchmarks]
    assert [pair.verdict for pair in singles] == ["undecided"] * 5
    (mean,) = found.mean.pairs
    assert mean.delta == pytest.approx(sum(pair.delta for pair in singles) / 5)
    assert mean.stderr == pytest.approx(math.sqrt(sum(pair.stderr**2 for pair in singles)) / 5)
    assert mean.floored_stderr == pytest.approx(math.sqrt(sum(pair.floored_stderr**2 for pair in singles)) / 5)
    assert mean.verdict == "better"
    assert mean.interval[0] > 0
    assert mean.p < 0.05 < min(pair.p_holm for pair in singles)
    assert found.mean.best == NEW
    assert found.verdicts == ["better"]


def test_the_mean_of_a_model_is_that_of_score(found):
    macro = [suite.metrics["mean_reward"].macro for suite in calipers.score(suite_rows()).suites]
    assert [cell.value for cell in found.mean.cells] == [estimate.value for estimate in macro]
    assert [cell.interval for cell in found.mean.cells] == [estimate.interval for estimate in macro]


def test_single_benchmarks_are_adjusted_among_each_other_and_the_mean_is_not(found):
    raw = np.array([row.pairs[0].p for row in found.benchmarks])
    assert [row.pairs[0].p_holm for row in found.benchmarks] == holm(raw).tolist()
    assert found.tests == 5
    assert found.mean.pairs[0].p_holm == found.mean.pairs[0].p


def test_the_order_of_models_is_the_one_asked_for():
    (pair,) = calipers.matrix(suite_rows(), models=[NEW, OLD]).mean.pairs
    assert (pair.first, pair.second, pair.verdict) == (NEW, OLD, "worse")


def test_lower_is_better_for_a_cost():
    rows = [
        {"dataset": name, "model": model, "task": t, "reward": 1.0, "latency_s": (1.0 + 0.1 * (t % 5)) * slow}
        for name in "xy"
        for model, slow in (("a", 1.0), ("b", 2.0))
        for t in range(30)
    ]
    found = calipers.matrix(rows, metric="time_per_task")
    assert not found.higher_is_better
    assert found.mean.pairs[0].delta > 0
    assert found.mean.pairs[0].verdict == "worse"
    assert found.mean.best == "a"


def test_within_a_margin_two_models_are_equivalent():
    rows = rows_of({(name, model): share(0.5, 400) for name in "xy" for model in "ab"})
    found = calipers.matrix(rows, margin=0.05)
    assert [row.pairs[0].verdict for row in found.benchmarks] == ["equivalent"] * 2
    assert found.mean.pairs[0].verdict == "equivalent"
    assert calipers.matrix(rows).mean.pairs[0].verdict == "undecided"


def test_claims_of_equivalence_are_adjusted_for_the_number_of_benchmarks():
    """The margin is chosen so that one benchmark alone is just within it."""
    values = share(0.5, 100)
    alone = rows_of({("x0", model): values for model in "ab"})
    many = rows_of({(f"x{number}", model): values for number in range(6) for model in "ab"})
    assert calipers.matrix(alone, margin=0.04)["x0"].pairs[0].verdict == "equivalent"
    found = calipers.matrix(many, margin=0.04)
    assert {row.pairs[0].verdict for row in found.benchmarks} == {"undecided"}
    assert found.mean.pairs[0].verdict == "equivalent"


# --- what is not in the comparison


def test_every_model_has_the_value_of_its_own_tasks_and_a_pair_is_compared_on_those_of_both():
    values = share(0.5)
    first = [*values[:50], *[None] * 10]
    second = [*[None] * 5, *[1 - value for value in values[5:]]]
    rows = rows_of({("x", "a"): first, ("x", "b"): second, ("y", "a"): values, ("y", "b"): values})
    found = calipers.matrix(rows)
    assert (found["x"].tasks, found["x"].excluded_tasks) == (60, 15)
    assert found["x"].cells[0].value == pytest.approx(np.mean(values[:50]))
    assert found["x"].cells[1].value == pytest.approx(1 - np.mean(values[5:]))
    (pair,) = found["x"].pairs
    assert (pair.tasks, pair.delta) == (45, pytest.approx(1 - 2 * np.mean(values[5:50])))
    assert "warning: a ran 50 of 60 tasks of x" in found.notes
    assert "warning: b ran 55 of 60 tasks of x" in found.notes


def test_the_gaps_of_one_model_do_not_remove_tasks_from_the_other_pairs():
    """Only tasks of all three models were compared: a model that ran ten tasks hid a difference of .3 on 80."""
    rows = rows_of({("x", "a"): share(0.3, 80), ("x", "b"): share(0.6, 80), ("x", "c"): share(0.5, 80)[:10]})
    pairs = {(pair.first, pair.second): pair for pair in calipers.matrix(rows)["x"].pairs}
    assert (pairs["a", "b"].tasks, pairs["a", "b"].verdict) == (80, "better")
    assert pairs["a", "c"].tasks == pairs["b", "c"].tasks == 10


def test_missing_rollouts_are_counted_excluded_and_said():
    rows = rows_of({(name, model): share(0.5) for name in "xy" for model in "ab"})
    lost = [
        {**row, "reward": None, "outcome": "client_failed"}
        if (row["dataset"], row["model"]) == ("x", "b") and row["task"] in ("t0", "t1")
        else row
        for row in rows
    ]
    found = calipers.matrix(lost)
    assert (found["x"].tasks, found["x"].cells[1].missing, found["x"].cells[1].planned) == (60, 2, 60)
    assert (found["x"].cells[1].tasks, found["x"].pairs[0].tasks) == (58, 58)
    assert found.mean.cells[1].missing == 2
    assert "2 of 240 rollouts are missing (excluded): x 2" in found.notes
    assert calipers.matrix(lost, missing="zero")["x"].tasks == 60
    with pytest.raises(Incomplete, match="2 of 60 rollouts are missing"):
        calipers.matrix(lost, missing="fail")


def test_a_benchmark_of_one_model_is_shown_and_not_in_the_mean():
    rows = rows_of({(name, model): share(0.5) for name in "xy" for model in "ab"} | {("z", "a"): share(0.9)})
    found = calipers.matrix(rows)
    assert (found.mean.benchmarks, found.mean.excluded) == (["x", "y"], ["z"])
    assert (found["z"].cells[0].value, found["z"].cells[1].why) == (0.9, "not run")
    assert not found["z"].in_mean
    assert found.mean.cells[0].value == found.mean.cells[1].value == 0.5
    assert any("the mean is over x, y; not in it" in note and note.endswith("z") for note in found.notes)


def test_models_without_a_common_task_are_not_compared():
    rows = rows_of({("x", "a"): [None] * 30 + share(0.5, 30), ("x", "b"): share(0.5, 30)})
    rows += rows_of({("y", model): share(0.5) for model in "ab"})
    found = calipers.matrix(rows)
    assert (found["x"].pairs, found["x"].why) == ([], NO_COMMON)
    assert [cell.value for cell in found["x"].cells] == [0.5, 0.5]
    assert found.mean.benchmarks == ["y"]


def test_a_benchmark_with_one_task_leaves_the_mean_without_a_test():
    rows = rows_of({("x", "a"): [1.0], ("x", "b"): [0.0], ("y", "a"): share(0.5), ("y", "b"): share(0.9)})
    (pair,) = calipers.matrix(rows).mean.pairs
    assert pair.delta == pytest.approx((-1 + 0.4) / 2)
    assert (pair.p, pair.interval, pair.verdict) == (None, None, "undecided")
    assert pair.why.startswith("no test on 'x'")


def test_finished_results_have_values_and_no_differences(tmp_path):
    rows = rows_of({(name, model): share(0.5) for name in "xy" for model in "ab"})
    (tmp_path / "a.json").write_text(calipers.score(only(rows, model="a")).to_json())
    found = calipers.matrix(str(tmp_path / "a.json"), only(rows, model="b"))
    assert [row.why for row in found.benchmarks] == [FINISHED] * 2
    assert {column.name for column in found.models} == {"a", "b"}
    assert [cell.value for cell in found.mean.cells] == [0.5, 0.5]
    assert found.mean.pairs == []


def test_a_run_that_was_stopped_by_its_results_is_not_tested(tmp_path):
    folder = stopped(tmp_path).folder
    rollouts = calipers.read(str(folder))
    other = [{"dataset": rollouts.keys[0][2], "model": "other", "task": task, "reward": 1.0} for task in rollouts.tasks]
    (row,) = calipers.matrix(str(folder), other).benchmarks
    (pair,) = row.pairs
    assert pair.delta is not None
    assert (pair.p, pair.interval, pair.verdict) == (None, None, "undecided")
    assert "stopped by what it showed" in pair.why


# --- many models


def test_of_three_models_the_best_is_marked_only_if_it_beats_every_other():
    clear = {
        (name, model): share(rate, 120) for name in "xy" for model, rate in zip("abc", (0.2, 0.4, 0.8), strict=True)
    }
    found = calipers.matrix(rows_of(clear))
    assert found.tests == 6
    assert [row.best for row in found.benchmarks] == ["c", "c"]
    assert found.mean.best == "c"
    tied = {**clear, ("x", "b"): share(0.8, 120)}
    assert calipers.matrix(rows_of(tied))["x"].best is None


def test_of_three_models_a_benchmark_that_one_did_not_run_marks_nobody():
    rates = zip("abc", (0.2, 0.4, 0.8), strict=True)
    table = {(name, model): share(rate, 120) for model, rate in rates for name in "xyz"}
    del table["z", "a"]
    found = calipers.matrix(rows_of(table))
    assert found["z"].best is None
    assert len(found["z"].pairs) == 1
    assert found.mean.benchmarks == ["x", "y"]


def test_one_model_has_values_and_their_mean():
    found = calipers.matrix(only(suite_rows(), model=OLD))
    assert found.mean.pairs == []
    assert len(found.mean.cells) == 1
    assert found.mean.tasks == 580
    assert found.verdicts == []


# --- names, wrong input, documents


def test_agents_of_one_model_have_names_of_their_own():
    rows = rows_of({("x", "m"): share(0.5)}, agent="one") + rows_of({("x", "m"): share(0.6)}, agent="two")
    assert [column.name for column in calipers.matrix(rows).models] == ["m · one", "m · two"]


@pytest.mark.parametrize(
    ("models", "message"),
    [
        (["Claude-3.5-Sonnet-2024062", NEW], f"did you mean '{OLD}'"),
        ([NEW, NEW], "is given twice"),
        (["gpt"], "known: Claude"),
    ],
)
def test_unknown_models(models, message):
    with pytest.raises(InputError, match=message):
        calipers.matrix(suite_rows(), models=models)


def test_two_runs_of_one_benchmark_and_model_are_refused():
    rows = rows_of({("x", "a"): share(0.5)})
    with pytest.raises(InputError, match="is a second run of 'x' by 'a'"):
        calipers.matrix(rows, rows)


def test_a_metric_that_is_no_mean_over_tasks_is_refused():
    with pytest.raises(InputError, match="no mean over tasks"):
        calipers.matrix(suite_rows(), metric="max(column=reward)")


def test_the_document_has_the_numbers_of_the_only_pair_beside_it(found):
    document = json.loads(found.to_json())
    assert document["schema"] == "calipers.matrix/1"
    pair = found.mean.pairs[0]
    mean = document["mean"]
    assert (mean["delta"], mean["stderr"], mean["p"], mean["verdict"]) == (pair.delta, pair.stderr, pair.p, "better")
    first = document["benchmarks"][0]
    assert {"delta", "p", "p_holm", "verdict", "interval"} <= first.keys()
    assert {"value", "interval", "tasks", "missing", "cost_usd"} <= first["cells"][0].keys()
    assert calipers.Matrix.from_json(found.to_json()) == calipers.Matrix.from_dict(document)
    assert calipers.Matrix.from_json(found.to_json()).digest == found.digest


def test_the_order_of_rows_changes_nothing(found):
    again = calipers.matrix(sorted(suite_rows(), key=lambda row: (row["dataset"], row["model"], row["task"])))
    for row in found.benchmarks:
        assert again[row.benchmark] == row


def test_a_row_for_each_cell(found):
    frame = found.to_polars()
    assert frame.shape[0] == 2 * 6
    last = frame.to_dicts()[-1]
    assert (last["benchmark"], last["model"], last["against"], last["verdict"]) == ("macro mean", NEW, OLD, "better")
