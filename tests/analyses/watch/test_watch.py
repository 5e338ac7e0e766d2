"""A watch on a folder: what is read once, what an alarm says, and what a bad folder does to it."""

import json
import math
import os
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import msgspec
import numpy as np
import pytest
from watch_steps import watch, write_run, write_step

from calipers.analyses.watch import alarms_of
from calipers.analyses.watch import watch as module
from calipers.analyses.watch.best import advice, best_in, best_steps, pick_sentence
from calipers.analyses.watch.document import sparkline
from calipers.analyses.watch.monitor import Memory, Monitor, MonitorSettings, SeriesTasks
from calipers.analyses.watch.sums import StepSums, read_step_file, task_hashes
from calipers.analyses.watch.watch import RunWatch
from calipers.errors import InputError
from calipers.reports import terminal
from calipers.stats.alarms import Process, RunningBest, drop_units

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "formats"
DROP = alarms_of(["drop(pass@1) > 0.02"])


def look(folder, alarms=DROP, **settings):
    return watch(folder, alarms, **settings)


def test_no_alarm_without_a_change_and_one_with_it(tmp_path):
    write_run(tmp_path, 20)
    quiet = look(tmp_path)
    assert (quiet.exit_code, quiet.steps, quiet.raised) == (0, 20, [])
    assert quiet.headline() == "No alarm in 20 steps."
    write_run(tmp_path, 10, drop=0.15, at=0, first=20, seed=1)
    loud = look(tmp_path)
    assert loud.exit_code == 1
    (raised,) = loud.raised
    assert 20 <= raised.since <= raised.step <= 24
    assert raised.value < raised.before - 0.08
    assert raised.causes == ["drop(pass@1) > 0.02"]
    assert len(raised.rollouts) == 5
    assert all(row["value"] == 0 for row in raised.rollouts)
    assert raised.command.startswith("calipers compare ")
    assert raised.until == 29  # it goes on, and is one alarm
    assert (raised.status.state, raised.status.at) == ("open", 29)


def test_an_alarm_closes_when_the_metric_has_recovered(tmp_path):
    write_run(tmp_path, 12)
    write_run(tmp_path, 10, drop=0.2, at=0, first=12, seed=1)
    opened = look(tmp_path)
    assert opened.exit_code == 1
    write_run(tmp_path, 6, first=22, seed=1)
    found = look(tmp_path)
    (raised,) = found.raised
    assert raised.status.state == "closed"
    assert 22 <= raised.status.closed == raised.until <= 27
    assert raised.status.recovery_evidence >= 20
    assert found.exit_code == 0
    assert found.headline() == "No open alarm after 28 steps; 1 was closed."
    page = " ".join(terminal.render(found.page()).split())
    assert f"Closed on step {raised.status.closed}: above 0." in page
    reference = raised.status.reference
    assert raised.status.close_at == pytest.approx(reference - (reference - raised.value) / 4)


def test_an_open_alarm_shows_the_evidence_that_raised_it(tmp_path):
    """It was that of the next segment, which had just begun: 9.02 of 444 for an alarm that had been raised."""
    write_run(tmp_path, 30, drop=0.2, at=10)
    found = look(tmp_path, alarms_of(["rl"]))
    state = next(state for state in found.alarms if state.alarm == "drop(reward) > 0.02")
    assert state.status.state == "open"
    assert state.evidence == state.status.evidence >= state.status.needed
    assert found.evidence >= found.needed
    others = [other.status for other in found.alarms if other is not state]
    assert {status.state for status in others} == {"quiet"}
    page = " ".join(terminal.render(found.page()).split())
    assert f"Failed: open since step {state.status.raised}. Mean 0." in page
    assert " allowed; recovery not shown (evidence 0." in page


def test_other_alarms_are_raised_while_one_is_open(tmp_path):
    rng = np.random.default_rng(21)
    for step in range(40):
        chance = 0.5 if step < 10 else 0.3
        tokens = rng.integers(90, 110, (60, 4)) * (1 if step < 25 else 3)
        write_step(tmp_path, step, (rng.random((60, 4)) < chance).astype(float), output_tokens=tokens)
    found = look(tmp_path, alarms_of(["drop(reward) > 0.02", "mean(length) > 1.2 * base"]), steps=100)
    assert [raised.alarm for raised in found.raised] == ["drop(reward) > 0.02", "mean(length) > 1.2 * base"]
    assert [raised.status.state for raised in found.open_alarms] == ["open", "open"]
    drop, length = (raised.status for raised in found.raised)
    assert drop.raised < 25 <= length.raised
    assert (length.measure, length.now) == ("mean", pytest.approx(300, abs=20))
    assert length.reference < length.close_at < length.now


@pytest.mark.parametrize(
    ("alarm", "bad"),
    [
        ("rise(loss) > 0", {"loss": 0.6}),
        ("mean(loss) > 0.4", {"loss": 0.6}),
        ("mean(loss) > 1.5 * base", {"loss": 0.6}),
        ("diverge(reward, judge) > 0.05", {"judge": 0.1}),
        ("share(all_fail) > 0.3", {"reward": 0.1}),
        ("drop(reward, base=1) > 0.02", {"reward": 0.1}),
    ],
)
def test_every_kind_of_alarm_stays_open_and_closes_in_its_own_unit(tmp_path, alarm, bad):
    rng = np.random.default_rng(22)
    for step in range(44):
        usual = {"reward": 0.5, "judge": 0.5, "loss": 0.2}
        chances = {**usual, **(bad if 14 <= step < 28 else {})}
        drawn = {name: (rng.random((80, 2)) < chance).astype(float) for name, chance in chances.items()}
        write_step(tmp_path, step, drawn.pop("reward"), **drawn)
        if step == 27:
            opened = look(tmp_path, alarms_of([alarm]), steps=100)
    (raised,) = opened.open_alarms
    status = raised.status
    between = sorted([status.reference, status.close_at, status.now])
    assert between[1] == status.close_at  # it closes on the way from the bad value to what the null allows
    assert status.recovery_evidence < 20
    closed = look(tmp_path, alarms_of([alarm]))
    assert [one.status.state for one in closed.raised] == ["closed"]
    assert 28 <= closed.raised[0].status.closed <= 40
    assert closed.exit_code == 0


def test_a_rate_of_outcomes_closes(tmp_path):
    rng = np.random.default_rng(23)
    for step in range(40):
        write_outcomes(tmp_path, step, rng.random((64, 4)) < (0.25 if 10 <= step < 20 else 0.01), "truncated")
    (raised,) = look(tmp_path, alarms_of(["rate(truncated) > 0.05"])).raised
    assert raised.status.state == "closed"
    assert 20 <= raised.status.closed <= 24
    assert raised.status.reference == pytest.approx(0.05)


def test_a_state_of_an_older_version_is_computed_again(tmp_path):
    """A snapshot of older rules had begun the next segment, and knew no open alarm."""
    write_run(tmp_path, 30, drop=0.2, at=10)
    before = look(tmp_path)
    snapshot = tmp_path / ".calipers-watch" / "snapshot.bin"
    content = msgspec.msgpack.decode(snapshot.read_bytes()[4:])
    del content["rules"]
    body = msgspec.msgpack.encode(content)
    snapshot.write_bytes(struct.pack("<I", zlib.crc32(body)) + body)
    after = look(tmp_path)
    assert after.to_dict() == before.to_dict()


def test_a_document_of_an_older_version_has_open_alarms(tmp_path):
    import calipers

    write_run(tmp_path / "run", 30, drop=0.2, at=10)
    document = look(tmp_path / "run").to_dict()
    for part in (*document["raised"], *document["alarms"]):
        del part["status"]
    (tmp_path / "w.json").write_text(json.dumps(document))
    again = calipers.load(tmp_path / "w.json")
    assert (len(again.open_alarms), again.exit_code) == (1, 1)
    assert "1 alarm" in terminal.render(again.page())


def test_the_command_of_an_alarm_runs(tmp_path):
    from cli.running import calipers

    write_run(tmp_path, 16, drop=0.2, at=10)
    (raised,) = look(tmp_path).raised
    done = calipers(*raised.command.split()[1:], cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_evidence_is_that_of_the_statistics(tmp_path):
    """The monitor's e-process is the one of stats.alarms, step by step, on the same tasks."""
    rng = np.random.default_rng(3)
    steps = (rng.random((6, 50, 4)) < rng.random(50)[:, None]).astype(float)
    for number, rewards in enumerate(steps):
        write_step(tmp_path, number, rewards)
    found = look(tmp_path, alarms_of(["drop(reward[split=]) > 0"]))
    process, best = Process.begin(1_000), RunningBest.begin(0.025, 1_000)
    sums, weight, previous = np.zeros(50), 0.0, 0.0
    for number, rewards in enumerate(steps):
        y = rewards.mean(axis=1)
        if number:
            h = (sums + previous) / (weight + 1)
            process = process.step(drop_units(y, h, best.best, h.mean()).logs)
        within = rewards.var(axis=1, ddof=1).sum() / 4 / 50**2
        best = best.step(y.mean(), within, 200)
        decay = 1 if number == 0 else 0.97
        sums, weight, previous = decay * (sums + y), decay * (weight + 1), y.mean()
    assert found.alarms[0].evidence == pytest.approx(float(process.value), rel=1e-9)


def test_every_file_is_read_once(tmp_path, monkeypatch):
    write_run(tmp_path, 5)
    read = []
    monkeypatch.setattr(
        module, "read_step_file", lambda path, *a, **k: read.append(path) or read_step_file(path, *a, **k)
    )
    look(tmp_path)
    assert len(read) == 5
    look(tmp_path)
    assert len(read) == 5
    write_run(tmp_path, 1, first=5)
    assert look(tmp_path).steps == 6
    assert len(read) == 6
    os.utime(tmp_path / "step_2.jsonl")  # touched, and the same
    again = look(tmp_path)
    assert (len(read), again.rewrites, again.notes) == (7, 0, [])


def test_looks_one_by_one_say_what_one_look_says(tmp_path):
    write_run(tmp_path / "a", 18, drop=0.15, at=9)
    at_once = look(tmp_path / "a")
    (tmp_path / "b").mkdir()
    for step in range(18):
        shutil.copy(tmp_path / "a" / f"step_{step}.jsonl", tmp_path / "b")
        stepwise = look(tmp_path / "b")
    assert stepwise.evidence == pytest.approx(at_once.evidence, rel=1e-12)
    assert [one.step for one in stepwise.raised] == [one.step for one in at_once.raised]
    assert stepwise.series == at_once.series


def test_without_its_snapshot_the_state_is_made_again(tmp_path):
    write_run(tmp_path, 12, drop=0.2, at=8)
    before = look(tmp_path)
    (tmp_path / ".calipers-watch" / "snapshot.bin").unlink()
    assert look(tmp_path).to_dict()["series"] == before.to_dict()["series"]
    (tmp_path / ".calipers-watch" / "snapshot.bin").write_bytes(b"torn")
    again = look(tmp_path)
    assert again.evidence == pytest.approx(before.evidence)
    assert [one.step for one in again.raised] == [one.step for one in before.raised]


@pytest.mark.parametrize("cut", [1, 7, 200, 5_000])
def test_a_torn_log_loses_its_last_record_and_no_more(tmp_path, cut):
    write_run(tmp_path, 6)
    whole = look(tmp_path)
    log = tmp_path / ".calipers-watch" / "watch.log"
    log.write_bytes(log.read_bytes()[:-cut])
    again = look(tmp_path)
    assert again.steps == whole.steps
    assert again.evidence == pytest.approx(whole.evidence)


@pytest.mark.parametrize("share", [0.0, 0.0001, 0.02, 0.3, 0.5, 0.7])
@pytest.mark.parametrize("bit", [1, 64])
def test_a_byte_that_changed_in_the_log_is_told_and_nothing_is_cut_off(tmp_path, share, bit):
    write_run(tmp_path, 6)
    look(tmp_path)
    log = tmp_path / ".calipers-watch" / "watch.log"
    damaged = bytearray(log.read_bytes())
    damaged[int(share * len(damaged))] ^= bit
    log.write_bytes(damaged)
    (tmp_path / ".calipers-watch" / "snapshot.bin").unlink()
    with pytest.raises(InputError, match=r"watch.log: record \d+ is damaged"):
        look(tmp_path)
    assert log.read_bytes() == damaged


def test_a_watch_that_is_killed_goes_on(tmp_path):
    """kill -9 in the middle of reading: the next look ends where one look would have ended."""
    write_run(tmp_path / "a", 30, drop=0.2, at=20)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    program = (
        "import os, sys, signal\n"
        "from calipers.analyses.watch import watch as module\n"
        "from calipers.analyses.watch import alarms_of\n"
        "real, count = module.read_step_file, [0]\n"
        "def read(*a, **k):\n"
        "    count[0] += 1\n"
        "    if count[0] == 12: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return real(*a, **k)\n"
        "module.read_step_file = read\n"
        "module.RunWatch(sys.argv[1], {'alarms': alarms_of(['drop(pass@1) > 0.02'])}).look()\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path / "a")], check=False)
    assert ended.returncode == -signal.SIGKILL
    killed, whole = look(tmp_path / "a"), look(tmp_path / "b")
    assert killed.evidence == pytest.approx(whole.evidence)
    assert killed.steps == whole.steps == 30


def test_a_rewritten_step_is_told_and_all_is_computed_again(tmp_path):
    write_run(tmp_path / "a", 8)
    look(tmp_path / "a")
    write_step(tmp_path / "a", 3, np.zeros((100, 4)))
    rewritten = look(tmp_path / "a")
    assert rewritten.rewrites == 1
    assert "rewritten since it was used: step 3" in rewritten.notes[0]
    shutil.copytree(tmp_path / "a", tmp_path / "b", ignore=shutil.ignore_patterns(".calipers-watch"))
    assert rewritten.evidence == pytest.approx(look(tmp_path / "b").evidence)


def test_alarms_keep_their_rollouts_when_a_step_is_rewritten(tmp_path):
    write_run(tmp_path, 14, drop=0.3, at=8)
    (before,) = look(tmp_path).raised
    path = tmp_path / "step_2.jsonl"
    path.write_text(path.read_text().replace('"reward": 1.0', '"reward": 0.0', 1))
    os.utime(path, (1, 1))
    after = look(tmp_path)
    assert after.rewrites == 1
    assert [(raised.command, len(raised.rollouts)) for raised in after.raised] == [(before.command, 5)]


def test_a_late_step_is_shown_and_not_used(tmp_path):
    write_run(tmp_path, 3, first=5)
    before = look(tmp_path)
    write_run(tmp_path, 1, first=2)
    after = look(tmp_path)
    assert after.evidence == before.evidence
    assert "step 2 came after step 7" in after.notes[0]
    assert [point.step for point in after.series[0].curves[0].points] == [2, 5, 6, 7]


def test_a_broken_file_is_told_and_the_watch_goes_on(tmp_path):
    write_run(tmp_path, 4)
    whole = (tmp_path / "step_2.jsonl").read_text()
    (tmp_path / "step_2.jsonl").write_text(whole[:500] + '{"task": 1, "reward": "high"}\n')
    found = look(tmp_path)
    assert found.steps == 3
    assert list(found.unreadable) == [str(tmp_path / "step_2.jsonl")]
    assert found.exit_code == 0
    (tmp_path / "step_2.jsonl").write_text(whole)  # mended, and late
    assert look(tmp_path).unreadable == {}


def test_a_file_that_is_still_written_waits(tmp_path):
    write_run(tmp_path, 2)
    now = [0.0]
    watching = RunWatch(str(tmp_path), {"alarms": DROP}, clock=lambda: now[0])
    try:
        watching.look(settled=False)
        assert watching.monitor.taken == 0  # nobody knows yet whether they are whole
        now[0] = 1.0
        with open(tmp_path / "step_1.jsonl", "a") as file:
            file.write("\n")
        now[0] = 2.5
        watching.look(settled=False)
        assert watching.monitor.taken == 1  # the other one has changed since
        now[0] = 5.0
        watching.look(settled=False)
        assert watching.monitor.taken == 2
    finally:
        watching.close()


def test_other_tasks_other_columns_and_two_runs_are_told_by_name(tmp_path):
    write_run(tmp_path, 4)
    write_step(tmp_path, 4, np.ones((100, 4)), tasks=[f"z{t}" for t in range(100)])
    write_step(tmp_path, 5, np.ones((100, 4)), entropy=np.ones((100, 4)))
    write_run(tmp_path / "copy7", 2, first=2, seed=9)
    notes = "\n".join(look(tmp_path).notes)
    assert "step_4.jsonl: step 4 has other tasks" in notes
    assert "step_5.jsonl: step 5 has other columns than before (new: entropy)" in notes
    assert "is in" in notes
    assert "Are two runs in one folder?" in notes


def test_two_runs_in_folders_are_told_by_name(tmp_path):
    """Folders without a number are series of their own, and nothing else says that they may be two runs."""
    write_run(tmp_path / "grpo", 2)
    write_run(tmp_path / "it's ppo", 2, seed=2)
    (note,) = look(tmp_path).notes
    assert note.startswith(
        f"{tmp_path}: grpo/, it's ppo/ are watched as 2 series, each with its own curve. If they are"
    )
    command = note.partition("such as: ")[2]
    assert shlex.split(command) == ["calipers", "watch", str(tmp_path / "it's ppo")]
    assert look(tmp_path).notes == [note]  # nothing is new, and it is still to be known


def test_train_and_eval_are_no_two_runs(tmp_path):
    write_run(tmp_path / "train", 2)
    write_run(tmp_path / "eval", 2, seed=2)
    assert look(tmp_path).notes == []


def test_two_runs_on_other_prompts_are_told_by_name(tmp_path):
    """Folders with a number have steps of the same series; of different tasks they are parts of one step."""
    for run in (1, 2):
        for step in range(2):
            tasks = [f"{run}-{step}-{task}" for task in range(30)]
            write_step(tmp_path / f"run{run}", step, np.ones((30, 2)), tasks=tasks)
    (note,) = look(tmp_path).notes
    assert "run1/ and run2/ have steps of the same numbers on different tasks" in note
    assert note.endswith(f"calipers watch {tmp_path}/run2")


def test_the_files_of_one_step_are_no_two_runs(tmp_path):
    for step in range(2):
        for rank in "ab":
            tasks = [f"{step}-{rank}-{task}" for task in range(30)]
            write_step(tmp_path / f"step_{step}", step, np.ones((30, 2)), name=f"rank_{rank}.jsonl", tasks=tasks)
    found = look(tmp_path)
    assert (found.steps, found.notes) == (2, [])


def shards(folder, second=0.0):
    """Steps in two files each, on other tasks: the mean of each is a half."""
    for step in range(3):
        for name, reward in (("a", 1.0), ("b", second)):
            tasks = [f"{name}{task}" for task in range(5)]
            write_step(folder, step, np.full((5, 2), reward), tasks=tasks, name=f"step_{{step}}_{name}.jsonl")


def test_a_file_of_a_step_that_is_rewritten_keeps_the_tasks_of_the_others(tmp_path):
    shards(tmp_path)
    look(tmp_path)
    path = write_step(tmp_path, 1, np.full((4, 2), 0.5), tasks=[f"b{n}" for n in range(4)], name="step_1_b.jsonl")
    os.utime(path, (1, 1))
    (curve,) = [each for each in look(tmp_path).series[0].curves if each.metric == "reward"]
    assert [(point.value, point.tasks) for point in curve.points] == [(0.5, 10), (pytest.approx(7 / 9), 9), (0.5, 10)]
    path.write_text("{")
    os.utime(path, (2, 2))
    os.utime(write_step(tmp_path, 1, np.ones((5, 2)), tasks=list("abcde"), name="step_1_a.jsonl"), (3, 3))
    assert any("not read: " in note and "step_1_b.jsonl" in note for note in look(tmp_path).notes)


def test_a_folder_that_links_lead_to_again_is_read_once(tmp_path):
    runs = tmp_path / "here" / "runs"
    write_run(runs / "a", 3)
    write_run(tmp_path / "elsewhere", 1)
    for name, target in (("latest", "a"), ("again", "."), ("up", ".."), ("more", "../../elsewhere")):
        (runs / name).symlink_to(target)
    found = look(runs)
    assert sorted((one.name, one.curves[0].points[-1].step) for one in found.series) == [
        ("a", 2),
        ("more", 0),
    ]


def test_a_clock_that_is_wrong_is_told(tmp_path):
    write_run(tmp_path, 2)
    os.utime(tmp_path / "step_1.jsonl", (4e9, 4e9))
    found = look(tmp_path)
    assert found.steps == 2
    assert "its time lies in the future" in found.notes[0]


def test_a_name_that_is_not_utf_8_is_told(tmp_path):
    write_run(tmp_path, 2)
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/step_3\xff.jsonl")
    shutil.copy(tmp_path / "step_1.jsonl", odd)
    found = look(tmp_path)
    assert found.steps == 2
    assert f"{odd}: its name is not UTF-8, so it is not watched" in found.notes


def test_files_that_are_no_rollouts_are_passed_over_by_name(tmp_path):
    write_run(tmp_path, 2)
    (tmp_path / "config.json").write_text('{"lr": 0.1}')
    found = look(tmp_path)
    assert found.steps == 2
    assert f"{tmp_path}/config.json: no rollouts, so it is not watched" in found.notes


def test_nothing_readable(tmp_path):
    assert look(tmp_path).exit_code == 3
    with pytest.raises(InputError, match="is no folder"):
        look(tmp_path / "gone")


def test_an_accepted_change_is_the_new_reference(tmp_path):
    write_run(tmp_path, 30, drop=0.2, at=10)
    assert look(tmp_path).exit_code == 1
    accepted = look(tmp_path, accept=10)
    assert accepted.exit_code == 0
    assert accepted.accepted == [10]
    assert look(tmp_path).exit_code == 0  # and stays so
    write_run(tmp_path, 10, drop=0.4, at=0, first=30)
    assert look(tmp_path).exit_code == 1
    with pytest.raises(InputError, match="--accept: step 99 is not there yet"):
        look(tmp_path, accept=99)


def test_a_state_keeps_its_rules(tmp_path):
    write_run(tmp_path, 3)
    look(tmp_path, steps=50)
    assert watch(tmp_path).planned == 50  # what is not given is as it was
    with pytest.raises(InputError, match="was begun with another --steps: 50"):
        look(tmp_path, steps=60)
    with pytest.raises(InputError, match="was begun with another --alarm"):
        look(tmp_path, alarms_of(["rl"]))
    assert look(tmp_path, alarms_of(["rl"]), state=str(tmp_path / "other")).planned == 1_000


def test_two_watches_do_not_share_a_state(tmp_path):
    write_run(tmp_path, 2)
    first = RunWatch(str(tmp_path), {})
    try:
        with pytest.raises(InputError, match="another calipers watch uses this state"):
            RunWatch(str(tmp_path), {})
    finally:
        first.close()


def test_beyond_the_planned_steps_a_new_segment_begins(tmp_path):
    write_run(tmp_path, 12, tasks=20)
    found = look(tmp_path, steps=5)
    assert found.segment > 1
    assert any("all 5 planned steps are used" in note for note in found.notes)


def write_outcomes(folder, step, marked, word):
    folder.mkdir(exist_ok=True)
    rows = [
        {"task": f"p{step}-{task}", "sample": sample, **({"outcome": word} if flag else {"reward": 1.0})}
        for task, samples in enumerate(marked.tolist())
        for sample, flag in enumerate(samples)
    ]
    (folder / f"{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("word", ["truncated", "refused", "verifier_failed", "client_failed"])
def test_a_rate_of_outcomes(tmp_path, word):
    rng = np.random.default_rng(5)
    for step in range(14):
        write_outcomes(tmp_path, step, rng.random((64, 8)) < (0.02 if step < 8 else 0.2), word)
    name = "missing" if word == "client_failed" else word
    found = look(tmp_path, alarms_of([f"rate({name}) > 0.05"]))
    (raised,) = found.raised
    assert raised.since == 8
    assert raised.step <= 9
    assert {row["outcome"] for row in raised.rollouts} == {word}


def test_the_rollouts_of_an_alarm_on_length_are_the_longest(tmp_path):
    rng = np.random.default_rng(6)
    for step in range(16):
        tokens = rng.integers(90, 110, (20, 4))
        tokens[:4] *= 1 if step < 10 else 8
        write_step(tmp_path, step, rng.random((20, 4)) < 0.5, output_tokens=tokens)
    (raised,) = look(tmp_path, alarms_of(["mean(length) > 1.2 * base"]), steps=40).raised
    assert {row["task"] for row in raised.rollouts[:4]} == {"q0", "q1", "q2", "q3"}
    assert raised.rollouts[0]["value"] > 700
    assert "mean(column=output_tokens)" in raised.command


def test_the_rollouts_of_an_alarm_are_of_its_own_series(tmp_path):
    rng = np.random.default_rng(7)
    for step in range(16):
        rows = [
            {"task": f"{name}{task}", "sample": sample, "dataset": name, "reward": float(rng.random() < chance)}
            for name, chance in (("easy", 0.5), ("hard", 0.5 if step < 8 else 0.1))
            for task in range(40)
            for sample in range(4)
        ]
        (tmp_path / f"step_{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (raised,) = look(tmp_path).raised
    assert raised.series == "hard"
    assert len(raised.rollouts) == 5
    assert all(row["task"].startswith("hard") for row in raised.rollouts)


def test_length_above_its_base_and_divergence_of_two_verifiers(tmp_path):
    rng = np.random.default_rng(6)
    chances = rng.beta(0.8, 0.8, 60)[:, None]
    for step in range(30):
        hacked = max(0, step - 14)
        judge = (rng.random((60, 8)) < chances).astype(float)
        reward = np.where(rng.random((60, 8)) < 0.03 * hacked, 1.0, judge)
        length = rng.lognormal(5, 0.5, (60, 8)) * 1.08**hacked
        write_step(tmp_path, step, reward, judge=judge, tokens=length)
    found = look(tmp_path, alarms_of(["diverge(reward, judge) > 0.02", "mean(tokens) > 1.2 * base"]))
    assert {one.alarm.partition("(")[0] for one in found.raised} <= {"diverge", "mean"}
    assert found.raised
    assert 14 <= found.raised[0].step <= 26
    assert not found.advice
    lengths = look(tmp_path, alarms_of(["diverge(tokens, judge) > 0.02"]), state=str(tmp_path / "lengths"))
    assert "values outside 0 to 1 count as these ends" in lengths.advice[0]


def write_train_and_eval(folder, gain, share):
    """Training on new prompts gains so much from step 12 on, and held-out tasks a share of it."""
    rng = np.random.default_rng(11)
    held_out = rng.uniform(0.1, 0.6, 100)
    for step in range(24):
        risen = gain if step >= 12 else 0.0
        tasks = [f"{step}-{task}" for task in range(48)]
        train = rng.random((48, 4)) < rng.uniform(0.1, 0.6, 48)[:, None] + risen
        write_step(folder / "train", step, train.astype(float), tasks=tasks)
        if step % 2 == 0:
            passes = rng.random((100, 4)) < (held_out + share * risen)[:, None]
            write_step(folder / "eval", step, passes.astype(float))


HELD_OUT = alarms_of(["diverge(reward[split=train], reward[split=eval]) > 0.02"])


def test_training_that_gains_and_held_out_tasks_that_do_not(tmp_path):
    write_train_and_eval(tmp_path, 0.4, 0.0)
    found = look(tmp_path, HELD_OUT, steps=100)
    (raised,) = found.raised
    assert (raised.series, 12 <= raised.since <= raised.step) == ("eval", True)
    assert raised.value > raised.before + 0.1  # half of the training reward less the held-out one
    assert raised.rollouts[0]["path"].startswith("eval")
    whole = [alarm.evidence for alarm in found.alarms]
    (tmp_path / ".calipers-watch" / "snapshot.bin").unlink()
    assert [alarm.evidence for alarm in look(tmp_path, HELD_OUT).alarms] == whole  # the pairs are the same again


def test_held_out_tasks_that_gain_half_as_much_are_no_alarm(tmp_path):
    write_train_and_eval(tmp_path, 0.4, 0.6)
    found = look(tmp_path, HELD_OUT, steps=100)
    assert found.raised == []
    assert found.alarms[0].evidence < 1  # it did bet
    assert found.alarms[0].why == ""


def test_a_cluster_takes_the_place_of_its_tasks(tmp_path):
    """Tasks that are copies of each other say no more than one of them: the evidence and the bands are the same."""
    rng = np.random.default_rng(12)
    for step in range(14):
        rewards = (rng.random((40, 2)) < rng.random(40)[:, None]).astype(float)
        names = [f"{step}-{task}" for task in range(40)]
        tokens = rng.integers(50, 150, (40, 2))
        write_step(tmp_path / "one", step, rewards, tasks=names, output_tokens=tokens)
        copies = [f"{name}-{copy}" for name in names for copy in "abc"]
        clusters = np.repeat(np.arange(40) + 1000 * step, 3)[:, None] * np.ones((1, 2))
        columns = {"output_tokens": np.repeat(tokens, 3, axis=0), "family": clusters}
        write_step(tmp_path / "three", step, np.repeat(rewards, 3, axis=0), tasks=copies, **columns)
    alarms = alarms_of(["mean(output_tokens) > 90"])
    one = look(tmp_path / "one", alarms)
    three = look(tmp_path / "three", alarms, cluster="family")
    plain = look(tmp_path / "three", alarms, state=str(tmp_path / "plain"))
    assert three.alarms[0].evidence == pytest.approx(one.alarms[0].evidence, rel=1e-9)
    assert plain.alarms[0].evidence != pytest.approx(one.alarms[0].evidence, rel=1e-3)
    ours, theirs = (found.series[0].curves[0].points[-1] for found in (three, one))
    assert ours.value == pytest.approx(theirs.value)
    assert ours.band == pytest.approx(theirs.band, abs=0.02)
    assert ours.change_band == pytest.approx(theirs.change_band, abs=0.02)


def clustered(run, *, declared, steps=30):
    """A run without a change: ten tasks of a cluster pass or fail together, so they are no ten units."""
    rng = np.random.default_rng([13, run])
    monitor = Monitor(MonitorSettings(alarms_of(["drop(reward) > 0"]), 100), curves=False, alone=True)
    tasks = np.arange(400, dtype=np.uint64)
    clusters = np.repeat(np.arange(40, dtype=np.uint64), 10)
    for step in range(steps):
        passes = np.repeat(rng.random(40) < 0.5, 10).astype(float)
        rewards = {"reward": np.stack([np.ones(400), passes, passes, passes])}
        known = {"clusters": clusters} if declared else {}
        monitor.take(StepSums(step, "", None, None, "", "reward", tasks, np.ones(400), rewards, **known))
    return monitor.alarms > 0


def test_tasks_that_pass_together_alarm_unless_their_clusters_are_declared():
    assert sum(clustered(run, declared=False) for run in range(10)) >= 8
    assert sum(clustered(run, declared=True) for run in range(10)) == 0


@pytest.mark.parametrize("alarm", ["drop(reward) > 0", "drop(reward[split=eval]) > 0"])
def test_the_weights_of_all_series_add_up_to_one_at_most(alarm):
    """Else the average of the evidence is more than 1 without a change, and the chance of a false alarm too high."""
    monitor = Monitor(MonitorSettings(alarms_of([alarm]), 100), curves=False)
    tasks, rewards = np.arange(9, dtype=np.uint64), {"reward": np.ones((4, 9))}
    for step in range(20):  # each dataset begins later than the one before
        monitor.take(StepSums(step, "eval", f"set {step}", None, "", "reward", tasks, np.ones(9), rewards))
    weights = [watcher.weight for watcher in monitor.watchers]
    assert len(weights) == 20
    assert 0.99 < sum(weights) <= 1


def test_a_step_without_clusters_is_told(tmp_path):
    write_step(tmp_path, 0, np.ones((3, 2)), family=np.ones((3, 2)))
    write_step(tmp_path, 1, np.ones((3, 2)))
    found = look(tmp_path, cluster="family")
    assert found.steps == 1
    assert any("step_1.jsonl: --cluster family: task 'q0' has no 'family'" in note for note in found.notes)
    with pytest.raises(InputError, match="was begun with another --cluster: family"):
        look(tmp_path, cluster="genre")


def test_groups_without_variance(tmp_path):
    rng = np.random.default_rng(7)
    for step in range(12):
        flat = rng.random(64) < (0.5 if step < 6 else 0.97)
        rewards = np.where(flat[:, None], 1.0, rng.random((64, 4)))
        write_step(tmp_path, step, rewards, tasks=[f"p{step}-{t}" for t in range(64)])
    found = look(tmp_path, alarms_of(["share(zero_variance) > 0.8"]))
    assert found.raised[0].since in (6, 7)
    shares = {curve.metric: curve.points[-1].value for curve in found.series[0].curves}
    assert shares["share(all_pass)"] == shares["share(zero_variance)"] > 0.8
    assert shares["share(all_fail)"] == 0


def test_fresh_prompts_are_told_apart_from_the_same_tasks(tmp_path):
    rng = np.random.default_rng(8)
    for step in range(6):
        rewards = (rng.random((40, 4)) < rng.random(40)[:, None]).astype(float)
        write_step(tmp_path, step, rewards, tasks=[f"p{step}-{t}" for t in range(40)])
    found = look(tmp_path)
    assert found.series[0].tasks == "fresh"
    assert "policy or the prompts" in found.advice[0]


def test_difficulty_takes_the_place_of_a_reference(tmp_path):
    rng = np.random.default_rng(9)
    for step in range(30):
        chances = np.clip(rng.beta(0.8, 0.8, 128) - 0.02 * step, 0, 1)[:, None]  # the prompts become harder
        difficulty = np.broadcast_to(rng.binomial(8, chances) / 8, (128, 8))
        drop = 0.15 if step >= 20 else 0
        rewards = (rng.random((128, 8)) < np.clip(chances - drop, 0, 1)).astype(float)
        write_step(tmp_path, step, rewards, tasks=[f"p{step}-{t}" for t in range(128)], difficulty=difficulty)
    found = look(tmp_path, alarms_of(["drop(reward) > 0"]), difficulty="difficulty")
    assert found.raised[0].since >= 19
    blind = look(tmp_path, alarms_of(["drop(reward) > 0"]), state=str(tmp_path / "blind"))
    assert blind.raised[0].since < 19  # without it harder prompts look like a worse policy


def test_unbounded_rewards_are_clipped_and_told(tmp_path):
    rng = np.random.default_rng(10)
    for step in range(30):
        write_step(tmp_path, step, rng.normal(5 if step < 20 else 3, 1, (60, 4)))
    found = look(tmp_path, alarms_of(["drop(reward) > 0.1"]))
    assert any("the range of rewards is unknown" in text for text in found.advice)
    assert 20 <= found.raised[0].step <= 25
    ranged = look(tmp_path, alarms_of(["drop(reward) > 0.1"]), state=str(tmp_path / "r"), range=(-5.0, 15.0))
    assert 20 <= ranged.raised[0].step <= 26


def test_a_base_step_is_the_reference_where_it_is_asked_for(tmp_path):
    write_run(tmp_path, 20, drop=0.2, at=10)
    found = look(tmp_path, alarms_of(["drop(reward, base=2) > 0.02"]), base=2)
    assert found.raised[0].step <= 13
    assert "the base step alone hides drops below" in found.advice[-1]
    assert found.series[0].base_step == 2


def test_an_alarm_about_nothing_in_the_rollouts_says_so(tmp_path):
    write_run(tmp_path, 3)
    found = look(tmp_path, alarms_of(["mean(entropy) > 3"]))
    assert "has no 'entropy'" in found.alarms[0].why
    assert found.headline() == "No alarm in 3 steps; mean(entropy) > 3 is not tested."
    page = terminal.render(found.page())
    assert page.index("mean(entropy) > 3: step 2 has no 'entropy'; it has reward") < page.index("The chance of any")
    typed = look(tmp_path, alarms_of(["drop(rewrd) > 0", "drop(reward) > 0"]), state=str(tmp_path / "typed"))
    assert typed.untested == {"drop(rewrd) > 0": "step 2 has no 'rewrd'; did you mean 'reward'?"}


def test_an_alarm_that_one_series_has_is_tested(tmp_path):
    for step in range(4):
        write_step(tmp_path / "train", step, np.ones((4, 2)))
        write_step(tmp_path / "eval", step, np.ones((4, 2)), judge=np.arange(8).reshape(4, 2) % 2)
    found = look(tmp_path, alarms_of(["mean(judge) > 0.9"]))
    assert [bool(state.why) for state in found.alarms] == [state.series == "train" for state in found.alarms]
    assert found.headline() == "No alarm in 8 steps."


def test_a_base_step_that_is_not_there_is_said_to_be_missing(tmp_path):
    write_run(tmp_path, 3)
    found = look(tmp_path, alarms_of(["drop(reward, base=7) > 0"]), base=99)
    assert found.untested == {"drop(reward, base=7) > 0": "step 7, its base, has not been read"}
    assert "no change is shown, because step 99, the --base, has not been read" in found.advice
    state = str(tmp_path / "accepted")
    accepted = look(tmp_path, alarms_of(["drop(reward, base=1) > 0"]), base=1, state=state, accept=2)
    assert accepted.untested == {"drop(reward, base=1) > 0": "step 1, its base, is before the accepted step"}
    assert "no change is shown, because step 1, the --base, is before the accepted step" in accepted.advice


@pytest.mark.parametrize(
    ("system", "series"),
    [
        ("verl", "validation"),
        ("trl", ""),
        ("prime_rl", "train · math"),
        ("skyrl", "openai/gsm8k"),
        ("open_instruct", ""),
        ("nemo_rl", "val"),
        ("tinker_cookbook", "train"),
    ],
)
def test_folders_of_other_systems(tmp_path, system, series):
    """Files that the real writers made: steps in their order, train and eval apart."""
    shutil.copytree(GOLDEN / system, tmp_path / "run")
    found = look(tmp_path / "run", alarms_of(["eval"]))
    names = [one.name for one in found.series]
    assert any(name.startswith(series) for name in names), names
    one = next(one for one in found.series if one.name.startswith(series))
    steps = [point.step for point in one.curves[0].points]
    assert len(steps) >= 1
    assert steps == sorted(set(steps))
    assert found.raised == []


def test_a_filtered_copy_is_left_out(tmp_path):
    """prime-rl writes `all` and `effective`; only `all` has the failures."""
    shutil.copytree(GOLDEN / "prime_rl", tmp_path / "run")
    found = look(tmp_path / "run", alarms_of(["eval"]))
    assert not any("Are two runs in one folder" in note for note in found.notes), found.notes


def test_the_best_step(tmp_path):
    write_run(tmp_path, 12, tasks=60)
    watching = RunWatch(str(tmp_path), {})
    try:
        watching.look()
        found = best_steps(watching.path, watching.steps_read(), None)
    finally:
        watching.close()
    (pick,) = found.picks
    assert pick.observed == max(each.value for each in pick.candidates)
    assert 0 < pick.optimism < pick.observed
    assert pick.interval[0] < pick.value < pick.interval[1]
    assert pick.step in pick.members
    assert len(pick.members) > 6  # a flat curve: nearly every step may be best
    assert len(pick.again) == 5
    assert pick.new_tasks_range[0] > 20
    assert pick.new_tasks_range[1] is None
    assert f"Step {pick.step} has the highest reward" in found.headline()


def best_of(values):
    """The advice on steps with these task values, [S, M]."""
    sums = []
    for step, row in enumerate(values):
        ones = np.ones(len(row))
        rewards = {"reward": np.stack([ones, row, row * row, row])}
        sums.append(StepSums(step, "", None, None, "", "reward", np.arange(len(row), dtype=np.uint64), ones, rewards))
    (pick,) = best_steps("", sums, None).picks
    return pick


def test_no_number_of_tasks_is_promised_on_a_flat_curve():
    """About 4,300 new tasks were said to tell two equal steps apart, a number made of their luck alone."""
    rng = np.random.default_rng(41)
    finite = 0
    for _ in range(60):
        chances = rng.beta(0.8, 0.8, 150)
        pick = best_of((rng.random((12, 150)) < chances).astype(float))
        assert pick.new_tasks_range is not None
        finite += pick.new_tasks_range[1] is not None
    assert finite <= 6  # the highest two of twelve seldom differ
    text = advice(pick)
    assert "no number is enough" in text
    assert "about" not in text


def test_the_steps_that_may_be_best_are_a_range():
    rng = np.random.default_rng(42)
    chances = np.array([0.2] * 4 + [0.6] * 5 + [0.2] * 4)
    values = (rng.random((13, 300)) < chances[:, None]).astype(float)
    assert advice(best_of(values)).startswith("Steps 4 to 8, 5 of 13, may be best. Evaluate steps ")
    ahead = (rng.random((2, 300)) < [[0.2], [0.6]]).astype(float)
    assert advice(best_of(ahead)) == "No other step may be best: step 1 is ahead of all of them."


def test_equal_steps_are_said_to_be_equal():
    pick = best_of(np.tile(np.arange(20) % 2, (3, 1)).astype(float))
    assert pick_sentence(pick).startswith("Step 0, the first of 3 with the same value, has the highest reward")
    assert advice(pick) == (
        "All 3 steps, 0 to 2, may be best. The first two do not differ on any task, so no number of new tasks is known "
        "to be enough."
    )


def test_steps_beyond_64_bits_are_refused(tmp_path):
    for step in ("9" * 400, str(2**63), str(2**63 - 1)):
        rows = [json.dumps({"task": f"t{task}", "reward": 1.0, "step": step}) for task in range(2)]
        (tmp_path / f"{step[:30]}.jsonl").write_text("\n".join(rows) + "\n")
    found = look(tmp_path)
    assert len(found.unreadable) == 2
    assert found.last_step == 2**63 - 1


def test_means_beyond_a_float_have_no_curve_on_a_terminal(tmp_path):
    for step in range(2):
        write_step(tmp_path, step, np.full((4, 2), 1.7e308))
    found = look(tmp_path, alarms_of(["rate(truncated) > 0.1"]))
    assert "No alarm" in str(found)
    assert [name for name in json.loads(found.to_json())["series"][0]["curves"] if name["metric"] == "reward"] == []
    assert sparkline([-1.7e308, 1.7e308]) == "▁█"
    assert sparkline([1.0, math.inf]) == ""


def test_a_confidence_too_near_to_one_for_its_steps_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"--confidence: is .*, too near to 1 for 100,000 steps"):
        look(tmp_path, confidence=1 - 2e-12, steps=100_000)


def test_no_best_step_says_why(tmp_path):
    for step in range(3):
        write_step(tmp_path, step, np.full((4, 2), 5.0))
    best = best_in([str(tmp_path)])
    assert best.picks == []
    assert best.headline().startswith("No best step: the run: reward is not between 0 and 1")


def test_a_step_in_two_files_is_one_candidate(tmp_path):
    shards(tmp_path)
    (pick,) = best_in([str(tmp_path)]).picks
    assert [(each.step, each.value) for each in pick.candidates] == [(0, 0.5), (1, 0.5), (2, 0.5)]


def test_the_centre_of_a_pool_is_over_the_pool_and_not_over_the_batch():
    """With the mean over the batch its share of hard prompts would be taken for a drop."""
    memory = Memory(previous=0.5)
    pool = np.arange(100, dtype=np.uint64)
    values = np.linspace(0, 1, 100)
    memory.learn(pool, values, decayed=False)
    hard = pool[:10]
    expected, centre = memory.expected(hard)
    assert expected.mean() < 0.35
    assert centre == pytest.approx(0.5, abs=0.01)


def test_what_steps_have_in_common_is_seen_by_their_tasks_alone():
    def kinds(*steps):
        series = SeriesTasks()
        return [series.look(np.array(sorted(tasks), dtype=np.uint64)) for tasks in steps]

    assert kinds(range(10), range(10), range(9), range(20, 30)) == ["first", "same", "same", "other"]
    assert kinds(range(10), range(10, 20), range(20, 30)) == ["first", "fresh", "fresh"]
    assert kinds(range(10), range(10, 20), range(5, 15), range(20)) == ["first", "fresh", "pool", "pool"]
    assert kinds(range(10), range(10, 20), range(15, 25)) == ["first", "fresh", "fresh"]


def test_epochs_over_a_pool_do_not_alarm_and_a_drop_in_them_is_found(tmp_path):
    """Prompts come back every fifth step; the pool is known when all of them were seen."""
    rng = np.random.default_rng(11)
    chances = rng.beta(0.8, 0.8, 200)
    settings = MonitorSettings(alarms_of(["drop(reward) > 0"]))
    for drop, alarms in ((0.0, False), (0.15, True)):
        monitor = Monitor(settings, curves=False)
        for step in range(40):
            if step % 5 == 0:
                order = rng.permutation(200)
            place = np.sort(order[40 * (step % 5) : 40 * (step % 5) + 40])
            p = np.clip(chances[place] - (drop if step >= 25 else 0), 0, 1)
            passes = rng.binomial(8, p).astype(float)
            eight = np.full(40, 8.0)
            rewards = {"reward": np.stack([eight, passes, passes, passes])}
            monitor.take(StepSums(step, "", None, None, "x", "reward", place.astype(np.uint64), eight, rewards))
        assert bool(monitor.raised) == alarms
        if alarms:
            assert monitor.raised[0].since >= 24


def test_a_rate_is_0_where_the_outcome_does_not_occur(tmp_path):
    for step, rate in enumerate((0.0, 0.5, 0.0)):
        write_outcomes(tmp_path, step, np.random.default_rng(step).random((8, 4)) < rate, "client_failed")
    curves = {curve.metric: curve.points for curve in look(tmp_path, alarms_of(["eval"])).series[0].curves}
    assert [point.step for point in curves["rate(missing)"]] == [1, 2]
    assert curves["rate(missing)"][-1].value == 0


def test_rewards_that_are_not_finite_or_out_of_range_are_told(tmp_path):
    write_run(tmp_path, 3, tasks=20)
    rows = [{"task": f"q{t}", "sample": s, "reward": 2.5 if t else None} for t in range(20) for s in range(4)]
    rows[0]["reward"] = 1e308
    rows[1]["reward"] = 1e308
    (tmp_path / "step_3.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = look(tmp_path, alarms_of(["drop(reward) > 0.02"]))
    assert any("not finite" in note for note in found.notes)
    assert any("count as these ends" in text for text in found.advice)
    assert np.isfinite(found.evidence)


def test_a_reward_outside_the_given_range_is_an_error_of_its_file(tmp_path):
    """It was clipped in silence, or drawn outside its own band."""
    rewards = np.full((6, 2), 0.25)
    write_step(tmp_path, 0, rewards, fee=rewards - 3)
    rewards[2, 1] = 1.0
    path = write_step(tmp_path, 1, rewards, fee=rewards - 3)
    found = look(tmp_path, alarms_of(["drop(reward) > 0.02"]), range=(0.0, 0.5))
    problem = f"{path}: step 1: task 'q2' sample 1: reward is 1; expected 0 to 0.5, the given --range"
    assert found.unreadable == {str(path): problem}
    assert found.headline() == "No alarm in 1 step; 1 file could not be read."
    assert f"not read: {problem}" in found.notes
    assert found.last_step == 0
    named = look(tmp_path, alarms_of(["drop(fee) > 0.02"]), state=str(tmp_path / "fee"), range=(0.0, 1.0))
    assert "fee is -2.75; expected 0 to 1" not in str(named.unreadable)  # a column is no reward


def test_the_range_is_that_of_the_watched_rewards(tmp_path):
    rows = [{"task": f"q{at}", "rewards": {"reward": 0.4, "length": -2.0 - at}} for at in range(6)]
    (tmp_path / "step_0.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = look(tmp_path, alarms_of(["drop(reward) > 0.02"]), range=(0.0, 0.5))
    curves = {curve.metric: curve.points[0] for curve in found.series[0].curves}
    assert curves["length"].band is None or curves["length"].band[0] < curves["length"].value < curves["length"].band[1]
    named = look(tmp_path, alarms_of(["drop(length) > 0.02"]), state=str(tmp_path / "s"), range=(0.0, 0.5))
    assert "length is -2; expected 0 to 0.5, the given --range" in str(named.unreadable)


def test_rewards_that_are_too_large_to_be_squared_are_no_warning(tmp_path):
    write_step(tmp_path, 0, np.full((2, 2), 1e308))
    found = look(tmp_path, alarms_of(["rl"]))  # warnings are errors here
    assert any("not finite" in note for note in found.notes)


def test_a_document_is_read_again(tmp_path):
    import calipers

    write_run(tmp_path / "run", 12, drop=0.3, at=7, tasks=40)
    found = look(tmp_path / "run")
    (tmp_path / "w.json").write_text(found.to_json())
    again = calipers.load(tmp_path / "w.json")
    assert again.headline() == found.headline()
    assert again.to_dict() == found.to_dict()


def test_a_task_has_one_hash_whatever_stands_beside_it():
    names = ["a", "b", "x" * 8, "x" * 9, "", "zwölf", "x" * 300]
    together = dict(zip(names, task_hashes(names).tolist(), strict=True))
    assert len(set(together.values())) == len(names)
    assert all(task_hashes([name]).tolist() == [number] for name, number in together.items())
    assert task_hashes(["a", "b"]).tolist() == [together["a"], together["b"]]  # all of them ASCII


@pytest.mark.parametrize(
    ("alarm", "scale", "range", "amount"),
    [
        ("drop(reward, base=0) > 0", 1, None, "drops below 5.8 points"),
        ("rise(reward, base=0) > 0", 1, None, "rises below 5.8 points"),
        ("drop(reward, base=0) > 0", 10, (0.0, 10.0), "drops below 0.579"),  # in the unit of the rewards
    ],
)
def test_the_advice_says_which_changes_a_base_step_hides(tmp_path, alarm, scale, range, amount):
    rewards = np.tile([0.0, 1.0], (100, 2))
    for step in (0, 1):
        write_step(tmp_path, step, scale * rewards)
    (advice,) = look(tmp_path, alarms_of([alarm]), range=range, steps=20).advice
    assert f"the base step alone hides {amount}; evaluate it" in advice


def test_a_watch_of_rewards_that_are_too_large_is_shown_in_a_notebook(tmp_path):
    write_step(tmp_path, 0, np.full((3, 1), 1e200))
    found = look(tmp_path, alarms_of(["drop(reward) > 0"]))
    assert found.series[0].curves == []
    assert found.glance().table is None


def test_a_best_step_without_a_step_says_why(tmp_path):
    write_run(tmp_path, 2)
    problem = r"no step could be read; the first of 2 problems: .*step_0\.jsonl: no reward 'nope'; expected one of"
    with pytest.raises(InputError, match=problem):
        best_in([str(tmp_path)], reward="nope")


def test_steps_of_other_tasks_are_not_left_out_of_the_best_in_silence(tmp_path):
    write_run(tmp_path, 4)
    write_step(tmp_path, 9, np.ones((100, 4)), tasks=[f"other-{task}" for task in range(100)])
    found = best_in([str(tmp_path)])
    assert [candidate.step for candidate in found.picks[0].candidates] == [0, 1, 2, 3]
    assert found.notes == ["the run: steps that share few tasks with the others are left out: 9"]


def write_tries(folder, step, chances, most, *, stops, seed):
    """A step with up to ``most`` tries of each task; with ``stops``, a task stops at its first pass."""
    rng = np.random.default_rng([seed, step])
    rows = []
    for task, chance in enumerate(chances):
        for sample in range(most):
            reward = float(rng.random() < chance)
            rows.append(json.dumps({"task": f"q{task}", "sample": sample, "reward": reward}))
            if stops and reward:
                break
    folder.mkdir(exist_ok=True)
    (folder / f"step_{step}.jsonl").write_text("\n".join(rows) + "\n")


@pytest.mark.parametrize("one_by_one", [False, True])
def test_first_samples_are_used_at_all_steps_if_one_stops_at_its_first_pass(tmp_path, one_by_one):
    """A run that begins to stop at the first pass looked better, and one that ends it looked worse."""
    chances = np.random.default_rng(51).beta(2, 2, 150)
    for step in range(24):
        write_tries(tmp_path, step, chances, 4, stops=step < 12, seed=52)
        if one_by_one:
            look(tmp_path, alarms_of(["drop(reward) > 0"]))
    found = look(tmp_path, alarms_of(["drop(reward) > 0"]))
    assert found.raised == []
    assert any("step_0.jsonl: step 0 stops at its first pass in" in note for note in found.notes)
    (curve,) = [each for each in found.series[0].curves if each.metric == "reward"]
    first = [json.loads(line) for line in (tmp_path / "step_3.jsonl").read_text().splitlines()]
    expected = np.mean([row["reward"] for row in first if row["sample"] == 0])
    assert curve.points[3].value == pytest.approx(expected)


def test_a_step_that_stops_later_is_found_and_the_steps_before_it_are_computed_again(tmp_path):
    chances = np.random.default_rng(53).beta(2, 2, 100)
    rng = np.random.default_rng(54)
    for step in range(8):
        if step < 6:  # numbers of samples that follow no result
            rows = []
            for task, chance in enumerate(chances):
                for sample in range(int(rng.integers(1, 5))):
                    reward = float(rng.random() < chance)
                    rows.append(json.dumps({"task": f"q{task}", "sample": sample, "reward": reward}))
            (tmp_path / f"step_{step}.jsonl").write_text("\n".join(rows) + "\n")
        else:
            write_tries(tmp_path, step, chances, 4, stops=True, seed=55)
        stepwise = look(tmp_path, alarms_of(["drop(reward) > 0"]))
    assert sum("first samples are used at all steps" in note for note in stepwise.notes) == 1
    at_once = look(tmp_path, alarms_of(["drop(reward) > 0"]), state=str(tmp_path / "other"))
    assert at_once.evidence == pytest.approx(stepwise.evidence, rel=1e-12)
    assert at_once.series == stepwise.series


def test_pass_at_k_has_no_value_on_first_samples(tmp_path):
    chances = np.full(60, 0.5)
    for step in range(3):
        write_tries(tmp_path, step, chances, 4, stops=True, seed=56)
    found = look(tmp_path, alarms_of(["drop(pass@2) > 0"]))
    assert "pass@2 has no value for first samples" in found.alarms[0].why


def test_the_best_step_is_picked_on_first_samples(tmp_path):
    chances = np.random.default_rng(57).beta(2, 2, 100)
    for step in range(6):
        write_tries(tmp_path, step, chances, 4, stops=step == 4, seed=58)
    best = best_in([str(tmp_path)])
    assert any("step 4 stops at its first pass" in note for note in best.notes)
    value = next(candidate.value for candidate in best.picks[0].candidates if candidate.step == 4)
    assert 100 * value == pytest.approx(round(100 * value))  # the share of 100 first samples
