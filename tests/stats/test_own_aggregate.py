"""A metric whose aggregate is somebody's own has an interval too: its tasks are drawn again."""

import numpy as np
import pytest

from calipers.metrics import Metric, each, mean, median, task_mean
from calipers.rollouts.column import Column, Groups
from calipers.stats.estimate import Settings, Signature, estimate_of, reduce_tasks


def middle_half(values):
    """The mean of the middle half of the tasks, ``[..., T] -> [...]``."""
    cut = values.shape[-1] // 4
    return np.sort(values, axis=-1)[..., cut : values.shape[-1] - cut].mean(axis=-1)


SOME = "some bootstrap draws"
FAILED = "the metric failed on a bootstrap draw: 0"
MIDDLE = Metric("middle_half", task_mean, middle_half)


def found(values, metric=MIDDLE, by=None, **more):
    by = Groups.of(np.arange(len(values)), len(values)) if by is None else by
    settings = Settings(by=by, **more)
    reduced = reduce_tasks(metric, {}, [Column.of(values)], settings)
    return estimate_of(metric, {}, reduced, settings, Signature(metric.name, drawn=("seed:0",)))


def test_the_interval_covers_the_truth_as_often_as_it_says():
    """200 worlds of 60 tasks: 95 % nominal; below 0.89 or above 0.995 a right method comes once in 3,000 tries."""
    draw = np.random.default_rng(4)
    truth = float(middle_half(draw.beta(2, 1, 200_000)))
    worlds = [found(draw.beta(2, 1, 60), seed=number) for number in range(200)]
    covered = np.mean([low <= truth <= high for low, high in (world.interval for world in worlds)])
    assert 0.89 <= covered <= 0.995
    assert {world.method for world in worlds} == {"bootstrap"}
    # the standard error is the spread of the values, within a fifth
    assert np.mean([world.stderr for world in worlds]) == pytest.approx(np.std([w.value for w in worlds]), rel=0.2)


def test_an_aggregate_that_takes_one_draw_at_a_time_gives_the_same():
    values = np.random.default_rng(1).random(40)
    flat = Metric("flat", task_mean, lambda values: float(np.sort(values)[10:30].mean()) if values.ndim == 1 else 0.5)
    assert found(values, flat).interval == pytest.approx(found(values).interval)


def test_a_mean_written_by_hand_has_about_the_interval_of_the_mean():
    values = np.random.default_rng(2).random(400)
    own, ours = (found(values, Metric("m", task_mean, one)) for one in (lambda values: values.mean(axis=-1), mean))
    assert (own.method, ours.method) == ("bootstrap", "t")
    assert own.interval == pytest.approx(ours.interval, abs=0.006)


def test_clusters_and_rollouts_are_drawn_whole():
    draw = np.random.default_rng(3)
    shared = np.repeat(draw.random(30), 4)  # four alike in each of thirty
    alone = found(shared).stderr
    clusters = np.repeat(np.arange(30), 4)
    assert found(shared, clusters=clusters).stderr > 1.5 * alone
    rows = Metric("middle", each, median, rows=True, interval="bootstrap")
    by = Groups.of(clusters, 30)
    assert found(shared, rows, by).stderr > 1.3 * found(shared, rows).stderr


@pytest.mark.parametrize(
    ("values", "aggregate", "why"),
    [
        ([0.5], middle_half, "one task says nothing about others"),
        ([0.5, 0.5, 0.5], middle_half, "every bootstrap draw gives the same number"),
        (
            [0.0, 1.0],
            lambda values: 1 / np.asarray(values.sum(axis=-1)),
            "the metric is not a number on some bootstrap draws",
        ),
        (
            [0.0, 1.0],
            lambda values: values.sum() if values.ndim == 1 else {}[0],
            "the metric failed on a bootstrap draw: 0",
        ),
    ],
)
def test_why_there_is_none(values, aggregate, why):
    with np.errstate(divide="ignore"):
        assert found(values, Metric("own", task_mean, aggregate)).why == why


def test_the_interval_stays_in_the_range():
    values = np.array([1.0] * 5 + [0.0])
    wide = Metric("wide", task_mean, lambda values: 2 * values.mean(axis=-1) - 0.7, range=(0.0, 1.0))
    low, high = found(values, wide).interval
    assert 0.0 <= low < high <= 1.0
