"""A room: this machine's programs and libraries, with separate files and processes and optionally its own network.

The root directory of the machine is the lower layer of an overlay whose upper layer is memory. So a task finds
the tools that are installed here, may write wherever it likes, and leaves nothing behind. It sees no home
directory and none of the hidden folders. Instead of the machine's root directory it may be given the layers of an
image, and then sees nothing else. Its root user has the rights a container's has: it cannot mount, load modules, make
devices or trace other users' processes. `limits` has its resource limits.

Of the standard library alone, with imports that name no package: Harbor's interpreter is lent this file.
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

TOOLS = ("setpriv",)  # for commands of other users than root
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
"""What root of a room may do, and how the kernel numbers it."""
CAPABILITIES = "-all," + ",".join(f"+{name}" for name in CAPABILITY_NUMBERS)
MOST_TOLD = 100  # commands of those that were left running
FULL = re.compile(rb"(sh|nsenter): [^\n]*fork[^\n]*\n", re.IGNORECASE)
SWITCH = (
    f"exec setpriv --bounding-set {CAPABILITIES} --inh-caps -all"
    ' --reuid "$0" --regid "$(id -g "$0")" --init-groups "$@"'
)
PACK = (
    'if [ -d "$0" ]; then cd "$0" && set -- .; else cd "$1" && shift; fi && exec tar --hard-dereference -cf - -- "$1"'
)
START = '(:) && exec "$1" -c "$0"'  # where nothing can be forked sh says so at once, and bash only after many tries
CLEARINGS = 5  # of a full room, before a command that finds no place in it has failed
CROWD = PROCESSES * 9 // 10  # processes that leave no place for those who come from outside
LONGEST_WAIT = 1e6  # seconds that poll(2) can be asked for at once
PATIENCE = 10.0  # seconds for what was killed to be gone
LONGEST_MESSAGE = 4000  # characters of what went wrong that are worth telling
MOST_HEARD = 16 << 20  # bytes kept of what a command prints
MOST_TAKEN = 1 << 30  # bytes of files at once: one file may say that it has more than any disk
HIDDEN = ("/run", "/mnt", "/media", "/srv", "/var/tmp")
IMAGE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # where an image's programs are
ORIGIN = 9  # the descriptor by which process 1 keeps the layers of an image as they were

BEGIN = f"""
import marshal, sys
channel = int(sys.argv[1])
files, settings = marshal.load(open(channel, "rb", closefd=False))
{LOAD_FILES}
sys.modules[name].main(channel, settings)
"""


class ContainerError(Exception):
    """The machine cannot create a room; the message says why, and what would help."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended: its exit code, -9 after a timeout, and its output."""

    code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False


def lacking() -> str | None:
    """Why this machine cannot create rooms, or None."""
    if sys.platform != "linux":
        return "the environment 'room' needs Linux namespaces; run the job on Linux, or with a container engine"
    missing = [tool for tool in TOOLS if shutil.which(tool, path=search_path()) is None]
    return f"{', '.join(missing)} not found; install util-linux" if missing else None


class Container:
    """One trial's machine: `start`, then `run`, `put` and `take` as often as needed, then `stop`.

    Its commands have the machine's network, or with ``network=False`` a loopback alone; one that is ``switched`` may
    have either, as `connect` says. ``layers``, the lowest first, are the folders of an image that its root is made of
    instead of the machine's; ``kept`` is a folder whose ``upper`` keeps what is written, with an empty ``work`` beside
    it, instead of memory. Only root can have either.
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
        self._loopback = switched or not network  # whether there is a network namespace to put commands in
        self._memory, self._files = memory_mb(memory), files_mb(files)
        self._cgroups: ContainerCgroups | None = None
        self._asking, self._sending = threading.Lock(), threading.Lock()
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._numbers = count()  # of the commands
        self._pid, self._made = 0, 0.0
        self._closed = False
        self._folder = ""

    def start(self) -> None:
        """Create the room. ContainerError when that fails."""
        if wrong := lacking():
            raise ContainerError(wrong)
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
                [sys.executable, "-ISc", BEGIN, str(theirs.fileno())],  # the settings are nothing for /proc/1/cmdline
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={"PATH": search_path(), "LC_ALL": "C"},
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        with suppress(OSError):  # it has ended, and says why
            channel.sendall(marshal.dumps((compiled("libc", "supervisor"), settings)))
        ready, message = b"", ""
        with suppress(ValueError):  # somebody has closed the room meanwhile
            ready = supervisor.stdout.readline() if supervisor.stdout else b""
            if not ready and supervisor.stderr:
                message = supervisor.stderr.read().decode(errors="replace").strip()[-LONGEST_MESSAGE:]
        first = children(supervisor.pid) if ready else []
        if self._closed:  # by somebody who would not wait for the end of this
            self.stop()
            raise ContainerError("the room was closed before it was ready")
        if not first:
            self.stop()
            why = message or "no error message"
            raise ContainerError(f"cannot create a room ({why}); run as root, or allow namespaces")
        self._pid, self._made = first[0], time.time()

    def connect(self, network: bool) -> None:
        """Give later commands the machine's network, or only a loopback; running commands keep theirs.

        ValueError for a container that was not made to be switched.
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

        Where the room is so full that not even its first process can be made, it is cleared for it.
        """
        ran = self._run(command, cwd, env, user, timeout)
        for _ in range(CLEARINGS):  # one that never rests fills its place again on a busy machine
            if not (ran.code and not ran.stdout and FULL.fullmatch(ran.stderr)):
                break
            self.sweep()
            ran = self._run(command, cwd, env, user, timeout)
        return ran

    def _run(
        self,
        command: str,
        cwd: str | None,
        env: Mapping[str, str] | None,
        user: str | int | None,
        timeout: float | None,
    ) -> CommandResult:
        script = f"cd {shlex.quote(cwd or '/app')} && {{ {command}\n}}"
        inside = self._inside(env)
        shell = ["sh", "-c", START, script, self._shell(inside["PATH"])]
        if user not in (None, 0, "root"):
            shell = ["sh", "-c", SWITCH, str(user), *shell]
        printed = CappedOutput(), CappedOutput()
        with open(os.devnull, "r+b", 0) as nothing:
            streams = (nothing.fileno(), *(heard.descriptor for heard in printed))
            started = self._start(shell, inside, streams, process_limits(self._memory))
        for heard in printed:
            heard.listen()
        code, late = started.wait(timeout), False
        if code is None:
            self._send((started.number, None))
            started.wait()
            self.sweep()
            code, late = -signal.SIGKILL, True
        started.close()
        out, err = (heard.so_far() for heard in printed)
        return CommandResult(code, out, err, late)

    def _start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        streams: Sequence[int],
        limits: Sequence[tuple[int, int]] = (),
    ) -> StartedCommand:
        """Have the supervisor start a command inside; a room too full for another process is cleared."""
        if len(self._alive()) > CROWD:
            self.sweep()
        request = {"argv": list(argv), "env": dict(env), "network": self._network, "limits": list(limits)}
        number = next(self._numbers)
        told, tell = os.pipe()
        if not self._send((number, request), (*streams, tell)):
            os.write(streams[2], b"the room is closed\n")
        os.close(tell)
        return StartedCommand(number, told)

    def _send(self, message: tuple[int, Any], descriptors: Sequence[int] = ()) -> bool:
        """Whether a message could be sent to the supervisor; it is lost where that has ended."""
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
        """Copy a file, or the content of a folder, into the room."""
        source = Path(source)
        whole, part = (source, ".") if source.is_dir() else (source.parent, source.name)
        into = target if source.is_dir() else os.path.dirname(target) or "/"
        unpack = f"mkdir -p {shlex.quote(into)} && tar -C {shlex.quote(into)} --no-same-owner -xf -"
        if not source.is_dir() and os.path.basename(target) != part:
            unpack += f" && mv -f {shlex.quote(f'{into}/{part}')} {shlex.quote(target)}"
        printed = CappedOutput()
        read, write = os.pipe()
        with subprocess.Popen(["tar", "-C", whole, "-cf", "-", "--", part], stdout=write) as packing:
            os.close(write)
            streams = (read, printed.descriptor, printed.descriptor)
            started = self._start(["sh", "-c", unpack], self._inside(), streams)
            os.close(read)  # which ends the packing when nobody inside reads any more
            printed.listen()
            code = started.result()
            message = printed.so_far().decode(errors="replace")[-300:]
        if packing.returncode or code:
            raise OSError(f"{source} could not be copied to {target}: {message}")

    def take(self, source: str, target: str | Path) -> None:
        """Copy a file, or the content of a folder, out of the room, except links."""
        target = Path(target)
        inner, part = os.path.dirname(source) or "/", os.path.basename(source)
        with tempfile.TemporaryDirectory() as scratch:
            archive, complaints = Path(scratch, "out.tar"), CappedOutput()
            read, write = os.pipe()
            with open(os.devnull, "r+b", 0) as nothing, os.fdopen(read, "rb") as packed:
                streams = (nothing.fileno(), write, complaints.descriptor)
                started = self._start(["sh", "-c", PACK, source, inner, part], self._inside(), streams)
                os.close(write)
                complaints.listen()
                whole = stored(packed, archive)
            if not whole:
                self._send((started.number, None))
            code = started.result()
            if not whole:
                raise OSError(f"{source} contains more than {MOST_TAKEN >> 20} MB; it is not copied out of the room")
            if code:
                raise FileNotFoundError(f"{source}: {complaints.so_far().decode(errors='replace')[-300:]}")
            folder = unpack(archive, Path(scratch, "out"))
            unpacked = Path(scratch, "out") if folder else Path(scratch, "out", part)
            if folder:
                shutil.copytree(unpacked, target, symlinks=True, dirs_exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(unpacked, target, follow_symlinks=False)

    def sweep(self) -> list[str]:
        """End every process inside; returns the commands of those that were still running."""
        left = self._commands()
        first, reply = self._supervisor, b""
        with self._asking, suppress(OSError, ValueError):  # somebody may close the room meanwhile
            if first is not None and first.stdin and first.stdout:
                first.stdin.write(b".")
                first.stdin.flush()
                reply = first.stdout.readline()
        patience = time.monotonic() + PATIENCE
        while reply and self._alive() and time.monotonic() < patience:
            time.sleep(0.005)
        return left

    def _alive(self) -> dict[str, str]:
        """Number and name of what runs inside but for process 1, as the kernel has it: no program inside is asked."""
        names = {}
        with suppress(OSError):
            for name in os.listdir(processes := self._processes):
                if name.isdecimal() and name != "1":
                    with suppress(OSError, ValueError):
                        called, _, rest = Path(processes, name, "stat").read_text(errors="replace").rpartition(")")
                        if rest.split()[0] not in ("Z", "X"):
                            names[name] = called.partition("(")[2]
        return names

    def _commands(self) -> list[str]:
        """The commands of what runs inside; where that is a crowd, names, which none of them can make us wait for."""
        alive = self._alive()
        if len(alive) > MOST_TOLD:
            return list(alive.values())[:MOST_TOLD]
        commands = []
        for name, called in alive.items():
            with suppress(OSError):
                words = Path(self._processes, name, "cmdline").read_bytes().replace(b"\0", b" ").strip()
                commands.append(words.decode(errors="replace") or called)
        return commands

    def tampered(self, tests: Sequence[str] = (), env: Mapping[str, str] | None = None) -> list[str]:
        """The tools of a judge that somebody in here changed, and files that its scripts read from the home directory.

        ``tests`` are the texts of its scripts, ``env`` what their environment is given.
        """
        home, path = ((env or {}).get(name) for name in ("HOME", "PATH"))
        origin = f"/proc/{self._pid}/fd/{ORIGIN}" if self._layers else ""
        path = path if self._layers and path else self._path
        return tampered(self._pid, self._made, path, tests, home or self._home, origin)

    def drop_bytecode(self) -> None:
        """Remove what Python, or somebody in its name, compiled in here: its sources say the same. Nobody is left."""
        for folder, inner, names in os.walk(top := f"/proc/{self._pid}/root"):
            if folder == top:
                inner[:] = [name for name in inner if name not in ("proc", "sys", "dev")]
            for path in (os.path.join(folder, name) for name in names if folder.endswith("/__pycache__")):
                with suppress(OSError):
                    if os.lstat(path).st_ctime >= self._made:
                        os.unlink(path)

    def stop(self) -> None:
        """Remove the room: every process ends, and every file is deleted. Concurrent calls are safe."""
        self._closed = True
        supervisor, self._supervisor = self._supervisor, None
        channel, self._channel = self._channel, None
        if channel is not None:
            with suppress(OSError):  # it has ended already
                channel.shutdown(socket.SHUT_RDWR)  # at which the supervisor ends, and all others before it
            with self._sending:
                channel.close()
        if supervisor is not None:
            try:
                supervisor.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(supervisor.pid, signal.SIGKILL)  # which process 1 does not survive either
                supervisor.communicate()
        if self._cgroups is not None:
            self._cgroups.remove()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _processes(self) -> str:
        """Where the room's own processes are told of, seen from outside."""
        return os.path.join("/proc", str(self._pid), "root", "proc")

    @property
    def _path(self) -> str:
        return IMAGE_PATH if self._layers else search_path()

    @property
    def _home(self) -> str:
        return os.path.expanduser("~root")  # an image's root lives where every root does

    def _shell(self, path: str) -> str:
        """What commands are run by: Harbor's is bash, and tasks count on it."""
        if self._layers:
            return "bash" if os.path.lexists(f"/proc/{self._pid}/fd/{ORIGIN}/bin/bash") else "sh"
        return "bash" if shutil.which("bash", path=path) else "sh"

    def _inside(self, env: Mapping[str, str] | None = None) -> dict[str, str]:
        """What a command inside finds in its environment."""
        return {"PATH": self._path, "HOME": self._home, "LANG": "C.UTF-8", **(env or {})}


class StartedCommand:
    """A command inside, by its number, and the pipe on which the supervisor says how it ended."""

    def __init__(self, number: int, told: int) -> None:
        self.number, self._told = number, told

    def wait(self, timeout: float | None = None) -> int | None:
        """Its exit code, that of a kill when the room ended before it; None when it runs longer than the timeout."""
        ready = select.poll()
        ready.register(self._told, select.POLLIN)
        until = math.inf if timeout is None else time.monotonic() + timeout
        while not ready.poll(1000 * max(0.0, min(until - time.monotonic(), LONGEST_WAIT))):
            if time.monotonic() >= until:
                return None
        return int(os.read(self._told, 16) or 128 + signal.SIGKILL)

    def result(self) -> int:
        """Its exit code, once it has ended; nothing is asked after that."""
        code = self.wait()
        self.close()
        return 1 if code is None else code

    def close(self) -> None:
        """Forget it."""
        os.close(self._told)


def hidden_homes() -> list[str]:
    """The parent folders of home directories."""
    return ["/home", os.path.expanduser("~root")]


def shown() -> list[str]:
    """The folders in home directories that programs are found in: a tool chain is no secret."""
    folders = dict[str, None]()
    for folder in search_path().split(os.pathsep):
        for home in hidden_homes():
            inner = folder.removeprefix(home + "/") if folder.startswith(home + "/") else ""
            steps = inner.split("/")[: 2 if home == "/home" else 1]
            if inner and os.path.isdir(os.path.join(home, *steps)):
                folders[os.path.join(home, *steps)] = None
    return list(folders)


def search_path() -> str:
    """Where programs are looked for, here and in a room."""
    return os.pathsep.join(dict.fromkeys([*os.environ.get("PATH", "").split(os.pathsep), "/usr/sbin", "/sbin"]))


class CappedOutput:
    """What a command prints, up to a limit; a child that outlives it may hold the pipe open for ever."""

    def __init__(self) -> None:
        read, self.descriptor = os.pipe()  # which the command is given
        self._stream, self._data = os.fdopen(read, "rb", 0), bytearray()
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def listen(self) -> None:
        """Begin to, once the command has the pipe."""
        os.close(self.descriptor)
        self._thread.start()

    def _listen(self) -> None:
        with self._stream:
            while block := os.read(self._stream.fileno(), 1 << 16):
                self._data += block[: MOST_HEARD - len(self._data)]

    def so_far(self) -> bytes:
        """All of it, or what came until a moment after the end."""
        self._thread.join(0.2)
        return bytes(self._data)


def stored(stream: IO[bytes], target: Path) -> bool:
    """Whether all that a stream gave was little enough to be kept; then it is in the file."""
    left = MOST_TAKEN
    with target.open("wb") as file:
        while block := stream.read(1 << 20):
            left -= len(block)
            if left < 0:
                return False
            file.write(block)
    return True


def unpack(archive: Path, target: Path) -> bool:
    """Unpack the folders and plain files of an archive into a new folder; links and devices are left out.

    Whether it is the archive of a folder, which is itself the first in it.
    By hand, as the filters of `tarfile` are younger than the oldest Python that may run this.
    """
    target.mkdir()
    folder = None
    with tarfile.open(archive) as tar:
        for member in tar:
            steps = [step for step in member.name.split("/") if step not in ("", ".")]
            folder = not steps if folder is None else folder
            path = target.joinpath(*steps)
            if ".." in steps:
                continue
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
            elif member.isfile() and (content := tar.extractfile(member)):
                path.parent.mkdir(parents=True, exist_ok=True)
                with content, path.open("wb") as file:
                    shutil.copyfileobj(content, file)
                path.chmod(0o644 | member.mode & 0o111)
    return bool(folder)
