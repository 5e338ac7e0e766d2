import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import bdtr

from calipers.stats.ranks import benjamini_hochberg, holm, ranking

ADJUSTMENTS = {"holm": holm, "bh": benjamini_hochberg}
BEST_OF = {5: 1.1629645, 10: 1.5387527}  # the mean of the largest of so many standard normal numbers
P = [0.01, 0.04, 0.03, 0.005, 0.20]


@pytest.mark.parametrize(
    ("name", "adjusted"),
    [
        ("holm", [0.04, 0.09, 0.09, 0.025, 0.2]),
        ("bh", [0.025, 0.05, 0.05, 0.025, 0.2]),
    ],
)
def test_anchors(name, adjusted):
    assert ADJUSTMENTS[name](np.array(P)).tolist() == pytest.approx(adjusted, abs=1e-6)


@pytest.mark.parametrize("name", ADJUSTMENTS)
def test_nothing_and_one(name):
    assert ADJUSTMENTS[name](np.array([])).tolist() == []
    assert ADJUSTMENTS[name](np.array([0.03])).tolist() == [0.03]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_laws(p, random):
    """Never below the p itself, never above 1, in the same order; and what is known of their order."""
    values = np.array(p)
    found = {name: adjust(values) for name, adjust in ADJUSTMENTS.items()}
    for adjusted in found.values():
        assert (adjusted >= values - 1e-15).all()
        assert (adjusted <= 1).all()
        assert (np.diff(adjusted[np.argsort(values, kind="stable")]) >= -1e-15).all()
    assert (found["holm"] <= np.minimum(1.0, values * len(values)) + 1e-15).all()  # Bonferroni
    assert (found["bh"] <= found["holm"] + 1e-12).all()
    order = random.sample(range(len(p)), len(p))
    for name, adjust in ADJUSTMENTS.items():
        assert adjust(values[order]).tolist() == pytest.approx(found[name][order].tolist(), abs=1e-15)


def looks_better(models, tasks, rate):
    """The expected best of so many equal models, by the binomial law, less the truth."""
    below = bdtr(np.arange(tasks + 1), tasks, rate) ** models
    return float((1 - below).sum()) / tasks - rate


@pytest.mark.parametrize(("models", "points"), [(10, 0.049), (5, 0.037)])
def test_how_much_better_the_best_looks(models, points):
    """On 200 tasks, of models that all pass 7 in 10."""
    assert looks_better(models, 200, 0.7) == pytest.approx(points, abs=6e-4)
    error = np.sqrt(0.7 * 0.3 / 200)
    assert BEST_OF[models] * error == pytest.approx(looks_better(models, 200, 0.7), abs=0.0015)


def runs(models, tasks, rate=0.7, seed=1):
    return (np.random.default_rng(seed).random((models, tasks)) < rate).astype(float)


def test_the_draws_know_the_optimism_too():
    values = runs(10, 200)
    found = ranking(values, seed=0, draws=4_000)
    errors = values.std(axis=1) / np.sqrt(200)
    assert found.optimism == pytest.approx(BEST_OF[10] * errors.mean(), rel=0.05)
    assert found.corrected == pytest.approx(values.mean(axis=1).max() - found.optimism)


def test_runs_that_move_together_have_less_to_gain():
    """Ten copies of one run: whichever is the best is as good as the others."""
    copies = np.repeat(runs(1, 200), 10, axis=0)
    found = ranking(copies, draws=500)
    assert found.chance_best.tolist() == pytest.approx([0.1] * 10)
    assert found.ranks.tolist() == [5.5] * 10
    spread = ranking(runs(10, 200), draws=500).optimism
    assert found.optimism == pytest.approx(0, abs=1e-12)
    assert spread > 0.03


def test_ranks_carry_their_uncertainty():
    values = np.stack([np.full(100, 0.9), runs(1, 100, 0.5)[0], runs(1, 100, 0.5, seed=5)[0]])
    found = ranking(values, draws=2_000)
    assert (found.ranks[0], found.low[0], found.high[0], found.chance_best[0]) == (1, 1, 1, 1)
    assert (found.low[1:].tolist(), found.high[1:].tolist()) == ([2, 2], [3, 3])  # nobody knows which is second
    assert found.best == 0


def test_lower_may_be_better():
    values = np.stack([np.full(50, 0.2), np.full(50, 0.4)]) + 0.01 * runs(2, 50)
    found = ranking(values, higher_is_better=False, draws=500)
    assert (found.best, found.ranks.tolist()) == (0, [1, 2])
    assert found.optimism < 0  # the best looks lower than it is
    assert found.corrected > found.values[0]


def test_clusters_widen_the_ranks():
    random = np.random.default_rng(3)
    luck = random.normal(size=(2, 10)).repeat(10, axis=1)
    values = luck + np.array([[0.0], [0.3]])
    clusters = np.repeat(np.arange(10), 10)
    tasks, whole = ranking(values, draws=2_000), ranking(values, clusters=clusters, draws=2_000)
    assert 0.5 < whole.chance_best.max() < tasks.chance_best.max()
    assert whole.optimism > 2 * tasks.optimism


@pytest.mark.parametrize(("tasks", "clusters"), [(0, None), (1, None), (4, np.zeros(4, int))])
def test_one_task_ranks_nobody(tasks, clusters):
    with pytest.raises(ValueError, match="two or more"):
        ranking(np.ones((3, tasks)), clusters=clusters)
