"""Harbor's tables of a result."""

from __future__ import annotations

import pytest

from calipers.reports.result import Group, Result
from calipers.rollouts.ledger import Ledger
from calipers.systems.harbor.job_result import render, render_markdown


def shown(how=render, who=("a", "m", "d"), **held):
    """The tables of one eval."""
    counts = {"n_trials": 0, "n_errors": 0, "metrics": [], "pass_at_k": {}, "reward_stats": {}, "exception_stats": {}}
    group = Group(Ledger(0, "rows", 0, 0, 0, 0, {}), {}, *who, own={"harbor": {**counts, **held}})
    return how(Result("harbor", "zero", 0.95, 0, [], [group]))


def test_everything():
    assert shown(
        n_trials=17,
        n_errors=2,
        metrics=[{"mean": 4 / 9}],
        pass_at_k={"2": 2 / 3},
        reward_stats={"reward": {"1.0": 8, "0.0": 9}},
        exception_stats={"AgentTimeoutError": 2},
    ) == (
        "\n"
        "d • a • m\n"
        "\n"
        "Trials  Exceptions   Mean  Pass@2\n"
        "    17           2  0.444   0.667\n"
        "\n"
        "Reward  Count\n"
        "1.0         8\n"
        "0.0         9\n"
        "\n"
        "Exception          Count\n"
        "AgentTimeoutError      2\n"
    )


@pytest.mark.parametrize(
    ("metrics", "heads"),
    [
        ([], []),
        ([{"max": 1.0}], ["Max"]),
        ([{"acc": 1.0, "code_style": 0.5}], ["Acc", "Code Style"]),
        ([{"max": 1.0}, {"mean": 0.5}], ["Metric 1: Max", "Metric 2: Mean"]),
    ],
)
def test_how_metrics_are_called(metrics, heads):
    assert all(head in shown(metrics=metrics) for head in heads)
    assert shown(metrics=metrics).splitlines()[3].split()[2:] == " ".join(heads).split()


def test_of_several_rewards_each_value_says_whose_it_is():
    """Harbor prints them as one list."""
    found = shown(reward_stats={"acc": {"1.0": 1}, "style": {"1.0": 2}})
    assert "acc 1.0        1\n" in found
    assert "style 1.0      2\n" in found


def test_a_long_list_is_cut_and_says_so():
    found = shown(reward_stats={"r": {str(n / 10): 1 for n in range(30)}})
    assert "and 10 more\n" in found
    assert len(found.splitlines()) < 30


def test_what_is_no_number_is_a_dash():
    assert shown(metrics=[{"mean": None}]).splitlines()[4].split()[2] == "–"


def test_whole_numbers_of_scripts_stay_whole():
    assert shown(metrics=[{"n": 3}]).splitlines()[4].split()[2] == "3"


def test_who_is_unknown_is_not_named():
    assert shown(who=(None, None, None)).startswith("\nadhoc\n")


@pytest.mark.parametrize("how", [render, render_markdown])
def test_names_can_do_no_harm(how):
    found = shown(how, who=("\x1b[31m", "m|x", "![a](b)\n# h"), exception_stats={"<b>\x9b": 1, "x" * 500: 1})
    assert "\x1b" not in found
    assert "\x9b" not in found
    assert "\n# h" not in found
    assert "x" * 100 not in found


def test_markdown_sets_everything_as_code():
    found = shown(render_markdown, metrics=[{"a|b": 0.5}], reward_stats={"r": {"1.0": 3}})
    assert "### `d • a • m`" in found
    assert "| `Trials` | `Exceptions` | `A\\|B` |\n| ---: | ---: | ---: |\n| `0` | `0` | `0.500` |" in found
    assert "| `Reward` | `Count` |\n| --- | ---: |\n| `1.0` | `3` |" in found


def test_a_result_of_another_dialect_has_no_such_tables():
    group = Group(Ledger(0, "rows", 0, 0, 0, 0, {}), {})
    assert render(Result("native", "gap", 0.95, 0, [], [group])) == ""
