from itertools import combinations

import numpy as np
import pytest

from calipers.stats.judges import SUSPECT, labelled_sample


def plain(judged, labelled):
    """One sample a task."""
    return np.array(judged, float), np.array(labelled, bool), np.arange(len(judged))


def test_p_is_that_of_all_choices_of_labels():
    judged = np.array([0.1, 0.9, 0.4, 0.8, 0.3, 0.2, 0.7, 0.6])
    labelled = np.isin(np.arange(8), [1, 3, 6])
    found = labelled_sample(*plain(judged, labelled), draws=20_000)
    away = [abs(judged[list(some)].sum() - 3 * judged.mean()) for some in combinations(range(8), 3)]
    seen = abs(judged[labelled].sum() - 3 * judged.mean())
    assert found.p == pytest.approx(np.mean(np.array(away) >= seen - 1e-12), abs=0.01)
    assert (found.labelled, found.others) == pytest.approx((0.8, 0.32))


def test_labels_on_failures_are_suspect():
    judged = np.arange(200) % 2
    found = labelled_sample(*plain(judged, (judged == 0) & (np.arange(200) < 60)))
    assert (found.labelled, found.suspect, found.p) == (0.0, True, 0.001)


def test_samples_of_a_task_move_together():
    """Four samples that are all alike are one: two labelled tasks of ten prove nothing, eight labels of forty would."""
    judged, task = np.repeat([1.0, 1, 0, 0, 0, 0, 0, 0, 0, 0], 4), np.repeat(np.arange(10), 4)
    whole = labelled_sample(judged, task < 2, task)
    assert whole.p > SUSPECT
    assert whole.p == pytest.approx(1 / 45, abs=0.015)
    assert labelled_sample(judged, task < 2, np.arange(40)).suspect


def test_samples_within_a_task_are_drawn_too():
    """One label in each task, always on the sample that the judge likes best."""
    judged = np.tile([1.0, 0.0, 0.0, 0.0], 12)
    found = labelled_sample(judged, judged == 1, np.repeat(np.arange(12), 4))
    assert found.suspect
    first = np.tile([True, False, False, False], 12)
    random = np.random.default_rng(1).permuted(judged.reshape(12, 4), axis=1).ravel()
    assert not labelled_sample(random, first, np.repeat(np.arange(12), 4)).suspect


def test_the_order_of_rows_does_not_matter():
    rng = np.random.default_rng(5)
    task = rng.integers(0, 30, 120)
    judged, labelled = rng.random(120).round(2), rng.random(120) < 0.3
    order, names = rng.permutation(120), rng.permutation(30)
    found, again = (
        labelled_sample(judged, labelled, task),
        labelled_sample(judged[order], labelled[order], names[task][order]),
    )
    assert found.p == again.p
    assert (found.labelled, found.others) == pytest.approx((again.labelled, again.others), abs=1e-12)


@pytest.mark.parametrize("samples", [1, 3])
def test_false_warnings_are_rare(samples):
    """A judge that passes 19 in 20: a normal approximation would warn too often."""
    rng = np.random.default_rng(11)
    checks, tasks, warned = 300, 60, 0
    for _ in range(checks):
        judged = (rng.random((tasks, samples)) < 0.95).astype(float)
        labelled = np.zeros((tasks, samples), bool)
        labelled[rng.choice(tasks, 12, replace=False)] = True
        found = labelled_sample(judged.ravel(), labelled.ravel(), np.repeat(np.arange(tasks), samples), draws=399)
        warned += found is not None and found.suspect
    assert warned / checks <= 0.01 + 3 * np.sqrt(0.01 * 0.99 / checks)


@pytest.mark.parametrize(
    ("judged", "labelled"),
    [
        ([1, 0, 1], [False, False, False]),
        ([1, 0, 1], [True, True, True]),
        ([1, 1, 1], [True, False, False]),  # no label could have fallen on another score
    ],
)
def test_nothing_to_compare(judged, labelled):
    assert labelled_sample(*plain(judged, labelled)) is None


def test_tasks_of_other_sizes_do_not_change_places():
    """The only task of its size: its labels have nowhere else to fall."""
    judged, task = np.array([1.0, 1, 0, 0]), np.array([0, 0, 1, 2])
    assert labelled_sample(judged, task == 0, task) is None
