"""The bench beside lm-evaluation-harness: its tasks, how answers are compared, and what it says of the figures."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2]))

from bench.harness.answers import compared, timed
from bench.harness.commands import Turn, _compared, commands_section
from bench.harness.loading import SIDES, Taken, _table
from bench.harness.report import Measured, Side, page
from bench.harness.run import with_others
from bench.harness.tasks import tasks, write_tasks
from bench.measure import Timing
from calipers.systems.lm_eval.tasks.groups import Tasks, leaves
from calipers.systems.lm_eval.tasks.loaded import load_task, requests

OUTPUTS = ["multiple_choice", "multiple_choice", "multiple_choice", "loglikelihood", "loglikelihood_rolling"]


def test_the_tasks_are_of_every_output_type_and_the_same_every_time(tmp_path):
    made = write_tasks(tmp_path, 0.05)
    loaded = []
    for task in made:
        (leaf,) = leaves(Tasks([]).find(str(tmp_path / f"{task.name}.yaml")))
        loaded.append(load_task(leaf.config, leaf.file))
    assert [one.config.output_type for one in loaded] == [*OUTPUTS, "generate_until"]
    asked = [list(requests(one)) for one in loaded]
    assert [len({one.doc_id for one in each}) for each in asked] == [len(task.docs) for task in made]
    assert [task.docs for task in made] == [task.docs for task in tasks(0.05)]
    letters = [one.args[0] for one in asked[0]]
    head = letters[0][: len(letters[0]) // 2]
    assert all(text.startswith(head) for text in letters)  # the examples of the first are those of all


def test_timing_keeps_answers_and_both_clocks():
    figures, found = timed(["a", "b"], lambda name: {"0": [name]})
    assert found == {"a": {"0": ["a"]}, "b": {"0": ["b"]}}
    assert sorted(figures) == ["a clock", "a cpu", "b clock", "b cpu"]


def test_answers_that_agree():
    theirs = {"mc": {"0": [[-100.0, False], [-2.0, True]]}, "roll": {"0": [[-7.0, None]]}, "gen": {"0": ["4"]}}
    ours = {"mc": {"0": [[-100.0005, False], [-2.0, True]]}, "roll": {"0": [[-7.0, False]]}, "gen": {"0": ["4"]}}
    found = compared(ours, theirs)
    assert {task: count for task, (count, _) in found.items()} == {"mc": 2, "roll": 1, "gen": 1}
    assert found["mc"][1] == pytest.approx(5e-6)


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ({"0": [[-2.0001, True]]}, {"0": [[-2.0, True]]}, "t, document 0, request 0: the log-likelihood is -2.0001"),
        ({"0": [[-2.0, True]]}, {"0": [[-2.0, False]]}, "t, document 0, request 0: greedy is True, and False"),
        ({"0": ["4 "]}, {"0": ["4"]}, "t, document 0, request 0: '4 ' is not '4'"),
        ({"0": [[-1.0, True]]}, {"0": ["4"]}, "is not '4'"),
        ({"1": ["4"]}, {"0": ["4"]}, "t: not the same documents were asked"),
        ({"0": ["4"]}, {"0": ["4", "5"]}, "zip"),
    ],
)
def test_answers_that_differ(ours, theirs, said):
    with pytest.raises(ValueError, match=said.replace(".", "[.]")):
        compared({"t": ours}, {"t": theirs})


@cache
def few():
    return tasks(0.01)


def side(title, *turns):
    """A side whose every task takes so many seconds in each turn, and a quarter more of the processor."""
    names = [task.name for task in few()]
    takes = []
    for seconds in turns:
        figures = {f"{name} {clock}": seconds * more for name in names for clock, more in (("clock", 1), ("cpu", 1.25))}
        takes.append(Timing(6 * seconds, 7 * seconds, 6 * seconds + 3, 1.0, 0.0, figures, {"torch": "2"}))
    return Side(title, takes)


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        ((1.0, 9.0, 1.0), "**0.50** in wall-clock time (met)"),
        ((2.0, 2.0, 1.0), "**1.00** in wall-clock time (**missed**)"),
    ],
)
def test_the_page(ours, verdict):
    """Ratios are of turns, so one that was disturbed does not decide; seconds are the best of all."""
    sides = [side("lm-eval, batches of 1", 4.0, 4.0, 4.0), side("lm-eval, batches of 16", 2.0, 2.0, 2.0)]
    text = page(Measured(side("Calipers", *ours), sides, {"letters": (8, 1e-7)}), few(), 2, (0.1, 0.2), 3, "")
    assert verdict in text
    assert "| `pages` | 1.00 | 4.00 | 2.00 | 0.50 |" in text
    assert "| all | 6.00 | 24.00 | 12.00 | 0.50 |" in text
    assert "All 8 answers agree" in text
    assert "Calipers 3.0 s" in text


def test_the_commands():
    text = commands_section([Turn((5.0, 6.0), (10.0, 10.0), 14), Turn((9.0, 4.0), (12.0, 10.0), 14)], 16)
    assert "| `calipers run` | 5.0 | 4.0 |" in text
    assert "| `lm_eval run` | 10.0 | 10.0 |" in text
    assert "| ratio, median of the repeats | 0.62 | 0.50 |" in text
    assert commands_section([], 1) == ""


@pytest.mark.parametrize(
    ("ours", "wrong"),
    [
        ({"alias": "t", "acc,none": 0.5, "acc_stderr,none": "N/A"}, ""),
        ({"alias": "t", "acc,none": 0.51, "acc_stderr,none": "N/A"}, "t: acc,none is 0.51, and 0.5 in lm-eval"),
        ({"alias": "t", "acc,none": 0.5, "acc_stderr,none": 0.0}, "t: acc_stderr,none is 0.0, and 'N/A' in lm-eval"),
        ({"alias": "t", "acc_stderr,none": "N/A"}, "t: acc,none is None, and 0.5 in lm-eval"),
    ],
)
def test_results_that_agree_or_not(ours, wrong):
    theirs = {"t": {"alias": "t", "acc,none": 0.5, "acc_stderr,none": "N/A"}}
    if not wrong:
        assert _compared({"t": ours}, theirs) == 1
        return
    with pytest.raises(ValueError, match=wrong):
        _compared({"t": ours}, theirs)


def test_the_page_keeps_what_others_write_on_it():
    before = "# Page\n\nold\n\n## Mine\n\nold\n\n## Of others\n\nkept\n\n## More of others\n\nkept, too\n"
    found = with_others("# Page\n\nnew\n\n## Mine\n\nnew\n", before)
    assert found == "# Page\n\nnew\n\n## Mine\n\nnew\n\n## Of others\n\nkept\n\n## More of others\n\nkept, too\n"


def test_what_comes_before_the_first_call_is_told_beside_theirs():
    theirs, cold, kept = SIDES
    best = {
        ("mmlu", theirs): Taken((10.0, 8.0), (12.0, 9.0)),
        ("mmlu", cold): Taken((5.0, 2.0), (9.0, 6.0)),
        ("mmlu", kept): Taken((2.0, 1.0), (6.0, 4.5)).better(Taken((2.5, 0.8), (7.0, 5.0))),
        ("afrobench", kept): Taken((4.0, 2.0), (60.0, 50.0)),
    }
    lines = _table(["mmlu", "afrobench"], best, whole=False).splitlines()
    assert "| mmlu | lm-eval | 10.00 |  | 8.00 |  |" in lines
    assert f"| mmlu | {kept} | 2.00 | 0.20 | 0.80 | 0.10 |" in lines
    assert "| afrobench | lm-eval | failed |  | failed |  |" in lines
    assert f"| afrobench | {kept} | 4.00 |  | 2.00 |  |" in lines
    assert lines[-1].startswith(
        f"{kept}: afrobench takes 2.0 times the wall-clock time and 2.5 times the CPU time of mmlu"
    )
    assert f"| mmlu | {kept} | 6.00 | 0.50 | 4.50 | 0.50 |" in _table(["mmlu"], best, whole=True).splitlines()
