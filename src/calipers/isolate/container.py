"""A room: this machine's programs and libraries, with separate files and processes and optionally its own network.

The root directory of the machine is the lower layer of an overlay whose upper layer is memory. So a task finds
the tools that are installed here, may write wherever it likes, and leaves nothing behind. It sees no home
directory and none of the hidden folders. Instead of the machine's root directory it may be given the layers of an
image, and then sees nothing else. Its root user has the rights a container's has: it cannot mount, load modules, make
devices or trace other users' processes. `limits` has its resource limits.

Of the standard library alone, with imports that name no package: Harbor's interpreter is lent this file.
"""

from __future__ import annotations

import os
import re
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
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

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
from .namespaces import unshare_options
from .tamper_check import tampered

TOOLS = ("unshare", "nsenter", "setpriv", "prlimit", "pivot_root", "mount")
KEPT = "chown,dac_override,fowner,fsetid,kill,setgid,setuid,setpcap,net_bind_service,sys_chroot,setfcap,audit_write"
CAPABILITIES = "-all," + ",".join(f"+{name}" for name in KEPT.split(","))
MOST_TOLD = 100  # commands of those that were left running
FULL = re.compile(rb"(sh|nsenter): [^\n]*fork[^\n]*\n", re.IGNORECASE)
START = '(:) && exec "$1" -c "$0"'  # where nothing can be forked sh says so at once, and bash only after many tries
CLEARINGS = 5  # of a full room, before a command that finds no place in it has failed
CROWD = PROCESSES * 9 // 10  # processes that leave no place for those who come from outside
PATIENCE = 10.0  # seconds for what was killed to be gone
LONGEST_MESSAGE = 4000  # characters of what went wrong that are worth telling
MOST_HEARD = 16 << 20  # bytes kept of what a command prints
MOST_TAKEN = 1 << 30  # bytes of files at once: one file may say that it has more than any disk
HIDDEN = ("/run", "/mnt", "/media", "/srv", "/var/tmp")
IMAGE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # where an image's programs are
ORIGIN = 9  # the descriptor by which process 1 keeps the layers of an image as they were

SETUP = r"""
set -eu
base=$1; files=$2; numbers=$3; python=$4; attend=$5; network=$6; kept=$7; shift 7
mount -t tmpfs -o "mode=755,$files" room "$base"
mkdir "$base/upper" "$base/work" "$base/root" "$base/tmp"
chmod 1777 "$base/tmp"
root=$base/root
layers() { mount -t overlay -o "$4lowerdir=$1,upperdir=$base/$2,workdir=$base/$3" overlay "$root$1"; }
lower=; count=0
for asked in "$@"; do
  case $asked in layer:*)
    ln -s "${asked#layer:}" "$base/$count"; lower=$count${lower:+:$lower}; count=$((count + 1));;
  esac
done
# What an image holds may be a link that leads out of it: nothing below it is touched before that is known.
plain() { [ ! -L "$root$1" ] || rm "$root$1"; [ -d "$root$1" ] || mkdir "$root$1"; }
if [ "$lower" ]; then
  mkdir "$base/origin" "$base/none"
  ln -s "${kept:-$base}" "$base/kept"
  cd "$base"  # the layers' names are short: all of them must fit into one page
  mount -t overlay -o "lowerdir=$lower,upperdir=kept/upper,workdir=kept/work" overlay root
  mount -t overlay -o "ro,lowerdir=$lower:none" overlay origin
  exec 9< origin
  for place in /dev /proc /sys /tmp /etc /logs /logs/agent /logs/verifier /logs/artifacts /app; do
    case $kept,$place in ?*,/logs*|?*,/app) continue;; esac
    plain "$place"
  done
  for file in resolv.conf hosts; do
    rm -f "$root/etc/$file"; [ ! -e "/etc/$file" ] || cat "/etc/$file" > "$root/etc/$file"
  done
else
# Without root, a folder with mounts in it, as / is, cannot be a layer: then each folder below it is one by itself.
layers / upper work "" 2>/dev/null || mount --bind "$root" "$root"
[ -e "$root/usr" ] || for place in /*; do
  case $place in /proc|/sys|/dev|/tmp|/run) mkdir "$root$place"; continue;; esac
  if [ -L "$place" ]; then cp -P "$place" "$root$place"
  elif [ -d "$place" ]; then
    mkdir -p "$root$place" "$base/uppers$place" "$base/works$place"
    layers "$place" "uppers$place" "works$place" userxattr, 2>/dev/null || true
  fi
done
[ -e "$root/usr/bin" ] || { echo "overlay: /usr cannot be a layer" >&2; exit 1; }
for asked in "$@"; do
  place=${asked#*:}
  case $asked in
    hide:*) [ ! -d "$root$place" ] || mount -t tmpfs -o mode=755,size=64m hidden "$root$place";;
    show:*) mkdir -p "$root$place"; mount --bind "$place" "$root$place"; mount -o remount,bind,ro "$root$place";;
  esac
done
mount --bind "$base/tmp" "$root/tmp"
mkdir -p "$root/logs/agent" "$root/logs/verifier" "$root/logs/artifacts" "$root/app"
fi
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
[ -z "$numbers" ] || echo "$numbers" > "$root/proc/sys/kernel/pid_max"
for place in sys sysrq-trigger irq bus fs; do
  [ ! -e "$root/proc/$place" ] || mount --bind -o ro "$root/proc/$place" "$root/proc/$place"
  [ ! -e "$root/proc/$place" ] || mount -o remount,bind,ro "$root/proc/$place"
done
mount -t tmpfs -o mode=755,size=0 sys "$root/sys" 2>/dev/null || true
[ "$kept" ] || chmod 777 "$root/logs/agent" "$root/logs/verifier" "$root/logs/artifacts"
cd "$root"
exec "$python" -ISc "$attend" "$network"  # from outside the room, where it may not be seen
"""

ATTEND = """
import ctypes, fcntl, os, signal, socket, struct, sys
if sys.argv[1] == "own":  # a network of its own has a loopback, which is down at first
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH14x", b"lo", 0x41))  # SIOCSIFFLAGS: up, running
libc = ctypes.CDLL(None, use_errno=True)  # and no program: it would be one of the room's, with all our rights
pivot_root = {"x86_64": 155, "i686": 217, "ppc64le": 203, "s390x": 217}.get(os.uname().machine, 41)
if libc.syscall(pivot_root, b".", b".") or libc.umount2(b".", 2):  # the old root lay above the new
    raise SystemExit("cannot leave the host's root folder: " + os.strerror(ctypes.get_errno()))
os.chdir("/")
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # whose parent has gone is buried at once, and takes no place
os.write(1, b"ready\\n")
while os.read(0, 1):
    try:
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        pass
    os.write(1, b"done\\n")
"""
"""Process 1: it ends, and with it every other, when whoever holds the other end of its input does. Until then it ends
all others when asked, since it alone needs no place for a new process to do so."""

ENTER = """
import _ctypes, _signal, os, sys, warnings  # all before the room's own modules could come in their place
pid, kinds, most, variables, *rest = sys.argv[1:]  # ctypes, signal and json would take as long as all else here
env = dict(variable.split("=", 1) for variable in rest[:int(variables)])
command = rest[int(variables):]
class Int(_ctypes._SimpleCData):
    _type_ = "i"
class Call(_ctypes.CFuncPtr):
    _flags_, _restype_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO, Int
setns, prctl, capset = (Call(_ctypes.dlsym(_ctypes.dlopen(None, 0), name)) for name in ("setns", "prctl", "capset"))
def call(done):
    if done:
        sys.exit("nsenter: " + os.strerror(_ctypes.get_errno()))
spaces = [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY) for kind in kinds.split(",")]
for space in spaces:
    call(setns(space, 0))
try:
    child = os.fork()
except OSError as error:
    sys.exit(f"nsenter: fork failed: {error.strerror}")
if child:
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os._exit(ended if ended >= 0 else 128 - ended)
kept = int(most)
for number in range(64):
    if not kept >> number & 1 and prctl(24, number, 0, 0, 0):  # PR_CAPBSET_DROP
        break  # the kernel knows no more of them
low, high = kept & 0xFFFFFFFF, kept >> 32
header, sets = (b"".join(number.to_bytes(4, sys.byteorder) for number in numbers) for numbers in
                ((0x20080522, 0), (low, low, 0, high, high, 0)))
call(capset(header, sets))
os.environ.clear()
os.environ.update(env)
for number in (_signal.SIGPIPE, _signal.SIGXFSZ):  # which Python ignores
    _signal.signal(number, _signal.SIG_DFL)
os.execvp(command[0], command)
"""
"""What nsenter does, and more: whoever enters has given up all rights but a container's before a program of the room
runs, since that may be anybody's. So has its environment no effect out here."""
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
    return f"{', '.join(missing)} not found; install util-linux and mount" if missing else None


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
        self._asking = threading.Lock()
        self._first: subprocess.Popen[bytes] | None = None
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
        files, numbers = f"size={self._files}m,nr_inodes={INODES}", str(PROCESSES) if own_numbers() else ""
        seen = [*(f"hide:{path}" for path in self._hidden), *(f"show:{path}" for path in shown())]
        if self._layers:
            seen = [f"layer:{path}" for path in self._layers]
        network = "own" if self._loopback else "shared"
        kept = os.path.realpath(self._kept) if self._kept else ""
        started = [self._folder, files, numbers, sys.executable, ATTEND, network, kept]
        laid_out = ["sh", "-c", SETUP, "room", *started, *seen]
        self._first = subprocess.Popen(
            [
                "unshare",
                *unshare_options("mount", "pid", "ipc", *(("net",) if self._loopback else ())),
                *laid_out,
            ],  # not bound by what is to bind those whom it ends
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": search_path(), "LC_ALL": "C"},
            start_new_session=True,
        )
        out, errors = self._first.stdout, self._first.stderr
        if not out or out.readline() != b"ready\n":
            message = errors.read().decode(errors="replace").strip()[-LONGEST_MESSAGE:] if errors else ""
            self.stop()
            why = message or "no error message"
            raise ContainerError(f"cannot create a room ({why}); run as root, or allow namespaces")
        self._pid = children(self._first.pid)[0]
        self._made = time.time()
        if self._closed:  # by somebody who would not wait for the end of this
            self.stop()
            raise ContainerError("the room was closed before it was ready")

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
        drop = f"exec {' '.join(process_limits(self._memory))} setpriv --bounding-set {CAPABILITIES} --inh-caps -all"
        if user not in (None, 0, "root"):
            drop += ' --reuid "$1" --regid "$(id -g "$1")" --init-groups'
        script = f"cd {_quoted(cwd or '/app')} && {{ {command}\n}}"
        inside = self._inside(env)
        shell_name = self._shell(inside["PATH"])
        shell = ["sh", "-c", f"{drop} sh -c '{START}' \"$0\" {shell_name}", script, str(user)]
        process = subprocess.Popen(
            [*self._enter(inside), *shell],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._outside(inside),
            start_new_session=True,
        )
        printed = [CappedOutput(stream) for stream in (process.stdout, process.stderr) if stream]
        try:
            code, late = process.wait(timeout), False
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            self.sweep()
            code, late = process.wait() and -signal.SIGKILL, True
        out, err = (heard.so_far() for heard in printed)
        return CommandResult(code, out, err, late)

    def put(self, source: str | Path, target: str) -> None:
        """Copy a file, or the content of a folder, into the room."""
        source = Path(source)
        whole, part = (source, ".") if source.is_dir() else (source.parent, source.name)
        into = target if source.is_dir() else os.path.dirname(target) or "/"
        unpack = f"mkdir -p {_quoted(into)} && tar -C {_quoted(into)} --no-same-owner -xf -"
        if not source.is_dir() and os.path.basename(target) != part:
            unpack += f" && mv -f {_quoted(f'{into}/{part}')} {_quoted(target)}"
        with subprocess.Popen(["tar", "-C", whole, "-cf", "-", "--", part], stdout=subprocess.PIPE) as packing:
            command = [*self._enter(), "sh", "-c", unpack]
            done = subprocess.run(command, stdin=packing.stdout, capture_output=True, env=self._outside())
        if packing.returncode or done.returncode:
            raise OSError(f"{source} could not be copied to {target}: {done.stderr.decode(errors='replace')[-300:]}")

    def take(self, source: str, target: str | Path) -> None:
        """Copy a file, or the content of a folder, out of the room, except links."""
        target = Path(target)
        folder = self.run(f"test -d {_quoted(source)}", cwd="/").code == 0
        inner, part = (source, ".") if folder else (os.path.dirname(source) or "/", os.path.basename(source))
        with tempfile.TemporaryDirectory() as scratch:
            archive = Path(scratch, "out.tar")
            command = [*self._enter(), "tar", "-C", inner, "--hard-dereference", "-cf", "-", "--", part]
            complaints = Path(scratch, "complaints")
            with (
                complaints.open("wb") as errors,
                subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=self._outside()) as packing,
            ):
                whole = packing.stdout is not None and stored(packing.stdout, archive)
                if not whole:
                    packing.kill()
            if not whole:
                raise OSError(f"{source} contains more than {MOST_TAKEN >> 20} MB; it is not copied out of the room")
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
        """End every process inside; returns the commands of those that were still running."""
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
        first, self._first = self._first, None
        if first is not None:
            if first.poll() is None:
                os.killpg(first.pid, signal.SIGKILL)  # --kill-child takes the room's process 1 along
            first.communicate()
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

    def _enter(self, env: Mapping[str, str] | None = None) -> list[str]:
        """A command's beginning that has the rest happen inside; a room too full for another process is cleared."""
        if len(self._alive()) > CROWD:
            self.sweep()
        entrance = self._cgroups.entrance if self._cgroups else []
        if os.geteuid():
            user, net = ["--user", "--preserve-credentials"], [] if self._network else ["--net"]
            return [*entrance, "nsenter", "--target", str(self._pid), *user, *net, "--mount", "--pid", "--ipc", "--"]
        spaces = ",".join((*(() if self._network else ("net",)), "ipc", "pid", "mnt"))
        rights = sum(1 << CAPABILITY_NUMBERS[name] for name in KEPT.split(","))
        given = [f"{name}={value}" for name, value in (env or self._inside()).items()]
        return [*entrance, sys.executable, "-ISc", ENTER, str(self._pid), spaces, str(rights), str(len(given)), *given]

    def _inside(self, env: Mapping[str, str] | None = None) -> dict[str, str]:
        """What a command inside finds in its environment."""
        return {"PATH": self._path, "HOME": self._home, "LANG": "C.UTF-8", **(env or {})}

    def _outside(self, env: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of what enters the room: nothing of ours, and nothing of the room's as far as that can be."""
        return self._inside(env) if os.geteuid() else {"PATH": search_path(), "LC_ALL": "C"}


def _quoted(text: str) -> str:
    return shlex.quote(text)


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
    """What a process prints, up to a limit; a child that outlives it may hold the pipe open for ever."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._data = stream, bytearray()
        self._thread = threading.Thread(target=self._listen, daemon=True)
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


def unpack(archive: Path, target: Path) -> None:
    """Unpack the folders and plain files of an archive into a new folder; links and devices are left out.

    By hand, as the filters of `tarfile` are younger than the oldest Python that may run this.
    """
    target.mkdir()
    with tarfile.open(archive) as tar:
        for member in tar:
            steps = [step for step in member.name.split("/") if step not in ("", ".")]
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
