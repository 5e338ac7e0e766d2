import hashlib
import json
import os

import msgspec
import pytest
from cli.running import calipers, scored
from formats.given import seen
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from calipers.errors import InputError
from calipers.formats.lines import WORTH_DIVIDING
from calipers.formats.read import Input, read
from calipers.formats.run_folder import TORN, RunLog, RunStop, read_stop, stop_of_sentence, whole
from calipers.formats.source import BLOCK
from calipers.pipeline import score
from calipers.rollouts.ledger import Ledger
from calipers.rollouts.record import Stop
from calipers.web.viewer.library import sources

GROUP = {"dataset": "d", "model": "m"}


def record(task, sample=0, reward=1.0, **more):
    return {"task": task, "sample": sample, "reward": reward, **GROUP, **more}


def run(folder, tasks, *records, samples=1, **more):
    """The directory of a run with these tasks, and these records in its log."""
    rows = [task if isinstance(task, dict) else {"task": task} for task in tasks]
    plan = {"schema": "calipers.plan/1", **GROUP, "samples": samples, "tasks": rows, **more}
    (folder / "plan.json").write_text(json.dumps(plan))
    log = "".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in records)
    (folder / "rollouts.jsonl").write_text(log)
    return str(folder)


def refused(path):
    """The error for reading a directory, without its path."""
    with pytest.raises(InputError) as caught:
        read([path])
    assert str(caught.value).startswith(path)
    return str(caught.value).removeprefix(path)


def outcomes(table):
    return [(row["task"], row["sample"], row["outcome"]) for row in seen(table)]


def test_what_is_owed_stands_beside_what_was_done(tmp_path):
    path = run(tmp_path, ["b", "a"], record("a", 1), record("b", 0, 0.0), samples=2)
    table, inputs = read([path])
    assert outcomes(table) == [("a", 0, "not_run"), ("a", 1, "scored"), ("b", 0, "scored"), ("b", 1, "not_run")]
    assert table.keys == [(None, "m", "d")]  # one group: missing rollouts belong to the same model
    assert table.notes == []
    log = os.path.join(path, "rollouts.jsonl")
    assert inputs == [Input(log, "run", hashlib.sha256((tmp_path / "rollouts.jsonl").read_bytes()).hexdigest(), 2)]
    ledger = Ledger.of(table)
    assert (ledger.planned, ledger.planned_from, ledger.gaps) == (4, "plan", 2)


@pytest.mark.parametrize(
    ("tasks", "records", "samples", "expected"),
    [
        (["a"], [], 2, [("a", 0, "not_run"), ("a", 1, "not_run")]),
        (["a", "a'"], [record("a'")], 1, [("a", 0, "not_run"), ("a'", 0, "scored")]),
        ([{"task": "a", "samples": 1}, "b"], [], 2, [("a", 0, "not_run"), ("b", 0, "not_run"), ("b", 1, "not_run")]),
        ([{"task": "a", "samples": 0}, "b"], [record("b")], 1, [("b", 0, "scored")]),
        (["a"], [record("a", 3), record("x")], 1, [("a", 0, "not_run"), ("a", 3, "scored"), ("x", 0, "scored")]),
        (["a"], [record("a", reward=0.0), record("a", attempt=2)], 1, [("a", 0, "scored")]),
        (["a"], [record("a", attempt=2, reward=None, outcome="client_failed")], 1, [("a", 0, "client_failed")]),
        (["模", 'q"\\'], [record("模")], 1, [('q"\\', 0, "not_run"), ("模", 0, "scored")]),
    ],
)
def test_every_planned_rollout_has_one_outcome(tmp_path, tasks, records, samples, expected):
    assert outcomes(read([run(tmp_path, tasks, *records, samples=samples)])[0]) == expected


def test_the_highest_attempt_counts(tmp_path):
    path = run(tmp_path, ["a"], record("a", attempt=2), record("a", reward=0.0, attempt=1))
    assert score(path, "mean_reward")["mean_reward"].value == 1.0


def test_an_absent_log_is_an_empty_one(tmp_path):
    path = run(tmp_path, ["a", "b"])
    (tmp_path / "rollouts.jsonl").unlink()
    table, (source,) = read([path])
    assert outcomes(table) == [("a", 0, "not_run"), ("b", 0, "not_run")]
    assert (source.sha256, source.rollouts) == (hashlib.sha256(b"").hexdigest(), 0)


def test_what_was_not_run_has_its_labels(tmp_path):
    tasks = [
        {"task": "a", "metadata": {"level": "easy", "of": {"author": "x"}}},
        {"task": "b", "metadata": {"level": "hard", "of": {"author": "y"}}},
        {"task": "c", "metadata": None},
    ]
    path = run(tmp_path, tasks, record("a", metadata=tasks[0]["metadata"]))
    result = score(path, "mean_reward", by=["level", "of.author", "model"])
    found = {
        key: {name: part.ledger.outcomes for name, part in cut.items()}
        for key, cut in result.groups[0].breakdowns.items()
    }
    assert found == {
        "level": {"__missing__": {"not_run": 1}, "easy": {"scored": 1}, "hard": {"not_run": 1}},
        "of.author": {"__missing__": {"not_run": 1}, "x": {"scored": 1}, "y": {"not_run": 1}},
        "model": {"m": {"scored": 1, "not_run": 2}},
    }


def test_a_finished_run_has_the_numbers_of_a_copy_of_its_log(tmp_path):
    records = [record(task, sample, float(sample > 0)) for task in "abc" for sample in range(3)]
    path = run(tmp_path, "abc", *records, samples=3)
    (tmp_path / "copy.jsonl").write_bytes((tmp_path / "rollouts.jsonl").read_bytes())
    asked = ["mean_reward", "pass@2", "pass_rate"]
    whole_run, bare = score(path, asked), score(tmp_path / "copy.jsonl", asked)
    assert whole_run.groups[0].metrics == bare.groups[0].metrics
    assert (whole_run.groups[0].ledger.planned_from, bare.groups[0].ledger.planned_from) == ("plan", "rows")


@pytest.fixture
def unfinished(tmp_path):
    """A run that lacks half of its planned rollouts."""
    folder = tmp_path / "runs" / "X"
    folder.mkdir(parents=True)
    run(folder, "abcd", record("a"), record("b", 0, 0.0))
    (tmp_path / "link.jsonl").symlink_to(folder / "rollouts.jsonl")
    (tmp_path / "latest").symlink_to(folder)
    return folder


@pytest.mark.parametrize("path", ["runs/X/rollouts.jsonl", "link.jsonl", "latest/rollouts.jsonl"])
def test_the_log_of_a_run_was_scored_without_the_rollouts_that_it_lacks(tmp_path, unfinished, path):
    whole_run, log = score(unfinished), score(tmp_path / path)
    assert log.digest == whole_run.digest
    assert (log.groups[0].ledger.planned, log.groups[0].ledger.gaps) == (4, 2)
    [note] = [note for note in log.notes if note not in whole_run.notes]
    assert note.startswith(f"{tmp_path / path} is the log of a run: the run is read, ")


def test_a_log_in_the_working_directory_is_its_run(unfinished, monkeypatch):
    monkeypatch.chdir(unfinished)
    assert score("rollouts.jsonl").digest == score(".").digest


def test_a_copy_of_a_log_is_a_plain_file_as_is_one_read_in_a_named_format(tmp_path, unfinished):
    copy = tmp_path / "rollouts.jsonl"
    copy.write_bytes((unfinished / "rollouts.jsonl").read_bytes())
    assert score(copy).groups[0].ledger.planned == 2
    assert score(unfinished / "rollouts.jsonl", input_format="jsonl").groups[0].ledger.planned == 2


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        ('{"schema": "calipers.plan/1", "tas', "is not the plan of a run (Input data was truncated)"),
        ('{"goal": "another program\'s plan"}', "schema is ''"),
        ("", "is not the plan of a run (Input data was truncated)"),
    ],
)
def test_a_log_beside_a_plan_that_cannot_be_read_is_a_plain_file_with_a_note(unfinished, plan, problem):
    (unfinished / "plan.json").write_text(plan)
    result = score(unfinished / "rollouts.jsonl")
    assert result.groups[0].ledger.planned == 2
    [note] = result.notes
    log = unfinished / "rollouts.jsonl"
    assert note.startswith(f"{log} is read without its plan: {unfinished / 'plan.json'}: {problem}")


def test_a_run_and_its_log_are_one_run_given_twice(unfinished):
    with pytest.raises(InputError, match="appears twice"):
        read([str(unfinished), str(unfinished / "rollouts.jsonl")])


def test_a_loop_of_links_is_no_log(tmp_path):
    (tmp_path / "plan.json").write_text("{}")
    (tmp_path / "rollouts.jsonl").symlink_to("rollouts.jsonl")
    with pytest.raises(InputError, match="cannot be read"):
        read([str(tmp_path / "rollouts.jsonl")])


@pytest.mark.parametrize(
    "command",
    [
        ("score",),
        ("compare", "{other}"),
        ("leaderboard", "{other}"),
        ("gate", "--require", "mean_reward >= 0.1", "--max-gaps", "2"),
        ("items",),
        ("curve",),
        ("audit",),
    ],
)
def test_every_command_reads_the_run_of_a_log(tmp_path, unfinished, command):
    other = tmp_path / "other.jsonl"
    other.write_text("".join(json.dumps(record(task, model="n")) + "\n" for task in "abcd"))
    name, *rest = [each.replace("{other}", str(other)) for each in command]
    documents = []
    for path in (unfinished, unfinished / "rollouts.jsonl"):
        answer = calipers(name, str(path), *rest, "--format", "json", cwd=tmp_path)
        assert answer.returncode in (0, 1), answer.stderr
        text = answer.stdout.replace(str(unfinished / "rollouts.jsonl"), str(unfinished))
        documents.append({key: value for key, value in json.loads(text).items() if key != "notes"})
    assert documents[0] == documents[1]


def test_a_converted_log_has_the_rollouts_of_its_run(tmp_path, unfinished):
    for name, path in (("folder", unfinished), ("log", unfinished / "rollouts.jsonl")):
        assert calipers("convert", str(path), str(tmp_path / f"{name}.jsonl"), cwd=tmp_path).returncode == 0
    assert (tmp_path / "log.jsonl").read_bytes() == (tmp_path / "folder.jsonl").read_bytes()
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 4


def test_the_viewer_shows_the_run_of_a_log(unfinished):
    [folder], [log] = (sources([str(path)])[0] for path in (unfinished, unfinished / "rollouts.jsonl"))
    assert (log.id, log.kind) == (folder.id, "run")


def test_a_rescored_log_is_a_rescored_run(tmp_path, unfinished):
    given_scores = tmp_path / "scores.csv"
    given_scores.write_text("task,score\na,1\nb,1\n")
    answer = calipers(
        *("rescore", str(unfinished / "rollouts.jsonl"), "--scores", str(given_scores)),
        *("--columns", "reward=score"),
        cwd=tmp_path,
    )
    assert answer.returncode == 0, answer.stderr
    [rescored] = unfinished.glob("rescored-*.jsonl")
    assert len(rescored.read_text().splitlines()) == 4


@given(cut=st.integers(1, 400), room=st.sampled_from([0, 100, BLOCK, 2 * BLOCK]))
def test_a_line_cut_off_is_owed_and_said(tmp_path_factory, cut, room):
    folder = tmp_path_factory.mktemp("run")
    rows = [record("a", completion="x" * room), record("b"), record("c", completion="y" * room)]
    path = run(folder, "abc", *rows)
    log = folder / "rollouts.jsonl"
    content = log.read_bytes()[:-cut] or b"{"
    log.write_bytes(content)
    table, (source,) = read([path])
    kept = content[: content.rfind(b"\n") + 1]
    done = kept.count(b"\n")
    assert [outcome for _, _, outcome in outcomes(table)] == ["scored"] * done + ["not_run"] * (3 - done)
    assert table.notes == ([] if content.endswith(b"\n") else [f"{path}: {TORN}"])
    assert (source.sha256, source.rollouts) == (hashlib.sha256(kept).hexdigest(), done)
    assert log.read_bytes() == content  # a reader does not repair the log


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", 0),
        (b"{", 0),
        (b"{}", 0),  # without its newline it is not finished
        (b"{}\n", 3),
        (b"{}\n\0\0\0", 3),
        (b"{}\n\0\0\n", 3),
        (b"{}\n{\n", 3),
        (b"{}\n{\n{", 5),  # only the last line can be torn; a bad line before it stays, and is reported
        (b"{}\n\n", 4),
        (b"\n", 1),
        (b"{}\n" + b"x" * 2 * BLOCK, 3),
        (b"{}\n" + b"x" * 2 * BLOCK + b"\n", 3),
        (b'"' + b"x" * 2 * BLOCK + b'"\n', 2 * BLOCK + 3),
    ],
)
def test_where_a_log_ends(tmp_path, content, expected):
    (tmp_path / "log").write_bytes(content)
    assert whole(str(tmp_path / "log")) == expected


def test_a_line_broken_in_the_middle_is_an_error(tmp_path):
    path = run(tmp_path, "abc", record("a"), '{"task":\n', record("c"))
    assert refused(path).startswith("/rollouts.jsonl:2: not JSON")


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ({"tasks": []}, ": no rollouts; expected at least one"),
        ({"schema": "calipers.plan/9"}, "/plan.json: schema is 'calipers.plan/9'; expected 'calipers.plan/1'"),
        ({"samples": -1}, "/plan.json: is not the plan of a run (Expected `int` >= 0 - at `$.samples`)"),
        ({"samples": 2**30}, "/plan.json: 1073741824 rollouts are planned; expected at most 100000000"),
        ({"tasks": [{"task": "a"}, {"task": "a"}]}, "/plan.json: task 'a' appears twice; expected each task once"),
    ],
)
def test_a_plan_that_cannot_be(tmp_path, plan, said):
    path = run(tmp_path, ["a"])
    held = json.loads((tmp_path / "plan.json").read_text())
    (tmp_path / "plan.json").write_text(json.dumps(held | plan))
    assert refused(path).startswith(said)


@pytest.mark.parametrize("left", [[], ["rollouts.jsonl"]])
def test_a_directory_without_a_plan_is_no_run(tmp_path, left):
    for name in left:
        (tmp_path / name).write_text(json.dumps(record("a")))
    assert refused(str(tmp_path)).startswith(": is a directory")


def test_a_run_that_goes_on_is_read_as_far_as_it_was(tmp_path):
    path = run(tmp_path, "abc", record("a"))
    before = (tmp_path / "rollouts.jsonl").read_bytes()
    with RunLog(path) as log:
        with open(tmp_path / "rollouts.jsonl", "a") as file:
            file.write(json.dumps(record("b")) + "\n")
        room = memoryview(bytearray(1000))
        assert bytes(room[: log.readinto(room)]) == before
        assert log.readinto(room) == 0
        assert log.sha256() == hashlib.sha256(before).hexdigest()


def test_a_log_that_shrank_is_not_what_was_read(tmp_path):
    path = run(tmp_path, "ab", record("a"), record("b"))
    with RunLog(path) as log:
        os.truncate(tmp_path / "rollouts.jsonl", 10)
        with pytest.raises(ValueError, match="changed while it was read; expected a log that only grows"):
            log.sha256()


def test_a_large_log_is_divided_and_its_torn_line_is_nobodys(tmp_path):
    row = json.dumps(record("a", 0, completion="x" * 60_000))
    head, _, tail = row.partition('"sample": 0')
    rows = WORTH_DIVIDING // len(row) + 10
    path = run(tmp_path, ["a"], samples=rows + 5)
    with open(tmp_path / "rollouts.jsonl", "w") as file:
        file.writelines(f'{head}"sample": {number}{tail}\n' for number in range(rows))
    kept = hashlib.sha256((tmp_path / "rollouts.jsonl").read_bytes()).hexdigest()
    with open(tmp_path / "rollouts.jsonl", "a") as file:
        file.write(row[:-5])
    table, (source,) = read([path])
    assert source.sha256 == kept
    assert Ledger.of(table).outcomes == {"scored": rows, "not_run": 5}
    assert source.rollouts == rows
    assert table.notes == [f"{path}: {TORN}"]


def test_a_run_beside_a_file(tmp_path):
    path = run(tmp_path, ["a"])
    (tmp_path / "more.jsonl").write_text(json.dumps(record("b")) + "\n")
    table, inputs = read([path, str(tmp_path / "more.jsonl")])
    assert outcomes(table) == [("a", 0, "not_run"), ("b", 0, "scored")]
    assert [source.format for source in inputs] == ["run", "native"]


def test_the_command_takes_a_directory(tmp_path):
    (tmp_path / "out").mkdir()
    run(tmp_path / "out", "ab", record("a"), samples=1)
    found = scored("out", cwd=tmp_path)
    ledger = found["groups"][0]["ledger"]
    assert (ledger["planned"], ledger["planned_from"]) == (2, "plan")
    assert ledger["outcomes"] == {"scored": 1, "not_run": 1}
    assert found["inputs"][0]["path"] == os.path.join("out", "rollouts.jsonl")
    assert calipers("score", "out", "--missing", "fail", cwd=tmp_path).returncode == 3


def test_the_turn_of_a_task_is_that_of_the_plan(tmp_path):
    """A log has quick tasks first; a second folder's tasks come after those of the first."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir(), two.mkdir()
    first = run(one, ["c", "a", "b"], record("b"), record("c"), record("elsewhere"))
    table, _ = read([first])
    assert sorted(table.tasks, key=dict(zip(table.tasks, table.turn, strict=True)).get) == ["c", "a", "b", "elsewhere"]
    second = run(two, ["z", "y"], record("y", dataset="e"), record("z", dataset="e"))
    both, _ = read([first, second])
    turns = dict(zip(both.tasks, both.turn, strict=True))
    assert sorted(turns, key=turns.get) == ["c", "a", "b", "elsewhere", "z", "y"]


STOP = RunStop(
    rule="lower(pass@1) > 0.6",
    metric="pass@1",
    side="lower",
    tasks=30,
    planned_tasks=100,
    rollouts=60,
    planned_rollouts=200,
)
READ = Stop("lower(pass@1) > 0.6", "pass@1", "lower", 30, 100)


@pytest.mark.parametrize(
    ("more", "planned", "outstanding", "expected"),
    [
        ({}, 200, 140, READ),
        ({}, 200, 0, None),  # continued to the end of the plan in which it was stopped
        ({}, 400, 0, READ),  # to the end of a larger plan, which may have been enlarged because of the results
        ({}, 400, 200, READ),
        ({"completed": True}, 400, 200, None),  # the plan grew after it had been completed
        ({"planned_rollouts": None}, 200, 0, None),  # an earlier version, which did not say
        ({"continued": True}, 200, 10, Stop("lower(pass@1) > 0.6", "pass@1", "lower", 30, 100, continued=True)),
    ],
)
def test_when_a_stopped_run_is_a_fixed_sample_again(more, planned, outstanding, expected):
    assert structs.replace(STOP, **more).of_plan(planned, outstanding) == expected


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        (
            "--until 'lower(pass@1) > 0.6' stopped the run after 1,030 of 2,000 tasks; its intervals hold",
            ("lower(pass@1) > 0.6", "pass@1", "lower", 1030, 2000),
        ),
        (
            "--until \"upper( mean_reward(reward='f') )<=.4\" stopped the run after 3 of 9 tasks; its intervals",
            ("upper( mean_reward(reward='f') )<=.4", "mean_reward(reward='f')", "upper", 3, 9),
        ),
        ("somebody ended it", ("", "", "", 0, 0)),
    ],
)
def test_the_sentence_of_an_earlier_version_is_read(sentence, expected):
    found = stop_of_sentence(sentence)
    assert (found.rule, found.metric, found.side, found.tasks, found.planned_tasks) == expected


def test_a_folder_without_a_stop_has_none(tmp_path):
    assert read_stop(str(tmp_path)) is None
    for content in (b"{", b"[]", b'{"stopped": 3}', b'{"schema": "calipers.result/1", "groups": []}'):
        (tmp_path / "result.json").write_bytes(content)
        assert read_stop(str(tmp_path)) is None


def test_the_file_of_a_stop_comes_before_the_result(tmp_path):
    said = {"stopped": "--until 'width(pass@1) < 0.1' stopped the run after 3 of 9 tasks"}
    (tmp_path / "result.json").write_text(json.dumps(said))
    assert read_stop(str(tmp_path)).rule == "width(pass@1) < 0.1"
    (tmp_path / "stopped.json").write_bytes(msgspec.json.encode(STOP))
    assert read_stop(str(tmp_path)) == STOP


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        ("{", "is not the stop file of a run"),
        ('{"rule": "lower(pass@1) > 0.6"}', "is not the stop file of a run"),
        (
            '{"schema": "calipers.stopped/9", "rule": "", "metric": "", "side": "", "tasks": 1, "planned_tasks": 2}',
            "schema is 'calipers.stopped/9'",
        ),
    ],
)
def test_a_broken_file_of_a_stop_is_refused(tmp_path, content, wrong):
    (tmp_path / "stopped.json").write_text(content)
    with pytest.raises(InputError, match=wrong):
        read_stop(str(tmp_path))
