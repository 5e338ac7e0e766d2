"""The process apart in which untrusted text meets large libraries."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from calipers.errors import SandboxError, VerifierError
from calipers.isolate.launch import NONE, attempt
from calipers.verifiers import workers
from calipers.verifiers.workers import WorkerPool, directories, mechanism

WORKER = """
import os, socket, sys
asked = 0

def prepare():
    pass

def answer(question):
    global asked
    asked += 1
    if question == "die":
        os._exit(3)
    if question == "raise":
        raise ValueError("no such thing")
    if question == "hang":
        while True:
            pass
    if question == "fill":
        return len(bytearray(1 << 34))
    if question == "shout":
        return "x" * (9 << 20)
    if question == "look":
        return [os.getuid(), os.path.exists("/etc/hosts"), sorted(os.environ)]
    if question == "call":
        try:
            socket.create_connection(("127.0.0.1", 1), 1)
        except OSError as error:
            return type(error).__name__
    return [question, asked]
"""


@pytest.fixture
def pool(tmp_path: Any) -> Any:
    worker = tmp_path / "worker.py"
    worker.write_text(WORKER)
    made = WorkerPool(worker, ())
    yield made
    made.close()


def test_a_worker_process_is_kept_between_questions(pool: WorkerPool) -> None:
    assert [pool.ask(word, 10) for word in ("a", "b")] == [["a", 1], ["b", 2]]


def test_a_question_and_its_answer_may_be_longer_than_a_pipe(pool: WorkerPool) -> None:
    text = "é" * 300_000
    assert pool.ask(text, 10) == [text, 1]


@pytest.mark.parametrize(
    ("question", "seconds", "said"),
    [
        ("hang", 0.2, "no verdict within 0.2 s"),
        ("die", 10, "ended: no reason given"),
        ("raise", 10, "ended: ValueError: no such thing"),
        ("fill", 10, "ended: MemoryError"),  # 16 GB, where 1 is allowed
        ("shout", 10, "wrote too much output"),
    ],
)
def test_a_worker_process_that_fails_is_replaced(pool: WorkerPool, question: str, seconds: float, said: str) -> None:
    pool.ask("first", 10)
    with pytest.raises(VerifierError, match=said):
        pool.ask(question, seconds)
    assert pool.ask("next", 10) == ["next", 1]


def test_one_that_died_between_questions_is_replaced(pool: WorkerPool) -> None:
    pool.ask("first", 10)
    (idle,) = pool._idle
    idle._stop.set()
    idle._thread.join()
    assert pool.ask("next", 10) == ["next", 1]


def test_an_old_one_is_replaced(pool: WorkerPool) -> None:
    pool.ask("first", 10)
    pool._idle[0].began -= workers.LIFE
    assert pool.ask("next", 10) == ["next", 1]


def test_whoever_gives_up_is_not_waited_for(pool: WorkerPool) -> None:
    pool.ask("first", 10)
    given_up = Event()
    given_up.set()
    with pytest.raises(VerifierError, match="no verdict"):
        pool.ask("hang", 600, given_up)


def test_one_that_does_not_start_says_why(tmp_path: Any) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text("import nowhere_to_be_found")
    with pytest.raises(VerifierError, match="No module named 'nowhere_to_be_found'"):
        WorkerPool(worker, ()).ask("a", 10)


@pytest.mark.parametrize("name", ["bwrap", "unshare"])
def test_it_is_in_a_sandbox(pool: WorkerPool, name: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    how = attempt(name)
    if isinstance(how, str):
        pytest.skip(how)
    monkeypatch.setattr(workers, "mechanism", lambda: how)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-you")
    user, hosts, environment = pool.ask("look", 10)
    assert (user, hosts) == (65534, False)
    assert "OPENAI_API_KEY" not in environment
    assert pool.ask("call", 10) in ("ConnectionRefusedError", "OSError")  # an own network, in which nobody listens


def test_without_a_sandbox_there_are_still_limits(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "probe", _no_sandbox)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-you")
    assert mechanism() is NONE
    assert "OPENAI_API_KEY" not in pool.ask("look", 10)[2]
    with pytest.raises(VerifierError, match="MemoryError"):
        pool.ask("fill", 10)
    with pytest.raises(VerifierError, match="no verdict"):
        pool.ask("hang", 0.2)


def _no_sandbox() -> Any:
    raise SandboxError("none here")


def test_packages_are_found_where_they_are_installed(tmp_path: Any) -> None:
    assert len(directories(("msgspec", "aiohttp"))) == 1
    assert directories(("json",)) == [str(Path(json.__file__).parents[1])]
    assert directories(("base64",)) == [str(Path(json.__file__).parents[1])]  # a file, not a folder
    assert WorkerPool(tmp_path, ("json", "nowhere_to_be_found")).missing() == "nowhere_to_be_found"
