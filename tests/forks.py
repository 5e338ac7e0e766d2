"""A process that has loaded the command and the servers of the tests once, and forks for each that a test asks for.

What it forks is a process like any other, with a folder, an environment, pipes, an exit code and an end of its own;
only what was imported is there already. What start-up itself loads, or may not load, is the subject of tests that
start an interpreter.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from waiting import PATIENCE, until

import calipers.cli

TESTS = str(Path(__file__).parent)
START = f"import sys; sys.path.insert(1, {TESTS!r}); from forks import serve; serve()"
COMMAND = "calipers.cli"
PROGRAM = "-c"  # in the place of a module: the first argument is the text of a program
PROGRAMS = (
    "clients.likely",
    "clients.weather",
    "running.lives",
    "running.stopping",
    "systems.nemo_gym.agents",
    "systems.nemo_gym.collect.lives",
)  # the tests' own
BESIDES = ("aiohttp", "numpy", "scipy.special", "yaml")  # what our modules load only when they need it
RUNS = 1 << 16  # in the place of the exit code of a process that has not ended
LARGEST = 1 << 18  # bytes of a question: arguments and an environment


class Ended(NamedTuple):
    """How a process ended, and what it printed."""

    code: int
    stdout: bytes
    stderr: bytes


class Forks:
    """The process that forks, from the side of whoever asks; started by the first question.

    It loads the command and the programs of the tests, or only the modules that are named.
    """

    def __init__(self, *modules: str) -> None:
        self._modules = modules
        self._lock = threading.Lock()
        self._asks: socket.socket | None = None

    def run(
        self,
        arguments: tuple[str, ...],
        cwd: Path,
        environment: dict[str, str],
        stdin: bytes = b"",
        module: str = COMMAND,
    ) -> Ended:
        """Run the command, or a program of the tests, to its end."""
        (given, write), (out, printed), (err, said) = (os.pipe() for _ in range(3))
        child = self._start(module, arguments, cwd, environment, [given, printed, said])
        found: dict[int, bytes] = {}

        def tell() -> None:
            with suppress(BrokenPipeError), open(write, "wb") as file:  # it need not read to the end
                file.write(stdin)

        def hear(pipe: int) -> None:
            with open(pipe, "rb") as file:
                found[pipe] = file.read()

        threads = [threading.Thread(target=hear, args=[pipe], daemon=True) for pipe in (out, err)]
        threads.append(threading.Thread(target=tell, daemon=True))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        if len(found) < 2:
            os.kill(child, signal.SIGKILL)
            raise AssertionError(f"{arguments} did not end")
        return Ended(self._ask(["wait", child], []), found[out], found[err])

    def begin(
        self, arguments: tuple[str, ...], cwd: Path, environment: dict[str, str], module: str = COMMAND
    ) -> Forked:
        """Start the command, or a program of the tests, with nothing to read, and let it run."""
        (out, printed), (err, said) = (os.pipe() for _ in range(2))
        nothing = os.open(os.devnull, os.O_RDONLY)
        return Forked(self, self._start(module, arguments, cwd, environment, [nothing, printed, said]), out, err)

    def poll(self, child: int) -> int | None:
        """The exit code of a process that was begun; None while it runs."""
        code = self._ask(["poll", child], [])
        return None if code == RUNS else code

    @contextmanager
    def server(self, module: str, *arguments: str) -> Iterator[str]:
        """A server of the tests as long as it is needed: the line that it prints when it is up."""
        line, printed = os.pipe()
        with open(os.devnull, "rb") as nothing, open(line) as out:
            pipes = [os.dup(nothing.fileno()), printed, os.dup(2)]
            child = self._start(module, arguments, Path.cwd(), dict(os.environ), pipes)
            try:
                yield out.readline()
            finally:
                os.kill(child, signal.SIGTERM)
                self._ask(["wait", child], [])

    def _start(
        self, module: str, arguments: tuple[str, ...], cwd: Path, environment: dict[str, str], pipes: list[int]
    ) -> int:
        """The number of a process that has these as its input, output and errors; they are closed here."""
        try:
            return self._ask(["start", module, arguments, str(cwd), environment], pipes)
        finally:
            for pipe in pipes:
                os.close(pipe)

    def _ask(self, question: list[Any], pipes: list[int]) -> int:
        with self._lock:
            if self._asks is None:
                self._asks = self._forking()
            data = json.dumps(question).encode()
            assert len(data) < LARGEST
            socket.send_fds(self._asks, [data], pipes)
            self._asks.settimeout(PATIENCE)
            return int(self._asks.recv(64))

    def _forking(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-c", START, *self._modules, str(theirs.fileno())]
            process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)

        def end() -> None:
            ours.close()
            process.wait()

        atexit.register(end)
        return ours


class Forked:
    """The command while it runs: what a test uses of `subprocess.Popen`."""

    def __init__(self, forks: Forks, pid: int, out: int, err: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout, self.stderr = FileIO(out), FileIO(err)
        self._forks = forks

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *_: object) -> None:
        if self.poll() is None:
            self.kill()
        self.wait()
        for pipe in (self.stdout, self.stderr):
            pipe.close()

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        if self.returncode is None:
            self.returncode = self._forks.poll(self.pid)
        return self.returncode

    def wait(self, timeout: float = PATIENCE) -> int:
        """The exit code, at the end."""
        until(lambda: self.poll() is not None, f"the end of process {self.pid}")
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float = PATIENCE) -> tuple[bytes, bytes]:
        """What it prints until it ends: output and errors."""
        out: list[bytes] = []
        reading = threading.Thread(target=lambda: out.append(self.stdout.readall()), daemon=True)
        reading.start()
        err = self.stderr.readall()
        reading.join(timeout)
        self.wait()
        for pipe in (self.stdout, self.stderr):
            pipe.close()
        return out[0], err


def serve() -> None:
    """The process itself: fork when asked to start, wait when asked to wait, until nobody is there to ask."""
    asked = socket.socket(fileno=int(sys.argv.pop()))
    if named := sys.argv[1:]:
        for name in named:
            importlib.import_module(name)
    else:
        _load()
    gc.freeze()
    while True:
        data, pipes, _, _ = socket.recv_fds(asked, LARGEST, 3)
        if not data:
            os._exit(0)
        kind, *question = json.loads(data)
        if kind == "poll":
            ended, status = os.waitpid(question[0], os.WNOHANG)
            asked.send(b"%d" % (os.waitstatus_to_exitcode(status) if ended else RUNS))
            continue
        if kind == "wait":
            asked.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(question[0], 0)[1]))
            continue
        child = os.fork()
        if child == 0:
            asked.close()
            _live(*question, pipes)
        for pipe in pipes:
            os.close(pipe)
        asked.send(b"%d" % child)


def _load() -> None:
    for module in pkgutil.walk_packages(calipers.__path__, "calipers."):
        if "harbor.lent" not in module.name and "__main__" not in module.name:
            with suppress(ImportError):  # a package that is not installed
                importlib.import_module(module.name)
    for name in (*BESIDES, *PROGRAMS):
        importlib.import_module(name)


def _live(module: str, arguments: list[str], cwd: str, environment: dict[str, str], pipes: list[int]) -> NoReturn:
    """Be the process that was asked for, to its end."""
    for standard, pipe in enumerate(pipes):
        os.dup2(pipe, standard)
        os.close(pipe)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = arguments
    sys.path.remove(TESTS)
    code = 0
    try:
        if module == PROGRAM:
            exec(sys.argv.pop(1), {"__name__": "__main__"})
        else:
            sys.modules[module].main()
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:  # what an interpreter does at its end, less the freeing of every object it has
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


FORKS = Forks()
