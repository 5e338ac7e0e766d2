"""Plans: the published numbers, the power they promise by simulation, and what samples are worth."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2]))

import calipers
from bench.simulations.paired_rule import floored_p, of_cluster_sums
from calipers.analyses.plan_study import StudyClusters, StudyInputs, StudyRequest, from_numbers, study
from calipers.errors import InputError
from calipers.stats.paired import paired
from calipers.stats.power import Clusters, PairVariance, Pilot, best_split

MILLER = PairVariance(1 / 9, 1 / 6, 1 / 6)  # the worked example of Miller 2024, section 5


def known(pair=MILLER, **more):
    return StudyInputs("made up", pair, **more)


@pytest.mark.parametrize(
    ("samples", "tasks"),
    [(1, 3876), (2, 2423), (5, 1551), (10, 1260)],
)
def test_the_published_numbers_of_tasks(samples, tasks):
    """The t test we make takes two or three tasks more than the z of the formula."""
    found = study(known(samples=samples), StudyRequest(detect=0.03))
    (design,) = [one for one in found.designs if one.samples == samples]
    assert 0 <= design.tasks - tasks <= 4
    assert design.power == pytest.approx(0.8, abs=0.001)
    assert design.smallest == pytest.approx(0.03, rel=0.001)


@pytest.mark.parametrize(("tasks", "samples", "smallest"), [(198, 1, 0.1327), (198, 10, 0.0757), (1000, 1, 0.0591)])
def test_the_published_smallest_differences(tasks, samples, smallest):
    have = study(known(), StudyRequest(tasks=tasks, samples=samples)).have
    assert have.smallest == pytest.approx(smallest, rel=0.012)
    assert have.smallest > smallest


def rejected(runs, sizes):
    """The share of comparisons, [runs, tasks], in which "no difference" is rejected at 5 %.

    Counted by the bench's twin of `paired`, which works on all runs at once; on the first of them the two must agree.
    """
    sums = np.add.reduceat(runs, np.cumsum(sizes) - sizes, axis=1)
    found = floored_p(of_cluster_sums(sums, sizes))
    of_task = np.repeat(np.arange(len(sizes)), sizes)
    for differences, p in zip(runs[:40], found):
        assert paired(differences, clusters=of_task).p == pytest.approx(float(p), rel=1e-9, abs=1e-12)
    return float((found <= 0.05).mean())


def drawn(rng, runs, tasks, samples, shift, alike, ends):
    """Differences of task means, [runs, tasks]: chances uniform, the same in both runs for a share of the tasks."""
    low, high = ends[0], ends[1] - shift
    first = rng.uniform(low, high, (runs, tasks))
    other = rng.uniform(low, high, (runs, tasks))
    second = np.where(rng.random((runs, tasks)) < alike, first, other) + shift
    return rng.binomial(samples, second) / samples - rng.binomial(samples, first) / samples


def uniform_pair(shift, alike, ends):
    """What the variance of `drawn` is made of."""

    def within(low, high):
        middle, spread = (low + high) / 2, (high - low) ** 2 / 12
        return middle - (spread + middle * middle)

    low, high = ends[0], ends[1] - shift
    return PairVariance(2 * (1 - alike) * (high - low) ** 2 / 12, within(low + shift, high + shift), within(low, high))


@pytest.mark.parametrize(
    ("shift", "samples", "alike", "ends"),
    [
        (0.3, 1, 0.5, (0.0, 1.0)),  # 39 tasks
        (0.15, 4, 0.5, (0.0, 1.0)),  # 57
        (0.25, 8, 0.9, (0.1, 0.9)),  # 10: where the floor of the test weighs most
        (0.1, 4, 0.9, (0.1, 0.9)),  # 91
        (0.2, 16, 0.5, (0.0, 1.0)),  # 18
    ],
)
def test_the_power_that_is_promised_is_the_power_there_is(shift, samples, alike, ends):
    pair = uniform_pair(shift, alike, ends)
    found = study(known(pair, samples=samples, binary=True), StudyRequest(detect=shift))
    (design,) = [one for one in found.designs if one.samples == samples]
    runs = drawn(np.random.default_rng(7), 4000, design.tasks, samples, shift, alike, ends)
    assert rejected(runs, np.ones(design.tasks, int)) == pytest.approx(design.power, abs=0.02)


CHANCE, SWAY = 0.35, 0.15  # of a pass in the first run; of the second's difference, by cluster and again by task


def in_clusters(sizes, samples, shift):
    """Tasks whose differences correlate by 0.5 within a cluster, and what their variance is made of."""
    own = 2 * SWAY**2 / 3
    middle, heavy = CHANCE + shift, sum(size * size for size in sizes) / sum(sizes)
    pair = PairVariance(own * (1 + 0.5 * (heavy - 1)), middle * (1 - middle) - own, CHANCE * (1 - CHANCE))
    of_task = np.repeat(np.arange(len(sizes)), sizes)
    clusters = Clusters.of(of_task)
    shown = StudyClusters("source", len(sizes), clusters.size, None)
    return of_task, known(pair, tasks=len(of_task), samples=samples, binary=True, clustered=shown, clusters=clusters)


@pytest.mark.parametrize(
    ("sizes", "samples", "shift"),
    [
        ([10] * 50, 1, 0.09),
        ([10] * 50, 4, 0.07),
        ([10] * 50, 16, 0.05),
        ([10] * 10, 4, 0.15),
        ([*range(1, 23)] * 2, 4, 0.07),  # of all sizes: worth 34 clusters of one size
    ],
)
def test_the_power_that_is_promised_for_clusters(sizes, samples, shift):
    of_task, held = in_clusters(sizes, samples, shift)
    rng, runs = np.random.default_rng(11), 4000
    swayed = rng.uniform(-SWAY, SWAY, (runs, len(sizes)))[:, of_task] + rng.uniform(-SWAY, SWAY, (runs, len(of_task)))
    second = rng.binomial(samples, CHANCE + shift + swayed)
    apart = (second - rng.binomial(samples, CHANCE, second.shape)) / samples
    shown = rejected(apart, np.array(sizes))
    have = study(held, StudyRequest(detect=shift)).have
    assert have.power == pytest.approx(shown, abs=0.02)
    assert (have.tasks, have.clusters) == (len(of_task), len(sizes))


def test_more_clusters_of_the_same_size():
    """What 50 clusters show, 50 clusters are needed for; more samples leave the clusters as they are."""
    _, held = in_clusters([10] * 50, 4, 0.07)
    shown = study(held, StudyRequest()).have.smallest
    found = study(held, StudyRequest(detect=shown, budget=10.0, price_per_sample=0.001, price_per_task=0.01))
    assert [(one.tasks, one.clusters) for one in found.designs if one.samples == 4] == [(500, 50)]
    assert all(one.tasks == 10 * one.clusters for one in [*found.designs, found.best])
    alone = study(known(held.pair, samples=4, binary=True), StudyRequest(detect=shown))
    (plain,) = [one.tasks for one in alone.designs if one.samples == 4]
    assert 460 < plain < 500  # the same variance, known from as many tasks instead of 50 clusters


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (StudyRequest(tasks=15), "--tasks: is 15, less than two clusters of 10 tasks; expected 20 or more"),
        (
            StudyRequest(budget=30, price_per_sample=1.0),
            "30 does not pay for two clusters in both runs; expected at least 40",
        ),
    ],
)
def test_fewer_than_two_clusters_show_nothing(asked, said):
    with pytest.raises(InputError, match=said):
        study(in_clusters([10] * 50, 1, 0.1)[1], asked)


def test_endless_samples_and_how_many_are_enough():
    found = study(known(tasks=1100, samples=1), StudyRequest(detect=0.03))
    assert found.samples_needed == 23  # 1/3K must come down to 1100 (0.03 / 2.8016)^2 - 1/9
    assert found.endless < 0.03 < found.have.smallest
    few = study(known(tasks=198, samples=1), StudyRequest(detect=0.03))
    assert few.samples_needed is None
    assert "no number of samples shows 0.0300 on 198 tasks" in " ".join(few.advice)


def test_a_difference_that_nobody_can_show():
    found = study(known(), StudyRequest(detect=1e-9))
    assert (found.designs, found.advice[0]) == (
        [],
        "even 1,000,000,000 tasks do not show a difference of 0.000000001000",
    )


def test_where_samples_are_wasted():
    """Beyond about six, more tasks beat more repeats; where tasks are all alike, they never do."""
    assert study(known(), StudyRequest(tasks=50)).samples_worth == 6
    alike = study(known(PairVariance(0.0, 1 / 6, 1 / 6)), StudyRequest(tasks=50))
    assert alike.samples_worth is None
    assert "the estimated variance between tasks is 0" in " ".join(alike.advice)
    steady = study(known(PairVariance(1 / 9, 0.0, 0.0)), StudyRequest(tasks=50))
    assert "more than one sample per task adds nothing" in " ".join(steady.advice)


def test_a_budget_goes_to_tasks_until_they_are_dear_or_run_out():
    free = study(known(), StudyRequest(budget=100, price_per_sample=0.05))
    assert (free.best.tasks, free.best.samples, free.best.price) == (1000, 1, 100.0)
    dear = study(known(), StudyRequest(budget=100, price_per_sample=0.05, price_per_task=1.0))
    assert dear.best.samples == pytest.approx(math.sqrt((1 / 3) / (1 / 9) * 1.0 / 0.1), abs=1)
    assert dear.best.price <= 100
    few = study(known(tasks=100, samples=1), StudyRequest(budget=100, price_per_sample=0.05))
    assert (few.best.tasks, few.best_here.tasks, few.best_here.samples) == (1000, 100, 10)
    told = study(known(), StudyRequest(budget=100, price_per_sample=0.05, tasks=100))
    assert (told.best.tasks, told.best.samples, told.best_here) == (100, 10, None)


@pytest.mark.parametrize(("name", "value"), [("power", 1 - 2**-53), ("alpha", 1e-300)])
def test_levels_that_rounding_makes_certain_are_refused(name, value):
    """A power this near to 1 was searched for without end."""
    with pytest.raises(InputError, match=f"--{name}: is .*; expected a share between 0 and 1"):
        calipers.plan(baseline_rate=0.5, detect=0.1, **{name: value})


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (StudyRequest(budget=1.0), "--budget: the price of a sample is not known"),
        (
            StudyRequest(budget=0.1, price_per_sample=1.0),
            "0.1 does not pay for two tasks in both runs; expected at least 4",
        ),
    ],
)
def test_a_budget_that_buys_nothing(asked, said):
    with pytest.raises(InputError, match=said):
        study(known(), asked)


def test_a_rate_without_repeats_says_nothing_of_samples():
    found = study(from_numbers(None, None, 0.7, 0.5), StudyRequest(detect=0.05))
    assert found.variance.difference == pytest.approx(0.21)
    assert [one.samples for one in found.designs] == [1]
    assert (found.samples_worth, found.endless) == (None, None)
    with pytest.raises(InputError, match="the effect of samples is not known"):
        study(from_numbers(None, None, 0.7, 0.5), StudyRequest(detect=0.05, samples=4))


@pytest.mark.parametrize(
    ("between", "within", "rate", "parts"),
    [(1 / 12, 1 / 6, None, (1 / 12, 1 / 6)), (1 / 12, None, 0.5, (1 / 12, 1 / 6)), (None, 1 / 6, 0.5, (1 / 12, 1 / 6))],
)
def test_a_rate_and_one_part_give_the_other(between, within, rate, parts):
    found = from_numbers(between, within, rate, 1 / 3)
    assert (found.parts.tasks, found.parts.sampling) == pytest.approx(parts)
    assert (found.pair.tasks, found.pair.first) == pytest.approx((1 / 9, 1 / 6))


def test_where_a_task_is_dear_samples_are_not_called_wasted():
    """The advice and the best split of a budget must not contradict each other."""
    steady = PairVariance(0.002, 0.16, 0.16)
    found = study(known(steady), StudyRequest(budget=100, price_per_sample=0.001, price_per_task=0.5))
    said = " ".join(found.advice)
    assert "add little" not in said
    assert "at these prices about 200 samples per task are best" in said
    assert found.best.samples == pytest.approx(200, rel=0.1)
    cheap = study(known(steady), StudyRequest(budget=100, price_per_sample=1.0, price_per_task=0.5))
    assert "add little" in " ".join(cheap.advice)


def test_a_difference_that_rewards_cannot_have_is_refused():
    with pytest.raises(InputError, match="--detect: is 2, but rewards of this range differ by at most 1"):
        study(known(), StudyRequest(detect=2))
    assert study(known(width=None), StudyRequest(detect=2)).designs


def piloted(squares, noise, single):
    """A pilot of made-up units."""
    return Pilot(np.array(squares), np.array(noise), np.array(single), len(squares) - 1.0)


def test_ranges_follow_the_pilots_interval():
    """Tasks grow with the variance, so the ends of the one are those of the other."""
    rng = np.random.default_rng(2)
    pilot = piloted(0.2 * rng.chisquare(1, 100), np.full(100, 0.05), np.full(100, 0.1))
    held = known(PairVariance(pilot.variance(math.inf), 0.05, 0.05), tasks=100, samples=2, pilot=pilot)
    found = study(held, StudyRequest(detect=0.1))
    for design in found.designs:
        ends = [
            study(known(PairVariance(end, 0, 0), samples=design.samples), StudyRequest(detect=0.1)).designs
            for end in pilot.interval(design.samples)
        ]
        expected = [next(one.tasks for one in some if one.samples == design.samples) for some in ends]
        assert list(design.tasks_range) == expected
        assert expected[0] < design.tasks < expected[1]
        assert design.cannot_tell is False
    assert found.have.smallest_range[0] < found.have.smallest < found.have.smallest_range[1]
    assert found.variance.difference_range == pilot.interval(math.inf)


@pytest.mark.parametrize(
    ("pilot", "low"),
    [
        (piloted([0.1, 0.3, 0.0, 0.4], [0.2] * 4, [0.4] * 4), 2),  # the lower end of the variance is below 0
        (piloted([0.1, 0.11, 0.1, 0.09] * 2, [0.0] * 8, [0.0] * 8), 20),  # it is not, and the ends are within a factor
    ],
)
def test_a_pilot_that_cannot_tell_says_so(pilot, low):
    held = known(PairVariance(max(pilot.variance(math.inf), 0.0), 0.2, 0.2), tasks=4, samples=2, pilot=pilot)
    design = study(held, StudyRequest(detect=0.1)).designs[-1]
    assert design.samples == 16
    assert (design.tasks_range[0] == 2) == (low == 2)
    assert design.cannot_tell == (low == 2)


def test_ranges_may_have_no_end():
    pilot = piloted([0.1, 0.3, 0.0, 0.4], [0.0] * 4, [0.4] * 4)
    held = known(PairVariance(pilot.variance(math.inf), 0.2, 0.2), tasks=4, samples=2, pilot=pilot)
    found = study(held, StudyRequest(detect=0.00008))
    assert any(design.tasks_range[1] is None and design.cannot_tell for design in found.designs)


def test_advice_that_rests_on_an_unknown_variance_says_so():
    """No number of samples shows it, if the variance between tasks is what it seems: the pilot allows none at all."""
    pilot = piloted([0.1, 0.3, 0.0, 0.4] * 5, [0.19] * 20, [0.4] * 20)
    held = known(PairVariance(pilot.variance(math.inf), 0.2, 0.2), tasks=20, samples=2, pilot=pilot)
    said = study(held, StudyRequest(detect=0.01)).advice
    assert any(one.startswith("if the variance between tasks is as estimated, no number of samples") for one in said)
    sure = study(known(PairVariance(0.01, 0.2, 0.2), tasks=20, samples=2), StudyRequest(detect=0.01)).advice
    assert any(one.startswith("no number of samples") for one in sure)


def test_a_pilot_whose_tasks_all_say_the_same_is_no_crash():
    """Differences of 0 and samples that differ in every task: less than no variance between tasks, and no doubt."""
    pilot = piloted([0.0] * 20, [0.5] * 20, [1.0] * 20)
    assert pilot.interval(math.inf) == (-0.5, -0.5)
    found = study(known(PairVariance(0.0, 0.5, 0.5), tasks=20, samples=2, pilot=pilot), StudyRequest(detect=0.1))
    assert found.variance.difference_range == (0.0, 0.0)
    assert [design.cannot_tell for design in found.designs] == [False, True, True, True, True]


@pytest.mark.parametrize("variance", [float("inf"), float("nan")])
def test_rewards_too_large_for_a_variance_are_told(variance):
    pair = PairVariance(variance, 0.0, 0.0, divided=False)
    with pytest.raises(InputError, match="variance of these rewards is not finite"):
        study(StudyInputs("two pilots", pair, tasks=2, samples=1, width=None), StudyRequest(detect=1e-9))


@pytest.mark.parametrize(("budget", "price"), [(1e308, 1.0), (1e308, 1e-300)])
def test_a_budget_beyond_all_samples_is_no_overflow(budget, price):
    tasks, _ = best_split(MILLER, budget, per_sample=price)
    assert tasks == 1_000_000_000
    assert best_split(MILLER, 10.0, per_sample=price, per_task=1e308) is None  # two tasks cost more than there is


@pytest.mark.parametrize("size", [1e71, 1e140, 1e160, 1e300])
def test_rewards_whose_fourth_powers_are_no_numbers_are_refused(size):
    """A range without an end made the search for it endless; from 1e77 on the range was infinite."""
    pilot = [[size, 0.0], [0.0, -size], [size, size]]
    for pilots in ([pilot], [pilot, pilot[::-1]]):
        with pytest.raises(InputError, match=r"too large a number for its own interval; expected rewards of at most"):
            calipers.plan(*pilots, detect=size / 10)


def test_large_rewards_are_planned_as_the_same_ones_at_a_smaller_scale():
    pilot = [[1.0, 0.0], [0.0, -1.0], [1.0, 1.0]]
    large = [[reward * 2.0**230 for reward in task] for task in pilot]
    usual, scaled = (calipers.plan(one, detect=size / 10) for one, size in ((pilot, 1.0), (large, 2.0**230)))
    assert [design.tasks for design in usual.designs] == [design.tasks for design in scaled.designs]
    assert [design.tasks_range for design in usual.designs] == [design.tasks_range for design in scaled.designs]


def test_the_headline_counts_its_designs():
    assert (
        calipers.plan(baseline_rate=0.5, detect=0.1).headline()
        == "a difference of 0.1 in mean_reward, 1 design, power 0.8"
    )
    several = calipers.plan(variance_between=0.1, variance_within=0.1, detect=0.1).headline()
    assert several == "a difference of 0.1 in mean_reward, 6 designs, power 0.8"
