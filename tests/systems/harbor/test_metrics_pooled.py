"""Harbor's metrics from columns equal those from maps."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import calipers
from calipers.rollouts.column import Column, Groups
from calipers.systems.harbor.metrics import BUILT_IN, counted, ladder, metric, pass_ladder, statistic

VERDICTS = st.one_of(
    st.none(), st.just({}), st.dictionaries(st.sampled_from("ab"), st.sampled_from([0.0, 1.0]), max_size=1)
)
ANY = st.one_of(VERDICTS, st.dictionaries(st.sampled_from("ab"), st.sampled_from([0.0, 1.0, 0.5, -2.0, 0.1])))
TASKS = st.lists(st.lists(ANY, min_size=1, max_size=11), min_size=1, max_size=4)
LADDERS = st.lists(st.lists(VERDICTS.filter(lambda one: one != {}), min_size=1, max_size=11), min_size=1, max_size=4)


def columns(tasks):
    trials = [trial for task in tasks for trial in task]
    keys = sorted({key for trial in trials if trial for key in trial})
    rewards = {
        key: Column.of([(trial or {}).get(key, 0) for trial in trials], [key in (trial or {}) for trial in trials])
        for key in keys
    }
    by = Groups.of(np.repeat(np.arange(len(tasks)), [len(task) for task in tasks]), len(tasks))
    return trials, rewards, by, np.array([trial == {} for trial in trials])


@given(tasks=TASKS, name=st.sampled_from(sorted(BUILT_IN)))
def test_statistics(tasks, name):
    trials, rewards, _, _ = columns(tasks)
    assert statistic(name, rewards, len(trials)) == pytest.approx(metric(name, trials), rel=1e-12)


@given(tasks=st.one_of(TASKS, LADDERS))
def test_ladders(tasks):
    _, rewards, by, empty = columns(tasks)
    assert ladder(rewards, by, empty) == pytest.approx(pass_ladder(tasks), rel=1e-12)


@given(tasks=st.lists(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=4), min_size=1, max_size=6))
def test_a_sum_is_rounded_once(tasks):
    """Adding up sums per task would give another last digit."""
    found = calipers.score(tasks, "pooled_sum")["pooled_sum"].value
    assert found == math.fsum(reward for task in tasks for reward in task)


def test_values_are_counted_the_largest_first():
    assert counted(Column.of([0.5, 1, -0.0, 0, 9], [True, True, True, True, False])) == {"1.0": 1, "0.5": 1, "0.0": 2}
