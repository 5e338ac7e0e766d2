"""``calipers score --metric-script`` as a user runs it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from cli.running import calipers, lines, refused, rewards, scored
from systems.harbor.metric_page import PAGE, put

GOLDEN = Path(__file__).parents[1] / "golden" / "harbor"
ASKED = ("--metric-script", "metric.py", "--trust")


@pytest.fixture
def here(tmp_path):
    (tmp_path / "metric.py").write_text(PAGE)
    rewards(tmp_path, [[1, 0], [1, 1]])
    return tmp_path


def test_the_page_over_any_rollouts(here):
    (group,) = scored("rewards.json", *ASKED, cwd=here)["groups"]
    found = group["metrics"]["metric.py:mean"]
    assert (found["value"], found["interval"]) == (0.75, None)
    assert found["why"] == "a metric script is run once, over all rewards"
    done = calipers("score", "rewards.json", *ASKED, cwd=here)
    assert (done.returncode, done.stderr) == (0, "")
    assert any(line.split()[:2] == ["metric.py:mean", "0.750"] for line in done.stdout.splitlines())


def test_several_scripts_and_gaps(here):
    put(here, "leave({'lines': len(open(source).readlines()), 'null': open(source).read().count('null')})", "count.py")
    rows = [{"task": "a", "reward": 1}, {"task": "b"}, {"task": "c", "outcome": "not_run"}]
    name = lines(here, *rows)
    done = calipers("score", name, *ASKED, "--metric-script", "count.py", "--format", "json", cwd=here)
    (group,) = json.loads(done.stdout)["groups"]
    values = {key: found["value"] for key, found in group["metrics"].items() if ".py" in key}
    assert values == {"metric.py:mean": 0.5, "count.py:lines": 2, "count.py:null": 1}
    assert done.stderr.endswith("note: not run: 1 of 3 rollouts; metric scripts get the others\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--metric-script", "metric.py"], "metric.py: a metric script is code; use --trust (trust=True) to run it"),
        (["--metric-script", "gone.py", "--trust"], "gone.py: no such file; expected a Python script"),
        (["--metric-script", ".", "--trust"], ".: is a directory; expected a Python script"),
        (["--metric-script"], "option '--metric-script' requires an argument"),
    ],
)
def test_what_cannot_be_done_is_one_line(here, arguments, said):
    assert refused("score", "rewards.json", *arguments, cwd=here).startswith(said)


def test_without_a_sandbox_no_script_is_run(here):
    said = refused("score", "rewards.json", *ASKED, cwd=here, PATH="/nowhere")
    assert said.startswith(
        "metric scripts run in a sandbox, and no sandbox works on this machine (bwrap is not installed; "
    )


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            "sys.stderr.write('bad \\x1b[31mrewards\\n'); sys.exit(3)",
            "it ended with exit status 3: bad \ufffd[31mrewards",
        ),
        ("print('rubbish')", "it left no metric.json of at most 1 MiB; expected it at the path of -o"),
        ("leave([1])", 'metric.json contains a list; expected an object such as {"mean": 0.5}'),
    ],
)
def test_a_script_that_fails_is_told_and_all_else_is_printed(here, code, said):
    put(here, code, "bad.py")
    asked = ("score", "rewards.json", "--metric-script", "bad.py", *ASKED)
    done = calipers(*asked, "--out", "result.json", cwd=here)
    assert (done.returncode, done.stderr) == (3, f"bad.py: {said}\n")
    assert all(name in done.stdout for name in ("mean_reward", "pass_rate", "metric.py:mean", "bad.py"))
    (group,) = json.loads((here / "result.json").read_text())["groups"]
    assert group["metrics"]["bad.py"]["value"] is None
    assert group["metrics"]["metric.py:mean"]["value"] == 0.75


def test_beside_an_export(here):
    rows = [
        {"_ng_task_index": task, "_ng_rollout_index": 0, "reward": task, "agent_ref": {"name": "a"}, "response": {}}
        for task in (0, 1)
    ]
    name = lines(here, *rows)
    done = calipers("score", name, *ASKED, "--export", "nemo_gym=out.json", "--format", "json", cwd=here)
    assert done.returncode == 0, done.stderr
    (group,) = json.loads(done.stdout)["groups"]
    assert group["metrics"]["metric.py:mean"]["value"] == 0.5
    assert (here / "out.json").exists()


@pytest.fixture
def job(tmp_path):
    """A recorded job of Harbor's beside the dataset it was run on, to which a metric.py was added."""
    shutil.copytree(GOLDEN / "job_small", tmp_path / "jobs" / "small")
    shutil.copytree(GOLDEN / "dataset_arith_mini", tmp_path / "datasets" / "arith-mini")
    (tmp_path / "datasets" / "arith-mini" / "metric.py").write_text(PAGE)
    return tmp_path


def test_a_datasets_own_script_is_not_run_without_trust(job):
    done = calipers("score", "jobs/small", cwd=job)
    assert done.returncode == 0
    assert "metric.py" not in done.stdout
    said = (
        "datasets/arith-mini/metric.py: comes with the dataset and is "
        "not run, because it is code; use --trust to run it"
    )
    assert f"note: {said}\n" in done.stderr


def test_a_datasets_own_script_gives_harbors_number(job):
    """The page's script counts what Harbor's own mean counts, so that both give one number."""
    (group,) = scored("jobs/small", "--trust", cwd=job)["groups"]
    stats = json.loads((GOLDEN / "job_small" / "result.json").read_text())["stats"]["evals"]
    (expected,) = (one["metrics"][0]["mean"] for one in stats.values())
    assert group["metrics"]["metric.py:mean"]["value"] == pytest.approx(expected, rel=1e-12)
