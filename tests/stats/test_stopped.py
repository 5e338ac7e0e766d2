"""The numbers of stopped runs, and the bench that simulates such runs against the product."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2]))

from bench.simulations.looking import drawn, seen_of
from bench.simulations.stopped import KINDS, Rule, at_stop, lower_ends, stopped_cells, unkept, upper_ends
from calipers.metrics.rewards import MEAN_REWARD
from calipers.request import make_plan
from calipers.rollouts.column import Column, Groups
from calipers.running.watcher import Headline, Until
from calipers.stats.curve import CLUSTERED, pass_curves, sequence_curve
from calipers.stats.estimate import (
    NO_SEQUENCE,
    STOPPED_NO_RANGE,
    Settings,
    Signature,
    estimate_of,
    reduce_tasks,
    sequence_only,
)
from calipers.stats.intervals import interval
from calipers.stats.sequence import population
from calipers.stats.suite import NO_MEAN, Member, suites, without_means

BY = Signature("by", drawn=("seed:0",))


def found(values, how="default"):
    settings = Settings(by=Groups.of(np.arange(len(values)), len(values)), interval=how)
    params = {"reward": "reward"}
    reduced = reduce_tasks(MEAN_REWARD, params, [Column.of(values)], settings)
    return estimate_of(MEAN_REWARD, params, reduced, settings, Signature("by", drawn=("seed:0",)))


def test_only_a_sequence_is_left_to_a_stopped_run():
    values = [1.0, 0.0, 1.0, 1.0]
    sequence = found(values, "beta_mixture")
    assert sequence_only(sequence) == sequence
    fixed = found(values)
    left = sequence_only(fixed)
    assert (left.value, left.stderr) == (fixed.value, fixed.stderr)
    assert (left.interval, left.method, left.why, left.signature) == (
        None,
        None,
        NO_SEQUENCE,
        "by|interval:none|seed:0",
    )


def test_why_there_is_no_interval_names_none_that_does_not_hold():
    assert sequence_only(found([1.0, 3.0, 2.0], "beta_mixture")).why == STOPPED_NO_RANGE
    one = found([1.0], "beta_mixture")
    assert sequence_only(one).why == one.why == "one task says nothing about others"


def test_a_mean_over_datasets_has_no_interval_where_a_run_was_stopped():
    parts = [Member("a", "m", name, {"mean_reward": found([1.0, 0.0, 1.0, 1.0])}) for name in ("one", "two")]
    suite = suites(parts, ["mean_reward"])
    assert without_means(suite, [("a", "other")]) == suite
    (bare,) = without_means(suite, [("a", "m")])
    for kind in ("macro", "micro"):
        was, now = (getattr(one.metrics["mean_reward"], kind) for one in (suite[0], bare))
        assert was.interval is not None
        assert (now.value, now.interval, now.method, now.why) == (was.value, None, None, NO_MEAN)


def test_a_curve_of_a_stopped_run_has_the_sequence_at_every_k():
    rewards, by = Column.of([1.0, 0.0, 1.0, 1.0, 0.0, 0.0]), Groups.of(np.repeat(np.arange(3), 2), 3)
    (curve, _) = pass_curves(rewards, by)
    points = sequence_curve(curve, unit=True, clustered=False, confidence=0.95).points
    assert [point.interval for point in points] == [population(1.5, 3, 0.95), population(2.0, 3, 0.95)]
    assert [point.value for point in points] == [point.value for point in curve.points]
    for more, why in (
        ({"unit": False, "clustered": False}, STOPPED_NO_RANGE),
        ({"unit": True, "clustered": True}, CLUSTERED),
    ):
        bare = sequence_curve(curve, **more, confidence=0.95).points
        assert {(point.interval, point.why) for point in bare} == {(None, why)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rule", [Rule("lower", 0.45), Rule("upper", 0.75), Rule("width", 0.45)])
def test_the_bench_stops_where_the_product_does(kind, rule):
    values = drawn(kind, (20, 60), 0.6, np.random.default_rng(3))
    reached = rule.reached(seen_of(values))
    sign = ">" if rule.side == "lower" else "<"
    plan = make_plan("mean_reward")
    until = Until.of(f"{rule.side}(mean_reward) {sign} {rule.bound}", plan)
    for row, run in enumerate(values):
        headline = Headline(until.request, len(run), 1)
        for place, value in enumerate(run):
            headline.settle(place, 0, "scored", float(value))
            assert until.reached(headline.estimate()) == reached[row, place], (row, place)


def test_the_bench_covers_what_the_product_covers():
    values = drawn(KINDS[1], (30, 200), 0.6, np.random.default_rng(4))
    rule = Rule("lower", 0.45)
    seen = seen_of(values)
    held = at_stop(values, values, seen, rule, 0.6)
    stops = rule.reached(seen)[:, :-1]
    rows = np.flatnonzero(stops.any(axis=1))
    assert len(rows) == len(held) > 20
    for row, (tasks, value, fixed, kept, claimed) in zip(rows, held, strict=True):
        some = values[row, : int(tasks)]
        low, high = interval(some, np.ones(len(some)), 0.95, (0.0, 1.0)).ends
        least, most = population(float(some.sum()), len(some), 0.95)
        assert value == pytest.approx(some.mean())
        assert (bool(fixed), bool(kept)) == (low <= 0.6 <= high, least <= 0.6 <= most)
        assert not claimed  # a run against itself
        assert lower_ends(seen)[row, len(some) - 1] == pytest.approx(least, abs=1e-6)
        assert upper_ends(seen)[row, len(some) - 1] == pytest.approx(most, abs=1e-6)


def test_a_small_part_of_the_bench_shows_the_bias_and_its_direction():
    cells = list(stopped_cells(200, np.random.default_rng(5)))
    of = {(cell.kind, cell.mean, cell.rule.text): cell for cell in cells}
    high, low = of["0 and 1", 0.6, "lower > 0.5"], of["0 and 1", 0.6, "upper < 0.7"]
    assert high.bias > 0.02
    assert low.bias < -0.02
    assert high.sequence > high.fixed
    worse = [type(high)(**{**{name: getattr(high, name) for name in high.__slots__}, "ever": 0.2, "bias": -0.1})]
    assert len(unkept(worse, 200)) == 2  # the sequence misses too often, and the bias has the wrong sign
