"""A room: this machine's programs and libraries, with files, processes and, if asked, a network of its own.

The root directory of the machine is the lower layer of an overlay whose upper layer is memory. So a task finds
the tools that are installed here, may write wherever it likes, and leaves nothing behind. It sees no home
directory and none of the hidden folders. Its root user has the rights a container's has: it cannot mount, load
modules, make devices or trace other users' processes.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from .guard import tampered

if TYPE_CHECKING:
    from .recipe import Recipe

HIDDEN = ("/run", "/mnt", "/media", "/srv", "/var/tmp")
TOOLS = ("unshare", "nsenter", "setpriv", "pivot_root", "mount")
KEPT = "chown,dac_override,fowner,fsetid,kill,setgid,setuid,setpcap,net_bind_service,sys_chroot,setfcap,audit_write"
CAPABILITIES = "-all," + ",".join(f"+{name}" for name in KEPT.split(","))
MOST_HEARD = 16 << 20  # bytes kept of what a command prints
LISTING = "ps -eo pid=,args="
LAST_WORDS = 4000  # characters of what went wrong that are worth telling

SETUP = r"""
set -eu
base=$1; size=$2; shift 2
mount -t tmpfs -o "mode=755,size=${size}m" room "$base"
mkdir "$base/upper" "$base/work" "$base/root" "$base/empty"
mount -t overlay -o "lowerdir=/,upperdir=$base/upper,workdir=$base/work" overlay "$base/root"
root=$base/root
for asked in "$@"; do
  place=${asked#*:}
  case $asked in
    hide:*) [ ! -d "$root$place" ] || mount -t tmpfs -o mode=755,size=64m hidden "$root$place";;
    show:*) mkdir -p "$root$place"; mount --bind "$place" "$root$place"; mount -o remount,bind,ro "$root$place";;
  esac
done
mount -t tmpfs -o mode=1777,size="${size}m" tmp "$root/tmp"
mount -t tmpfs -o mode=755,size=64k dev "$root/dev"
for device in null zero full random urandom tty; do
  : > "$root/dev/$device"; mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/shm" "$root/dev/pts"
mount -t tmpfs -o mode=1777,size=256m shm "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts" && ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"; ln -s fd/0 "$root/dev/stdin"; ln -s fd/1 "$root/dev/stdout"
ln -s fd/2 "$root/dev/stderr"
mount -t proc proc "$root/proc"
for place in sys sysrq-trigger irq bus fs; do
  [ ! -e "$root/proc/$place" ] || mount --bind -o ro "$root/proc/$place" "$root/proc/$place"
  [ ! -e "$root/proc/$place" ] || mount -o remount,bind,ro "$root/proc/$place"
done
mount -t tmpfs -o mode=755,size=0 sys "$root/sys" 2>/dev/null || true
mkdir -p "$root/logs/agent" "$root/logs/verifier" "$root/logs/artifacts" "$root/app"
chmod 777 "$root/logs/agent" "$root/logs/verifier" "$root/logs/artifacts"
mkdir "$root/.outer"
cd "$root"
pivot_root . .outer
umount -l /.outer
rmdir /.outer
[ "$(ls /sys/class/net 2>/dev/null)" ] || ip link set lo up 2>/dev/null || true
echo ready
exec cat  # process 1 ends, and with it every other, when whoever holds the other end of its input does
"""


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
    missing = [tool for tool in TOOLS if shutil.which(tool, path=_search_path()) is None]
    return f"{', '.join(missing)} not found; install util-linux and mount" if missing else None


class Room:
    """One trial's machine: `start`, then `run`, `put` and `take` as often as needed, then `stop`."""

    def __init__(self, *, hidden: Sequence[str | Path] = (), network: bool = True, size_mb: int = 4096) -> None:
        self._hidden = [*HIDDEN, *_homes(), *(os.path.realpath(path) for path in hidden)]
        self._network = network
        self._size = size_mb
        self._first: subprocess.Popen[bytes] | None = None
        self._pid, self._made = 0, 0.0
        self._closed = False
        self._folder = ""

    def start(self) -> None:
        """Move in. RoomError when the machine refuses."""
        if wrong := lacking():
            raise RoomError(wrong)
        self._folder = tempfile.mkdtemp(prefix="calipers-room-")
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        net = [] if self._network else ["--net"]
        command = ["unshare", *user, *net, "--mount", "--pid", "--ipc", "--fork", "--kill-child"]
        command += ["--propagation", "private", "--", "sh", "-c", SETUP, "room"]
        self._first = subprocess.Popen(
            [*command, self._folder, str(self._size), *(f"hide:{place}" for place in self._hidden), *_shown()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": _search_path(), "LC_ALL": "C"},
            start_new_session=True,
        )
        out, errors = self._first.stdout, self._first.stderr
        if not out or out.readline() != b"ready\n":
            said = errors.read().decode(errors="replace").strip()[-LAST_WORDS:] if errors else ""
            self.stop()
            raise RoomError(f"no room could be made ({said or 'nothing was said'}); run as root, or allow namespaces")
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
        """Run a shell command inside. When its time is up it is killed, and what it had printed is kept."""
        drop = f"exec setpriv --bounding-set {CAPABILITIES} --inh-caps -all"
        if user not in (None, 0, "root"):
            drop += ' --reuid "$1" --regid "$(id -g "$1")" --init-groups'
        script = f"cd {_quoted(cwd or '/app')} && {{ {command}\n}}"
        shell = ["sh", "-c", drop + ' sh -c "$0"', script, str(user)]
        inside = {"PATH": _search_path(), "HOME": os.path.expanduser("~root"), "LANG": "C.UTF-8", **(env or {})}
        process = subprocess.Popen(
            [*self._enter(), *shell],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=inside,
            start_new_session=True,
        )
        printed = [_Heard(stream) for stream in (process.stdout, process.stderr) if stream]
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
        """Copy a file, or what a folder holds, out of the room, but for links that lead out of it."""
        target = Path(target)
        folder = self.run(f"test -d {_quoted(source)}", cwd="/").code == 0
        inner, part = (source, ".") if folder else (os.path.dirname(source) or "/", os.path.basename(source))
        with tempfile.TemporaryDirectory() as scratch:
            archive = Path(scratch, "out.tar")
            with archive.open("wb") as file:
                done = subprocess.run(
                    [*self._enter(), "tar", "-C", inner, "-cf", "-", "--", part], stdout=file, stderr=subprocess.PIPE
                )
            if done.returncode:
                raise FileNotFoundError(f"{source}: {done.stderr.decode(errors='replace')[-300:]}")
            _unpack(archive, Path(scratch, "out"))
            found = Path(scratch, "out") if folder else Path(scratch, "out", part)
            if folder:
                shutil.copytree(found, target, symlinks=True, dirs_exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(found, target, follow_symlinks=False)

    def sweep(self) -> list[str]:
        """End every process inside; the commands of those that were still there."""
        listing = subprocess.run([*self._enter(), *LISTING.split()], capture_output=True).stdout
        left = [line.strip().partition(" ")[2].strip() for line in listing.decode(errors="replace").splitlines()]
        left = [line for line in left if line not in ("cat", LISTING) and not line.endswith("<defunct>")]
        subprocess.run([*self._enter(), "sh", "-c", "kill -9 -1"], capture_output=True)
        return left

    def tampered(self) -> list[str]:
        """The tools of a judge that somebody in here changed."""
        return tampered(self._pid, self._made, _search_path())

    def stop(self) -> None:
        """Move out: every process ends, and every file is gone. Two may say so at once."""
        self._closed = True
        first, self._first = self._first, None
        if first is not None:
            if first.poll() is None:
                os.killpg(first.pid, signal.SIGKILL)  # --kill-child takes the room's process 1 along
            first.communicate()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _enter(self) -> list[str]:
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        net = [] if self._network else ["--net"]
        return ["nsenter", "--target", str(self._pid), *user, *net, "--mount", "--pid", "--ipc", "--"]


class _Heard:
    """What a process prints, up to a limit; a child that outlives it may hold the pipe open for ever."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._found = stream, bytearray()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        with self._stream:
            while block := os.read(self._stream.fileno(), 1 << 16):
                self._found += block[: MOST_HEARD - len(self._found)]

    def so_far(self) -> bytes:
        """All of it, or what came until a moment after the end."""
        self._thread.join(0.2)
        return bytes(self._found)


def _unpack(archive: Path, target: Path) -> None:
    target.mkdir()
    with tarfile.open(archive) as tar:
        tar.extractall(target, filter=_harmless)


def _harmless(member: tarfile.TarInfo, target: str) -> tarfile.TarInfo | None:
    """A member that stays in its folder; one that leads out of it, by .., a link or a device, is left out."""
    try:
        return tarfile.data_filter(member, target)
    except tarfile.FilterError:
        return None


def _homes() -> list[str]:
    return ["/home", os.path.expanduser("~root")]


def _shown() -> list[str]:
    """The folders in home directories that programs are found in: a tool chain is no secret."""
    found = dict[str, None]()
    for place in _search_path().split(os.pathsep):
        for home in _homes():
            inner = place.removeprefix(home + "/") if place.startswith(home + "/") else ""
            steps = inner.split("/")[: 2 if home == "/home" else 1]
            if inner and os.path.isdir(os.path.join(home, *steps)):
                found[f"show:{os.path.join(home, *steps)}"] = None
    return list(found)


def _quoted(text: str) -> str:
    return shlex.quote(text)


def _search_path() -> str:
    return os.pathsep.join(dict.fromkeys([*os.environ.get("PATH", "").split(os.pathsep), "/usr/sbin", "/sbin"]))
