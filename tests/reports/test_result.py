import pytest
from reports.shown import estimate, group, ledger, result

import calipers
from calipers.formats.read import Input
from calipers.reports import terminal
from calipers.reports.result import Slice, document
from calipers.reports.result_page import described, title
from calipers.stats.suite import Means, SuiteMeans
from calipers.stats.variance import Split, Unsplit


def lines(made, columns=100):
    return [
        "".join(text for text, _ in line).rstrip() for line in terminal.lines(document(made, details=True), columns)
    ]


@pytest.mark.parametrize(
    ("signature", "expected"),
    [
        (
            "pass@{k}|k:3|dialect:native",
            "unbiased estimate: probability of a pass in 3 samples (Chen et al. 2021)",
        ),
        ("any_of_first_{k}|k:3|dialect:evsys", "any pass among the first 3 samples, in order"),
        ("any_of_first_{k}|k:1|dialect:evsys", "any pass among the first sample, in order"),
        ("worst_task|dialect:evsys", "computed by a plugin from all rewards"),
    ],
)
def test_a_number_is_described_by_its_estimator_not_by_its_name(signature, expected):
    assert described(estimate(signature=signature)) == expected


@pytest.mark.parametrize(
    ("signature", "short"),
    [
        ("pass@{k}|k:3", "probability of a pass in 3 samples (Chen et al. 2021)"),
        ("pass^{k}|k:3", "probability that all of 3 samples pass"),
        ("max@{k}|k:3", "expected best reward of 3 samples"),
        ("gpass@{k}|k:3", "at least a share tau of 3 samples pass"),
    ],
)
def test_unbiased_is_said_only_where_every_task_has_as_many_samples(signature, short):
    assert described(estimate(signature=signature)) == f"unbiased estimate: {short}"
    assert described(estimate(signature=signature, samples_per_task=(7, 8))) == short
    assert described(estimate(None, signature=signature)) == short


def test_warnings_stand_under_the_table():
    text = lines(result(group(warnings=["38 of 60 tasks stop at their first pass"])))
    assert "warning: 38 of 60 tasks stop at their first pass" in text


def test_groups_are_named_when_there_are_several():
    one, two = group(model="m"), group()
    assert title(two, result(two)) == ""
    assert [title(part, result(one, two)) for part in (one, two)] == ["m", "(unnamed)"]


def test_slices_stand_under_one_another():
    parts = {value: Slice(ledger(), {"pass@3": estimate()}) for value in ("easy", "hard")}
    text = lines(result(group(breakdowns={"level": parts})))
    start = text.index("by level")
    assert text[start + 1] == "  easy: 12 planned = 9 scored + 1 refused + 2 client_failed; 2 missing (excluded)"
    assert [line.split()[0] for line in text[start + 6 : start + 9]] == ["pass@3", "easy", "hard"]
    assert text[start + 9] == "each slice has its own interval, not adjusted for the number of slices"


def test_no_slices_are_said():
    assert "by level: no rollouts" in lines(result(group(breakdowns={"level": {}})))


@pytest.mark.parametrize("key", ["value", "n", "unit", "± stderr", "metric"])
def test_a_key_may_be_called_like_a_column(key):
    parts = {"easy": Slice(ledger(), {"pass@3": estimate()})}
    text = lines(result(group(breakdowns={key: parts})))
    assert text[text.index(f"by {key}") + 3].split("  ")[0] == key


def test_a_long_name_does_not_push_the_figures_aside():
    name = "percentile(column=latency_s, q=95)"
    text = lines(result(group({name: estimate(), "pass@3": estimate()})))
    row = text.index(f"{name} ↑")
    assert text[row + 1].startswith(" " * 10 + "0.7500")


@pytest.mark.parametrize(
    ("columns", "row", "note"),
    [
        (100, "┤·  4 tasks, 12 samples", "(Chen et al. 2021)"),
        (75, "┤·", "in 3 samples (Chen et al. 2021);"),
        (60, "0.3000 to 0.9500", "a pass in 3 samples"),
    ],
)
def test_a_narrow_terminal_loses_pictures_before_figures(columns, row, note):
    text = lines(result(), columns)
    number = next(number for number, line in enumerate(text) if line.startswith("pass@3"))
    assert text[number].endswith(row)
    assert text[number + 1].endswith(note)


@pytest.mark.parametrize("absent", [{"value": None}, {"interval": None}])
def test_no_picture_without_a_value_and_an_interval(absent):
    assert "├" in "".join(lines(result()))
    assert "├" not in "".join(lines(result(group({"pass@3": estimate(**absent)}))))


def test_counts_that_are_alike_are_said_once():
    text = lines(result(group({"pass@3": estimate(), "pass@2": estimate()})), 70)
    assert sum("4 tasks, 12 samples" in line for line in text) == 1
    assert "  every row: 4 tasks, 12 samples" in text


def test_economics_and_totals():
    cost = estimate(
        0.00012, stderr=0.00001, interval=(0.0001, 0.00014), higher_is_better=False, signature="cost_per_task|seed:0"
    )
    slow = estimate(3.5, stderr=None, interval=None, why="no interval is computed", signature="latency_p90|seed:0")
    made = group(
        economics={"cost_per_task": cost, "latency_p90": slow}, totals={"cost_usd": 0.0144, "output_tokens": 1e6}
    )
    text = lines(result(made))
    start = next(number for number, line in enumerate(text) if line.startswith("economics"))
    assert text[start + 2].split("  ")[:4] == ["cost_per_task ↓", "$0.12", "$0.10 to $0.14", "per 1,000 samples"]
    assert "├" not in text[start + 2]  # money has no line from 0 to 1
    assert text[start + 4] == "  latency_p90: no interval is computed"
    assert text[start + 5] == "total  1,000,000 tokens, $0.014"


def test_what_would_narrow_the_interval_is_said_under_the_table():
    mean = estimate(signature="mean_reward|reward:a")
    split = Split(0.77, 0.92, 4)
    text = lines(result(group({"avg": mean}, variance={"a": split})), 200)
    assert text[-4] == f"mean reward: {split.advice}"
    text = lines(result(group({"avg": mean}, variance={"a": split, "b": Unsplit("one task"), "c": split})), 200)
    assert text[-5:-3] == [f"mean reward (a): {split.advice}", f"mean reward (c): {split.advice}"]


@pytest.mark.parametrize(
    "made",
    [
        group(variance={"reward": Split(1, 1, 2)}),  # pass@3 alone: not the number it is about
        group({"avg": estimate(signature="mean_reward|seed:0")}, variance={"reward": Unsplit("one task")}),
    ],
)
def test_no_advice_where_there_is_none_to_give(made):
    assert not any(line.startswith("mean reward") for line in lines(result(made)))


def test_means_over_datasets_stand_under_the_groups():
    absent = estimate(None, stderr=None, interval=None, why="no value on 'b': no task has a value")
    over = SuiteMeans("x", "m", ["a", "b"], {"pass@3": Means(estimate(), absent)})
    text = lines(result(group(dataset="a"), group(dataset="b"), suites=[over]))
    start = text.index("2 datasets · m · x")
    assert text[start + 1 : start + 3] == ["a, b", ""]
    assert [line.split()[:2] for line in text[start + 3 : start + 8 : 2]] == [
        ["over", "datasets"],
        ["pass@3", "↑"],
        ["micro", "–"],
    ]
    assert text[start + 6].split()[:3] == ["macro", "0.7500", "0.2500"]
    assert text[start + 8 : start + 10] == [
        "    no value on 'b': no task has a value",
        "macro: every dataset has the same weight; micro: every task has the same weight",
    ]


def test_many_inputs_are_not_all_named():
    inputs = [Input(f"{n}.jsonl", "native", "0" * 64, 1) for n in range(5)]
    assert lines(result(inputs=inputs))[-5:-1] == [
        "0.jsonl: native, 1 rollout",
        "1.jsonl: native, 1 rollout",
        "2.jsonl: native, 1 rollout",
        "and 2 files more",
    ]


def test_attempts_that_were_replaced_are_said():
    text = lines(result(group(ledger=ledger(attempts=15)), missing="zero"), 200)
    assert text[0].endswith("; 2 missing (counted as 0); 3 earlier attempts excluded")


@pytest.mark.parametrize(("k", "said"), [(4, False), (5, True)])
def test_a_posterior_beyond_the_samples_is_called_an_extrapolation(k, said):
    found = calipers.score([[1, 0, 0, 1], [0, 0, 1, 0]], f"bayes_pass@{k}")[f"bayes_pass@{k}"]
    assert ("extrapolated beyond the samples" in described(found)) == said


def test_a_total_that_strict_json_cannot_write_is_read_as_infinite():
    made = result(group(totals={"latency_s": float("inf"), "input_tokens": float("inf")}))
    again = calipers.Result.from_json(made.to_json())
    assert str(again) == str(made)
    assert "inf tokens, inf s" in str(again)
