"""A room: this machine's programs and libraries, with files, processes and, if asked, a network of its own.

The root directory of the machine is the lower layer of an overlay whose upper layer is memory. So a task finds
the tools that are installed here, may write wherever it likes, and leaves nothing behind. It sees no home
directory and none of the hidden folders. Its root user has the rights a container's has: it cannot mount, load
modules, make devices or trace other users' processes. What it may use at most is said in `limits`.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .guard import tampered
from .layout import ATTEND, HIDDEN, SETUP, hidden_homes, search_path, shown
from .limits import INODES, PREFIX, PROCESSES, Bounds, clear, files_mb, memory_mb, own_numbers, process_limits
from .transfer import MOST_TAKEN, Heard, stored, unpack

if TYPE_CHECKING:
    from .dockerfile import Recipe


TOOLS = ("unshare", "nsenter", "setpriv", "prlimit", "pivot_root", "mount")
KEPT = "chown,dac_override,fowner,fsetid,kill,setgid,setuid,setpcap,net_bind_service,sys_chroot,setfcap,audit_write"
CAPABILITIES = "-all," + ",".join(f"+{name}" for name in KEPT.split(","))
MOST_TOLD = 100  # commands of those that were left running
FULL = re.compile(rb"(sh|nsenter): [^\n]*fork[^\n]*\n", re.IGNORECASE)
START = '(:) && exec "$1" -c "$0"'  # where nothing can be forked sh says so at once, and bash only after many tries
CLEARINGS = 5  # of a full room, before a command that finds no place in it has failed
CROWD = PROCESSES * 9 // 10  # processes that leave no place for those who come from outside
PATIENCE = 10.0  # seconds for what was killed to be gone
LAST_WORDS = 4000  # characters of what went wrong that are worth telling


class RoomError(Exception):
    """The machine cannot give a room: (what is wrong); the text says what would help."""


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended: its code, -9 where time was up, and what it printed."""

    code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False


def lacking() -> str | None:
    """Why this machine has no rooms to give, or None."""
    if sys.platform != "linux":
        return "rooms need Linux namespaces; run the job on Linux, or with a container engine"
    missing = [tool for tool in TOOLS if shutil.which(tool, path=search_path()) is None]
    return f"{', '.join(missing)} not found; install util-linux and mount" if missing else None


class Room:
    """One trial's machine: `start`, then `run`, `put` and `take` as often as needed, then `stop`."""

    def __init__(
        self,
        *,
        hidden: Sequence[str | Path] = (),
        network: bool = True,
        memory: int | None = None,
        files: int | None = None,
    ) -> None:
        self._hidden = [*HIDDEN, *hidden_homes(), *(os.path.realpath(path) for path in hidden)]
        self._network = network
        self._memory, self._files = memory_mb(memory), files_mb(files)
        self._bounds: Bounds | None = None
        self._asking = threading.Lock()
        self._first: subprocess.Popen[bytes] | None = None
        self._pid, self._made = 0, 0.0
        self._closed = False
        self._folder = ""

    def start(self) -> None:
        """Move in. RoomError when the machine refuses."""
        if wrong := lacking():
            raise RoomError(wrong)
        clear(tempfile.gettempdir())
        self._folder = tempfile.mkdtemp(prefix=f"{PREFIX}-{os.getpid()}-")
        self._bounds = Bounds(self._memory + self._files)
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        net = [] if self._network else ["--net"]
        apart = [*user, *net, "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--propagation", "private"]
        files, numbers = f"size={self._files}m,nr_inodes={INODES}", str(PROCESSES) if own_numbers() else ""
        seen = [*(f"hide:{path}" for path in self._hidden), *(f"show:{path}" for path in shown())]
        laid_out = ["sh", "-c", SETUP, "room", self._folder, files, numbers, sys.executable, ATTEND, *seen]
        self._first = subprocess.Popen(
            ["unshare", *apart, "--", *laid_out],  # not bound by what is to bind those whom it ends
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": search_path(), "LC_ALL": "C"},
            start_new_session=True,
        )
        out, errors = self._first.stdout, self._first.stderr
        if not out or out.readline() != b"ready\n":
            message = errors.read().decode(errors="replace").strip()[-LAST_WORDS:] if errors else ""
            self.stop()
            raise RoomError(
                f"no room could be made ({message or 'nothing was said'}); run as root, or allow namespaces"
            )
        children = Path(f"/proc/{self._first.pid}/task/{self._first.pid}/children").read_text().split()
        self._pid = int(children[0])
        self._made = time.time()
        if self._closed:  # by somebody who would not wait for the end of this
            self.stop()
            raise RoomError("the room was given up before it was ready")

    def run(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | int | None = None,
        timeout: float | None = None,
    ) -> Ran:
        """Run a shell command inside. When its time is up it is killed, and what it had printed is kept.

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
    ) -> Ran:
        drop = f"exec {' '.join(process_limits(self._memory))} setpriv --bounding-set {CAPABILITIES} --inh-caps -all"
        if user not in (None, 0, "root"):
            drop += ' --reuid "$1" --regid "$(id -g "$1")" --init-groups'
        script = f"cd {_quoted(cwd or '/app')} && {{ {command}\n}}"
        inside = {"PATH": search_path(), "HOME": os.path.expanduser("~root"), "LANG": "C.UTF-8", **(env or {})}
        shell_name = (
            "bash" if shutil.which("bash", path=inside["PATH"]) else "sh"
        )  # Harbor's is bash, and tasks count on it
        shell = ["sh", "-c", f"{drop} sh -c '{START}' \"$0\" {shell_name}", script, str(user)]
        process = subprocess.Popen(
            [*self._enter(), *shell],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=inside,
            start_new_session=True,
        )
        printed = [Heard(stream) for stream in (process.stdout, process.stderr) if stream]
        try:
            code, late = process.wait(timeout), False
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            self.sweep()
            code, late = process.wait() and -signal.SIGKILL, True
        out, err = (heard.so_far() for heard in printed)
        return Ran(code, out, err, late)

    def furnish(self, environment: Path, recipe: Recipe) -> None:
        """Make the working directory and copy in what the recipe says."""
        self.run(f"mkdir -p {_quoted(recipe.workdir)}", cwd="/")
        for source, target in recipe.copies:
            self.put(environment / source, target)

    def put(self, source: str | Path, target: str) -> None:
        """Copy a file, or what a folder holds, to a place inside."""
        source = Path(source)
        whole, part = (source, ".") if source.is_dir() else (source.parent, source.name)
        into = target if source.is_dir() else os.path.dirname(target) or "/"
        unpack = f"mkdir -p {_quoted(into)} && tar -C {_quoted(into)} --no-same-owner -xf -"
        if not source.is_dir() and os.path.basename(target) != part:
            unpack += f" && mv -f {_quoted(f'{into}/{part}')} {_quoted(target)}"
        with subprocess.Popen(["tar", "-C", whole, "-cf", "-", "--", part], stdout=subprocess.PIPE) as packing:
            done = subprocess.run([*self._enter(), "sh", "-c", unpack], stdin=packing.stdout, capture_output=True)
        if packing.returncode or done.returncode:
            raise OSError(f"{source} could not be put at {target}: {done.stderr.decode(errors='replace')[-300:]}")

    def take(self, source: str, target: str | Path) -> None:
        """Copy a file, or what a folder holds, out of the room, but for links."""
        target = Path(target)
        folder = self.run(f"test -d {_quoted(source)}", cwd="/").code == 0
        inner, part = (source, ".") if folder else (os.path.dirname(source) or "/", os.path.basename(source))
        with tempfile.TemporaryDirectory() as scratch:
            archive = Path(scratch, "out.tar")
            command = [*self._enter(), "tar", "-C", inner, "--hard-dereference", "-cf", "-", "--", part]
            complaints = Path(scratch, "complaints")
            with (
                complaints.open("wb") as errors,
                subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as packing,
            ):
                whole = packing.stdout is not None and stored(packing.stdout, archive)
                if not whole:
                    packing.kill()
            if not whole:
                raise OSError(f"{source} holds more than {MOST_TAKEN >> 20} MB; it is not brought out")
            if packing.returncode:
                raise FileNotFoundError(f"{source}: {complaints.read_text(errors='replace')[-300:]}")
            unpack(archive, Path(scratch, "out"))
            unpacked = Path(scratch, "out") if folder else Path(scratch, "out", part)
            if folder:
                shutil.copytree(unpacked, target, symlinks=True, dirs_exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(unpacked, target, follow_symlinks=False)

    def sweep(self) -> list[str]:
        """End every process inside; the commands of those that were still there."""
        left = self._commands()
        first, reply = self._first, b""
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

    def tampered(self) -> list[str]:
        """The tools of a judge that somebody in here changed."""
        return tampered(self._pid, self._made, search_path())

    def stop(self) -> None:
        """Move out: every process ends, and every file is gone. Two may say so at once."""
        self._closed = True
        first, self._first = self._first, None
        if first is not None:
            if first.poll() is None:
                os.killpg(first.pid, signal.SIGKILL)  # --kill-child takes the room's process 1 along
            first.communicate()
        if self._bounds is not None:
            self._bounds.remove()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _processes(self) -> str:
        """Where the room's own processes are told of, seen from outside."""
        return os.path.join("/proc", str(self._pid), "root", "proc")

    def _enter(self) -> list[str]:
        """A command's beginning that has the rest happen inside; a room too full for another process is cleared."""
        if len(self._alive()) > CROWD:
            self.sweep()
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        net = [] if self._network else ["--net"]
        bounds = self._bounds.entrance if self._bounds else []
        return [*bounds, "nsenter", "--target", str(self._pid), *user, *net, "--mount", "--pid", "--ipc", "--"]


def _quoted(text: str) -> str:
    return shlex.quote(text)
