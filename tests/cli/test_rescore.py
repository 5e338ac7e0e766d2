"""``calipers rescore`` as a user runs it."""

from __future__ import annotations

import json

import pytest
from cli.running import calipers, lines, refused, scored


def task(name, target, verifier="exact_match"):
    judged = {"kind": "in_process", "fn_name": verifier, "expected": target}
    return {"task_id": name, "instruction": "?", "verifier": judged}


@pytest.fixture
def run(tmp_path):
    """A benchmark of three tasks in ``suite.jsonl``, and a file with a rollout of each."""
    lines(tmp_path, task("a", "4"), task("b", "5"), task("c", "6"), name="suite.jsonl")
    said = [("a", "is 4", 0), ("b", "5", 1), ("c", "\x1b[mno", 0)]
    rows = [{"task": name, "completion": text, "reward": reward} for name, text, reward in said]
    return lines(tmp_path, *rows, name="run.jsonl")


def test_what_flipped_and_how_far_the_numbers_moved(tmp_path, run):
    done = calipers("rescore", run, "--benchmark", "suite.jsonl", "--filter", "last_number", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "3 rollouts, 3 rescored: reward 'last_number-again', compared with reward 'reward'",
        "run.rescored-last_number-again.jsonl",
        "",
        "pass to fail       0",
        "fail to pass       1  a/0",
        "reward changed     0",
        "reward to missing  0",
        "missing to reward  0",
        "the same           2",
        "outcomes: scored 3 to 2, unparsed 0 to 1",
        "",
        "metric         reward  interval          last_number-again  interval          difference",
        "mean_reward ↑  0.3333  [0.0615, 0.7923]             0.6667  [0.2077, 0.9385]     +0.3333",
        "pass_rate ↑    0.3333  [0.0615, 0.7923]             0.6667  [0.2077, 0.9385]     +0.3333",
    ]
    (group,) = scored("run.rescored-last_number-again.jsonl", "--reward", "last_number-again", cwd=tmp_path)["groups"]
    assert group["metrics"]["mean_reward"]["value"] == 2 / 3


def test_the_comparison_as_json(tmp_path, run):
    asked = ["rescore", run, "--benchmark", "suite.jsonl", "--verifier", "contains", "--param", "ignore_case=true"]
    done = calipers(*asked, "--out", "new.jsonl", "--format", "json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert (found["old"], found["new"], found["path"]) == ("reward", "contains", "new.jsonl")
    assert [flip for flip in found["flips"] if flip["count"]] == [
        {"what": "fail to pass", "count": 1, "which": [["a", 0]]},
        {"what": "the same", "count": 2, "which": []},
    ]
    assert found["after"]["groups"][0]["metrics"]["mean_reward"]["value"] == 2 / 3


def test_scores_that_people_gave(tmp_path, run):
    (tmp_path / "people.csv").write_text("id,given\na,1\nz,1\n")
    done = calipers("rescore", run, "--scores", "people.csv", "--columns", "task=id,reward=given", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "note: people.csv: 2 rollouts without a score in it: the new reward is missing",
        "note: people.csv: 1 score not used: the run has no such rollout",
    ]
    assert "reward to missing  2  b/0, c/0" in done.stdout
    assert "not every rollout has both rewards" in done.stdout


def test_code_of_ones_own(tmp_path, run):
    (tmp_path / "mine.py").write_text(
        "from evsys_sdk.verifiers.fns import register_fn\n"
        "@register_fn('short')\n"
        "def short(model_output, expected, params):\n"
        "    print('judging')\n"
        "    return len(model_output) <= params.get('most', 4)\n"
    )
    asked = ["--benchmark", "suite.jsonl", "--plugin", "mine.py", "--verifier", "short", "--param", "most=1"]
    done = calipers("rescore", run, *asked, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "judging" not in done.stdout
    assert "the same           3" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "nowhere: no such file"),
        (["-"], "-: a run cannot be read from standard input; expected a folder or a file"),
        (["run.jsonl"], "run.jsonl: does not name its benchmark; name it: calipers rescore run.jsonl --benchmark DIR"),
        (["run.jsonl", "--benchmark", "gone"], "no benchmark named 'gone' in this project"),
        (["run.jsonl", "--filter", "last_numbr"], "no filter named 'last_numbr'; did you mean 'last_number'"),
        (["run.jsonl", "--param", "x"], "--param: 'x' cannot be read; expected KEY=VALUE, such as ignore_case=true"),
        (
            ["run.jsonl", "--benchmark", "suite.jsonl", "--by", 'a"b'],
            """--by: the key 'a"b' has a quote, a backslash or a""",
        ),
        (["run.jsonl", "--scores", "nope.csv"], "nope.csv: no such file"),
        (["run.jsonl", "--metric", "pas@1"], "no metric named 'pas@1'; did you mean 'pass@{k}'"),
        (["run.jsonl", "--vrifier", "x"], "no option '--vrifier'; did you mean '--verifier'"),
    ],
)
@pytest.mark.usefixtures("run")
def test_what_cannot_be_done_is_one_line(tmp_path, arguments, said):
    assert refused("rescore", *arguments, cwd=tmp_path).startswith(said)
