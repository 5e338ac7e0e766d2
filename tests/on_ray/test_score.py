"""``calipers score --engine ray``: parts are tasks of Ray; the digest is that of one process, whatever ends."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from ray_runs import begun, ended
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


def digest(*arguments: object) -> str:
    code, out, err = ended(
        begun("score", *arguments, "--metric", "mean_reward", "--metric", "pass@4", "--format", "json")
    )
    assert code == 0, err
    return str(json.loads(out)["digest"])


def test_parts_on_a_cluster_give_the_digest_of_one_process(cluster, parts):
    assert digest(*parts, "--engine", f"ray={cluster.address}") == digest(*parts)


class Gate:
    """A part that is a pipe: whoever reads it waits, and its process is known."""

    def __init__(self, path: Path) -> None:
        self.path, self._end = path, -1
        os.mkfifo(path)

    def reader(self) -> int:
        """Wait for a process that reads it."""
        self._end = until(self._opened, "somebody who reads the part")
        return int(until(self._holder, "the process that reads the part"))

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

    def kill_reader(self) -> None:
        pid = self.reader()
        os.kill(pid, signal.SIGKILL)
        until(lambda: self._holder() != pid, "the end of the reader")
        os.close(self._end)

    def write(self, text: str) -> None:
        self.reader()
        os.write(self._end, text.encode())
        os.close(self._end)


def test_a_node_that_is_lost_while_scoring_loses_nothing(cluster, parts, tmp_path):
    gate = Gate(tmp_path / "gate.jsonl")
    process = begun(
        *("score", *parts, gate.path, "--metric", "mean_reward", "--metric", "pass@4", "--format", "json"),
        *("--engine", f"ray={cluster.address}"),
    )
    reading = gate.reader()
    cluster.kill_node(lambda pid: pid == reading)
    until(lambda: gate._holder() != reading, "the end of the reader")
    os.close(gate._end)
    row = json.dumps({"task": "last", "sample": 0, "reward": 1}) + "\n"
    gate.write(row)
    code, out, err = ended(process)
    cluster.add()
    assert code == 0, err
    gate.path.unlink()
    gate.path.write_text(row)
    assert json.loads(out)["digest"] == digest(*parts, gate.path)


def test_a_part_that_ends_its_worker_is_named_after_three_tries_and_the_rest_is_kept(cluster, parts, tmp_path):
    deadly = Gate(tmp_path / "deadly.jsonl")
    process = begun("score", *parts, deadly.path, "--format", "json", "--engine", f"ray={cluster.address}")
    for _ in range(3):
        deadly.kill_reader()
    code, out, err = ended(process)
    assert code == 3, err
    assert f"{deadly.path}: was not read: 3 workers ended while they read it" in err
    assert json.loads(out)["groups"][0]["ledger"]["planned"] == PARTS * ROWS


def test_samples_without_numbers_are_numbered_through_all_parts(cluster, tmp_path):
    paths = [tmp_path / f"part-{number}.csv" for number in (2, 10)]
    for path, rewards in zip(paths, ([1, 0, 0], [1, 1]), strict=True):
        path.write_text("task,reward\n" + "".join(f"a,{reward}\n" for reward in rewards))
    asked = ["--columns", "sample=#", "--engine", f"ray={cluster.address}"]
    assert digest(*paths, *asked) == digest(*paths, "--columns", "sample=#")


def test_what_needs_one_process_is_refused_in_one_line(parts):
    code, _, err = ended(begun("score", parts[0], "--format", "junit", "--engine", "ray=127.0.0.1:1"))
    assert (code, err) == (2, "--engine: does not go with --format junit; expected --engine local\n")
