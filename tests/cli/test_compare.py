"""``calipers compare`` as a user runs it."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
from cli.running import calipers, lines, refused, rewards

FIRST = [[1], [0], [1], [0], [0], [0], [1], [1], [1], [0]]
SECOND = [[1], [1], [1], [0], [1], [0], [1], [1], [0], [1]]


@pytest.fixture
def runs(tmp_path):
    """Two files of ten tasks, with answers that would colour a terminal."""
    for name, tasks in (("a", FIRST), ("b", SECOND)):
        rows = [
            {"task": f"t{n}", "reward": task[0], "completion": f"\x1b[31m{name} says {task[0]}"}
            for n, task in enumerate(tasks)
        ]
        lines(tmp_path, *rows, name=f"{name}.jsonl")
    return ["a.jsonl", "b.jsonl"]


def test_the_short_page(tmp_path, runs):
    done = calipers("compare", *runs, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    text = re.sub(r"About \d+ new tasks", "About N new tasks", done.stdout)
    assert text.splitlines()[:-1] == [
        "B against A                             mean_reward = pass_rate, 10 common tasks",
        "Not decided: b.jsonl against a.jsonl.",
        "Difference +0.200, 95 % interval −0.266 to +0.666. About N new tasks, tested on",
        "  their own, would show a difference this large with 80 % chance; the data allow",
        "  anything from 10 tasks to no number at all.",
        "",
        "A  a.jsonl   B  b.jsonl",
        "",
        "metric            A       B    B − A   95 % interval         p   verdict",
        "─" * 80,
        "mean_reward   0.500   0.700   +0.200   −0.266 to +0.666   0.36   ~ undecided",
        "",
        "10 common tasks: 3 better, 6 same, 1 worse",
        "  largest losses   t8 −1.000",
        "  largest gains    t1 +1.000, t4 +1.000, t9 +1.000",
        "",
    ]
    one = calipers("compare", *runs, "--flips", "1", cwd=tmp_path).stdout
    assert "  largest gains    t1 +1.000\n" in one


def test_the_page_with_all_details(tmp_path, runs):
    done = calipers("compare", *runs, "--details", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    text = re.sub(r"about \d+ new tasks", "about N new tasks", done.stdout)
    assert text.splitlines()[:-2] == [
        "A  a.jsonl  (10 tasks, 10 samples)",
        "B  b.jsonl  (10 tasks, 10 samples)",
        "",
        "mean_reward, pass_rate: undecided whether b.jsonl or a.jsonl is better: a difference of +0.2 (95 %",
        "  interval -0.266 to +0.666, p 0.36); about N new tasks, tested on their own, would show a",
        "  difference this large with a power of 80 %; for the differences in the interval it takes 10 tasks",
        "  or more, and for some no number is enough, because the interval contains 0; to add tasks to these",
        "  runs instead, use compare --anytime",
        "10 common tasks",
        "",
        "metric              A       B    B - A  95 % interval          p  verdict",
        "───────────────────────────────────────────────────────────────────────────",
        "mean_reward ↑  0.5000  0.7000  +0.2000  [-0.2664, +0.6664]  0.36  undecided",
        "  McNemar: 3 fixed, 1 broken, exact p 0.62, mid-p 0.38",
        "pass_rate ↑    0.5000  0.7000  +0.2000  [-0.2664, +0.6664]  0.36  undecided",
        "  McNemar: 3 fixed, 1 broken, exact p 0.62, mid-p 0.38",
        "",
        "mean_reward by task: 1 worse, 3 better, 6 the same",
        "worse, 1",
        "      A → B  A answered     B answered",
        "  t8  1 → 0  �[31ma says 1  �[31mb says 0",
        "better, 3",
        "      A → B  A answered     B answered",
        "  t1  0 → 1  �[31ma says 0  �[31mb says 1",
        "  t4  0 → 1  �[31ma says 0  �[31mb says 1",
        "  t9  0 → 1  �[31ma says 0  �[31mb says 1",
        "",
    ]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ([], 0),
        (["--fail-on", "worse"], 0),
        (["--fail-on", "undecided"], 1),
    ],
)
def test_undecided_fails_only_when_asked_to(tmp_path, runs, asked, code):
    assert calipers("compare", *runs, *asked, cwd=tmp_path).returncode == code


def test_worse_fails_and_better_does_not(tmp_path):
    low, high = rewards(tmp_path, [[0]] * 30, "low.json"), rewards(tmp_path, [[1]] * 30, "high.json")
    assert calipers("compare", high, low, "--fail-on", "worse", cwd=tmp_path).returncode == 1
    assert calipers("compare", low, high, "--fail-on", "undecided", cwd=tmp_path).returncode == 0


def test_the_document(tmp_path, runs):
    done = calipers("compare", *runs, "--format", "json", "--out", "found.json", "--margin", "0.1", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert found == json.loads((tmp_path / "found.json").read_text())
    assert (found["schema"], found["test"], found["margin"]) == ("calipers.comparison/1", "floored_t", 0.1)
    (contest,) = found["contests"]
    assert [run["name"] for run in contest["runs"]] == runs
    (pair,) = contest["pairs"]
    assert pair["alignment"] == {
        "by": "id",
        "common": 10,
        "only_first": {"count": 0, "ids": []},
        "only_second": {"count": 0, "ids": []},
    }
    first = pair["findings"][0]
    assert (first["metric"], first["verdict"], first["delta"]) == ("mean_reward", "undecided", pytest.approx(0.2))
    assert first["p_equivalent"] > 0.05
    assert found["digest"].startswith("sha256:")
    assert "\x1b" not in done.stdout


def test_the_digest_knows_no_paths(tmp_path, runs):
    elsewhere = [f"copy-of-{name}" for name in runs]
    for name, copy in zip(runs, elsewhere, strict=True):
        (tmp_path / copy).write_bytes((tmp_path / name).read_bytes())
    one, two = (
        json.loads(calipers("compare", *some, "--format", "json", cwd=tmp_path).stdout) for some in (runs, elsewhere)
    )
    assert one["digest"] == two["digest"]
    other = json.loads(calipers("compare", *runs, "--format", "json", "--confidence", "0.9", cwd=tmp_path).stdout)
    assert other["digest"] != one["digest"]


def test_rows_for_a_spreadsheet(tmp_path, runs):
    done = calipers("compare", *runs, "--format", "csv", "--metric", "mean_reward", cwd=tmp_path)
    (row,) = csv.DictReader(io.StringIO(done.stdout))
    assert (row["first_run"], row["second_run"], row["verdict"]) == (*runs, "undecided")
    assert float(row["mcnemar_exact"]) == pytest.approx(0.625)


def test_a_page_for_a_pull_request(tmp_path):
    names = [f"m{c}[x](http://e)`|" for c in "ab"]
    for name, model, tasks in zip(("a", "b"), names, (FIRST, SECOND), strict=True):
        rows = [{"task": f"t{n}|", "reward": t[0], "model": model, "answer": "@you"} for n, t in enumerate(tasks)]
        lines(tmp_path, *rows, name=f"{name}.jsonl")
    done = calipers("compare", "a.jsonl", "b.jsonl", "--format", "md", "--details", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "- **undecided**: mean\\_reward, pass\\_rate: undecided whether mb\\[x\\](http" in done.stdout
    rows = [line for line in done.stdout.splitlines() if line.startswith("| `mean_reward`")]
    assert len(rows) == 1
    assert "| `t8\\|` | 1 | 0 | `@you` | `@you` |" in done.stdout


def test_an_ascii_terminal_gets_ascii(tmp_path, runs):
    done = calipers("compare", *runs, cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert "t8 -1.000" in done.stdout
    assert "+0.200   -0.266 to +0.666   0.36   ~ undecided" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a.jsonl"], "a.jsonl: has only one run; give a second run to compare it with"),
        (["a.jsonl", "a.jsonl"], "a.jsonl: is given twice; expected two different runs"),
        (["a.jsonl", "nowhere"], "nowhere: no such file"),
        (["a.jsonl", "b.jsonl", "--metric", "mean_rewrd"], "no metric named 'mean_rewrd'; did you mean 'mean_reward'"),
        (["a.jsonl", "b.jsonl", "--margin", "-1"], "margin is -1; expected a number above 0"),
        (["a.jsonl", "b.jsonl", "--baseline", "c.jsonl"], "no run named 'c.jsonl'; did you mean"),
        (
            ["a.jsonl", "b.jsonl", "--out", "a.jsonl"],
            "a.jsonl: is one of the files to be read; expected another file",
        ),
        (["a.jsonl", "b.jsonl", "--confidence", "95"], "confidence is 95.0; expected a number between 0 and 1"),
        (["a.jsonl", "b.jsonl", "--tset", "strict"], "no option '--tset'; did you mean '--test'"),
    ],
)
@pytest.mark.usefixtures("runs")
def test_what_cannot_be_done_is_one_line(tmp_path, arguments, said):
    assert refused("compare", *arguments, cwd=tmp_path).startswith(said)


def test_gaps_that_are_not_allowed_are_exit_3(tmp_path):
    a, b = rewards(tmp_path, [[1], [None]], "a.json"), rewards(tmp_path, [[1], [1]], "b.json")
    said = refused("compare", a, b, "--missing", "fail", cwd=tmp_path, code=3)
    assert said.startswith("a.json: 1 of 2 rollouts is missing; --missing gap excludes them")


def test_the_help_loads_nothing_and_says_it_all(tmp_path):
    done = calipers("compare", "--help", cwd=tmp_path)
    assert done.returncode == 0
    for option in ("--margin", "--test", "--baseline", "--fail-on", "--flips", "--adjust", "--cluster", "--by"):
        assert option in done.stdout


def test_a_verdict_that_may_be_asked_again(tmp_path, runs):
    done = calipers("compare", *runs, "--anytime", "--metric", "mean_reward", "--details", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    short = calipers("compare", *runs, "--anytime", "--metric", "mean_reward", cwd=tmp_path)
    assert "anytime test (betting); sha256:" in short.stdout
    page = " ".join(done.stdout.split())
    assert "add tasks to the runs and compare again: this test is valid after every batch" in page
    order = "tasks in the order of the second run (by its plan, its start times, or its first rows)"
    made = "confidence level 95 %; native definitions; missing rollouts excluded; seed 0"
    assert f"anytime test (betting); {made}; {order}; digest" in page
    failed = calipers("compare", *runs, "--anytime", "--test", "sign-flip", cwd=tmp_path)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert "--anytime is a test itself; expected no --test sign-flip with it" in failed.stderr


def test_the_csv_has_the_range_of_new_tasks(tmp_path, runs):
    done = calipers("compare", *runs, "--format", "csv", "--metric", "mean_reward", cwd=tmp_path)
    (row,) = csv.DictReader(done.stdout.splitlines())
    assert (int(row["new_tasks_low"]) < int(row["more_tasks"]), row["new_tasks_high"]) == (True, "")


def test_runs_of_different_benchmarks_are_refused_unless_forced(tmp_path):
    for dataset in ("sums", "capitals"):
        rows = [{"task": n, "reward": n % 2, "dataset": dataset, "target": f"{dataset} {n}"} for n in range(10)]
        lines(tmp_path, *rows, name=f"{dataset}.jsonl")
    runs = ("sums.jsonl", "capitals.jsonl")
    said = (
        "sums.jsonl (dataset 'sums') and capitals.jsonl (dataset 'capitals') look like runs of different benchmarks: "
        "of 10 tasks with the same id, 10 have another target"
    )
    assert refused("compare", *runs, cwd=tmp_path) == f"{said}; --force compares them anyway"
    forced = calipers("compare", *runs, "--force", cwd=tmp_path)
    assert forced.returncode == 0
    assert f"note: {said}" in " ".join(forced.stdout.split())
    required = ("--require", "delta(mean_reward) >= 0")
    gated = refused("gate", runs[1], "--baseline", runs[0], *required, cwd=tmp_path)
    assert gated == f"sums.jsonl: {said}; expected a baseline of the same benchmark"
