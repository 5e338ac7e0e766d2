import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import calipers
from calipers.cards import ALIASES, DEFAULT, INTERVALS, canonical, interval_names
from calipers.errors import UnknownName
from calipers.stats.intervals import METHODS, Weighted, interval, named_interval
from examples import examples

BETA = ("clopper-pearson", "jeffreys", "beta")
DRAWN = ("bootstrap", "bca")
CLUSTERS = [0, 0, 0, 1, 1, 2, 2, 2, 3, 3]
SCORES = [1, 1, 0, 0, 0, 1, 1, 1, 0, 1]


def of(name, values, weights=None, limits=(0.0, 1.0), clusters=None, **more):
    values = np.array(values, dtype=float)
    weights = np.ones(len(values)) if weights is None else np.array(weights, dtype=float)
    units = None if clusters is None else np.array(clusters)
    return named_interval(name, Weighted(values, weights, limits, units, **more))


def passes(count, tasks):
    return [1] * count + [0] * (tasks - count)


@pytest.mark.parametrize(
    ("count", "tasks", "wilson", "exact", "beta", "jeffreys"),
    [
        (8, 10, (0.490162, 0.943318), (0.443905, 0.974789), (0.482244, 0.939782), (0.497226, 0.955941)),
        (30, 30, (0.886487, 1), (0.884297, 1), (0.887811, 0.999184), (0.920322, 1)),
        (0, 30, (0, 0.113513), (0, 0.115703), (0.000816, 0.112189), (0, 0.079678)),
        (24, 30, (0.626943, 0.904949), (0.614333, 0.922864), (0.625268, 0.904058), (0.633387, 0.911933)),
        (144, 164, (0.819141, 0.919652), (0.817955, 0.923893), (0.819020, 0.919460), (0.821474, 0.921430)),
        (450, 500, (0.870578, 0.923322), (0.870291, 0.924864), (0.870546, 0.923263), (0.871401, 0.923986)),
    ],
)
def test_the_textbook_intervals_of_passes(count, tasks, wilson, exact, beta, jeffreys):
    expected = {"wilson": wilson, "clopper-pearson": exact, "beta": beta, "jeffreys": jeffreys}
    for name, ends in expected.items():
        found = of(name, passes(count, tasks))
        assert found.method == name
        assert found.ends == pytest.approx(ends, abs=1e-6)


@pytest.mark.parametrize(
    ("values", "options", "ends"),
    [
        (passes(24, 30), {}, (0.648084, 0.951916)),
        (passes(144, 164), {}, (0.827438, 0.928660)),
        (passes(450, 500), {}, (0.873614, 0.926386)),
        (passes(8, 10), {}, (0.498379, 1)),  # the t interval itself ends at 1.1016
        (SCORES, {"clusters": CLUSTERS, "limits": None}, (-0.052013, 1.252013)),  # t(2.8462)
        ([3, 5.5, 4, 7.5, -1], {"limits": None}, (-0.141183, 7.741183)),  # the default where no range is known
        ([1, 3, 1, 3], {"limits": (0, 4)}, (0.162614, 3.837386)),  # 2 +- 3.182446 / sqrt(3)
    ],
)
def test_t(values, options, ends):
    found = of("t", values, **options)
    assert found.method == "t"
    assert found.ends == pytest.approx(ends, abs=2e-6)


@pytest.mark.parametrize(
    ("values", "options"),
    [
        ([0.25, 0.5, 0.5, 0.75, 1], {}),
        (SCORES, {"clusters": CLUSTERS}),
        ([1, 0, 0.5, 1], {"weights": [4, 1, 2, 1]}),
        ([-1, -0.5, 0, 0.5, 0.5, 1, 1, 1], {"limits": (-1, 1)}),
    ],
)
def test_wilson_is_the_closed_form_of_the_default(values, options):
    found = of("wilson", values, **options)
    assert found == of("default", values, **options)
    assert found.method == "wilson_t"


@pytest.mark.parametrize("name", [name for name in METHODS if name != "beta_mixture"])  # which is for many looks
@pytest.mark.parametrize("options", [{}, {"clusters": CLUSTERS}, {"weights": range(1, 11)}])
def test_every_method_is_about_as_wide_as_the_default(name, options):
    low, high = of(name, SCORES, **options).ends
    least, most = of("default", SCORES, **options).ends
    assert 0.6 < (high - low) / (most - least) < 1.5


def test_the_interval_of_a_stopped_run_is_that_of_the_sequence():
    assert of("beta_mixture", passes(40, 50)).ends == pytest.approx((0.590947, 0.934622), abs=1e-6)
    assert of("beta_mixture", passes(40, 50)).method == "beta_mixture"


def test_rewards_between_the_ends_narrow_the_beta_intervals():
    wide, narrow = (of("clopper-pearson", values).ends for values in (passes(15, 30), [0.4, 0.6] * 15))
    assert narrow[1] - narrow[0] < (wide[1] - wide[0]) / 3


def test_whole_clusters_are_drawn_when_there_are_clusters():
    values = [float(task % 20 < 7) for task in range(100)]  # task n lies in cluster n % 20, all alike in it
    found = of("bootstrap", values, clusters=[task % 20 for task in range(100)])
    assert found.stderr == pytest.approx(math.sqrt(0.35 * 0.65 / 20), rel=0.03)  # twenty units, not a hundred


def test_a_range_is_mapped_back():
    for name in METHODS:
        unit, wide = of(name, [0, 0.25, 1, 1]), of(name, [-1, -0.5, 1, 1], limits=(-1.0, 1.0))
        assert wide.ends == pytest.approx([2 * end - 1 for end in unit.ends], abs=1e-9)
        assert wide.stderr == pytest.approx(2 * unit.stderr, abs=1e-9)


@pytest.mark.parametrize(
    ("names", "values", "options", "why"),
    [
        (
            ["beta_mixture"],
            SCORES,
            {"clusters": CLUSTERS},
            "beta_mixture needs tasks that count alike, and no clusters",
        ),
        (["beta_mixture"], SCORES, {"weights": range(1, 11)}, "NAME needs tasks that count alike, and no clusters"),
        (METHODS, [1], {}, "one task says nothing about others"),
        (METHODS, [1, 0, 1], {"clusters": [0, 0, 0]}, "one cluster says nothing about others"),
        (["t", *DRAWN], [1] * 30, {}, "all task values agree, and NAME has no width without spread"),
        (["t", *DRAWN], [0] * 30, {}, "all task values agree, and NAME has no width without spread"),
        (["t", *DRAWN], [0.1] * 3, {}, "all task values agree"),  # their mean is not 0.1, by rounding
        (["t", *DRAWN], [7.7] * 9, {"limits": None, "weights": range(1, 10)}, "all task values agree"),
        (["t", *DRAWN], [0.1, 0.3, 0.2, 0.2], {"clusters": [0, 0, 1, 1]}, "all clusters agree"),
        (["wilson", *BETA], [3, 5.5, 4], {"limits": None}, "NAME needs a known range; t, bootstrap and bca do not"),
        (["bootstrap"], passes(1, 1000), {"confidence": 0.1}, "the draws agree at this confidence"),
        (["bca"], [0.0, 7.6e-136], {}, "the draws are too skewed for NAME"),  # their cubes are 0
    ],
)
def test_no_interval_says_why(names, values, options, why):
    for name in names:
        found = of(name, values, **options)
        assert (found.ends, found.method) == (None, None)
        assert found.why.startswith(why.replace("NAME", name))


@pytest.mark.parametrize("name", ["wilson", *BETA])
@pytest.mark.parametrize("value", [0, 0.3, 1])
def test_agreement_on_a_known_range_still_has_width(name, value):
    low, high = of(name, [value] * 30).ends
    assert 0.02 < high - low < 0.2


ROWS = st.lists(st.tuples(st.floats(0, 1), st.floats(0.01, 10), st.integers(0, 5)), min_size=2, max_size=40)


@examples(150)
@given(ROWS, st.booleans(), st.floats(0.5, 0.999), st.sampled_from(sorted(METHODS)))
def test_never_empty_never_outside_always_holding_the_value(rows, clustered, confidence, name):
    values, weights, clusters = (np.array(column) for column in zip(*rows))
    codes = np.unique(clusters, return_inverse=True)[1] if clustered else None
    found = of(name, values, weights, clusters=codes, confidence=confidence)
    if found.ends is None:
        assert found.why
        return
    low, high = found.ends
    value = math.fsum(values * weights) / math.fsum(weights)
    assert 0 <= low < high <= 1
    assert low <= value <= high or name == "beta"  # a uniform prior pulls away from 0 and 1
    assert found.stderr >= 0


@given(st.integers(1, 60), st.integers(0, 60), st.floats(0.8, 0.999))
def test_beta_holds_its_posterior_mean_and_inside_the_ends_the_value(tasks, count, confidence):
    tasks, count = tasks + 1, min(count, tasks + 1)
    low, high = of("beta", passes(count, tasks), confidence=confidence).ends
    assert low < (count + 1) / (tasks + 2) < high
    assert low < count / tasks < high or count in (0, tasks)


@given(st.lists(st.sampled_from([0, 0.25, 0.5, 1]), min_size=2, max_size=30), st.sampled_from(["t", *BETA]))
def test_swapping_pass_and_fail_mirrors_the_interval(values, name):
    found, mirrored = of(name, values), of(name, [1 - value for value in values])
    if found.ends is None:
        assert mirrored.why == found.why
    else:
        assert mirrored.ends == pytest.approx((1 - found.ends[1], 1 - found.ends[0]), abs=1e-12)


def test_the_default_is_what_it_was():
    values = np.array([0.25, 0.5, 1.0])
    assert of("default", values) == interval(values, np.ones(3), 0.95, (0.0, 1.0))


def test_what_can_be_asked_for_is_what_the_cards_say():
    assert [name for name, card in INTERVALS.items() if card.on_request] == list(METHODS)
    assert set(interval_names()) == {DEFAULT, *METHODS, *ALIASES}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("wilsn", "no interval named 'wilsn'; did you mean 'wilson'?"),
        ("wilson_t", "no interval named 'wilson_t'; did you mean 'wilson'?"),  # the data choose it, not the user
        ("clopper", "no interval named 'clopper'; did you mean 'clopper-pearson'?"),
        ("zzz", "no interval named 'zzz'; known: bca, beta,"),
    ],
)
def test_a_name_nobody_knows(name, said):
    with pytest.raises(UnknownName) as refused:
        canonical(name)
    assert str(refused.value).startswith(said)


TASKS = [[1, 1, 0], [1, 0, 0], [0, 0], [1, 1, 1], [1], [0, 1, 0, 1]]


@pytest.mark.parametrize("metric", ["mean_reward", "pass_rate", "pass@1", "solved_rate"])
@pytest.mark.parametrize("name", ["t", *BETA, *DRAWN, "exact"])
def test_the_name_stands_in_the_estimate_and_its_signature(metric, name):
    found = calipers.score(TASKS, metric, interval=name)[metric]
    assert found.method == ALIASES.get(name, name)
    assert f"|interval:{found.method}|" in found.signature
    assert found.value == calipers.score(TASKS, metric)[metric].value


@pytest.mark.parametrize("name", [None, "default"])
def test_unset_is_the_default(name):
    assert calipers.score(TASKS, interval=name)["mean_reward"] == calipers.score(TASKS)["mean_reward"]


@pytest.mark.parametrize(
    "metric",
    [
        "median(column=reward)",
        "max(column=reward)",
        "std(column=reward)",
        "bayes_mean",  # a posterior over these tasks is no mean of task values
    ],
)
def test_what_is_no_mean_keeps_its_own(metric):
    assert calipers.score(TASKS, metric, interval="jeffreys")[metric] == calipers.score(TASKS, metric)[metric]
