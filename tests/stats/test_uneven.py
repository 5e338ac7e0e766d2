import math

import numpy as np
import pytest
from making import GAP, rewards

from calipers.stats.counts import (
    FEWEST_STOPPED,
    FEWEST_TASKS,
    Follows,
    Samples,
    dependence_of,
    score_test,
)


def found(*tasks, threshold=1.0):
    return dependence_of(Samples.of(*rewards(*tasks), threshold))


def retried(*counts, most=8, failed=0):
    """Tasks that pass at these samples, and some that never do."""
    return [[0] * (n - 1) + [1] for n in counts] + [[0] * most] * failed


RETRIED = retried(1, 1, 2, 2, 3, 3, failed=4)
STOPPED = Follows("stops_at_pass", 6, 10, 8, None)


def test_tasks_that_stop_at_their_first_pass_are_counted():
    assert found(*RETRIED) == STOPPED


@pytest.mark.parametrize(
    "tasks",
    [
        [*RETRIED, [1, 1]],  # two passes
        [*RETRIED, [1, 0]],  # it went on after its pass
        retried(1, 1, 2, 2, failed=6),  # four stopped tasks may be chance
        retried(1, 1, 1, 1, 1, 1, 1, failed=4, most=2)[:10],  # only three tasks have two samples
        [[1], [0]] * 20,  # all counts are the same
    ],
)
def test_anything_else_is_no_warning(tasks):
    assert found(*tasks) is None


def test_a_task_that_was_cut_short_does_not_hide_the_others():
    assert found(*RETRIED, [0]) == Follows("stops_at_pass", 6, 11, 8, None)


def test_a_gap_is_no_sample_and_a_task_of_gaps_no_task():
    tasks = [[*task, GAP] for task in RETRIED]
    assert found(*tasks, [GAP, GAP]) == STOPPED


def test_gaps_that_follow_results_are_warned_about_although_they_were_planned():
    assert found(*([*task, *[GAP] * (8 - len(task))] for task in RETRIED)) == STOPPED


def test_a_pass_is_what_reaches_the_threshold():
    halves = [[reward / 2 for reward in task] for task in RETRIED]
    assert found(*halves) is None
    assert found(*halves, threshold=0.5) == STOPPED


def test_the_score_test():
    tasks = [[1] * 4] * 15 + [[0] * 2] * 15
    n, m = np.array([4] * 15 + [2] * 15), np.array([1] * 15 + [0] * 15)
    products = (n - n.mean()) * (m - m.mean())
    shuffled = ((n - n.mean()) ** 2).sum() * ((m - m.mean()) ** 2).sum() / 29
    z = products.sum() / math.sqrt(max((products**2).sum(), shuffled))
    tested = score_test(Samples.of(*rewards(*tasks), 1.0))
    assert tested == Follows("more_is_higher", 0, 30, 4, pytest.approx(math.erfc(z / math.sqrt(2))))
    assert z == pytest.approx(math.sqrt(29))  # without the variance over all orders it is the root of 30
    mirrored = score_test(Samples.of(*rewards(*[[1 - reward for reward in task] for task in tasks]), 1.0))
    assert mirrored == Follows("more_is_lower", 0, 30, 4, pytest.approx(tested.p))


@pytest.mark.parametrize(
    "tasks",
    [
        [[1] * 4] * 9 + [[0] * 2] * 10,  # too few tasks for its law
        [[1, 0]] * 15 + [[1, 0, 1, 0]] * 15,  # all means are the same
        [[1, 0]] * 15 + [[0, 0]] * 15,  # all counts are
        [[math.inf]] * 15 + [[0, 0]] * 15,
        [[math.nan]] * 15 + [[0, 0]] * 15,
        [[0]] * 15 + [[0, 0]] * 15,
        [],
    ],
)
def test_no_score_without_something_to_test(tasks):
    assert score_test(Samples.of(*rewards(*tasks), 1.0)) is None


def test_few_passes_of_tasks_with_two_samples_are_no_evidence():
    """If none of a few tasks with one sample passed, the score test found a dependence in 14 % of such runs."""
    tasks = [[1, 0]] * 12 + [[0, 0]] * 150 + [[0]] * 38
    assert score_test(Samples.of(*rewards(*tasks), 1.0)) is None


def test_the_score_has_no_scale():
    tasks = [[1e200] * 4] * 15 + [[0] * 2] * 15
    assert score_test(Samples.of(*rewards(*tasks), 1.0)).p == pytest.approx(math.erfc(math.sqrt(14.5)))


def test_what_is_promised_on_the_page():
    assert (FEWEST_STOPPED, FEWEST_TASKS) == (5, 20)
