"""A container with this machine's programs and libraries, separate files and processes, and optionally its own network.

The root directory of the machine is the lower layer of an overlay whose upper layer is in memory. So a task finds the
tools that are installed here, may write anywhere, and leaves nothing behind. It sees no home directory and none of the
hidden folders. Instead of the machine's root directory, the container may have the layers of an image, and then sees
nothing else. Its root user has the capabilities that are usual in containers: it cannot mount, load modules, make
devices or trace other users' processes. Its resource limits are in `limits`.

This file uses only the standard library and relative imports, because it is also loaded by Harbor's interpreter, where
Calipers is not installed. In the environment's name and in messages, such a container is called a room.
"""

from __future__ import annotations

import marshal
import math
import os
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import IO, Any

from .inside import LOAD_FILES, compiled
from .limits import (
    CONTAINER,
    INODES,
    PROCESSES,
    ContainerCgroups,
    children,
    files_mb,
    memory_mb,
    own_numbers,
    process_limits,
    tidy,
)
from .tamper_check import tampered

TOOLS = ("setpriv",)  # runs commands of users other than root
CAPABILITY_NUMBERS = {
    "chown": 0,
    "dac_override": 1,
    "fowner": 3,
    "fsetid": 4,
    "kill": 5,
    "setgid": 6,
    "setuid": 7,
    "setpcap": 8,
    "net_bind_service": 10,
    "sys_chroot": 18,
    "audit_write": 29,
    "setfcap": 31,
}
"""The capabilities of a container's root user, with the numbers that the kernel gives them."""
CAPABILITIES = "-all," + ",".join(f"+{name}" for name in CAPABILITY_NUMBERS)
MOST_TOLD = 100  # commands that are listed of the processes that were left running
FULL = re.compile(rb"(sh|nsenter): [^\n]*fork[^\n]*\n", re.IGNORECASE)
SWITCH = (
    f"exec setpriv --bounding-set {CAPABILITIES} --inh-caps -all"
    ' --reuid "$0" --regid "$(id -g "$0")" --init-groups "$@"'
)
PACK = (
    'if [ -d "$0" ]; then cd "$0" && set -- .; else cd "$1" && shift; fi && exec tar --hard-dereference -cf - -- "$1"'
)
START = '(:) && exec "$1" -c "$0"'  # if fork fails, sh reports that at once, but bash only after many tries
CLEARINGS = 5  # times that a full container is cleared before a command that cannot be started fails
CROWD = PROCESSES * 9 // 10  # number of processes from which on the container is cleared before a command is started
LONGEST_WAIT = 1e6  # seconds; the longest timeout for poll(2)
PATIENCE = 10.0  # seconds for killed processes to be gone
LONGEST_MESSAGE = 4000  # characters of an error message that are shown
MOST_HEARD = 16 << 20  # bytes kept of a command's output
MOST_TAKEN = 1 << 30  # bytes of files that are copied out at once, as a sparse file may be larger than any disk
HIDDEN = ("/run", "/mnt", "/media", "/srv", "/var/tmp")
IMAGE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # the search path in an image
ORIGIN = 9  # the descriptor with which process 1 keeps the unchanged layers of an image open

BEGIN = f"""
import marshal, sys
channel = int(sys.argv[1])
files, settings = marshal.load(open(channel, "rb", closefd=False))
{LOAD_FILES}
sys.modules[name].main(channel, settings)
"""


class ContainerError(Exception):
    """The machine cannot create a container; the message says why, and what would help."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command: its exit code (-9 after a timeout) and its output."""

    code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False


def lacking() -> str | None:
    """The reason why this machine cannot create containers, or None."""
    if sys.platform != "linux":
        return "the environment 'room' needs Linux namespaces; run the job on Linux, or with a container engine"
    missing = [tool for tool in TOOLS if shutil.which(tool, path=search_path()) is None]
    return f"{', '.join(missing)} not found; install util-linux" if missing else None


class Container:
    """The environment of one trial: `start`, then `run`, `put` and `take` as often as needed, then `stop`.

    Its commands have the machine's network, or with ``network=False`` only a loopback; if it is ``switched``, `connect`
    can change this later. ``layers``, the lowest first, are the folders of an image, from which its root is made
    instead of the machine's. ``kept`` is a folder whose ``upper`` stores the written files instead of memory, with an
    empty ``work`` beside it. ``layers`` and ``kept`` need root.
    """

    def __init__(
        self,
        *,
        hidden: Sequence[str | Path] = (),
        network: bool = True,
        switched: bool = False,
        memory: int | None = None,
        files: int | None = None,
        layers: Sequence[str | Path] = (),
        kept: str | Path | None = None,
    ) -> None:
        self._layers, self._kept = [os.path.realpath(layer) for layer in layers], kept
        self._hidden = [*HIDDEN, *hidden_homes(), *(os.path.realpath(path) for path in hidden)]
        self._network = network
        self._loopback = switched or not network  # whether the container has a network namespace of its own
        self._memory, self._files = memory_mb(memory), files_mb(files)
        self._cgroups: ContainerCgroups | None = None
        self._asking, self._sending = threading.Lock(), threading.Lock()
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._numbers = count()  # numbers of the commands
        self._pid, self._made = 0, 0.0  # process 1, and the time at which it was ready
        self._closed = False
        self._folder = ""

    def start(self) -> None:
        """Create the container; ContainerError if that fails."""
        if problem := lacking():
            raise ContainerError(problem)
        tidy(Path(tempfile.gettempdir()), CONTAINER)
        self._folder = tempfile.mkdtemp(prefix=f"{CONTAINER}{os.getpid()}-")
        self._cgroups = ContainerCgroups(self._memory + self._files)
        settings = {
            "base": self._folder,
            "files": f"size={self._files}m,nr_inodes={INODES}",
            "numbers": PROCESSES if own_numbers() else 0,
            "loopback": self._loopback,
            "layers": self._layers,
            "kept": os.path.realpath(self._kept) if self._kept else "",
            "origin": ORIGIN,
            "hidden": self._hidden,
            "shown": shown(),
            "groups": self._cgroups.doors,
            "rights": sum(1 << number for number in CAPABILITY_NUMBERS.values()),
        }
        channel, theirs = socket.socketpair()
        self._channel = channel
        with theirs:
            self._supervisor = supervisor = subprocess.Popen(
                [sys.executable, "-ISc", BEGIN, str(theirs.fileno())],  # without the settings, as anybody can read argv
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={"PATH": search_path(), "LC_ALL": "C"},
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        with suppress(OSError):  # it has ended; its error is read below
            channel.sendall(marshal.dumps((compiled("libc", "supervisor"), settings)))
        ready, message = b"", ""
        with suppress(ValueError):  # the container was stopped by another thread meanwhile
            ready = supervisor.stdout.readline() if supervisor.stdout else b""
            if not ready and supervisor.stderr:
                message = supervisor.stderr.read().decode(errors="replace").strip()[-LONGEST_MESSAGE:]
        first = children(supervisor.pid) if ready else []
        if self._closed:  # by another thread that called `stop`
            self.stop()
            raise ContainerError("the room was closed before it was ready")
        if not first:
            self.stop()
            raise ContainerError(
                f"cannot create a room ({message or 'no error message'}); run as root, or allow namespaces"
            )
        self._pid, self._made = first[0], time.time()

    def connect(self, network: bool) -> None:
        """Give later commands the machine's network, or only a loopback; running commands keep theirs.

        ValueError for a container that was not created with ``switched=True``.
        """
        if not network and not self._loopback:
            raise ValueError("the container has no network of its own; expected switched=True")
        self._network = network

    def run(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | int | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        """Run a shell command inside. After the timeout it is killed; its output so far is kept.

        If the container has so many processes that the command cannot be started, all of them are killed first.
        """
        script = f"cd {shlex.quote(cwd or '/app')} && {{ {command}\n}}"
        inside = self._environment(env)
        shell = ["sh", "-c", START, script, self._shell(inside["PATH"])]
        if user not in (None, 0, "root"):
            shell = ["sh", "-c", SWITCH, str(user), *shell]
        result = self._run(shell, inside, timeout)
        for _ in range(CLEARINGS):  # several times, as a fork bomb may refill the container on a busy machine
            if not (result.code and not result.stdout and FULL.fullmatch(result.stderr)):
                break
            self.sweep()
            result = self._run(shell, inside, timeout)
        return result

    def _run(self, argv: Sequence[str], env: Mapping[str, str], timeout: float | None) -> CommandResult:
        outputs = CappedOutput(), CappedOutput()
        with open(os.devnull, "r+b", 0) as nothing:
            streams = (nothing.fileno(), *(output.descriptor for output in outputs))
            started = self._start(argv, env, streams, process_limits(self._memory))
        for output in outputs:
            output.listen()
        code, timed_out = started.wait(timeout), False
        if code is None:
            self._send((started.number, None))
            started.wait()
            self.sweep()
            code, timed_out = -signal.SIGKILL, True
        started.close()
        stdout, stderr = (output.so_far() for output in outputs)
        return CommandResult(code, stdout, stderr, timed_out)

    def _start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        streams: Sequence[int],
        limits: Sequence[tuple[int, int]] = (),
    ) -> StartedCommand:
        """Make the supervisor start a command inside; if there are too many processes, all of them are killed first."""
        if len(self._alive()) > CROWD:
            self.sweep()
        request = {"argv": list(argv), "env": dict(env), "network": self._network, "limits": list(limits)}
        number = next(self._numbers)
        read, write = os.pipe()
        if not self._send((number, request), (*streams, write)):
            os.write(streams[2], b"the room is closed\n")
        os.close(write)
        return StartedCommand(number, read)

    def _send(self, message: tuple[int, Any], descriptors: Sequence[int] = ()) -> bool:
        """Send a message to the supervisor; returns whether it was sent, which fails if the supervisor has ended."""
        data = marshal.dumps(message)
        data = len(data).to_bytes(8, "little") + data
        with self._sending, suppress(OSError):
            channel = self._channel
            if channel is not None:
                sent = socket.send_fds(channel, [data], descriptors)
                channel.sendall(data[sent:])
                return True
        return False

    def put(self, source: str | Path, target: str) -> None:
        """Copy a file, or the content of a folder, into the container."""
        source = Path(source)
        folder, name = (source, ".") if source.is_dir() else (source.parent, source.name)
        into = target if source.is_dir() else os.path.dirname(target) or "/"
        unpack = f"mkdir -p {shlex.quote(into)} && tar -C {shlex.quote(into)} --no-same-owner -xf -"
        if not source.is_dir() and os.path.basename(target) != name:
            unpack += f" && mv -f {shlex.quote(f'{into}/{name}')} {shlex.quote(target)}"
        output = CappedOutput()
        read, write = os.pipe()
        with subprocess.Popen(["tar", "-C", folder, "-cf", "-", "--", name], stdout=write) as packing:
            os.close(write)
            streams = (read, output.descriptor, output.descriptor)
            started = self._start(["sh", "-c", unpack], self._environment(), streams)
            os.close(read)  # so that the packing ends when the command inside no longer reads
            output.listen()
            code = started.result()
            message = output.so_far().decode(errors="replace")[-300:]
        if packing.returncode or code:
            raise OSError(f"{source} could not be copied to {target}: {message}")

    def take(self, source: str, target: str | Path) -> None:
        """Copy a file, or the content of a folder, out of the container, except links."""
        target = Path(target)
        inner, name = os.path.dirname(source) or "/", os.path.basename(source)
        with tempfile.TemporaryDirectory() as scratch:
            archive, stderr = Path(scratch, "out.tar"), CappedOutput()
            read, write = os.pipe()
            with open(os.devnull, "r+b", 0) as nothing, os.fdopen(read, "rb") as packed:
                streams = (nothing.fileno(), write, stderr.descriptor)
                started = self._start(["sh", "-c", PACK, source, inner, name], self._environment(), streams)
                os.close(write)
                stderr.listen()
                complete = stored(packed, archive)
            if not complete:
                self._send((started.number, None))
            code = started.result()
            if not complete:
                raise OSError(f"{source} contains more than {MOST_TAKEN >> 20} MB; it is not copied out of the room")
            if code:
                raise FileNotFoundError(f"{source}: {stderr.so_far().decode(errors='replace')[-300:]}")
            is_folder = unpack(archive, Path(scratch, "out"))
            unpacked = Path(scratch, "out") if is_folder else Path(scratch, "out", name)
            if is_folder:
                shutil.copytree(unpacked, target, symlinks=True, dirs_exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(unpacked, target, follow_symlinks=False)

    def sweep(self) -> list[str]:
        """Kill every process inside; returns the commands of those that were still running."""
        commands = self._commands()
        first, reply = self._supervisor, b""
        with self._asking, suppress(OSError, ValueError):  # another thread may stop the container meanwhile
            if first is not None and first.stdin and first.stdout:
                first.stdin.write(b".")
                first.stdin.flush()
                reply = first.stdout.readline()
        until = time.monotonic() + PATIENCE
        while reply and self._alive() and time.monotonic() < until:
            time.sleep(0.005)
        return commands

    def _alive(self) -> dict[str, str]:
        """The numbers and names of the processes inside, without process 1, as the kernel lists them in /proc."""
        names = {}
        with suppress(OSError):
            for number in os.listdir(processes := self._processes):
                if number.isdecimal() and number != "1":
                    with suppress(OSError, ValueError):
                        head, _, fields = Path(processes, number, "stat").read_text(errors="replace").rpartition(")")
                        if fields.split()[0] not in ("Z", "X"):
                            names[number] = head.partition("(")[2]
        return names

    def _commands(self) -> list[str]:
        """The commands of the processes inside; only their names if there are many, as reading commands may block."""
        alive = self._alive()
        if len(alive) > MOST_TOLD:
            return list(alive.values())[:MOST_TOLD]
        commands = []
        for number, name in alive.items():
            with suppress(OSError):
                command = Path(self._processes, number, "cmdline").read_bytes().replace(b"\0", b" ").strip()
                commands.append(command.decode(errors="replace") or name)
        return commands

    def tampered(self, tests: Sequence[str] = (), env: Mapping[str, str] | None = None) -> list[str]:
        """The tools of the verifier, and files in the home directory that its scripts read, that were changed inside.

        ``tests`` are the texts of the verifier's scripts, ``env`` their environment variables.
        """
        home, path = ((env or {}).get(name) for name in ("HOME", "PATH"))
        origin = f"/proc/{self._pid}/fd/{ORIGIN}" if self._layers else ""
        path = path if self._layers and path else self._path
        return tampered(self._pid, self._made, path, tests, home or self._home, origin)

    def drop_bytecode(self) -> None:
        """Remove the bytecode that was written inside, which may differ from its source; all processes have ended."""
        for folder, inner, names in os.walk(top := f"/proc/{self._pid}/root"):
            if folder == top:
                inner[:] = [name for name in inner if name not in ("proc", "sys", "dev")]
            for path in (os.path.join(folder, name) for name in names if folder.endswith("/__pycache__")):
                with suppress(OSError):
                    if os.lstat(path).st_ctime >= self._made:
                        os.unlink(path)

    def stop(self) -> None:
        """Remove the container: every process ends, and every file is deleted. Concurrent calls are safe."""
        self._closed = True
        supervisor, self._supervisor = self._supervisor, None
        channel, self._channel = self._channel, None
        if channel is not None:
            with suppress(OSError):  # it has ended already
                channel.shutdown(socket.SHUT_RDWR)  # makes the supervisor end, after all processes inside
            with self._sending:
                channel.close()
        if supervisor is not None:
            try:
                supervisor.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(supervisor.pid, signal.SIGKILL)  # process 1 dies with its parent
                supervisor.communicate()
        if self._cgroups is not None:
            self._cgroups.remove()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _processes(self) -> str:
        """The path of the container's own /proc, seen from outside."""
        return os.path.join("/proc", str(self._pid), "root", "proc")

    @property
    def _path(self) -> str:
        return IMAGE_PATH if self._layers else search_path()

    @property
    def _home(self) -> str:
        return os.path.expanduser("~root")  # also for an image, whose root has the same home directory

    def _shell(self, path: str) -> str:
        """The shell that runs commands: bash if there is one, as with Harbor, because tasks rely on it."""
        if self._layers:
            return "bash" if os.path.lexists(f"/proc/{self._pid}/fd/{ORIGIN}/bin/bash") else "sh"
        return "bash" if shutil.which("bash", path=path) else "sh"

    def _environment(self, env: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment variables of a command inside."""
        return {"PATH": self._path, "HOME": self._home, "LANG": "C.UTF-8", **(env or {})}


class StartedCommand:
    """A command inside: its number, and the pipe on which the supervisor reports its exit code."""

    def __init__(self, number: int, report: int) -> None:
        self.number, self._report = number, report

    def wait(self, timeout: float | None = None) -> int | None:
        """The exit code, that of a kill if the container ended first; None if the command runs beyond the timeout."""
        ready = select.poll()
        ready.register(self._report, select.POLLIN)
        until = math.inf if timeout is None else time.monotonic() + timeout
        while not ready.poll(1000 * max(0.0, min(until - time.monotonic(), LONGEST_WAIT))):
            if time.monotonic() >= until:
                return None
        return int(os.read(self._report, 16) or 128 + signal.SIGKILL)

    def result(self) -> int:
        """Wait for the exit code, and close the pipe."""
        code = self.wait()
        self.close()
        return 1 if code is None else code

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._report)


def hidden_homes() -> list[str]:
    """The folder of home directories, and that of root's."""
    return ["/home", os.path.expanduser("~root")]


def shown() -> list[str]:
    """The folders in home directories that contain programs on the search path, which are shown in a container."""
    folders = dict[str, None]()
    for folder in search_path().split(os.pathsep):
        for home in hidden_homes():
            inner = folder.removeprefix(home + "/") if folder.startswith(home + "/") else ""
            steps = inner.split("/")[: 2 if home == "/home" else 1]
            if inner and os.path.isdir(os.path.join(home, *steps)):
                folders[os.path.join(home, *steps)] = None
    return list(folders)


def search_path() -> str:
    """The search path of programs, here and in a container."""
    return os.pathsep.join(dict.fromkeys([*os.environ.get("PATH", "").split(os.pathsep), "/usr/sbin", "/sbin"]))


class CappedOutput:
    """The output of a command, up to a limit; read by a thread, as a child of the command may keep the pipe open."""

    def __init__(self) -> None:
        read, self.descriptor = os.pipe()  # the descriptor is passed to the command
        self._stream, self._data = os.fdopen(read, "rb", 0), bytearray()
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def listen(self) -> None:
        """Start reading; to be called once the command has the descriptor."""
        os.close(self.descriptor)
        self._thread.start()

    def _listen(self) -> None:
        with self._stream:
            while block := os.read(self._stream.fileno(), 1 << 16):
                self._data += block[: MOST_HEARD - len(self._data)]

    def so_far(self) -> bytes:
        """The output until now; waits a moment for its end."""
        self._thread.join(0.2)
        return bytes(self._data)


def stored(stream: IO[bytes], target: Path) -> bool:
    """Write a stream to a file; returns False, with an incomplete file, if it has more than MOST_TAKEN bytes."""
    remaining = MOST_TAKEN
    with target.open("wb") as file:
        while block := stream.read(1 << 20):
            remaining -= len(block)
            if remaining < 0:
                return False
            file.write(block)
    return True


def unpack(archive: Path, target: Path) -> bool:
    """Unpack the folders and plain files of an archive into a new folder, without links and devices.

    Returns whether it is the archive of a folder, whose first member is the folder itself. The members are filtered
    here, because the filters of `tarfile` are newer than the oldest Python that may run this. A program inside may have
    made the archive: OSError if it cannot be read, or if its files have more than MOST_TAKEN bytes, as sparse ones may.
    """
    target.mkdir()
    try:
        with tarfile.open(archive, "r:") as tar:
            return _unpacked(tar, target)
    except OSError:
        raise
    except Exception as error:  # tarfile raises many types for a wrong archive, ValueError and EOFError among them
        raise OSError(f"the archive cannot be read ({type(error).__name__})") from error


def _unpacked(tar: tarfile.TarFile, target: Path) -> bool:
    folder, remaining = None, MOST_TAKEN
    for member in tar:
        steps = [step for step in member.name.split("/") if step not in ("", ".")]
        folder = not steps if folder is None else folder
        path = target.joinpath(*steps)
        if ".." in steps:
            continue
        if member.isdir():
            path.mkdir(parents=True, exist_ok=True)
        elif member.isfile() and (content := tar.extractfile(member)):
            remaining -= member.size
            if remaining < 0:
                raise OSError(f"the files have more than {MOST_TAKEN >> 20} MB")
            path.parent.mkdir(parents=True, exist_ok=True)
            with content, path.open("wb") as file:
                shutil.copyfileobj(content, file)
            path.chmod(0o644 | member.mode & 0o111)
    return bool(folder)
