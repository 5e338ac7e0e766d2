import numpy as np
import pytest

from calipers.stats.judges import NO_JUDGED, NO_LABELS, ONE_KIND, UNSTEADY, ppi_by_task, rogan_gladen_by_task

# B20: 100 labelled rows with 60 right passes, 20 right fails, 12 false passes, 8 false fails; 1000 rows, 720 passes
LABELS = np.repeat([1.0, 0.0, 0.0, 1.0], [60, 20, 12, 8])
JUDGED = np.repeat([1.0, 0.0, 1.0, 0.0], [60, 20, 12, 8])
OTHERS = np.repeat([1.0, 0.0], [720, 280])


def rows(task=None):
    labels = np.concatenate([LABELS, np.zeros(1000)])
    judged = np.concatenate([JUDGED, OTHERS])
    return labels, np.arange(1100) < 100, judged, np.arange(1100) if task is None else task


@pytest.mark.parametrize(
    ("trust", "value", "stderr"),
    [(None, 0.68, 0.040527), (1.0, 0.68, 0.046966), (0.0, 0.68, 0.046883)],
)
def test_one_sample_per_task_is_the_published_case(trust, value, stderr):
    found = ppi_by_task(*rows(), trust=trust)
    assert (found.value, found.stderr) == (pytest.approx(value, abs=1e-6), pytest.approx(stderr, rel=2e-4))
    assert (found.labelled, found.judged) == (100, 1000)


def test_rogan_gladen_is_the_published_case():
    found = rogan_gladen_by_task(*rows())
    assert found.value == pytest.approx(0.68)
    assert found.interval is not None


def test_copies_of_a_row_are_no_new_knowledge():
    labels, labelled, judged, task = rows()
    twice = ppi_by_task(np.repeat(labels, 2), np.repeat(labelled, 2), np.repeat(judged, 2), np.repeat(task, 2))
    once = ppi_by_task(labels, labelled, judged, task)
    assert (twice.value, twice.stderr) == (pytest.approx(once.value), pytest.approx(once.stderr))
    errors = [
        rogan_gladen_by_task(np.repeat(labels, n), np.repeat(labelled, n), np.repeat(judged, n), np.repeat(task, n))
        for n in (1, 2)
    ]
    assert errors[1].stderr == pytest.approx(errors[0].stderr, rel=0.03)  # a jackknife beside the delta method


def drawn(rng, tasks, samples, labelled_tasks, labels_each):
    """Tasks of any difficulty, a judge that passes 90 % of the good and 25 % of the bad."""
    good = rng.random((tasks, samples)) < rng.random(tasks)[:, None]
    judged = np.where(good, rng.random(good.shape) < 0.9, rng.random(good.shape) < 0.25)
    labelled = np.zeros(good.shape, dtype=bool)
    for task in rng.choice(tasks, labelled_tasks, replace=False):
        labelled[task, rng.choice(samples, labels_each, replace=False)] = True
    flat = good.astype(float).ravel(), labelled.ravel(), judged.astype(float).ravel()
    return *flat, np.repeat(np.arange(tasks), samples)


@pytest.mark.parametrize(
    ("tasks", "samples", "labelled_tasks", "labels_each"),
    [(200, 4, 40, 4), (200, 4, 40, 1), (100, 4, 100, 1), (60, 8, 60, 2)],  # whole tasks, then parts of them
)
def test_the_interval_holds_and_ppi_is_never_worse_than_labels(tasks, samples, labelled_tasks, labels_each):
    rng = np.random.default_rng(7)
    repeats = 300
    held, tuned, alone = 0, [], []
    for _ in range(repeats):
        some = drawn(rng, tasks, samples, labelled_tasks, labels_each)
        found = ppi_by_task(*some)
        held += found.interval[0] <= 0.5 <= found.interval[1]
        tuned.append(found.value)
        alone.append(ppi_by_task(*some, trust=0.0).value)
    assert held / repeats >= 0.91  # three errors of the simulation below 95 %
    assert np.mean(tuned) == pytest.approx(0.5, abs=0.015)
    assert np.std(tuned) < np.std(alone)


@pytest.mark.parametrize(
    ("labels", "labelled", "judged", "task", "why"),
    [
        ([1, 0], [False, False], [1, 0], [0, 1], NO_LABELS),
        ([1, 1, 0], [True, False, False], [1, 1, 0], [0, 0, 1], "one task says nothing about others"),
        ([1, 0, 1], [True, True, False], [1, 0, 1], [0, 1, 0], NO_JUDGED),  # one task has judgements beside
    ],
)
def test_what_cannot_be_corrected_says_why(labels, labelled, judged, task, why):
    arrays = np.array(labels, float), np.array(labelled), np.array(judged, float), np.array(task)
    found = ppi_by_task(*arrays, trust=1.0)
    assert (found.value, found.interval, found.why) == (None, None, why)


def test_one_task_that_decides_everything_gives_no_error():
    # without task 1 no bad rollout is labelled: there is no specificity to work with
    labels, labelled = np.array([1.0, 1, 0, 0, 1, 1]), np.array([True, False, True, False, True, False])
    found = rogan_gladen_by_task(labels, labelled, np.array([1.0, 1, 0, 0, 1, 0]), np.array([0, 0, 1, 1, 2, 2]))
    assert (found.value is not None, found.interval, found.why) == (True, None, UNSTEADY)
    same = rogan_gladen_by_task(np.ones(6), labelled, np.ones(6), np.array([0, 0, 1, 1, 2, 2]))
    assert (same.value, same.why) == (None, ONE_KIND)


def test_rewards_without_a_range_get_the_t_interval():
    rng = np.random.default_rng(3)
    labels, labelled, judged, task = drawn(rng, 50, 2, 50, 1)
    found = ppi_by_task(10 * labels, labelled, 10 * judged, task, limits=None)
    assert found.interval[1] - found.value == pytest.approx(found.value - found.interval[0])
