"""``calipers gate`` as a user runs it, on results and on rollouts."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
from cli.inside import inside  # noqa: F401
from cli.running import ARITH, lines, refused, rewards
from cli.running import calipers as command

import calipers

WARNED = (
    "warning: 5.31 % of the rollouts of result.json are missing (17 of 320): "
    "requirements without worst(...) may depend on which rollouts are missing\n"
)
HOSTILE = "m\x1b[31m<b>&\"'|`::error::x ##[error]y\u202e"


@pytest.fixture(scope="module")
def scored():
    """The result of the bundled rollouts, by difficulty: mean_reward 0.4402 [0.3391, 0.5465], 17 missing of 320."""
    return calipers.score(ARITH, by="difficulty").to_json()


@pytest.fixture
def result(tmp_path, scored):
    (tmp_path / "result.json").write_text(scored)
    return "result.json"


@pytest.fixture
def gate(inside):  # noqa: F811
    def held(folder, path, *required, options=(), **environment):
        asked = [part for text in required for part in ("--require", text)]
        return inside("gate", path, *asked, *options, cwd=folder, **environment)

    return held


def test_as_a_user_runs_it(tmp_path, result):
    done = command("gate", result, "--require", "mean_reward >= 0.48", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, WARNED)
    assert done.stdout.splitlines()[:3] == [
        "gate · result.json                                                        1 rule",
        "Failed: 1 of 1 rule.",
        "mean_reward >= 0.48: it is 0.440 (95 % interval 0.339 to 0.546)",
    ]


@pytest.mark.parametrize(
    ("required", "code"),
    [
        (["mean_reward >= 0.44"], 0),
        (["mean_reward >= 0.45"], 1),
        (["lower(mean_reward) >= 0.33"], 0),
        (["lower(mean_reward) >= 0.34"], 1),
        (["upper(pass_rate) < 0.55", "pass_rate > 0.4"], 0),
        (["mean_reward[difficulty=easy] > 0.6", "mean_reward[difficulty=hard] < 0.2"], 0),
        (["cost_per_task <= 0.001"], 0),  # what it cost is among the numbers of a result
        (["lower(latency_p99) > 0"], 3),  # a value, and no interval
        (["mean_reward[difficulty=medium] > 0"], 3),
        (["lower(latency_p99) > 0", "mean_reward > 1"], 1),  # no is no, whatever else is not known
    ],
)
def test_the_exit_code(gate, tmp_path, result, required, code):
    done = gate(tmp_path, result, *required, options=["--max-missing", "17"])
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stderr == WARNED


def test_the_table(gate, tmp_path, result):
    required = ["lower(mean_reward) >= 0.3", "pass_rate > 0.5", "lower(latency_p99) > 0"]
    done = gate(tmp_path, result, *required, options=["--max-gaps", "6%"])
    assert done.stdout.splitlines() == [
        "gate · result.json                                                       3 rules",
        "Failed: 1 of 3 rules.",
        "pass_rate > 0.5: it is 0.446 (95 % interval 0.347 to 0.549)",
        "",
        "           requirement                value  n",
        "─" * 80,
        "PASS       lower(mean_reward) >= 0.3  0.339  40 tasks, 17 missing",
        "  95 % interval 0.339 to 0.546",
        "FAIL       pass_rate > 0.5            0.446  40 tasks, 17 missing",
        "  95 % interval 0.347 to 0.549; the interval contains both answers",
        "NO ANSWER  lower(latency_p99) > 0     –      40 tasks, 17 missing",
        "  no interval: with so few tasks the true percentile may lie outside the",
        "    observed values",
    ]


def test_rollouts_are_scored_for_what_is_required(gate, tmp_path):
    required = ["pass@2[difficulty=hard] >= 0.3", "upper(mean(column=output_tokens)) <= 100"]
    done = gate(tmp_path, ARITH, *required, options=["--format", "json", "--max-gaps", "17"])
    found = json.loads(done.stdout)
    assert (done.returncode, found["gate"], found["exit_code"]) == (0, "passed", 0)
    assert [check["require"] for check in found["checks"]] == required
    assert [check["gaps"] for check in found["checks"]] == [11, 17]


def test_a_null_never_passes(gate, tmp_path):
    """A metric without a value for any task is null, and null is not below any number."""
    path = rewards(tmp_path, [[1, 0], [1, 1]])
    for op in ("<", ">", "<=", ">=", "=="):
        done = gate(tmp_path, path, f"pass@3 {op} 0")
        assert (done.returncode, "no value: no task has a value" in done.stdout) == (3, True)


def test_one_task_has_no_lower_end(gate, tmp_path):
    done = gate(tmp_path, rewards(tmp_path, [[1, 1]]), "lower(mean_reward) > 0")
    assert (done.returncode, "no interval:" in done.stdout) == (3, True)


@pytest.mark.parametrize(("most", "code"), [("17", 0), ("16", 3), ("0", 3), ("6%", 0), ("5%", 3)])
def test_gaps_beyond_what_is_allowed(gate, tmp_path, result, most, code):
    done = gate(tmp_path, result, "mean_reward > 0", options=["--max-gaps", most])
    assert done.returncode == code
    assert ("17 of 320 rollouts are missing, and at most" in done.stdout) == (code == 3)


def groups(folder):
    rows = [
        {"task": f"t{task}", "model": model, "dataset": data, "reward": float(task < right)}
        for model, data, right in (("a", "x", 5), ("b", "x", 2), ("a", "y", 6))
        for task in range(6)
    ]
    return lines(folder, *rows)


def test_every_group_must_hold_unless_one_is_picked(gate, tmp_path):
    path = groups(tmp_path)
    done = gate(tmp_path, path, "mean_reward > 0.5")
    assert done.returncode == 1
    assert [line.split()[:4] for line in done.stdout.splitlines() if "·" in line][1:] == [
        ["PASS", "x", "·", "a"],
        ["FAIL", "x", "·", "b"],
        ["PASS", "y", "·", "a"],
    ]
    assert gate(tmp_path, path, "mean_reward > 0.5", options=["--model", "a"]).returncode == 0
    assert gate(tmp_path, path, "mean_reward > 0.9", options=["--model", "a", "--dataset", "y"]).returncode == 0


def pair(folder, drop=0):
    """Sixty tasks before and after; after, ten more are solved, and ``drop`` are lost."""
    before = [{"task": f"t{n}", "reward": float(n < 30)} for n in range(60)]
    after = [{"task": f"t{n}", "reward": float(drop <= n < 40)} for n in range(60)]
    return lines(folder, *before, name="before.jsonl"), lines(folder, *after, name="after.jsonl")


@pytest.mark.parametrize(
    ("required", "code"),
    [
        ("delta(mean_reward) > 0.16", 0),  # 10 of 60 more
        ("delta(mean_reward) > 0.17", 1),
        ("lower(delta(mean_reward)) > 0.05", 0),  # paired: all ten changes go one way
        ("lower(delta(mean_reward)) > 0.1", 1),
    ],
)
def test_the_difference_from_a_baseline(gate, tmp_path, required, code):
    before, after = pair(tmp_path)
    done = gate(tmp_path, after, required, options=["--baseline", before])
    assert done.returncode == code, done.stdout + done.stderr


def test_a_baseline_that_no_requirement_reads_is_noted(gate, tmp_path):
    before, after = pair(tmp_path)
    note = "note: after.jsonl: the baseline is not read, because no requirement has delta(METRIC)"
    assert note in gate(tmp_path, after, "mean_reward > 0", options=["--baseline", before]).stderr
    assert note not in gate(tmp_path, after, "delta(mean_reward) > 0", options=["--baseline", before]).stderr


def test_the_difference_of_finished_results_has_no_interval(gate, tmp_path):
    for name in pair(tmp_path):
        (tmp_path / name.replace("jsonl", "json")).write_text(calipers.score(tmp_path / name).to_json())
    asked = ["--baseline", "before.json"]
    done = gate(tmp_path, "after.json", "delta(mean_reward) > 0.16", options=asked)
    assert done.returncode == 0
    assert "two finished results are not paired, so their difference has no interval" in done.stdout
    assert gate(tmp_path, "after.json", "lower(delta(mean_reward)) > 0", options=asked).returncode == 3


def runs(folder, name, models, shift=0):
    rows = [{"task": f"t{n}", "model": model, "reward": float(n < 10 + shift)} for n in range(30) for model in models]
    return lines(folder, *rows, name=name)


def test_a_difference_is_from_the_baseline_and_from_nothing_else(gate, tmp_path):
    """If the baseline shares no task with one of two models, the other model is not used as its baseline."""
    before = runs(tmp_path, "before.jsonl", ["old"])
    rows = [{"task": f"t{n}", "model": "a", "reward": 1.0} for n in range(30)]
    rows += [{"task": f"x{n}", "model": "b", "reward": 1.0} for n in range(30)]
    after = lines(tmp_path, *rows, name="after.jsonl")
    done = gate(tmp_path, after, "delta(mean_reward) > 0", options=["--baseline", before, "--format", "json"])
    found = json.loads(done.stdout)["checks"]
    assert [(check["model"], check["word"]) for check in found] == [("a", "passed"), ("b", "undefined")]
    assert found[0]["value"] == pytest.approx(20 / 30)
    assert "b shares no task with a run of the baseline" in found[1]["why"]


def test_each_model_meets_its_own_baseline(gate, tmp_path):
    before, after = runs(tmp_path, "before.jsonl", ["a", "b"]), runs(tmp_path, "after.jsonl", ["a", "b"], 3)
    done = gate(tmp_path, after, "delta(mean_reward) == 0.1", options=["--baseline", before, "--format", "json"])
    assert [check["value"] for check in json.loads(done.stdout)["checks"]] == pytest.approx([0.1, 0.1])


def test_a_baseline_of_several_runs_must_be_clear(inside, tmp_path):  # noqa: F811
    before, after = runs(tmp_path, "before.jsonl", ["a", "b"]), runs(tmp_path, "after.jsonl", ["c"])
    said = inside.refused("gate", after, "--baseline", before, "--require", "delta(mean_reward) > 0", cwd=tmp_path)
    assert "before.jsonl: has several runs that c could be compared with (a, b)" in said


def test_gaps_of_the_baseline_count(gate, tmp_path):
    lines(tmp_path, {"task": "a", "reward": 1}, {"task": "b"}, {"task": "c", "reward": 0}, name="before.jsonl")
    lines(tmp_path, *({"task": name, "reward": 1} for name in "abc"), name="after.jsonl")
    asked = ["--baseline", "before.jsonl", "--max-gaps", "0"]
    done = gate(tmp_path, "after.jsonl", "delta(mean_reward) > 0", options=asked)
    assert (done.returncode, "1 of 3 rollouts of the baseline is missing" in done.stdout) == (3, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["result.json", "--require", "mean_rewad > 0"], "no metric in result.json named 'mean_rewad'; did you mean"),
        (["result.json", "--require", "pass@9 > 0"], "no metric in result.json named 'pass@9'; known: "),
        (["result.json", "--require", "mean_reward[dificulty=easy] > 0"], "did you mean 'difficulty'?"),
        (["result.json", "--require", "mean_reward > 0", "--model", "tiny"], "named 'tiny'; known: tiny-calculator"),
        (["result.json", "--require", "mean_reward > 0", "--missing", "zero"], "is a finished result, so --missing"),
        (["result.json", "--require", "mean_reward > 0", "--truth", "yes=1"], "result, so --truth cannot apply"),
        (
            ["result.json", "--require", "mean_reward > 0", "--input-format", "verl", "--columns", "task=id"],
            "finished result, so --columns, --input-format cannot apply",
        ),
        (["result.json", "--require", "delta(mean_reward) > 0"], "expected --baseline PATH"),
        (["result.json"], "--require 'EXPR OP NUMBER' is missing"),
        (["--require", "x > 0"], "RESULT is missing"),
        (["gone.json", "--require", "mean_reward > 0"], "gone.json: no such file"),
        (["broken.json", "--require", "mean_reward > 0"], "broken.json: is not a complete result document"),
        (["newer.json", "--require", "mean_reward > 0"], "newer.json: its schema is 'calipers.result/9'; expected"),
        (["result.json", "--require", "mean_reward > 0", "--junit", "j", "--out", "j"], "j: would be written twice"),
        (
            ["result.json", "--require", "mean_reward > 0", "--max-gaps", "-inf"],
            "--max-gaps: '-inf' cannot be read; expected a number of rollouts such as 5, or a share such as 2%",
        ),
        (
            ["result.json", "--require", "mean_reward > 0", "--max-gaps", "few"],
            "expected a number of rollouts such as 5",
        ),
        (["result.json", "--require", "mean_reward > 0", "--policy", "p.yaml"], "cannot be combined with --policy"),
        (["result.json", "--require", "mean_reward > 0", "--junit", "result.json"], "is one of the files"),
    ],
)
def test_what_is_refused(inside, tmp_path, result, arguments, said):  # noqa: F811
    (tmp_path / "broken.json").write_text((tmp_path / result).read_text()[:-40])
    (tmp_path / "newer.json").write_text('{"schema": "calipers.result/9", "groups": []}')
    assert said in inside.refused("gate", *arguments, cwd=tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"economics": {"cost_per_task": 5}},
        {"lm_eval": [{"model": "m", "tasks": {"said": {"bleu,none": {"value": 1, "documents": "many"}}}}]},
        {"lm_eval": [{"model": "m", "tasks": {"said": {"bleu,none": {"value": "high"}}}}]},
    ],
)
def test_a_number_of_a_result_that_is_none_is_refused(inside, tmp_path, result, change):  # noqa: F811
    held = json.loads((tmp_path / result).read_text())
    held |= {key: value for key, value in change.items() if key == "lm_eval"}
    held["groups"][0] |= {"economics": {}, **change, "model": "m", "dataset": "said"}
    (tmp_path / "edited.json").write_text(json.dumps(held))
    message = inside.refused("gate", "edited.json", "--require", "mean_reward > 0", cwd=tmp_path)
    assert message.startswith("edited.json: is not a complete result document (Expected ")


@pytest.mark.parametrize(("result_path", "baseline"), [("-", "a.jsonl"), ("a.jsonl", "-")])
def test_a_difference_needs_files(tmp_path, result_path, baseline):
    """A difference needs its inputs to be read more than once, which is impossible for standard input."""
    lines(tmp_path, *({"task": name, "reward": 1} for name in "abc"), name="a.jsonl")
    asked = ("gate", result_path, "--baseline", baseline, "--require", "delta(mean_reward) >= 0")
    message = refused(*asked, cwd=tmp_path, stdin=(tmp_path / "a.jsonl").read_bytes())
    assert message == "delta(...): standard input can be read only once; expected a file"


def test_a_result_whose_keys_were_sorted_is_still_one(gate, tmp_path, result):
    held = json.loads((tmp_path / result).read_text())
    (tmp_path / "sorted.json").write_text(json.dumps(held, sort_keys=True))
    assert gate(tmp_path, "sorted.json", "mean_reward > 0.4").returncode == 0


def test_junit_keeps_failures_apart_from_errors(gate, tmp_path, result):
    required = ["mean_reward > 0", "mean_reward > 1", "lower(latency_p99) > 0"]
    done = gate(tmp_path, result, *required, options=["--junit", "gate.xml"])
    assert done.returncode == 1
    root = ElementTree.parse(tmp_path / "gate.xml").getroot()
    assert {key: root.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "3",
        "failures": "1",
        "errors": "1",
        "skipped": "0",
    }
    (suite,) = root
    assert suite.get("name") == "result.json · arith · tiny-calculator"
    assert [[child.tag for child in case] for case in suite] == [[], ["failure"], ["error"]]
    printed = gate(tmp_path, result, *required, options=["--format", "junit"]).stdout
    assert printed == (tmp_path / "gate.xml").read_text()


def test_what_github_is_told(gate, tmp_path, result):
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    done = gate(
        tmp_path, result, "mean_reward > 1", "pass_rate > 0", GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=str(summary)
    )
    assert done.stderr == WARNED + (
        "::error title=critical requirement failed%3A result.json · arith · tiny-calculator::"
        "mean_reward > 1: 0.440, 95 %25 interval [0.339, 0.546]\n"
    )
    assert summary.read_text().startswith(
        "before\n### Gate failed: 1 of 2 requirements met, 1 critical requirement failed\n"
    )


def test_a_summary_that_cannot_be_written_does_not_change_the_answer(gate, tmp_path, result):
    done = gate(tmp_path, result, "mean_reward > 0", GITHUB_STEP_SUMMARY=str(tmp_path))
    assert (done.returncode, "cannot be written" in done.stderr) == (0, True)


@pytest.mark.parametrize("shape", ["table", "md", "junit", "json"])
def test_names_can_do_nothing(gate, tmp_path, shape):
    rows = [{"task": str(n), "model": HOSTILE, "dataset": "::stop-commands::x", "reward": 1} for n in range(3)]
    rows += [{"task": str(n), "model": "b", "reward": 1} for n in range(3)]
    path = lines(tmp_path, *rows)
    summary = tmp_path / "summary.md"
    done = gate(
        tmp_path, path, "mean_reward > 1", options=["--format", shape], GITHUB_ACTIONS="true",
        GITHUB_STEP_SUMMARY=str(summary),
    )  # fmt: skip
    assert done.returncode == 1
    shown = done.stdout + done.stderr
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    commands = [line for line in shown.splitlines() if line.lstrip().startswith("::")]
    assert [line.partition(" ")[0] for line in commands] == ["::error", "::error"]  # ours, one for each group
    assert "##[" not in shown
    if shape == "json":
        assert {check["model"] for check in json.loads(done.stdout)["checks"]} == {HOSTILE, "b"}
    if shape == "junit":
        assert [suite.get("failures") for suite in ElementTree.fromstring(done.stdout)] == ["1", "1"]
    assert "<b>" not in summary.read_text().replace("``", "`").split("`")[0::2]


@pytest.fixture
def two_folders(tmp_path):
    """Runs of two benchmarks, of a baseline and of a better model."""
    for folder, model, least in (("before", "old", 5), ("now", "new", 3)):
        (tmp_path / folder).mkdir()
        for dataset in ("sums", "products"):
            rows = [
                {"task": f"{dataset}{t}", "model": model, "dataset": dataset, "reward": float(t % 10 >= least)}
                for t in range(60)
            ]
            write = "".join(json.dumps(row) + "\n" for row in rows)
            (tmp_path / folder / f"{dataset}.jsonl").write_text(write)
    return tmp_path


def test_a_folder_of_runs_is_checked_run_by_run(two_folders, inside):  # noqa: F811
    arguments = ("--baseline", "before", "--require", "lower(delta(mean_reward)) > 0", "--format", "json")
    done = inside("gate", "now", *arguments, cwd=two_folders)
    assert done.returncode == 0, done.stderr
    checks = json.loads(done.stdout)["checks"]
    assert {check["dataset"]: (check["model"], check["estimate"]) for check in checks} == {
        "sums": ("new", pytest.approx(0.2)),
        "products": ("new", pytest.approx(0.2)),
    }
    (two_folders / "policy.yaml").write_text("results: {now: now}\ncritical: [mean_reward >= 0.75]\n")
    done = inside("gate", "--policy", "policy.yaml", cwd=two_folders)
    assert done.returncode == 1
    assert "Failed: 2 of 2 rules." in done.stdout


def test_finished_results_in_a_folder_of_runs_are_checked_too(two_folders, inside):  # noqa: F811
    scored = inside("score", "before/sums.jsonl", "--format", "json", cwd=two_folders).stdout
    (two_folders / "now" / "old.json").write_text(scored)
    done = inside("gate", "now", "--require", "mean_reward >= 0.6", "--format", "json", cwd=two_folders)
    assert done.returncode == 1
    checks = json.loads(done.stdout)["checks"]
    assert [(check["model"], check["word"]) for check in checks] == [
        ("new", "passed"),
        ("new", "passed"),
        ("old", "failed"),
    ]


def test_a_folder_without_runs_says_what_could_be_there(tmp_path, inside):  # noqa: F811
    (tmp_path / "empty").mkdir()
    done = inside("gate", "empty", "--require", "mean_reward > 0", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("empty: has no runs; expected run folders")


def test_options_of_requirements_without_any_are_refused_beside_a_history(tmp_path):
    error = refused("gate", ARITH, "--history", "nights.json", "--cluster", "difficulty", cwd=tmp_path)
    assert error == "--cluster: is for requirements, and there are none; add --require, or remove it"
