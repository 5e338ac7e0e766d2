import numpy as np
import pytest

from calipers.stats.audit import (
    LEVEL,
    copied_records,
    durations_spread,
    last_is_pass,
    repeats,
    same_text,
    start_follows_outcome,
    twin_tasks,
)


def tasks(text):
    return [np.array([letter == "1" for letter in task]) for task in text.split()]


def test_last_is_pass():
    seen, expected, p = last_is_pass(tasks("001 01 100 0001 11"))
    assert (seen, p) == (3, pytest.approx(0.125))
    assert expected == pytest.approx(1 / 3 + 1 / 2 + 1 / 3 + 1 / 4)
    assert last_is_pass(tasks("11 00"))[2] == 1  # tasks that always or never pass say nothing


def test_start_follows_outcome():
    starts = [np.array([1.0, 5, 2, 9]), np.array([7.0, 1, 2, 3])]
    rewards = [np.array([1.0, 0, 1, 0]), np.array([0.0, 1, 1, 1])]
    assert start_follows_outcome(starts, rewards, np.random.default_rng(0))[1] == pytest.approx(0.040424, abs=1e-6)
    assert start_follows_outcome([], [], np.random.default_rng(0)) == (0.0, 1.0)


def test_small_p_values_are_counted():
    """Three tasks of three: the smallest two-sided share is 2 of 216, which no normal tail gives."""
    starts = [np.array([1.0, 2, 3])] * 3
    rewards = [np.array([0.0, 0.5, 1])] * 3
    p = start_follows_outcome(starts, rewards, np.random.default_rng(0))[1]
    assert p == pytest.approx(2 / 216, abs=0.003)


@pytest.mark.parametrize(("equal", "near", "p"), [(6, 20, 0.007869), (2, 1, 0.013923), (1, 0, 0.069767)])
def test_copied_records(equal, near, p):
    assert copied_records(equal, near) == pytest.approx(p, abs=1e-6)


def test_the_tests_hold_their_level_on_honest_runs():
    """400 runs of 40 tasks x 6: at 1 % each, 12 or more of 400 would be rarer than 1 in 1,000."""
    rng = np.random.default_rng(3)
    found = {"last": 0, "start": 0}
    for _ in range(400):
        chances = rng.beta(0.8, 0.8, 40)
        passes = [rng.random(6) < chance for chance in chances]
        found["last"] += last_is_pass(passes)[2] < 0.01
        starts = [rng.random(6) for _ in passes]
        found["start"] += start_follows_outcome(starts, [task.astype(float) for task in passes], rng)[1] < 0.01
    assert max(found.values()) < 12, found


def test_a_p_value_below_the_rounding_of_1_is_not_0():
    assert same_text(60, 0.5) == pytest.approx(6.374588457107e-101, rel=1e-9, abs=0)


def test_counts():
    assert same_text(0, 3.0) == 1
    assert same_text(2, 0.0) == 0
    assert same_text(3, 0.5) == pytest.approx(0.014388, abs=1e-6)
    assert twin_tasks(9, 1) == pytest.approx(11 / 1024)


def test_honest_runs_with_likely_texts_are_not_suspected():
    """Pairs of equal texts come in clumps: their Poisson test accuses 5 % of such runs where 1 % is meant."""
    rng = np.random.default_rng(5)
    chances = np.append(0.3, np.full(49, 0.7 / 49))
    accused = 0
    for _ in range(400):
        tasks = rng.choice(50, size=(5, 16), p=chances)
        accused += same_text(*repeats([[(str(text), chances[text]) for text in task] for task in tasks])) < LEVEL
    assert accused <= 6


def test_a_server_that_takes_as_long_for_every_answer_is_not_suspected():
    """With a standard deviation of 3 ms one pair in ten has equal durations; 82 % of such runs had a finding."""
    rng = np.random.default_rng(6)
    accused = 0
    for _ in range(100):
        times = np.rint(rng.normal(1000, 3, size=(50, 8))).astype(int)
        apart = np.abs(times[:, :, None] - times[:, None, :])[:, *np.triu_indices(8, 1)]
        near = [np.count_nonzero((apart >= low) & (apart <= high)) for low, high in ((0, 0), (1, 5), (6, 10))]
        accused += durations_spread(near[1], near[2]) and copied_records(near[0], near[1] + near[2]) < LEVEL
    assert accused <= 1
    assert durations_spread(6, 0)
    assert not durations_spread(7, 0)


def test_start_follows_outcome_has_no_scale():
    starts = [np.array([1.0, 5, 2, 9]), np.array([7.0, 1, 2, 3])]
    rewards = [np.array([1.0, 0, 1, 0]), np.array([0.0, 1, 1, 1])]
    usual = start_follows_outcome(starts, rewards, np.random.default_rng(0))
    for size in (2.0**1023, 2.0**-1000):  # whose squares are no numbers, or 0
        scaled = [reward * size for reward in rewards]
        assert start_follows_outcome(starts, scaled, np.random.default_rng(0)) == usual
