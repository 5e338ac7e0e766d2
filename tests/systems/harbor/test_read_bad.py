"""Jobs with errors: they are reported and counted, and everything else is read."""

import json
import os

import pytest
from formats.given import seen
from systems.harbor.made import GOLDEN, job, outcomes, result, write

import calipers
from calipers.errors import InputError
from calipers.formats.read import read
from calipers.systems.harbor.read import read_groups
from calipers.systems.harbor.wire import LARGEST

GOOD = result("a__1", {"reward": 1})


def spoilt(folder, content):
    """A job with a valid trial and one whose result has this content."""
    path = job(folder, GOOD, result("a__2", {"reward": 0}))
    (folder / "a__2" / "result.json").write_bytes(content)
    return path


@pytest.mark.parametrize(
    "content",
    [
        b"",  # Harbor writes it in place: it may be met while it is empty
        b"{",
        json.dumps(GOOD).encode()[:-9],
        b"[]",
        b"null",
        b"\x00\xff",
        b"{}",
        b'{"task_name": 3, "trial_name": "a__2", "agent_info": {"name": "x"}}',
        b"[" * 100_000,
    ],
)
def test_a_result_that_cannot_be_read(tmp_path, content):
    path = spoilt(tmp_path, content)
    assert outcomes(path) == {"scored": 1, "missing": 1}
    table, (source,) = read([path])
    assert (len(table.keys), source.rollouts) == (1, 2)  # in its group all the same: its configuration says which
    (note,) = table.notes
    assert note.startswith(f"{path}/a__2/result.json: ")
    assert note.endswith("; the trial counts as missing")


def test_half_of_a_surrogate_pair_is_replaced(tmp_path):
    path = job(tmp_path, {**GOOD, "agent_info": {"name": "x\ud800"}})
    (group,) = json.loads(calipers.score(path).to_json())["groups"]
    assert (group["agent"], group["ledger"]["outcomes"]) == ("x?", {"scored": 1})


def test_a_result_cut_off_anywhere_loses_nothing_else(tmp_path):
    whole = (GOLDEN / "add-two__FzwhamM" / "result.json").read_bytes()
    cuts = range(0, len(whole) - 1, 211)
    path = job(tmp_path, GOOD, *(f"b__{cut:05d}" for cut in cuts))
    for cut in cuts:
        (tmp_path / f"b__{cut:05d}" / "result.json").write_bytes(whole[:cut])
    assert outcomes(path) == {"scored": 1, "missing": len(cuts)}
    notes = read([path])[0].notes
    (note,) = notes  # one for all that are cut: the first in full, of the others how many, and some names
    assert note.startswith(f"{path}/b__00000/result.json: ")
    assert f"the trial counts as missing; {len(cuts) - 1} more results cannot be read (b__00211, b__00422, " in note


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "high", None, [1], 10**400])
def test_a_reward_that_is_no_finite_number(tmp_path, value):
    path = job(tmp_path, GOOD, result("a__2", {"reward": value}))
    assert outcomes(path) == {"scored": 1, "verifier_failed": 1}
    assert calipers.score(path)["mean_reward"].value == 1.0
    (note,) = read([path])[0].notes
    assert note.startswith(f"{path}/a__2/result.json: reward 'reward' is ")
    assert "expected a finite number; it counts as missing" in note


def test_one_bad_reward_of_two_leaves_the_other(tmp_path):
    path = job(tmp_path, result("a__1", {"reward": 0.5, "speed": "fast"}))
    (row,) = seen(read([path])[0])
    assert (row["outcome"], row["reward reward"]) == ("scored", 0.5)


@pytest.mark.parametrize("what", ["lock.json", "result.json", "config.json"])
@pytest.mark.parametrize("content", [b"", b'{"trials": 3, "stats": [], "n_attempts": "x"}', b"{"])
def test_a_jobs_own_file_that_cannot_be_read(tmp_path, what, content):
    path = job(tmp_path, GOOD)
    (tmp_path / what).write_bytes(content)
    assert outcomes(path) == {"scored": 1}
    (note,) = read([path])[0].notes
    assert note.startswith(f"{path}/{what}: cannot be read")


@pytest.mark.parametrize(("locked", "effect"), [(None, ", so the planned trials are unknown"), ({"a": 1}, "")])
def test_without_its_result_a_job_is_planned_by_its_lock(tmp_path, locked, effect):
    path = job(tmp_path, GOOD, locked=locked)
    (tmp_path / "result.json").write_bytes(b"")
    (note,) = read([path])[0].notes
    assert note == f"{path}/result.json: cannot be read as a job's result{effect}"


def test_a_file_of_a_job_names_its_folder(tmp_path, monkeypatch):
    path = job(tmp_path / "job", GOOD, stats={"evals": {}}, n_total_trials=1)
    (tmp_path / "job" / "config.json").write_text(json.dumps({"job_name": "job", "n_attempts": 1}, indent=2))
    with pytest.raises(InputError) as error:
        calipers.score(f"{path}/config.json")
    right = f"expected its folder, {path}"
    assert str(error.value) == f"{path}/config.json: is one JSON object over several lines; {right}"
    monkeypatch.chdir(path)
    with pytest.raises(InputError, match=r"expected its folder, \."):
        calipers.score("config.json")
    (tmp_path / "other.json").write_text('{\n "a": 1\n}')
    with pytest.raises(InputError, match="over several lines; expected one JSON object per line"):
        calipers.score(tmp_path / "other.json")


def test_a_link_out_of_the_job_is_not_followed(tmp_path):
    other = job(tmp_path / "other", result("secret__1", {"reward": 1}))
    path = job(tmp_path / "job", GOOD, result("a__2", {"reward": 0}))
    (tmp_path / "job" / "linked").symlink_to(tmp_path / "other" / "secret__1")
    (tmp_path / "job" / "a__2" / "result.json").unlink()
    (tmp_path / "job" / "a__2" / "result.json").symlink_to(f"{other}/secret__1/result.json")
    (tmp_path / "job" / "_retries").symlink_to(other)
    table, _ = read([path])
    assert [(row["task"], row["outcome"]) for row in seen(table)] == [("a", "scored"), ("a", "missing")]
    link, unread = table.notes[-2:]
    assert f"{path}/_retries: a link; it is not followed; 1 more link (linked)" in table.notes
    assert unread == f"{path}/a__2/result.json: it is a link, and links are not followed; the trial counts as missing"
    assert link.startswith(path)


def test_a_result_of_enormous_size_is_not_read(tmp_path):
    path = spoilt(tmp_path, b"{")
    os.truncate(tmp_path / "a__2" / "result.json", LARGEST + 1)  # a hole: it takes no room
    (note,) = read([path])[0].notes
    assert "it is larger than 256 MiB" in note


@pytest.mark.parametrize("put", [os.mkfifo, os.mkdir])
def test_a_pipe_or_a_folder_in_place_of_a_result(tmp_path, put):
    path = spoilt(tmp_path, b"{")
    (tmp_path / "a__2" / "result.json").unlink()
    put(tmp_path / "a__2" / "result.json")
    (note,) = read([path])[0].notes
    assert "it is not a file" in note


def test_a_trial_of_which_nothing_can_be_read(tmp_path):
    path = spoilt(tmp_path, b"{")
    (tmp_path / "a__2" / "config.json").write_text("{")
    rows = seen(read([path])[0])
    assert [(row["task"], row["outcome"], row["dataset"]) for row in rows] == [
        ("a", "missing", "adhoc"),  # its directory's name says the task, and nothing says the dataset
        ("a", "scored", "d"),
    ]


def test_other_folders_in_a_job_are_no_trials(tmp_path):
    path = job(tmp_path, GOOD)
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots" / "a.png").write_bytes(b"")
    assert outcomes(path) == {"scored": 1}


@pytest.mark.parametrize("files", [[], ["config.json"], ["model/config.json"], ["x/y/z.txt"]])
def test_a_directory_of_anything_else_is_refused(tmp_path, files):
    for name in files:
        write(tmp_path / name, {"hidden_size": 3})
    with pytest.raises(InputError, match="is a directory; expected a file of rollouts, a run folder or a Harbor job"):
        read([str(tmp_path)])


def test_a_plan_of_absurd_size(tmp_path):
    with pytest.raises(InputError, match=r"result\.json: 99999999999 trials are planned; expected at most"):
        read([job(tmp_path, GOOD, n_total_trials=99_999_999_999)])


def test_an_earlier_attempt_that_cannot_be_read(tmp_path):
    path = job(tmp_path, GOOD)
    (tmp_path / "_retries" / "a__1").mkdir(parents=True)
    (tmp_path / "_retries" / "a__1" / "result.json").write_text("{")
    assert outcomes(path) == {"scored": 1}
    (note,) = read([path])[0].notes
    assert note.endswith("; the attempt is not counted")


@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
def test_a_cost_that_is_no_finite_number_is_missing(tmp_path, value):
    spent = {"n_input_tokens": 10**400, "n_output_tokens": 3, "cost_usd": value}
    (row,) = seen(read([job(tmp_path, result("a__1", {"reward": 1}, agent_result=spent))])[0])
    assert "cost_usd" not in row
    assert "input_tokens" not in row
    assert row["output_tokens"] == 3


@pytest.mark.parametrize("linked", ["agent", "agent/completion.txt"])
def test_a_completion_behind_a_link_is_no_turn(tmp_path, linked):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "completion.txt").write_text("a key")
    path = job(tmp_path / "job", GOOD)
    link = tmp_path / "job" / "a__1" / linked
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(tmp_path / "secret" / ("" if linked == "agent" else "completion.txt"))
    ((one,),) = (group.trajectories for group in read_groups(path, ["a"]))
    assert (one.reward, one.turns) == (1.0, [])
