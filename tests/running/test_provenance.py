"""The identity of a run, and its plan."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

import calipers
from calipers.errors import InputError
from calipers.running import Job
from calipers.running.provenance import identity, plan
from calipers.tasks import Suite, Task

SUITE = Suite("sums", [Task("a", "1 + 1?", "exact_match", "2"), Task("b", "2 + 2?", "exact_match", "4")])
JOB = Job("sums", "openai/m")


@pytest.mark.parametrize(
    ("more", "same"),
    [
        ({"samples": 8, "limit": 1}, True),  # the amount: the same run, with more or fewer outstanding rollouts
        ({"concurrency": 1, "retries": 0, "timeout": 1.0, "same_model": True}, True),
        ({"metrics": ("pass@3",), "by": ("level",), "missing": "zero", "confidence": 0.9}, True),
        ({"out": Path("elsewhere"), "max_cost": 1.0, "until": "width(pass@1) < 0.5"}, True),
        ({"model": "openai/other"}, False),
        ({"temperature": 0.0}, False),  # None means the server's default, which is unknown
        ({"max_tokens": 5}, False),
        ({"stop": ("\n",)}, False),
        ({"system_prompt": "Be brief."}, False),
        ({"api": "completions"}, False),
        ({"gen_kwargs": {"top_p": 0.5}}, False),
        ({"seed": 1}, False),  # the seeds of samples depend on it
        ({"predict_only": True}, False),  # its log has no rewards
    ],
)
def test_what_makes_a_run_this_run(more, same):
    assert (identity(replace(JOB, **more), SUITE) == identity(JOB, SUITE)) is same


@pytest.mark.parametrize(
    ("given", "same"),
    [
        ({"device": "cuda:1"}, True),  # the device does not change the run
        ({"device_map": "auto"}, True),
        ({"parallelize": True}, True),
        ({"dtype": "float16"}, False),
        ({"attn_implementation": "eager"}, False),
        ({"load_in_4bit": True}, False),
        ({"trust_remote_code": True}, False),
    ],
)
def test_which_arguments_of_a_local_model_make_a_run_this_run(given, same):
    assert (identity(replace(JOB, model_args=given), SUITE) == identity(JOB, SUITE)) is same
    both = identity(replace(JOB, model_args={"max_length": 9, **given}), SUITE)
    assert (both == identity(replace(JOB, model_args={"max_length": 9}), SUITE)) is same


@pytest.mark.parametrize("task", [Task("b", "2 + \ud800?"), Task("b", "?", metadata={"\ud800": 1})])
def test_text_that_no_file_could_have_is_told(task):
    """From a benchmark in memory, such as a table of pandas."""
    with pytest.raises(InputError, match="task 'b': half of a surrogate pair stands alone in its text; expected whole"):
        identity(JOB, Suite("sums", [SUITE.tasks[0], task]))


def test_a_plan_has_the_batches_of_a_local_model():
    assert plan(JOB, SUITE, SUITE.tasks, None, {"tokens": 7})["batch"] == {"tokens": 7}
    assert "batch" not in plan(JOB, SUITE, SUITE.tasks)


def test_where_the_answers_come_from_makes_a_run_this_run():
    here, there = (identity(JOB, SUITE, url) for url in ("http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1"))
    assert here == identity(JOB, SUITE, "http://127.0.0.1:1/v1") != there
    assert identity(JOB, SUITE) == {key: value for key, value in here.items() if key != "endpoint"}  # unknown


@pytest.mark.parametrize(
    ("tasks", "same"),
    [
        (SUITE.tasks[::-1], True),  # the order of the file does not matter
        (SUITE.tasks[:1], False),
        ([replace(SUITE.tasks[0], prompt="1 + 2?"), SUITE.tasks[1]], False),
        ([replace(SUITE.tasks[0], target="3"), SUITE.tasks[1]], False),
        ([replace(SUITE.tasks[0], params={"ignore_case": True}), SUITE.tasks[1]], False),
    ],
)
def test_what_the_tasks_say_counts(tasks, same):
    assert (identity(JOB, replace(SUITE, tasks=tasks)) == identity(JOB, SUITE)) is same


def test_a_plan_says_who_made_it_and_of_what(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # without a repository there is no commit
    stored = tmp_path / "log.jsonl"
    stored.write_bytes(b"{}\n")
    made = plan(replace(JOB, model=f"replay/{stored}"), replace(SUITE, sha256="ab"), SUITE.tasks[::-1])
    assert made["versions"]["calipers"] == calipers.__version__
    assert made["git"] is None
    assert made["inputs"] == [
        {"path": "sums", "sha256": "ab"},
        {"path": str(stored), "sha256": hashlib.sha256(b"{}\n").hexdigest()},
    ]
    assert [row["task"] for row in made["tasks"]] == ["b", "a"]  # in the order of the run


def test_a_plan_says_how_it_was_started():
    origins = {"base_url": "command line"}
    job = replace(JOB, base_url="http://127.0.0.1:1/v1/", origins=origins)
    made = plan(job, SUITE, SUITE.tasks, "http://127.0.0.1:1/v1")
    (start,) = made["starts"]
    assert start == {
        "at": made["created_at"],
        "endpoint": "http://127.0.0.1:1/v1",
        "settings": {"base_url": "http://127.0.0.1:1/v1/"},  # the given settings; defaults belong to the version
        **{name: made[name] for name in ("versions", "git", "inputs")},
    }
