from importlib.resources import files

import pytest
from cli.running import run
from click.testing import CliRunner

from calipers import glossary
from calipers.cli.list import KINDS, aligned, list_names
from calipers.names import METRICS
from calipers.tasks.store import publish


@pytest.mark.parametrize("what", KINDS)
def test_a_name_and_a_line_each(what, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    publish(files("calipers") / "examples" / "arith")
    done = CliRunner().invoke(list_names, [what])
    assert done.exit_code == 0
    names = [line.split("  ")[0] for line in done.output.splitlines()]
    assert names == list(KINDS[what]())
    starts = {
        line.index("  ") + len(line[line.index("  ") :]) - len(line[line.index("  ") :].lstrip())
        for line in done.output.splitlines()
    }
    assert len(starts) == 1  # one column under another


def test_an_empty_store_says_how_to_fill_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["list", "benchmarks"]) == 2
    assert "calipers publish DIR adds one" in capsys.readouterr().err


def test_every_metric_is_listed():
    assert set(METRICS.entries) <= KINDS["metrics"]().keys()


def test_a_plugins_metric_is_listed_by_its_name(monkeypatch):
    monkeypatch.setitem(METRICS.added, "worst_task", object())
    assert KINDS["metrics"]()["worst_task"] == "Added by an installed plugin."


def test_every_outcome_is_listed():
    assert KINDS["outcomes"]().keys() == glossary.OUTCOMES.keys()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["list"], f"missing argument WHAT; expected {', '.join(KINDS)}, tasks, groups, tags\n"),
        (["list", "metric"], "no list named 'metric'; did you mean 'metrics'?\n"),
    ],
)
def test_what_cannot_be_listed(capsys, arguments, said):
    assert run(arguments) == 2
    assert capsys.readouterr().err == said


def test_a_terminal_has_each_description_in_its_own_columns(monkeypatch):
    entries = {"pass@{k}": "The probability of at least one pass in k samples of a task.", "sum": "The sum."}
    assert aligned(entries) == [
        "pass@{k}  The probability of at least one pass in k samples of a task.",
        "sum       The sum.",
    ]
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert aligned(entries) == [
        "pass@{k}  The probability of at least one pass in",
        "          k samples of a task.",
        "sum       The sum.",
    ]
