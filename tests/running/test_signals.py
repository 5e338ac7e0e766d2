"""Signals reach every event loop of this process, and handlers of other code are restored."""

from __future__ import annotations

import json
import os

import pytest
from forks import FORKS, PROGRAM
from running.scene import records, sums

# A model that interrupts its own process at the third call, as somebody in front of a notebook does.
MODEL = """
import asyncio, os, signal

calls = 0

async def answer(prompt):
    global calls
    calls += 1
    if calls == 3:
        os.kill(os.getpid(), signal.SIGINT)
    await asyncio.sleep(0.01)
    return "0"
"""

NOTEBOOK = """
import asyncio, calipers

async def cell():
    return calipers.run("sums", "python/model.py:answer", concurrency=1, out="run")

asyncio.new_event_loop().run_until_complete(cell())
"""

GROUP = """
import calipers

try:
    calipers.run("group.yaml", "python/model.py:answer", include_path=".", concurrency=1)
except KeyboardInterrupt:
    print("interrupted")
"""

HANDLERS = """
import signal, calipers

def mine(number, frame):
    raise SystemExit("interrupted by " + signal.Signals(number).name)

for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, mine)
calipers.run("sums", "python/model.py:answer", concurrency=1, out="run")
assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == [mine, mine]
"""

LANES = """
import asyncio, json, os, signal
from waiting import until
from calipers.running import loop
from calipers.running import Job

async def begin():
    stops = []
    with loop.interrupts(lambda: stops.append("stopped")):
        await asyncio.sleep(0)
    return stops

def work(job):
    os.kill(os.getpid(), signal.SIGINT)
    until(loop._INTERRUPTED.is_set, "the signal")
    return loop.finish(begin)

print(json.dumps([outcome for _, outcome in loop.side_by_side([Job("a", "m/x"), Job("b", "m/x")], work)]))
assert not loop._INTERRUPTED.is_set()
"""


def python(program, folder):
    done = FORKS.run((program,), folder, dict(os.environ), module=PROGRAM)
    assert done.code == 0, done.stderr.decode()
    return done.stdout


@pytest.mark.parametrize("program", [NOTEBOOK, HANDLERS], ids=["notebook", "handlers"])
def test_an_interrupted_run_finishes_what_is_in_flight_and_returns(tmp_path, program):
    (tmp_path / "model.py").write_text(MODEL)
    sums(tmp_path, 100)
    python(program, tmp_path)
    assert 3 <= len(records(tmp_path / "run")) < 100
    assert json.loads((tmp_path / "run" / "result.json").read_text())["groups"][0]["ledger"]["planned"] == 100


def test_no_task_of_a_group_starts_after_the_one_that_was_interrupted(tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "rows.jsonl").write_text('{"q": "?", "a": "0"}\n' * 10)
    data = "dataset_path: json\ndataset_kwargs: {data_files: rows.jsonl}\ntest_split: train\n"
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(f"task: {name}\n{data}doc_to_text: '{{{{q}}}}'\ndoc_to_target: a\n")
    (tmp_path / "group.yaml").write_text("group: g\ntask: [a, b]\n")
    assert python(GROUP, tmp_path) == b"interrupted\n"
    (folder,) = (tmp_path / "runs").iterdir()
    assert 3 <= len(records(folder)) < 10


def test_a_loop_that_begins_after_the_signal_is_stopped(tmp_path):
    """A lane that still loads its tasks when the user presses Ctrl-C has no event loop yet to interrupt."""
    assert json.loads(python(LANES, tmp_path)) == [["stopped"]]


CLOSING = """
import asyncio, signal
from calipers.running.loop import interrupts

async def work():
    with interrupts(lambda: None):
        try:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
        for last in range(1, 3):
            signal.raise_signal(signal.SIGINT)
            try:
                for _ in range(1000):  # turns of the loop, which hears of the signal in one of them
                    await asyncio.sleep(0)
            except asyncio.CancelledError:
                return last

print(asyncio.run(work()))
"""


def test_a_third_signal_does_not_cancel_the_end_and_a_fourth_does(tmp_path):
    """Three signals may reach the loop in two turns; the third one cancelled the cleanup after the second."""
    assert python(CLOSING, tmp_path).strip() == b"2"
