"""Jobs in every state, and several jobs together: planned and outstanding trials, and groups."""

import shutil

import pytest
from formats.given import seen
from systems.harbor.made import AGENT, GOLDEN, asked, at, job, outcomes, phase, result, write

import calipers
from calipers.errors import InputError
from calipers.formats.read import read

ONE = {"reward": 1}


def ledger(*paths):
    (group,) = calipers.score(list(paths)).groups
    return group.ledger


def counted(*paths):
    found = ledger(*paths)
    return found.planned, found.planned_from, found.outcomes


@pytest.mark.parametrize(
    ("trials", "about", "expected"),
    [
        # what the lock owes is not run; the directories there are do not say how many were planned
        ([result("a__1", ONE)], {"locked": {"a": 2, "b": 1}}, (3, "lock.json", {"scored": 1, "not_run": 2})),
        ([result("a__1", ONE), "a__2"], {"locked": {"a": 2}}, (2, "lock.json", {"scored": 1, "not_run": 1})),
        ([], {"locked": {"a": 2}}, (2, "lock.json", {"not_run": 2})),  # a job that has just begun
        ([result("a__1", ONE), result("a__2", ONE)], {"locked": {"a": 1}}, (2, "lock.json", {"scored": 2})),
        # before there were locks
        ([result("a__1", ONE)], {"n_total_trials": 3}, (3, "result.json", {"scored": 1, "not_run": 2})),
        ([result("a__1", ONE), "b__1"], {"n_total_trials": 2}, (2, "result.json", {"scored": 1, "not_run": 1})),
        ([result("a__1", ONE)], {"n_total_trials": 0}, (1, "result.json", {"scored": 1})),
        ([result("a__1", ONE), "b__1"], {}, (2, "trial directories", {"scored": 1, "not_run": 1})),
        # the lock wins over the number
        ([result("a__1", ONE)], {"locked": {"a": 1}, "n_total_trials": 7}, (1, "lock.json", {"scored": 1})),
    ],
)
def test_what_was_planned(tmp_path, trials, about, expected):
    assert counted(job(tmp_path, *trials, **about)) == expected


def test_a_cut_off_copy_of_harbors_own_job(tmp_path):
    path = tmp_path / "cut"
    shutil.copytree(GOLDEN, path)
    shutil.rmtree(path / "add-two__FzwhamM")  # never started
    for trial in path.glob("fizz-buzz__*"):  # in progress, all of them: no trial says what the task calls itself
        (trial / "result.json").unlink()
    found = ledger(str(path))
    assert (found.planned, found.tasks) == (18, 6)
    assert found.outcomes == {"scored": 12, "timed_out": 1, "client_failed": 1, "not_run": 4}


def test_what_is_owed_goes_by_the_name_that_finished_trials_use(tmp_path):
    """A lock names a task by its directory; its own name, from task.toml, is only in results."""
    finished = result("a__1", ONE, task_name="org/a")
    path = job(tmp_path, finished, "a__2", locked={"a": 3})
    rows = seen(read([path])[0])
    assert [(row["task"], row["sample"], row["outcome"]) for row in rows] == [
        *[("org/a", 0, "scored"), ("org/a", 1, "not_run"), ("org/a", 2, "not_run")]
    ]
    assert {(row["agent"], row["model"], row["dataset"]) for row in rows} == {("solver", "coder-1", "d")}


@pytest.mark.parametrize(
    ("agent", "named"),
    [
        ({"name": "x", "model_name": "openai/m"}, ("x", "m")),
        ({"name": "x", "model_name": "our-lab/m"}, ("x", "our-lab/m")),  # no provider that Harbor knows
        ({"import_path": "my.agents:Solver"}, ("my.agents:Solver", None)),
        ({}, ("oracle", None)),  # a default, which Harbor does not write down
    ],
)
def test_names_of_a_job_none_of_whose_trials_ended(tmp_path, agent, named):
    write(tmp_path / "lock.json", {"trials": [{"task": asked("a")["task"], "agent": agent}]})
    assert read([str(tmp_path)])[0].keys == [(*named, "d")]


def test_trials_that_are_merely_counted_belong_to_known_tasks_first(tmp_path):
    path = job(tmp_path, result("a__1", ONE), result("b__1", ONE), n_total_trials=9)
    write(tmp_path / "config.json", {"n_attempts": 3})
    tasks = [row["task"] for row in seen(read([path])[0])]
    assert tasks == [*["(never started 1)"] * 3, *["a"] * 3, *["b"] * 3]


@pytest.mark.parametrize(
    ("about", "said"),
    [
        (
            {"started_at": "2026-04-02T09:00:00", "finished_at": None},
            ("the job is not finished: it is still running, or it was"),
        ),
        ({"finished_at": "2026-04-02T09:00:00"}, None),
        (
            {"finished_at": "x", "stats": {"n_retries": 2}},
            "2 earlier attempts are not there, because Harbor deletes retried attempts",
        ),
    ],
)
def test_what_a_job_says_of_itself(tmp_path, about, said):
    notes = read([job(tmp_path, result("a__1", ONE), **about)])[0].notes
    assert len(notes) == bool(said)
    assert all(said in note for note in notes)


def test_an_old_result_of_a_job(tmp_path):
    old = {"started_at": "2026-01-02T03:04:05", "finished_at": "2026-01-02T03:05:05", "n_total_trials": 2}
    path = job(tmp_path, result("a__1", ONE), **old, stats={"n_trials": 1, "n_errors": 0, "evals": {}})
    assert counted(path) == (2, "result.json", {"scored": 1, "not_run": 1})


def test_attempts_that_were_replaced_are_counted_and_paid_for(tmp_path):
    path = job(tmp_path, result("a__1", ONE), result("b__1", ONE), stats={"n_retries": 2})
    spent = {"n_input_tokens": 7, "cost_usd": 0.25}
    for number in (1, 2):
        failed = result("a__1", None, "RateLimitError", agent_result=spent, id=f"try {number}")
        write(tmp_path / "_retries" / "a__1" / f"retry-{number}" / "result.json", failed)
    (group,) = calipers.score(path).groups
    assert (group.ledger.planned, group.ledger.attempts, group.ledger.outcomes) == (2, 4, {"scored": 2})
    assert group.ledger.exceptions == {}  # what counts went well
    assert group.totals["cost_usd"] == pytest.approx(0.5 + 2 * 0.25 + 0.5)
    assert group.totals["input_tokens"] == 10 + 2 * 7 + 10
    (note,) = read([path])[0].notes
    assert note.endswith("tokens and cost include those of earlier attempts (2 in _retries)")


@pytest.mark.parametrize(("trial", "outcome"), [("a__1", "not_run"), (None, "client_failed")])
def test_replaced_attempts_of_a_trial_that_did_not_end(tmp_path, trial, outcome):
    """While the last attempt runs, it counts; if its directory is gone, the attempt before it counts."""
    path = job(tmp_path, *([trial] if trial else ["b__1"]))
    write(tmp_path / "_retries" / "a__1" / "result.json", result("a__1", None, "RateLimitError"))
    assert [row["outcome"] for row in seen(read([path])[0]) if row["task"] == "a"] == [outcome]


def test_several_jobs_are_one_set(tmp_path):
    one = job(tmp_path / "one", result("a__2", {"reward": 0}, started_at=at(20)), result("b__1", ONE))
    two = job(tmp_path / "two", result("a__1", ONE, started_at=at(10)), locked={"a": 2})
    rows = seen(read([one, two], labels=["job_name"])[0])
    assert [(row["task"], row["sample"], row["outcome"], row["label job_name"]) for row in rows] == [
        ("a", 0, "scored", "two"),
        ("a", 1, "scored", "one"),
        ("a", 2, "not_run", "two"),
        ("b", 0, "scored", "one"),
    ]
    assert ledger(one, two).planned_from == "trial directories and lock.json"
    assert calipers.score([one, two]).digest == calipers.score([one, two]).digest


def test_a_directory_of_jobs(tmp_path):
    (tmp_path / "jobs").mkdir()
    paths = [job(tmp_path / "jobs" / name, result(f"a__{name}", ONE)) for name in "xy"]
    (tmp_path / "jobs" / "notes").mkdir()  # nothing of Harbor's
    table, inputs = read([str(tmp_path / "jobs")])
    assert len(table) == 2
    assert [source.path for source in inputs] == paths


def test_a_trial_alone(tmp_path):
    path = job(tmp_path, result("a__1", ONE), result("a__2", {"reward": 0}), locked={"a": 9})
    table, (source,) = read([f"{path}/a__1/"])
    assert (len(table), source.rollouts, table.planned_from) == (1, 1, "trial directories")


def test_two_agents_are_two_groups(tmp_path):
    other = {"name": "other", "model_info": None}
    path = job(tmp_path, result("a__1", ONE), result("a__2", ONE, agent_info=other))
    groups = calipers.score(path).groups
    assert [(group.agent, group.ledger.planned) for group in groups] == [("other", 1), ("solver", 1)]


@pytest.mark.parametrize("again", ["x", "./x", "link"])
def test_a_job_given_twice_is_refused(tmp_path, monkeypatch, again):
    monkeypatch.chdir(tmp_path)
    job(tmp_path / "x", result("a__1", ONE))
    (tmp_path / "link").symlink_to("x")
    with pytest.raises(InputError, match=rf"{again}: appears twice, first as x; expected each job once"):
        read(["x", again])


def test_a_trial_that_was_copied_is_refused(tmp_path):
    path = job(tmp_path, result("a__1", ONE))
    shutil.copytree(tmp_path / "a__1", tmp_path / "copy")
    with pytest.raises(InputError) as caught:
        read([path])
    assert str(caught.value) == f"{path}/copy: the trial appears twice, first in {path}/a__1; expected each trial once"


def test_two_datasets_of_one_name_are_one_group_and_a_note(tmp_path):
    one = job(tmp_path / "one", result("a__1", ONE), result("b__1", ONE))
    two = job(tmp_path / "two", result("a__2", ONE, task_checksum="another"))
    table, _ = read([one, two])
    assert len(table.keys) == 1
    (note,) = table.notes
    assert note.startswith(
        "dataset 'd': task_checksum differs between trials of a (1 in all): datasets with the same name"
    )


def test_a_note_on_changed_tasks_says_that_it_names_only_some(tmp_path):
    tasks = [f"t{number}" for number in range(6)]
    one = job(tmp_path / "one", *(result(f"{task}__1", ONE) for task in tasks))
    two = job(tmp_path / "two", *(result(f"{task}__2", ONE, task_checksum="another") for task in tasks))
    (note,) = read([one, two])[0].notes
    assert "task_checksum differs between trials of t0, t1, t2, t3, t4, ... (6 in all)" in note


def test_one_job_with_two_datasets_of_one_name(tmp_path):
    path = job(tmp_path, result("a__1", ONE), result("a__2", ONE, task_checksum="another"))
    assert len(read([path])[0].notes) == 1


def test_beside_rollouts_of_another_kind(tmp_path):
    path = job(tmp_path / "x", result("a__1", ONE))
    (tmp_path / "more.jsonl").write_text('{"task": "a", "reward": 0, "dataset": "other"}\n')
    groups = calipers.score([path, tmp_path / "more.jsonl"]).groups
    assert sorted(group.dataset for group in groups) == ["d", "other"]


def test_an_agent_that_was_asked_for_under_one_name_and_calls_itself_another(tmp_path):
    path = job(tmp_path, result("a__1", ONE, agent_info={"name": "it", "model_info": {"name": "m"}}), locked={"a": 2})
    assert AGENT["name"] != "it"
    assert outcomes(path) == {"scored": 1, "not_run": 1}  # one group, not two


def test_two_directories_are_two_trials_whatever_name_is_written_in_them(tmp_path):
    path = job(tmp_path, result("a__1", ONE), result("a__2", ONE))
    write(tmp_path / "a__2" / "result.json", result("a__1", {"reward": 0}, id="another"))
    assert [row["sample"] for row in seen(read([path])[0])] == [0, 1]


def test_a_job_that_has_just_begun(tmp_path):
    table, (source,) = read([job(tmp_path, locked={"a": 2}, started_at="2026-04-02T09:00:00")])
    assert (len(table), source.rollouts) == (2, 0)
    assert table.notes == [f"{tmp_path}: the job is not finished: it is still running, or it was interrupted"]


def test_a_job_of_nothing(tmp_path):
    with pytest.raises(InputError, match="no rollouts; expected at least one"):
        read([job(tmp_path, started_at="2026-04-02T09:00:00", n_total_trials=0)])


def test_the_turn_of_a_task_is_when_its_first_trial_started(tmp_path):
    """Trials are sorted by their start, not by the names of their jobs or directories."""
    early = job(
        tmp_path / "z", result("b__1", {"reward": 1}, **phase(5, 9)), result("a__1", {"reward": 1}, **phase(7, 9))
    )
    late = job(
        tmp_path / "a", result("c__1", {"reward": 1}, **phase(20, 30)), result("b__2", {"reward": 1}, **phase(25, 30))
    )
    table, _ = read([late, early])
    assert sorted(table.tasks, key=dict(zip(table.tasks, table.turn, strict=True)).get) == ["b", "a", "c"]
