"""``calipers score --engine ray``: parts are tasks of Ray; the digest is that of one process, whatever ends."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from ray_runs import Command, Commands
from waiting import until

pytest.importorskip("ray", reason="ray is not installed; make test-ray brings it")

PARTS, ROWS = 12, 4000


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """Rollouts whose tasks are split over all parts."""
    paths = [tmp_path / f"part-{number}.jsonl" for number in range(PARTS)]
    for number, path in enumerate(paths):
        rows = (
            {"task": f"t{row % 1000}", "sample": number * 4 + row // 1000, "reward": (row * 7 + number) % 3 / 2}
            for row in range(ROWS)
        )
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return paths


def digest(commands: Commands, *arguments: object) -> str:
    asked = ["--metric", "mean_reward", "--metric", "pass@4", "--format", "json"]
    code, out, err = commands.done("score", *arguments, *asked)
    assert code == 0, err
    return str(json.loads(out)["digest"])


def test_parts_on_a_cluster_give_the_digest_of_one_process(cluster, commands, parts):
    assert digest(commands, *parts, "--engine", f"ray={cluster.address}") == digest(commands, *parts)


class Gate:
    """A part that is a pipe: whoever reads it waits, and its process is known."""

    def __init__(self, path: Path) -> None:
        self.path, self._end = path, -1
        os.mkfifo(path)

    def reader(self, command: Command) -> int:
        """Wait for a process that reads it."""
        self._end = command.until(self._opened, "somebody who reads the part")
        return int(command.until(self._holder, "the process that reads the part"))

    def _opened(self) -> int:
        try:
            return os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # nobody reads it yet
            return 0

    def _holder(self) -> int:
        for link in Path("/proc").glob("[0-9]*/fd/*"):
            with suppress(OSError):
                if os.readlink(link) == str(self.path) and int(link.parts[2]) != os.getpid():
                    return int(link.parts[2])
        return 0

    def lose(self, reader: int, kill: Callable[[], None]) -> None:
        """Have the reader end before it comes to the end of the part; whoever opens it next waits again."""
        os.kill(reader, signal.SIGSTOP)
        until(lambda: state_of(reader) == "T", "a reader that stands still")
        os.close(self._end)  # a reader would take that for the end of the part
        kill()
        until(lambda: self._holder() != reader, "the end of the reader")

    def write(self, command: Command, text: str) -> None:
        self.reader(command)
        os.write(self._end, text.encode())
        os.close(self._end)


def state_of(pid: int) -> str:
    """The state of a process, a letter; T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_node_that_is_lost_while_scoring_loses_nothing(cluster, commands, parts, tmp_path):
    gate = Gate(tmp_path / "gate.jsonl")
    asked = ["--metric", "mean_reward", "--metric", "pass@4", "--format", "json"]
    score = commands.begun("score", *parts, gate.path, *asked, "--engine", f"ray={cluster.address}")
    reading = gate.reader(score)
    gate.lose(reading, lambda: cluster.kill_node(reading))
    row = json.dumps({"task": "last", "sample": 0, "reward": 1}) + "\n"
    gate.write(score, row)
    code, out, err = score.ended()
    cluster.add()
    assert code == 0, err
    gate.path.unlink()
    gate.path.write_text(row)
    assert json.loads(out)["digest"] == digest(commands, *parts, gate.path)


def test_a_part_that_ends_its_worker_is_named_after_three_tries_and_the_rest_is_kept(
    cluster, commands, parts, tmp_path
):
    deadly = Gate(tmp_path / "deadly.jsonl")
    score = commands.begun("score", *parts, deadly.path, "--format", "json", "--engine", f"ray={cluster.address}")
    for _ in range(3):
        reading = deadly.reader(score)
        deadly.lose(reading, lambda reading=reading: os.kill(reading, signal.SIGKILL))
    code, out, err = score.ended()
    assert code == 3, err
    assert f"{deadly.path}: was not read: 3 workers ended while they read it" in err
    assert json.loads(out)["groups"][0]["ledger"]["planned"] == PARTS * ROWS


def test_samples_without_numbers_are_numbered_through_all_parts(cluster, commands, tmp_path):
    paths = [tmp_path / f"part-{number}.csv" for number in (2, 10)]
    for path, rewards in zip(paths, ([1, 0, 0], [1, 1]), strict=True):
        path.write_text("task,reward\n" + "".join(f"a,{reward}\n" for reward in rewards))
    asked = ["--columns", "sample=#", "--engine", f"ray={cluster.address}"]
    assert digest(commands, *paths, *asked) == digest(commands, *paths, "--columns", "sample=#")


def test_what_needs_one_process_is_refused_in_one_line(commands, parts):
    code, _, err = commands.done("score", parts[0], "--format", "junit", "--engine", "ray=127.0.0.1:1")
    assert (code, err) == (2, "--engine: does not go with --format junit; expected --engine local\n")


def test_a_rollout_that_two_parts_have_is_an_error_that_names_the_part(cluster, commands, parts, tmp_path):
    again = tmp_path / "again.jsonl"
    again.write_text(json.dumps({"task": "t7", "sample": 0, "reward": 1}) + "\n")
    code, out, err = commands.done("score", *parts, again, "--engine", f"ray={cluster.address}")
    assert (code, out) == (2, "")
    assert str(again) in err
    assert str(parts[0]) in err
    assert not any(str(part) in err for part in parts[1:])
    assert "task 't7' sample 0 attempt 1 appears twice" in err
