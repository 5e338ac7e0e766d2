"""``--format latex``, ``junit`` and ``github``: output for papers and for CI builds."""

import importlib.util
import json
from importlib.resources import files
from xml.etree import ElementTree as Xml

import polars as pl
import pytest
from cli.running import ARITH, calipers, refused

NEXT = str(files("calipers") / "examples" / "arith_next.jsonl")
HOSTILE = r"\input{/etc/passwd} 50% $x_1^2$ & #~{}" + "\u202e\n::error::x ##[error]y"


@pytest.mark.parametrize(
    "command",
    [
        ("score", ARITH, "--by", "difficulty"),
        ("compare", ARITH, NEXT),
        ("leaderboard", ARITH, NEXT),
        ("gate", ARITH, "--require", "mean_reward >= 0.1"),
    ],
)
def test_latex_has_the_rows_of_markdown(tmp_path, command):
    latex, markdown = (calipers(*command, "--format", shape, cwd=tmp_path).stdout for shape in ("latex", "md"))
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == latex.count(r"\toprule") > 0
    assert latex.count(r"\begin{tabular}") == sum(line.startswith("| ---") for line in markdown.splitlines())
    rows = [line for line in latex.splitlines() if line.endswith(r"\\")]
    assert len(rows) == sum(line.startswith("|") and not line.startswith("| ---") for line in markdown.splitlines())


def test_no_name_is_a_command_in_latex(tmp_path):
    rows = [
        {"task": "a", "reward": 1, "model": model, "level": "\t[2em]"}
        for model in (r"\input{a}", "5% $x_1^2$ &#~{}", '*"starred"', HOSTILE)
    ]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    latex = calipers("score", "r.jsonl", "--by", "level", "--format", "latex", cwd=tmp_path).stdout
    assert r"\textbackslash{}input\{a\}" in latex
    assert r"5\% \$x\_1\textasciicircum{}2\$ \&\#\textasciitilde{}\{\}" in latex
    assert r"{}*\char34{}starred\char34{}" in latex  # \textquotedbl is unknown in LaTeX's own encoding
    assert "{} [2em]" in latex  # LaTeX skips blanks before the argument of a line's end
    assert "\u202e" not in latex
    assert not [line for line in latex.splitlines() if line.startswith("::")]


def test_a_time_that_is_not_finite_is_no_time_of_a_case(tmp_path):
    frame = {"task": ["a", "b", "c"], "reward": [1, 1, 1], "latency_s": [float("nan"), float("inf"), 2.0]}
    pl.DataFrame(frame).write_parquet(tmp_path / "r.parquet")
    suite = Xml.fromstring(calipers("score", "r.parquet", "--format", "junit", cwd=tmp_path).stdout)
    assert [case.get("time") for case in suite.iter("testcase")] == [None, None, "2.000"]


def steps_of_a_training(folder):
    (folder / "steps").mkdir()
    for step in (2, 10):
        row = {"input": "user\n2+2?\nassistant\n", "output": "4", "score": step == 10, "step": step}
        (folder / "steps" / f"{step}.jsonl").write_text(json.dumps(row) + "\n")


def test_the_tasks_of_a_training_are_cases_of_each_step(tmp_path):
    steps_of_a_training(tmp_path)
    found = cases(calipers("score", "steps", "--format", "junit", cwd=tmp_path).stdout)
    [first, second] = found
    assert (first.partition(" [")[2], [kind for kind, _ in found[first]]) == ("step=2]", ["failure"])
    assert (second.partition(" [")[2], found[second]) == ("step=10]", [])


def test_a_model_card_is_refused_for_several_steps(tmp_path):
    steps_of_a_training(tmp_path)
    said = refused("score", "steps", "--export", "hf=a/b:c", cwd=tmp_path)
    assert "there is no number over all rollouts, only by step; expected the rollouts of one model" in said


def cases(text):
    return {
        case.get("name"): [(kind.tag, kind.get("message")) for kind in case]
        for case in Xml.fromstring(text).iter("testcase")
    }


def test_a_task_is_a_case_and_a_missing_rollout_is_never_a_failure(tmp_path):
    rows = [
        {"task": "passes", "sample": 0, "reward": 1, "usage": {"latency_s": 1.5}},
        {"task": "passes", "sample": 1, "reward": 1, "usage": {"latency_s": 0.25}},
        {"task": "fails", "sample": 0, "reward": 0},
        {"task": "fails", "sample": 1, "outcome": "truncated"},
        {"task": "fails", "sample": 2, "outcome": "client_failed"},
        {"task": "half", "sample": 0, "reward": 1},
        {"task": "half", "sample": 1, "outcome": "client_failed"},
        {"task": "gone", "sample": 0, "outcome": "judge_failed", "reward": 0},
    ]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = calipers("score", "r.jsonl", "--format", "junit", cwd=tmp_path).stdout
    assert cases(text) == {
        "fails": [("failure", "0 of 2 rollouts passed; 1 missing (truncated 1, client failed 1)")],
        "gone": [("error", "0 of 0 rollouts passed; 1 missing (judge failed 1)")],
        "half": [("error", "1 of 1 rollouts passed; 1 missing (client failed 1)")],
        "passes": [],
    }
    root = Xml.fromstring(text)
    assert root.find(".//failure").get("type") == "truncated"
    assert [root.get(key) for key in ("tests", "failures", "errors", "skipped")] == ["4", "1", "2", "0"]
    assert root.find(".//testcase[@name='passes']").get("time") == "1.750"


def test_several_groups_are_several_suites_whatever_they_are_called(tmp_path):
    rows = [{"task": HOSTILE, "reward": 1, "model": model} for model in ("a", HOSTILE)]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = calipers("score", "r.jsonl", "--format", "junit", cwd=tmp_path, GITHUB_ACTIONS="true")
    assert len(Xml.fromstring(done.stdout).findall("testsuite")) == 2
    assert "##[" not in done.stdout


def test_the_type_of_a_failure_is_not_that_of_a_missing_rollout(tmp_path):
    rows = [{"task": "t", "sample": 0, "reward": 0}, {"task": "t", "sample": 1, "outcome": "client_failed"}]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = calipers("score", "r.jsonl", "--format", "junit", cwd=tmp_path).stdout
    assert Xml.fromstring(text).find(".//failure").get("type") == "scored"


def test_a_finding_is_a_case_and_a_worse_one_fails(tmp_path):
    worse = cases(calipers("compare", NEXT, ARITH, "--missing", "random", "--format", "junit", cwd=tmp_path).stdout)
    better = cases(calipers("compare", ARITH, NEXT, "--missing", "random", "--format", "junit", cwd=tmp_path).stdout)
    assert worse["mean_reward"][0][0] == "failure"
    assert worse["mean_reward"][0][1].startswith("delta -0.")
    assert better["mean_reward"] == []


def test_github_gets_markdown_annotations_and_a_summary(tmp_path):
    summary = tmp_path / "summary.md"
    done = calipers("score", ARITH, "--format", "github", cwd=tmp_path, GITHUB_STEP_SUMMARY=str(summary))
    assert done.stdout == calipers("score", ARITH, "--format", "md", cwd=tmp_path).stdout
    assert done.stdout.strip() == summary.read_text().strip()
    line, warning = [line for line in done.stderr.splitlines() if line.startswith("::")]
    assert warning.endswith("calipers run ... --retry-failed asks for them again")
    assert line.startswith("::warning title=missing rollouts%3A arith · tiny-calculator::40 tasks; 320 planned = 281")


@pytest.mark.parametrize(
    ("command", "level"),
    [
        (("compare", NEXT, ARITH, "--missing", "random"), "::error title=worse%3A mean_reward::"),
        (("gate", ARITH, "--require", "mean_reward >= 0.9"), "::error title=critical requirement failed%3A "),
    ],
)
def test_what_is_wrong_is_annotated_outside_of_a_runner_too(tmp_path, command, level):
    done = calipers(*command, "--format", "github", cwd=tmp_path)
    assert any(line.startswith(level) for line in done.stderr.splitlines())
    assert done.stdout.startswith("### ")


@pytest.mark.parametrize("name", ["mlflow", "wandb", "trackio"])
def test_a_client_that_is_not_installed_is_one_line(tmp_path, name):
    if importlib.util.find_spec(name) is not None:
        pytest.skip(f"{name} is installed")
    message = refused("score", "no-such-file.jsonl", "--export", name, cwd=tmp_path)
    assert message == f"--export {name}: the package {name} is not installed; pip install {name}"
