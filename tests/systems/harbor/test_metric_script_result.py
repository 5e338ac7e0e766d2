"""The input of metric scripts, and the values that they add to a result."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from making import rollouts
from systems.harbor.metric_page import PAGE, put

import calipers
from calipers.errors import InputError
from calipers.systems.harbor.metric_script import ONCE, distinct_names, requested_scripts, rewards_of, scripts_of_jobs

SEEN = "leave({'lines': open(source).read()})"


def test_what_a_script_is_handed():
    table = rollouts(
        {"task": "b", "sample": 1, "reward": 0.5},
        {"task": "b", "sample": 0, "rewards": {"style": 0.25, "reward": 1}},
        {"task": "a", "outcome": "timed_out"},  # counts 0 with us; what Harbor hands over is null
        {"task": "c", "outcome": "client_failed", "reward": 1},  # a gap with us; Harbor hands the reward over
        {"task": "d", "outcome": "verifier_failed"},
        {"task": "e"},
        {"task": "f", "outcome": "not_run"},  # never finished: Harbor does not know it yet
        {"task": "g", "outcome": "not_run", "trial_s": 3},  # a finished trial that nobody verified
    )
    assert list(rewards_of(table)) == [
        None,
        {"reward": 1.0, "style": 0.25},
        {"reward": 0.5},
        {"reward": 1.0},
        None,
        None,
        None,
    ]
    assert list(rewards_of(table, "style"))[:3] == [None, {"style": 0.25}, None]


def test_the_library(tmp_path):
    (tmp_path / "metric.py").write_text(PAGE)
    result = calipers.score([[1, 1], [0, 0]], "pass@1", metric_scripts=tmp_path / "metric.py", trust=True)
    assert list(result.groups[0].metrics) == ["pass@1", "metric.py:mean"]
    found = result["metric.py:mean"]
    assert (found.value, found.interval, found.stderr, found.why) == (0.5, None, None, ONCE)
    assert (found.tasks, found.samples, found.undefined_tasks) == (2, 4, 0)
    assert found.signature.startswith("metric_script|mean|sha256:")
    again = calipers.score([[1, 1], [0, 0]], "pass@1", metric_scripts=[str(tmp_path / "metric.py")], trust=True)
    assert again.digest == result.digest != calipers.score([[1, 1], [0, 0]], "pass@1").digest


def test_a_script_needs_trust(tmp_path):
    (tmp_path / "metric.py").write_text(PAGE)
    with pytest.raises(InputError, match=r"metric\.py: a metric script is code; use --trust \(trust=True\) to run it"):
        calipers.score([[1]], metric_scripts=[tmp_path / "metric.py"])


VALUES = {
    "whole": (3, 3.0, ONCE),
    "minus nothing": (-0.0, 0.0, ONCE),
    "boolean": (True, 1.0, ONCE),
    "null": (None, None, "the script gave null"),
    "text": ("high\x1b[m", None, "the script gave the text 'high\N{REPLACEMENT CHARACTER}[m'"),
    "list": ([1], None, "the script gave a list"),
    "object": ({"a": 1}, None, "the script gave an object"),
    "infinite": (math.inf, math.inf, "the script gave inf"),
    "not a number": (math.nan, math.nan, "the script gave nan"),
    "huge": (10**400, None, "the script gave a number too large to be shown"),
}


def test_every_kind_of_value_is_told(tmp_path):
    left = {name: value for name, (value, _, _) in VALUES.items()}
    script = put(tmp_path, f"open(target, 'w').write({json.dumps(left)!r})")
    result = calipers.score([[1]], metric_scripts=script, trust=True)
    for name, (_, value, why) in VALUES.items():
        found = result[f"metric.py:{name}"]
        assert found.why == why
        assert found.value is value or np.array_equal(found.value, value, equal_nan=True)
    document = json.loads(result.to_json())  # which is strict JSON
    assert document["groups"][0]["metrics"]["metric.py:not a number"]["value"] is None


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("leave({})", 'metric.json has no values; expected an object such as {"mean": 0.5}'),
        ("leave({str(number): 0 for number in range(1001)})", "metric.json has 1,001 values; expected at most 1,000"),
        ("leave({'x' * 201: 0})", "expected at most 200 characters that can be shown"),
        ("leave({'\\x1b[m': 0})", "expected at most 200 characters that can be shown"),
        ("leave({'\\ud800': 0})", "expected at most 200 characters that can be shown"),  # half a character
        ("sys.exit('no')", "it ended with exit status 1"),
    ],
)
def test_a_failure_is_told_and_all_else_is_there(tmp_path, code, said):
    bad, good = put(tmp_path, code, "bad.py"), put(tmp_path, "leave({'one': 1})", "good.py")
    result = calipers.score([[1], [0]], metric_scripts=[bad, good], trust=True)
    assert list(result.groups[0].metrics) == ["mean_reward", "pass_rate", "bad.py", "good.py:one"]
    assert result["bad.py"].value is None
    assert (result["bad.py"].why or "").endswith(said)
    assert any(note.startswith("bad.py: ") and said in note for note in result.notes)
    assert result["good.py:one"].value == 1


def test_what_a_script_complains_of_is_no_part_of_the_digest(tmp_path):
    """Its message may contain a time or an address, which must not change the result."""
    script = put(tmp_path, "sys.exit(str(time.time_ns()))")
    first, second = (calipers.score([[1]], metric_scripts=script, trust=True) for _ in range(2))
    assert first.notes != second.notes
    assert first.digest == second.digest


def test_each_group_is_a_run_of_its_own(tmp_path):
    table = rollouts(
        {"task": "a", "reward": 1, "dataset": "easy"},
        {"task": "a", "reward": 0, "dataset": "hard"},
        {"task": "b", "reward": 0, "dataset": "hard"},
    )
    result = calipers.score(table, metric_scripts=put(tmp_path, SEEN.replace("read()", "readlines()[0]")), trust=True)
    seen = [group["metric.py:lines"].why for group in result.groups]
    assert seen == [f"the script gave the text '{{\"reward\": {reward}}} '" for reward in (1.0, 0.0)]


def test_the_chosen_reward_alone(tmp_path):
    """So the script of Harbor's page, which expects one key, works with several rewards."""
    (tmp_path / "metric.py").write_text(PAGE)
    table = rollouts({"task": "a", "rewards": {"x": 1, "y": 0.5}})
    result = calipers.score(table, reward="y", metric_scripts=tmp_path / "metric.py", trust=True)
    assert result["metric.py:mean"].value == 0.5


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({"metric.py": None}, ["metric.py"]),
        ({"a/metric.py": None, "a/f1.py": None}, ["metric.py", "f1.py"]),
        ({"x/a/metric.py": None, "x/b/metric.py": None}, ["a/metric.py", "b/metric.py"]),
        ({"x/a/metric.py": None, "y/a/metric.py": None}, ["x/a/metric.py", "y/a/metric.py"]),
        ({"a/metric.py": {"easy"}, "b/metric.py": {"hard"}}, ["metric.py", "metric.py"]),  # they never meet
        ({"a/metric.py": {"easy"}, "b/metric.py": None}, ["a/metric.py", "b/metric.py"]),
        ({}, []),
    ],
)
def test_scripts_are_told_apart(wanted, names):
    datasets = {Path(path): its if its is None else frozenset(its) for path, its in wanted.items()}
    assert distinct_names(datasets) == names


def job(folder: Path, **config: object) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_the_scripts_of_a_job(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mine = put(tmp_path / "data" / "mine", "")
    other = put(tmp_path / "data" / "other", "")
    weigh = put(tmp_path, "", "weigh.py")
    asked = [{"path": "data/mine"}, {"path": str(other.parent)}, {"path": "data/gone"}, {"name": "org/far"}]
    script = {"type": "uv-script", "kwargs": {"script_path": "weigh.py"}}
    job(tmp_path / "jobs" / "one", datasets=asked, metrics=[{"type": "mean"}, script, {"type": "uv-script"}])
    expected = {
        mine: frozenset({"mine"}),
        other: frozenset({"other"}),
        weigh: frozenset({"mine", "other", "gone", "org/far"}),
    }
    for start, source in ((tmp_path, "jobs/one"), (tmp_path, "jobs"), (tmp_path / "jobs" / "one", ".")):
        monkeypatch.chdir(start)  # a job knows its dataset by a path from where it was started
        found, wrong = scripts_of_jobs([source])
        assert {path.resolve(): datasets for path, datasets in found.items()} == expected
        assert wrong == []


LONG = json.dumps({"datasets": [{"path": "x" * 300}]})


@pytest.mark.parametrize(
    "config", ["", "[", "[]", '{"datasets": 3}', '{"datasets": [{"path": "\\u0000"}]}', LONG, "{}"]
)
def test_what_is_no_job_has_no_scripts(tmp_path, config):
    (tmp_path / "config.json").write_text(config)
    assert scripts_of_jobs(str(tmp_path)) == ({}, [])
    assert requested_scripts([[1, 0]]) is None


def test_a_link_out_of_a_dataset_is_not_followed(tmp_path):
    put(tmp_path, "", "outside.py")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "metric.py").symlink_to(tmp_path / "outside.py")
    found, wrong = scripts_of_jobs(job(tmp_path / "job", datasets=[{"path": str(tmp_path / "data")}]))
    assert found == {}
    assert len(wrong) == 1
    assert wrong[0].endswith("; no metric script of this dataset is run")


def test_a_script_named_and_found_is_run_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "data", "")
    source = job(tmp_path / "job", datasets=[{"path": "data"}])
    scripts = requested_scripts(source, ["data/../data/metric.py"], trust=True)
    assert scripts is not None
    assert [(script.label, script.datasets) for script in scripts.scripts] == [("metric.py", None)]
