import numpy as np
import pytest

from calipers.stats.audit import copied_records, last_is_pass, same_text, start_follows_outcome, twin_tasks


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
