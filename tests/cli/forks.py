"""A process that has loaded the command once and forks for each call: a life without the cost of a birth.

``running.calipers`` asks it. What it forks is a process like any other, with a folder, an environment, pipes, an exit
code and an end of its own; only what was imported is there already. What start-up itself loads, or may not load, is
the subject of tests that start an interpreter.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import socket
import subprocess
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, NoReturn

from waiting import PATIENCE

import calipers
import calipers.cli

TESTS = str(Path(__file__).parents[1])
START = f"import sys; sys.path.insert(1, {TESTS!r}); from cli.forks import serve; serve()"
BESIDES = ("aiohttp", "numpy", "scipy.special", "scipy.stats", "yaml")  # what our modules load only when they need it
LARGEST = 1 << 18  # bytes of a question: arguments and an environment


class Ended(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    stdout: bytes
    stderr: bytes


class Forks:
    """The process that forks, from the side of whoever asks; started by the first question."""

    def __init__(self) -> None:
        self._asks: socket.socket | None = None

    def run(self, arguments: tuple[str, ...], cwd: Path, environment: dict[str, str], stdin: bytes) -> Ended:
        """Run the command to its end in a process of its own."""
        asks = self._started()
        pipes = [os.pipe() for _ in range(3)]
        theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
        question = json.dumps([arguments, str(cwd), environment]).encode()
        assert len(question) < LARGEST
        socket.send_fds(asks, [question], theirs)
        for end in theirs:
            os.close(end)
        printed = {"stdout": b"", "stderr": b""}

        def read(name: str, pipe: int) -> None:
            with open(pipe, "rb") as file:
                printed[name] = file.read()

        def write(pipe: int) -> None:
            with suppress(BrokenPipeError), open(pipe, "wb") as file:  # it need not read to the end
                file.write(stdin)

        work = [("stdout", pipes[1][0]), ("stderr", pipes[2][0])]
        threads = [threading.Thread(target=read, args=one, daemon=True) for one in work]
        threads.append(threading.Thread(target=write, args=(pipes[0][1],), daemon=True))
        for thread in threads:
            thread.start()
        asks.settimeout(PATIENCE)
        code = json.loads(asks.recv(64))
        for thread in threads:
            thread.join(PATIENCE)
        return Ended(code, **printed)

    def _started(self) -> socket.socket:
        if self._asks is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                command = [sys.executable, "-c", START, str(theirs.fileno())]
                self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
            self._asks = ours
            atexit.register(self._end)
        return self._asks

    def _end(self) -> None:
        assert self._asks is not None
        self._asks.close()
        self._process.wait()


def serve() -> None:
    """Fork for each question, and say how it ended."""
    asked = socket.socket(fileno=int(sys.argv.pop()))
    run = calipers.cli.run  # the function: the module of that name hides it once it is loaded
    for module in pkgutil.walk_packages(calipers.__path__, "calipers."):
        if "harbor_side" not in module.name and "__main__" not in module.name:
            with suppress(ImportError):  # a package that is not installed
                importlib.import_module(module.name)
    for name in BESIDES:
        importlib.import_module(name)
    calipers.cli.run = run
    gc.freeze()
    while True:
        question, pipes, _, _ = socket.recv_fds(asked, LARGEST, 3)
        if not question:
            os._exit(0)
        child = os.fork()
        if child == 0:
            asked.close()
            _live(*json.loads(question), pipes)
        for pipe in pipes:
            os.close(pipe)
        asked.send(json.dumps(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


def _live(arguments: list[str], cwd: str, environment: dict[str, str], pipes: list[int]) -> NoReturn:
    """Be the process that was asked for, to its end."""
    for standard, pipe in enumerate(pipes):
        os.dup2(pipe, standard)
        os.close(pipe)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = arguments
    sys.path.remove(TESTS)
    code = 1
    try:
        calipers.cli.main()
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:  # what an interpreter does at its end, less the freeing of every object it has
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


FORKS = Forks()
