import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calipers.stats.power import Clusters, PairVariance, best_split, samples_worth, smallest_difference

MILLER = PairVariance(1 / 9, 1 / 6, 1 / 6)


@pytest.mark.parametrize(
    ("pair", "samples"),
    [
        (PairVariance(1 / 12, 1 / 6, 0.0), 6),  # "beyond 6, more tasks beat more repeats"
        (PairVariance(0.2, 0.0, 0.0), 1),
        (PairVariance(0.0, 0.2, 0.2), None),  # all tasks alike: every sample counts in full
        (PairVariance(0.0, 0.0, 0.0), 1),
        (PairVariance(1.0, 0.01, 0.0), 5),  # little noise: a fourth of it is three quarters gone
    ],
)
def test_when_more_samples_are_wasted(pair, samples):
    assert samples_worth(pair) == samples


def test_how_to_spend_a_budget():
    assert best_split(MILLER, 10_000, per_sample=1) == (5_000, 1)  # tasks for nothing: never sample one twice
    _, samples = best_split(MILLER, 10_000, per_sample=1, per_task=20)
    assert samples == pytest.approx(math.sqrt(1 / 3 * 20 / (1 / 9 * 2)), abs=1)
    assert best_split(MILLER, 10_000, per_sample=1, most_tasks=198) == (198, 25)  # 9,900
    assert best_split(MILLER, 3, per_sample=1) is None  # one task with one sample in each run is all
    with pytest.raises(ValueError, match="above 0"):
        best_split(MILLER, 3, per_sample=0)


def test_a_budget_buys_whole_clusters():
    tens = Clusters(size=10.0)
    assert best_split(MILLER, 1_050, per_sample=1, clusters=tens) == (520, 1)  # 1,040; not 525 tasks
    assert best_split(MILLER, 1_050, per_sample=1) == (525, 1)
    assert best_split(MILLER, 10_000, per_sample=1, most_tasks=198, clusters=tens)[0] == 198  # they need not be whole
    assert best_split(MILLER, 30, per_sample=1, clusters=tens) is None


@settings(max_examples=30)
@given(st.floats(0, 1), st.floats(0.01, 1), st.floats(0, 30), st.integers(150, 2_000))
def test_no_other_split_is_better(tasks, sampling, per_task, budget):
    pair = PairVariance(tasks, sampling, sampling)
    best_tasks, best_samples = best_split(pair, budget, per_sample=1, per_task=per_task)
    assert best_tasks * (per_task + 2 * best_samples) <= budget * (1 + 1e-9)
    smallest = smallest_difference(pair.of(best_samples), best_tasks)
    for samples in (1, 2, 3, 5, 8, 13, 21):
        count = int(budget / (per_task + 2 * samples))
        if count >= 10:
            assert smallest <= smallest_difference(pair.of(samples), count) * 1.02
