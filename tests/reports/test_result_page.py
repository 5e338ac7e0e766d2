"""The short page of a result: its layout at 80 and at 120 columns, its 25 lines, its words."""

import re
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reports.shown import HARMFUL, estimate, group, hostile, ledger, result

import calipers
from calipers.cards import METRIC_CARDS
from calipers.formats.read import Input
from calipers.reports import markdown, terminal
from calipers.reports.document import Picture
from calipers.reports.result import Slice, document
from calipers.reports.result_page import group_names, round_axis
from calipers.reports.sentences import OF_METRIC
from calipers.reports.terminal import drawn
from calipers.stats.suite import Means, SuiteMeans
from calipers.stats.variance import Split

ARITH = str(files("calipers") / "examples" / "arith.jsonl")
NARROW = """\
arith · tiny-calculator                                 40 tasks, 8 samples each
tiny-calculator passes 44 % of its samples on arith; with the 17 missing
  rollouts, anything from 33 to 57 %.
95 % interval without them: 34 to 55 %; mean over 40 tasks, 8 each; 78 % of the
  tasks are passed at least once, 8 % always.

metric        value   95 % interval     0                 1
────────────────────────────────────────────────────────────────────────────────
mean_reward   0.440   0.339 to 0.546    ······├─●─┤········  = pass@1
pass@4        0.711   0.573 to 0.819    ··········├──●─┤···
pass^4        0.143   0.077 to 0.249    ·├─●┤··············

320 planned = 281 scored + 22 counted as 0 + 17 missing (excluded)
  counted as 0   8 refused, 7 truncated, 7 unparsed
  missing        12 verifier_failed, 5 client_failed
                 mean_reward 0.422 to 0.475 if all 17 failed / passed
cost         33,813 tokens, $0.055, 14 min 16 s; per solved task $0.0018, 27.6 s
to narrow    twice the tasks: interval 29 % narrower; more samples: at most 10 %
warning: 5 % of the rollouts are missing (17 of 320); calipers run ...
  --retry-failed asks for them again

{digest}…   more: --details   a page: calipers report
"""
WIDE = """\
metric        value   95 % interval     0                                             1  if missing failed / passed
────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
mean_reward   0.440   0.339 to 0.546    ················├───●────┤·····················  0.422 to 0.475  = pass@1
pass@4        0.711   0.573 to 0.819    ··························├──────●────┤········  0.709 to 0.809
pass^4        0.143   0.077 to 0.249    ····├──●───┤···································  0.110 to 0.151
"""


def page(made, columns=80, **shown):
    return terminal.render(document(made, **shown), columns=columns)


def arith(*metrics, **settings):
    return calipers.score(ARITH, metrics or ["mean_reward", "pass@4", "pass^4"], **settings)


def test_eighty_columns():
    made = arith()
    assert page(made) == NARROW.format(digest=made.digest[:23])
    assert page(made, 109) == page(made)  # wide from 110 columns on


def test_a_hundred_and_twenty_columns():
    text = page(arith(), 120)
    assert text.startswith("arith · tiny-calculator" + " " * 73 + "40 tasks, 8 samples each\n")
    assert WIDE in text
    assert "if all 17 failed" not in text  # the column says it for every metric
    assert page(arith(), 200) == text


@pytest.mark.parametrize("columns", [60, 80, 110, 115, 120, 160])
def test_no_line_is_wider_than_the_terminal(columns):
    text = page(arith("mean_reward", "pass@4", "mean(column=f1)", by="difficulty"), columns)
    wide = [line for line in text.splitlines() if len(line) > min(columns, 120)]
    assert wide == []


def test_numbers_that_are_the_same_have_one_row_and_all_their_names():
    even = [{"task": t, "sample": s, "reward": (t + s) % 2} for t in range(9) for s in range(4)]
    made = calipers.score(even, ["mean_reward", "pass_rate", "pass@1", "pass@2"])
    rows = [line for line in page(made).splitlines() if re.match(r"mean_reward|pass", line)]
    assert [row.split()[0] for row in rows] == ["mean_reward", "pass@2"]
    assert rows[0].endswith("  = pass_rate, pass@1")
    assert [row["metric"] for row in made.rows()] == ["mean_reward", "pass_rate", "pass@1", "pass@2"]
    assert list(made.to_dict()["groups"][0]["metrics"]) == ["mean_reward", "pass_rate", "pass@1", "pass@2"]


def test_numbers_that_differ_have_rows_of_their_own():
    lines = page(arith("mean_reward", "pass_rate", "pass@1")).splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("mean_reward "))
    assert lines[first + 1].startswith("pass_rate ")  # it pools samples, and tasks lack some
    assert lines[first + 2] == ""


@given(st.lists(st.lists(st.sampled_from([0, 1]), min_size=1, max_size=4), min_size=2, max_size=8))
def test_a_name_that_is_said_without_being_computed_is_true(rewards):
    made = calipers.score(rewards, "mean_reward")
    line = next(line for line in page(made).splitlines() if line.startswith("mean_reward"))
    for name in line.partition("= ")[2].split(", "):
        if name:
            other = calipers.score(rewards, name)[name]
            assert other.value == pytest.approx(made["mean_reward"].value, abs=1e-12)
            assert other.interval == pytest.approx(made["mean_reward"].interval, abs=1e-12)


@pytest.mark.parametrize("settings", [{"range": (0, 2)}, {"dialect": "evsys"}])
def test_no_other_name_under_other_rules(settings):
    assert "= pass@1" not in page(calipers.score([[1, 0], [0, 0], [1, 1]], "mean_reward", **settings))


def test_rewards_that_are_not_passes_are_a_score():
    assert "The run scores 0.350 (95 % interval" in page(calipers.score([[0.5, 0.2], [0.3, 0.4]], "mean_reward"))


@pytest.mark.parametrize("slices", [2, 9, 60])
@pytest.mark.parametrize("metrics", [1, 3])
def test_a_page_has_25_lines_whatever_is_asked_for(slices, metrics):
    rows = [
        {"task": t, "sample": s, "reward": (t * 7 + s) % 5 > t % 4, "level": f"l{t % slices}", "usage": {"cost_usd": 1}}
        for t in range(120)
        for s in range(2)
    ]
    made = calipers.score(rows, ["mean_reward", "pass@2", "pass^2"][:metrics], by="level")
    text = page(made)
    assert len(text.splitlines()) <= 25
    left = re.search(r"… (\d+) more: --all", text)
    shown, every = (len(re.findall(r"^ *l\d+ ", each, re.MULTILINE)) for each in (text, page(made, every=True)))
    assert every == slices * metrics
    assert shown == every - (int(left[1]) if left else 0)


def test_of_many_slices_the_worst_come_first():
    rows = [{"task": t, "reward": float(t % 10 < t // 10), "level": f"l{t // 10}"} for t in range(100)]
    text = page(calipers.score(rows, "mean_reward", by="level"))
    assert re.findall(r"^l\d", text, re.MULTILINE)[:3] == ["l0", "l1", "l2"]
    rows = [{**row, "level": f"l{9 - int(row['level'][1:])}"} for row in rows]
    assert re.findall(r"^l\d", page(calipers.score(rows, "mean_reward", by="level")), re.MULTILINE)[:2] == ["l9", "l8"]


def test_many_groups_have_a_row_each_and_are_cut():
    rows = [{"task": t, "reward": t % 2, "model": f"m{m}"} for m in range(40) for t in range(4)]
    text = page(calipers.score(rows, "mean_reward"))
    assert len(text.splitlines()) <= 25
    assert text.startswith("40 models")
    assert "40 models: calipers leaderboard says which of them differ." in text
    assert re.search(r"… \d+ more: --all", text)


def test_agents_of_one_model_are_called_agents():
    rows = [{"task": t, "reward": t % 2, "model": "m", "agent": f"a{a}"} for a in range(2) for t in range(4)]
    assert "2 agents: calipers leaderboard says which of them differ." in page(calipers.score(rows, "mean_reward"))
    rows += [{**row, "model": "n"} for row in rows]
    assert "4 pairs of a model and an agent: calipers leader" in page(calipers.score(rows, "mean_reward"))


def test_steps_of_several_groups_follow_one_blank_line():
    rollouts = Path(__file__).parents[1] / "golden" / "formats" / "prime_rl" / "rollouts"
    text = page(calipers.score(rollouts, "mean_reward"))
    assert "\n\nsplit+step" in text
    assert "\n\n\n" not in text


def test_a_model_on_several_datasets_has_its_mean_first():
    over = SuiteMeans(None, "m", ["a", "b"], {"pass@3": Means(estimate(), estimate())})
    made = result(group(dataset="a", model="m"), group(dataset="b", model="m"), suites=[over])
    lines = page(made).splitlines()
    assert lines[0].startswith("2 datasets, m ")
    assert lines[1] == "m has a mean pass@3 of 0.750 over 2 datasets (95 % interval: 0.300 to 0.950)."
    assert [line.split("  ")[0] for line in lines[5:8]] == ["a", "b", "macro mean"]


def test_what_is_missing_from_a_number_is_said_once():
    lonely = estimate(1.0, stderr=None, interval=None, method=None, why="one task says nothing about others")
    text = page(result(group({"pass@3": estimate(undefined_tasks=2), "pass@4": lonely, "pass@5": lonely})))
    assert "  pass@3: 2 tasks have fewer than 3 samples\n" in text
    assert "  pass@4, pass@5: no interval: at least two tasks are needed\n" in text


@pytest.mark.parametrize(
    ("metric", "shown"),
    [
        ("mean_reward", "mean_reward 0.422 to 0.475 if all 17 failed / passed"),
        ("pass@8", "pass@8 0.775 to 0.925 if all missing samples failed / passed"),  # 13 tasks have fewer than 8
        ("pass@100", "pass@100 0.775 to 1.000 if all missing samples failed / passed"),  # not only the 17
        ("maj@3", "maj@3 0.506 to 0.575 for every possible outcome of the 17 missing rollouts"),
    ],
)
def test_bounds_say_what_they_allow_for(metric, shown):
    assert shown in " ".join(page(arith(metric)).split())


def test_a_k_beyond_the_samples_is_said_to_be_the_reason():
    shown = page(arith("pass@100"))
    assert "pass@100: 40 tasks have fewer than 100 samples" in shown
    assert "pass@100: no task has a value" not in shown


def test_rewards_beside_other_outcomes_are_not_called_zeros():
    rows = [
        {"task": "a", "reward": 1, "outcome": "truncated"},
        {"task": "b", "outcome": "truncated"},
        {"task": "c", "reward": 0},
    ]
    made = calipers.score(rows, "mean_reward")
    assert made["mean_reward"].value == pytest.approx(1 / 3)
    text = page(made)
    assert "3 planned = 1 scored + 1 with a reward (1 truncated) + 1 counted as 0, none missing" in " ".join(
        text.split()
    )
    assert "  counted as 0   1 truncated\n" in text


def test_settings_that_are_not_the_usual_ones_are_said():
    made = calipers.score([[1, 0], [0, 0]], "mean_reward", missing="zero", seed=3)
    assert f"missing rollouts counted as 0, seed 3; {made.digest[:15]}…   more: --details\n" in page(made)


def test_long_names_lose_their_middle():
    name = "organisation/a-model-with-a-very-long-name-of-which-the-end-matters-20241022"
    text = page(calipers.score([{"task": t, "reward": t % 2, "model": name} for t in range(4)], "mean_reward"))
    first, second = text.splitlines()[:2]
    assert "…20241022" in first
    assert "…20241022 passes 50 %" in second


def test_a_file_without_names_is_named():
    made = result(inputs=[Input("some/where/run.jsonl", "native", "0" * 64, 12)])
    assert page(made).startswith("run.jsonl ")


def test_samples_per_task_are_counted_not_divided():
    rows = [{"task": t, "sample": s, "reward": 1} for t, n in ((0, 1), (1, 3)) for s in range(n)]
    assert page(calipers.score(rows)).splitlines()[0].endswith("2 tasks, 1 to 3 samples each")


def test_economics_is_a_line_and_a_table_on_request():
    assert "\ncost         33,813 tokens" in page(arith())
    text = page(arith(), economics=True)
    assert "\ncost   " not in text
    assert re.search(r"cost_per_task ↓ +\$0.17 +\$0.15 to \$0.20 +per 1,000 samples", text)
    assert re.search(r"total_cost_per_task ↓ +\$0.0014 +\$0.0012 to \$0.0016 +per task", text)
    assert re.search(r"time_per_task ↓ +2.7 s +2.4 to 3.0 s +per sample", text)


def test_money_and_times_as_metrics_have_their_units():
    text = page(arith("cost_per_task", "time_per_task", "mean(column=latency_s)"))
    assert re.search(r"cost_per_task +\$0.17 +\$0.15 to \$0.20 +per 1,000 samples", text)
    assert re.search(r"time_per_task +2.7 s +2.4 to 3.0 s +per sample", text)
    assert re.search(r"mean\(column=latency_s\) +2.7 s +2.4 to 3.0 s", text)


FORBIDDEN = re.compile(r"\bgaps?\b|left out|undefined|wasted|at most 100 %|dialect|0\.00000")


@pytest.mark.parametrize("details", [False, True])
def test_words_that_are_never_said(details):
    few = [{"task": t, "sample": s, "reward": s % 2, "usage": {"cost_usd": 3e-6}} for t in range(3) for s in range(2)]
    every = (arith(by="difficulty"), calipers.score(few, ["mean_reward", "pass@9"]), calipers.score([[1]], "pass@2"))
    for made in every:
        shown = document(made, details=details, economics=True)
        for text in (terminal.render(shown), markdown.render(shown)):
            assert FORBIDDEN.findall(text) == []


def test_samples_alone_would_do_where_tasks_do_not_differ():
    mean = estimate(signature="mean_reward|reward:a")
    text = page(result(group({"mean_reward": mean}, variance={"a": Split(0.0, 0.25, 4)})))
    assert "to narrow    twice the tasks, or twice the samples: interval 29 % narrower\n" in text
    assert "100 %" not in Split(0.0, 0.25, 4).advice.partition(": ")[2]


def test_nothing_a_file_says_reaches_the_page():
    text = page(hostile())
    assert "evil\ufffd[31m" in text
    assert [character for character in HARMFUL if character in text] == []
    rendered = markdown.render(document(hostile()))
    bare = re.sub(r"`[^`\n]*`", "", rendered)
    assert [line for line in bare.splitlines() if "evil" in line and not line.startswith("**")] == []


def test_markdown_has_the_same_rows_and_words():
    made = arith()
    assert markdown.render(document(made)).splitlines() == [
        "### `arith · tiny-calculator`",
        "",
        "40 tasks, 8 samples each",
        "",
        "**tiny-calculator passes 44 % of its samples on arith; with the 17 missing rollouts, anything from 33 to "
        "57 %.**",
        "",
        "95 % interval without them: 34 to 55 %; mean over 40 tasks, 8 each; 78 % of the tasks are passed at least "
        "once, 8 % always.",
        "",
        "| metric | value | 95 % interval | if missing failed / passed | same as |",
        "| --- | ---: | --- | --- | --- |",
        "| `mean_reward` | 0.440 | 0.339 to 0.546 | 0.422 to 0.475 | = pass@1 |",
        "| `pass@4` | 0.711 | 0.573 to 0.819 | 0.709 to 0.809 |  |",
        "| `pass^4` | 0.143 | 0.077 to 0.249 | 0.110 to 0.151 |  |",
        "",
        "320 planned = 281 scored + 22 counted as 0 + 17 missing (excluded)",
        "",
        "counted as 0: 8 refused, 7 truncated, 7 unparsed",
        "",
        "missing: 12 verifier\\_failed, 5 client\\_failed",
        "",
        "cost: 33,813 tokens, $0.055, 14 min 16 s; per solved task $0.0018, 27.6 s",
        "",
        "to narrow: twice the tasks: interval 29 % narrower; more samples: at most 10 %",
        "",
        "**Warning:** 5 % of the rollouts are missing (17 of 320); calipers run ... --retry-failed asks for them again",
        "",
        f"digest `{made.digest}`",
    ]


@pytest.mark.parametrize(
    ("value", "interval", "expected"),
    [
        (0.018, (-0.017, 0.052), "······├──┼──●─────┤·········"),
        (0.023, (-0.002, 0.049), "········├┼───●────┤·········"),  # the end does not round onto zero
        (0.026, (0.008, 0.044), "·········│·├──●──┤··········"),
        (0.002, (0.001, 0.003), "·········│·●················"),  # nor does an interval beside it
    ],
)
def test_differences_stay_on_their_side_of_zero(value, interval, expected):
    assert drawn(Picture(value, *interval, (-0.05, 0.1), 28)) == expected


@given(st.tuples(*[st.floats(-1, 1)] * 3).map(sorted))
def test_an_end_is_never_drawn_across_zero(places):
    low, value, high = places
    line = drawn(Picture(value, low, high, (-1.0, 1.0), 31))
    first = min(line.find(sign) for sign in "├●" if sign in line)
    last = max(line.rfind(sign) for sign in "┤●" if sign in line)
    zero = 15
    assert (first < zero) == (low < 0)
    assert (last > zero) == (high > 0)


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ((-0.013, 0.159), (-0.05, 0.2)),
        ((0.052, 0.168), (0.05, 0.2)),
        ((3.0, 41.0), (0.0, 50.0)),
        ((1.0, 1.0), None),
        ((0.0, 5e-324), None),  # no power of ten is so small
    ],
)
def test_an_axis_has_round_ends(ends, expected):
    assert round_axis(ends) == (pytest.approx(expected) if expected else None)


def test_ends_that_are_too_far_apart_have_no_axis():
    assert round_axis((-8e307, 8e307), 0.2) is None  # with what is spare, their difference is infinite


def test_the_ledger_of_a_result_counts_passes_and_its_digest_does_not_change():
    made = arith()
    document_of = made.to_dict()["groups"][0]["ledger"]
    assert document_of["passed"] == 135
    assert document_of["samples_per_task"] == (8, 8)
    assert made.digest.startswith("sha256:780d9dc3d8f7cb85")  # as before there were these keys
    assert calipers.Result.from_json(made.to_json()).digest == made.digest
    graded = calipers.score([[0.5, 1], [0, 1]]).to_dict()["groups"][0]["ledger"]
    assert "passed" not in graded


def test_one_slice_of_a_page_that_has_no_rollouts():
    assert "  no rollouts" in page(result(group(breakdowns={"level": {}})))
    parts = {"easy": Slice(ledger(), {"pass@3": estimate()})}
    assert "easy " in page(result(group(breakdowns={"level": parts})))


def test_the_units_of_pages_are_those_of_the_cards():
    assert {name: card.unit for name, card in METRIC_CARDS.items() if card.unit} == OF_METRIC


def test_a_dataset_and_a_model_of_one_name_are_told_apart():
    assert group_names([group(dataset="a"), group(model="b")]) == ["a", "b"]
    assert group_names([group(dataset="a"), group(model="a")]) == ["a · –", "– · a"]
