import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.stats.items import FEW_CURVE, FEW_RUNS, ONE_ABILITY, items


def of(passes, samples=1):
    """Runs by tasks: passes of so many samples; None where a run has not the task."""
    counts = np.array([[-1 if cell is None else cell for cell in run] for run in passes])
    size = np.where(counts < 0, 0, samples)
    counts = np.maximum(counts, 0)
    return items(counts / np.maximum(size, 1), counts, size)


def test_one_run_has_difficulties():
    found = of([[4, 0, 1, None]], samples=4)
    assert found.difficulty.values[:3].tolist() == [0, 1, 0.75]
    assert found.difficulty.given.tolist() == [True, True, True, False]
    assert found.everyone.tolist() == [True, False, False, False]
    assert found.nobody.tolist() == [False, True, False, False]  # a task without samples is not failed by all
    assert (found.samples.tolist(), found.runs.tolist()) == ([4, 4, 4, 0], [1, 1, 1, 0])
    assert not found.discrimination.given.any()
    assert found.why == FEW_RUNS


# Eight runs, better and better: task 0 is passed by the better half, task 1 by the worse half, 2 and 3 by all and none.
LADDER = [[int(run >= 4), int(run < 4), 1, 0, *(int(run > rung) for rung in range(7))] for run in range(8)]


def test_several_runs_tell_tasks_apart():
    found = of(LADDER)
    assert found.discrimination.values[0] > 0.8
    assert found.discrimination.values[1] < -0.8
    assert found.discrimination.given[:4].tolist() == [True, True, False, False]  # no spread, no correlation
    assert (found.everyone[2], found.nobody[3]) == (True, True)
    assert found.contradicts.tolist() == [False, True] + [False] * 9
    assert found.why is None


def test_the_item_is_not_in_the_rest():
    """Correlated with the whole, of which it is a half, a task that means nothing would look meaningful."""
    found = of([[1, 0], [0, 1], [1, 0], [0, 1]])
    assert found.discrimination.values.tolist() == pytest.approx([-1, -1])


def test_discrimination_by_numpy():
    random = np.random.default_rng(1)
    values = random.random((6, 5))
    found = items(values, np.zeros((6, 5), int), np.ones((6, 5), int))
    for task in range(5):
        rest = np.delete(values, task, axis=1).mean(axis=1)
        assert found.discrimination.values[task] == pytest.approx(np.corrcoef(values[:, task], rest)[0, 1])


def test_a_run_without_the_task_is_left_out():
    found = of([*LADDER, [None, *LADDER[7][1:]]])
    assert (found.runs[0], found.runs[1]) == (8, 9)
    assert found.difficulty.values[0] == 0.5


def test_few_runs_contradict_nothing():
    """Three runs in the wrong order are one of three ways to place a single pass."""
    found = of([[1, 0, 0, 0], [0, 1, 1, 0], [0, 1, 1, 1]])
    assert found.discrimination.values[0] < -0.8
    assert found.contradiction.values[0] >= 1 / 3
    assert not found.contradicts.any()


def test_chance_contradicts_one_in_twenty():
    random = np.random.default_rng(2)
    found = items(random.random((30, 2_000)), np.zeros((30, 2_000), int), np.ones((30, 2_000), int))
    assert found.contradicts.mean() == pytest.approx(0.05, abs=0.02)


def test_information_is_that_of_the_best():
    """Of two tasks that split the runs, the one that splits the good ones tells more about the next good run."""
    rungs = [[int(run >= at) for at in range(1, 12)] for run in range(12)]
    found = of(rungs)
    assert found.why_information is None
    assert found.information.given.all()
    assert np.argmax(found.information.values) > 6  # passed by the few best only
    assert found.information.values[9] > 3 * found.information.values[2]


def test_what_contradicts_has_no_information():
    found = of(LADDER)
    assert found.information.values[1] == 0
    assert found.information.values[0] > 0


@pytest.mark.parametrize(
    ("passes", "why"),
    [
        (LADDER[:4], FEW_CURVE),
        ([*LADDER[:4], [None] * 11], FEW_CURVE),  # a run without a sample is none
        ([[1, 0], [0, 1]] * 3, ONE_ABILITY),
    ],
)
def test_no_information(passes, why):
    found = of(passes)
    assert found.why_information == why
    assert not found.information.given.any()


def test_a_task_that_few_runs_have_is_a_gap():
    found = of([[None if run > 3 else 1, *row] for run, row in enumerate(LADDER)])
    assert found.information.given.tolist() == [False] + [True] * 11


@given(st.lists(st.lists(st.sampled_from([0, 1, None]), min_size=4, max_size=4), min_size=1, max_size=6))
def test_laws(passes):
    found = of(passes)
    mirrored = of([[None if cell is None else 1 - cell for cell in run] for run in passes])
    assert (found.everyone == mirrored.nobody).all()
    assert not (found.everyone & found.nobody).any()
    assert (np.abs(found.discrimination.values) <= 1).all()
    assert mirrored.discrimination.values == pytest.approx(found.discrimination.values, abs=1e-9)
    there = found.difficulty.given
    assert (found.difficulty.values + mirrored.difficulty.values)[there] == pytest.approx(1)
