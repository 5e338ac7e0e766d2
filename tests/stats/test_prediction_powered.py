import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.stats.judges import BLIND, NO_JUDGED, NO_LABELS, ONE_KIND, TOO_WIDE, ppi, rogan_gladen

LABELS = np.repeat([1.0, 0, 0, 1], [60, 20, 12, 8])  # 60 TP, 20 TN, 12 FP, 8 FN
JUDGED = np.repeat([1.0, 0, 1, 0], [60, 20, 12, 8])
OTHERS = np.repeat([1.0, 0], [720, 280])


@pytest.mark.parametrize(
    ("trust", "method", "used", "stderr"),
    [(1.0, "ppi", 1, 0.046966), (0.0, "labels", 0, 0.046883), (None, "ppi++", 0.502407, 0.040527)],
)
def test_anchors(trust, method, used, stderr):
    found = ppi(LABELS, JUDGED, OTHERS, trust=trust)
    assert (found.value, found.trust, found.stderr) == pytest.approx((0.68, used, stderr), abs=1e-6)
    assert (found.method, found.labelled, found.judged) == (method, 100, 1000)
    assert found.interval[0] < 0.68 < found.interval[1]


def test_plain_ppi_can_be_worse_than_the_labels_alone():
    by = {trust: ppi(LABELS, JUDGED, OTHERS, trust=trust).stderr for trust in (0.0, 1.0, None)}
    assert by[None] < by[0.0] < by[1.0]


def test_rogan_and_gladen():
    found = rogan_gladen(LABELS, JUDGED, OTHERS)
    assert found.value == pytest.approx(0.68)
    sensitivity, specificity, share = 60 / 68, 20 / 32, 0.72
    parts = [share * (1 - share) / 1000, 0.68**2 * sensitivity * (1 - sensitivity) / 68]
    parts += [0.32**2 * specificity * (1 - specificity) / 32]
    assert found.stderr == pytest.approx(np.sqrt(sum(parts)) / (sensitivity + specificity - 1))
    assert found.stderr > ppi(LABELS, JUDGED, OTHERS).stderr  # the price of dividing by 0.5


def test_a_biased_judge_is_put_right():
    """A judge who passes three of ten failures: his own mean is 0.79, the truth 0.7."""
    random = np.random.default_rng(4)
    truth = (random.random(20_000) < 0.7).astype(float)
    judged = np.maximum(truth, random.random(20_000) < 0.3)
    for found in (
        ppi(truth[:500], judged[:500], judged[500:]),
        ppi(truth[:500], judged[:500], judged[500:], trust=1.0),
        rogan_gladen(truth[:500], judged[:500], judged[500:]),
    ):
        assert found.interval[0] < 0.7 < found.interval[1]
        assert found.interval[1] < judged.mean()
        assert found.stderr < ppi(truth[:500], judged[:500], judged[500:], trust=0.0).stderr


def test_the_interval_covers():
    """400 evaluations with 40 labels each; 95 % is 380, and four standard errors of the count are 17."""
    random = np.random.default_rng(6)
    held = 0
    for _ in range(400):
        truth = (random.random(1_040) < 0.9).astype(float)
        judged = np.where(random.random(1_040) < 0.85, truth, 1 - truth)
        low, high = ppi(truth[:40], judged[:40], judged[40:]).interval
        held += low <= 0.9 <= high
    assert held >= 380 - 17


def test_labels_that_all_agree_are_not_certainty():
    ones = np.ones(20)
    found = ppi(ones, ones, np.ones(500))
    assert (found.value, found.stderr) == (1, 0)
    assert found.interval[0] < 0.9
    assert ppi(ones, ones, np.ones(500), limits=None).interval is None


@pytest.mark.parametrize(
    ("labels", "judged", "others", "why"),
    [
        ([], [], [1, 0], NO_LABELS),
        ([1], [1], [1, 0], "one task says nothing about others"),
    ],
)
def test_too_few_labels(labels, judged, others, why):
    found = ppi(*(np.array(values, float) for values in (labels, judged, others)))
    assert (found.value, found.interval, found.why) == (None, None, why)


def test_a_judge_without_other_rows_is_left_out():
    found = ppi(LABELS, JUDGED, np.array([]))
    assert (found.trust, found.value) == (0, 0.68)
    assert ppi(LABELS, JUDGED, np.array([]), trust=1.0).why == NO_JUDGED


def test_a_judge_who_says_always_the_same_is_left_out():
    assert ppi(LABELS, np.ones(100), np.ones(1000)).trust == 0


@pytest.mark.parametrize(
    ("labels", "judged", "others", "why"),
    [
        ([], [], [1.0], NO_LABELS),
        ([1, 0], [1, 0], [], NO_JUDGED),
        ([1, 1], [1, 0], [1.0], ONE_KIND),
        ([1, 0, 1, 0], [0, 1, 0, 1], [1.0], BLIND),  # always wrong
        ([1, 0], [1, 1], [1.0], BLIND),  # always yes
    ],
)
def test_a_judge_that_cannot_be_corrected(labels, judged, others, why):
    found = rogan_gladen(*(np.array(values, float) for values in (labels, judged, others)))
    assert (found.value, found.interval, found.why) == (None, None, why)


ROWS = st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 0.3, 1.0])), min_size=2, max_size=30)


@given(ROWS, st.lists(st.sampled_from([0.0, 0.3, 1.0]), min_size=2, max_size=30))
def test_laws(rows, others):
    """A perfect range, a width, the value inside; and a judge with another zero point says the same."""
    labels, judged = (np.array(column) for column in zip(*rows))
    found = ppi(labels, judged, np.array(others))
    low, high = found.interval
    assert 0 <= low < high <= 1
    assert low <= found.value <= high
    moved = ppi(labels, judged + 5, np.array(others) + 5)
    assert (moved.value, moved.stderr) == pytest.approx((found.value, found.stderr), abs=1e-9)


def test_no_standard_error_is_wider_than_the_range_allows():
    """7 of 12 good called good, 4 of 7 bad: the judge may be blind, and the formula gives 1 with an error of 19."""
    labels, judged = np.repeat([1.0, 0.0], [12, 7]), np.repeat([1.0, 0.0, 1.0, 0.0], [7, 5, 4, 3])
    found = rogan_gladen(labels, judged, np.ones(40))
    assert (found.value, found.stderr, found.interval, found.why) == (1.0, None, None, TOO_WIDE)


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=2, max_size=12),
    st.lists(st.integers(0, 1), min_size=2, max_size=12),
)
def test_whatever_is_shown_lies_in_the_range(pairs, others):
    labels, judged = np.array(pairs, float).T
    rest = np.array(others, float)
    for found in (rogan_gladen(labels, judged, rest), *(ppi(labels, judged, rest, trust=t) for t in (None, 0.0, 1.0))):
        assert found.stderr is None or found.stderr <= 0.5
        assert found.interval is None or 0 <= found.interval[0] <= found.value <= found.interval[1] <= 1
        assert (found.interval is None) == (found.why is not None)


@pytest.mark.parametrize(("labels", "others"), [(3, 11), (22, 1000), (45, 101), (52, 1000)])
def test_a_judge_who_says_the_same_of_everything_is_not_trusted(labels, others):
    """The variance of equal scores is not 0 but the rounding of their mean, squared."""
    truth = np.arange(labels) % 2.0
    estimate = ppi(truth, np.full(labels, 0.1), np.full(others, 0.1))
    assert estimate.trust == 0
    assert estimate.value == truth.mean()
