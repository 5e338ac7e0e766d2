import re

import pytest

import calipers
from calipers.web.sections import RunCost, cost_section, frontier


def run(label, value, cost, *, wide=0.0001):
    return RunCost(label, f"model {label}", value, (value - 0.05, value + 0.05), cost, (cost - wide, cost + wide))


def always(one, other):
    return True


def never(one, other):
    return False


@pytest.mark.parametrize(
    ("runs", "ahead", "joined"),
    [
        ([run("a", 0.5, 0.01), run("b", 0.7, 0.02)], always, [0, 1]),
        ([run("a", 0.5, 0.01), run("b", 0.7, 0.02)], never, []),  # an undecided step
        ([run("a", 0.5, 0.01), run("b", 0.4, 0.02)], always, []),  # the first run is better in both
        ([run("a", 0.5, 0.01, wide=0.02), run("b", 0.7, 0.02)], always, []),  # the costs may be equal
        ([run("a", 0.9, 0.03), run("b", 0.5, 0.01), run("c", 0.4, 0.02)], always, [1, 0]),
    ],
)
def test_the_line_joins_what_nobody_beats_where_each_step_is_decided(runs, ahead, joined):
    assert frontier(runs, True, ahead) == joined


def test_lower_scores_may_be_better():
    assert frontier([run("a", 0.5, 0.01), run("b", 0.3, 0.02)], False, always) == [0, 1]


def test_one_run_has_no_section():
    assert (
        cost_section([run("a", 0.5, 0.01)], "mean_reward", higher_is_better=True, confidence=0.95, ahead=never) is None
    )


@pytest.mark.parametrize(
    ("costs", "said"),
    [
        ((0.01, 0.02), "per sample"),
        ((0.0002, 0.0003), "per 1,000 samples"),
        ((0.0000002, 0.0000003), "per million samples"),
    ],
)
def test_small_prices_are_for_many_samples(costs, said):
    runs = [run(label, 0.5, cost, wide=cost / 10) for label, cost in zip("ab", costs, strict=True)]
    section = cost_section(runs, "mean_reward", higher_is_better=True, confidence=0.95, ahead=never)
    assert f"cost {said}, lower is better" in section.body
    assert section.note[0] == "Both intervals are drawn. Up and left is better."


def test_the_axis_is_a_logarithm_only_where_costs_differ_much():
    def ticks(costs):
        runs = [run(label, 0.5, cost, wide=cost / 10) for label, cost in zip("ab", costs, strict=True)]
        body = cost_section(runs, "m", higher_is_better=True, confidence=0.95, ahead=never).body
        return re.findall(r">(\$[^<]+)</text>", body)

    assert ticks((0.01, 0.02)) == ["$0.0050", "$0.010", "$0.015", "$0.020", "$0.025"]
    assert ticks((0.01, 0.9)) == ["$0.0010", "$0.010", "$0.10", "$1.00"]
    assert ticks((0.01, 1e7)) == ["$0.0010", "$1.00", "$1,000", "$1,000,000"]  # not a tick for each of eleven decades


def test_names_do_not_cover_each_other():
    runs = [run(str(place), 0.9 - 0.001 * place, 0.01 + 0.0001 * place) for place in range(1, 7)]
    body = cost_section(runs, "m", higher_is_better=True, confidence=0.95, ahead=never).body
    places = re.findall(r'class="spot blue" x="([^"]+)" y="([^"]+)"', body)
    assert len(places) == 6
    assert len(set(places)) == 6


def test_a_run_that_cost_nothing_does_not_make_prices_those_of_a_million_samples():
    runs = [run("a", 0.5, 0.0, wide=0.0), run("b", 0.7, 0.01)]
    section = cost_section(runs, "mean_reward", higher_is_better=True, confidence=0.95, ahead=never)
    assert "cost per sample, lower is better" in section.body


def test_scores_that_differ_by_rounding_have_an_axis():
    runs = [RunCost(label, label, value, None, 0.01, None) for label, value in (("a", 0.3), ("b", 0.1 + 0.2))]
    section = cost_section(runs, "mean_reward", higher_is_better=True, confidence=0.95, ahead=never)
    assert section.body.count('class="point blue hollow"') == 2


def test_tokens_that_overflow_together_are_no_warning():
    tokens = {"input_tokens": 1e308, "output_tokens": 1e308}
    assert '"tokens":[1000000000000000]' in calipers.report([{"task": "a", "reward": 1, **tokens}], texts=False).html
