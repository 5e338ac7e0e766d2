from itertools import combinations

import numpy as np
import pytest

from calipers.rollouts.column import Column
from calipers.stats.judges import MOST_TESTS, SUSPECT, disagreement, labelled_sample, pick_tests


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


def two_judges(rng, tasks, samples):
    """Scores of a judge and of a verifier that are right in 85 and in 80 % of the rollouts, by name, and the tasks."""
    truth = rng.random((tasks, samples)) < rng.beta(1, 1, (tasks, 1))
    scores = {
        name: np.where(rng.random(truth.shape) < right, truth, ~truth).astype(float).ravel()
        for name, right in (("judge", 0.85), ("verifier", 0.8))
    }
    return scores, np.repeat(np.arange(tasks), samples)


def columns(scores):
    return {name: Column.of(values) for name, values in scores.items()}


@pytest.mark.parametrize("samples", [1, 4])
def test_labels_on_disagreements_were_not_seen_by_the_mean_of_the_judge(samples):
    """A person labelled the rollouts on which judge and verifier disagree; the judge's mean is the same there."""
    rng = np.random.default_rng(samples)
    by_mean = by_disagreement = 0
    for _ in range(30):
        scores, task = two_judges(rng, 200, samples)
        apart = np.flatnonzero(scores["judge"] != scores["verifier"])
        labelled = np.isin(np.arange(len(task)), rng.choice(apart, 30, replace=False))
        found = {(test.first, test.second): test for test in pick_tests(columns(scores), labelled, task, 1.0)}
        by_mean += found["judge", None].suspect
        test = found["judge", "verifier"]
        by_disagreement += test.suspect
        assert (test.labelled, test.labelled_rollouts, test.other_rollouts) == (1.0, 30, len(task) - 30)
        assert test.others < 0.4
    assert by_mean < 10
    assert by_disagreement == 30


@pytest.mark.parametrize("rewards", [2, 3])
def test_labels_at_random_are_suspected_in_at_most_1_percent_over_all_tests(rewards):
    rng = np.random.default_rng(rewards)
    checks, suspected = 400, 0
    for _ in range(checks):
        scores, task = two_judges(rng, 60, 1)
        for number in range(rewards - 2):
            scores[f"more {number}"] = (rng.random(60) < 0.5).astype(float)
        labelled = np.zeros(60, dtype=bool)
        labelled[rng.choice(60, 15, replace=False)] = True
        suspected += any(test.suspect for test in pick_tests(columns(scores), labelled, task, 1.0))
    assert suspected / checks <= SUSPECT + 3 * np.sqrt(SUSPECT * (1 - SUSPECT) / checks)


def test_at_most_ten_tests_and_each_can_be_suspect():
    rng = np.random.default_rng(1)
    scores, task = two_judges(rng, 100, 1)
    scores |= {f"more {number}": (rng.random(100) < 0.5).astype(float) for number in range(6)}
    labelled = scores["judge"] != scores["verifier"]
    found = pick_tests(columns(scores), labelled, task, 1.0)
    assert len(found) == MOST_TESTS
    assert next(test for test in found if test.second == "verifier").suspect


def test_a_disagreement_is_a_distance_or_that_of_the_passes():
    gap = Column(np.array([0.5, 1.0, 0.0]), np.array([True, True, False]))
    assert disagreement(gap, Column.of(np.array([0.25, 1.0, 1.0])), 1.0).values.tolist() == [0.25, 0.0, 0.0]
    assert disagreement(gap, Column.of(np.array([0.25, 1.0, 1.0])), 1.0).given.tolist() == [True, True, False]
    stars = Column.of(np.array([5.0, 2.0, 4.0]))
    assert disagreement(stars, Column.of(np.array([1.0, 1.0, 0.0])), 1.0).values.tolist() == [0.0, 0.0, 1.0]
