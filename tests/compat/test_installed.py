"""Packages that pip really built and installed, seen by fresh interpreters."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from compat.packages import pip_install, project
from waiting import PATIENCE

WORST_TASK = Path(__file__).parent / "fixtures" / "worst_task.py"

OURS = """
import calipers
from calipers.metrics import mean
from calipers.metrics.rewards import any_of_first_k

EARLY = calipers.Metric("early@{k}", any_of_first_k, mean, params={"k": int, "threshold": 1.0}, range=(0.0, 1.0))
"""

UNDECORATED = """
class Spread:
    def compute(self, task_rewards):
        return max(map(max, task_rewards)) - min(map(min, task_rewards))
"""

SCORE = """
import json, sys, calipers
print(json.dumps({
    name: [calipers.score([[1, 0], [1, 1]], name, dialect=dialect)[name].value for dialect in ("native", "evsys")]
    for name in sys.argv[1:]
}))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    root = tmp_path_factory.mktemp("installed")
    page = {"evsys_sdk.metrics": {"worst_task": "my_pkg.metrics:WorstTask"}}
    renamed = WORST_TASK.read_text().replace("worst_task", "weakest")
    pip_install(
        root / "site",
        project(root, "my-pkg", WORST_TASK.read_text(), page),
        project(root, "my-renamed", renamed, {"evsys_sdk.metrics": {"some-entry": "my_renamed.metrics:WorstTask"}}),
        project(
            root, "my-undecorated", UNDECORATED, {"evsys_sdk.metrics": {"spread": "my_undecorated.metrics:Spread"}}
        ),
        project(root, "my-own", OURS, {"calipers.metrics": {"early@{k}": "my_own.metrics:EARLY"}}),
        project(root, "my-broken", "1 / 0", {"evsys_sdk.metrics": {"broken": "my_broken.metrics:Nothing"}}),
    )
    return root / "site"


def python(site, *arguments):
    command = [sys.executable, *map(str, arguments)]
    where = {**os.environ, "PYTHONPATH": str(site)}
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, env=where)


def test_metrics_of_installed_packages(site):
    done = python(site, "-c", SCORE, "worst_task", "weakest", "some-entry", "spread", "early@1", "early@2")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "worst_task": [0.5, 0.5],
        "weakest": [0.5, 0.5],  # the decorator's key, under another entry point
        "some-entry": [0.5, 0.5],
        "spread": [1.0, 1.0],
        "early@1": [1.0, 1.0],
        "early@2": [1.0, 1.0],
    }


@pytest.mark.parametrize("dialect", ["native", "evsys"])
@pytest.mark.parametrize("plugin", [[], ["--plugin", str(WORST_TASK)]])
def test_the_command_finds_the_metric_of_the_page(site, tmp_path, dialect, plugin):
    """From the package, and from a file where no package is installed."""
    (tmp_path / "rewards.json").write_text("[[1, 0], [1, 1], [1, 0], [1, 1], [1, 0], [1, 1]]")
    asked = ["--metric", "worst_task", "--dialect", dialect, "--format", "json", *plugin]
    done = python(tmp_path if plugin else site, "-m", "calipers", "score", tmp_path / "rewards.json", *asked)
    assert done.returncode == 0, done.stderr
    (group,) = json.loads(done.stdout)["groups"]
    found = group["metrics"]["worst_task"]
    assert (found["value"], found["interval"]) == (0.5, None)  # a worst task has no interval


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "broken",
            "metric 'broken' of package my-broken (my_broken.metrics:Nothing) cannot be loaded: ZeroDivisionError",
        ),
        (
            "worst_tusk",
            "no metric named 'worst_tusk'; did you mean 'worst_task' or 'cost_per_task'? (metric 'broken' of package",
        ),
    ],
)
def test_the_command_says_what_is_wrong_in_one_line(site, tmp_path, name, said):
    (tmp_path / "rewards.json").write_text("[[1, 0], [1, 1], [1, 0], [1, 1], [1, 0], [1, 1]]")
    done = python(site, "-m", "calipers", "score", tmp_path / "rewards.json", "--metric", name)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_evsys_own_calls_see_the_installed_metric(site):
    program = (
        "import calipers.compat; calipers.compat.activate()\n"
        "from evsys_sdk.registry import get_metric; print(get_metric('worst_task')().compute([[1, 0], [1, 1]]))"
    )
    done = python(site, "-c", program)
    assert (done.stdout, done.stderr) == ("0.5\n", "")
