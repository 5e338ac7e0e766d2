"""The two processes of ours that a container has: the supervisor outside, and its process 1 inside.

Process 1 is a fork of the supervisor, which builds the container's file system and leaves the host's root folder. It
ends, and with it every other process inside, when the other end of its input is closed or the supervisor ends. Until
then it kills all other processes on request, which it can do even if no new process can be started.

Every command is a fork of the supervisor, too, which enters the container, because starting an interpreter for each
would take longer than most commands. Before it executes a program of the container, which may be untrusted, it has
dropped all capabilities except a container's; and before that it has closed everything of ours that a process inside
could use.

`container` sends this file, compiled, to an interpreter started without `site`. Modules that take long to load (ctypes,
signal, socket) are not imported, and nothing is imported after the start, when a module of the container might be
imported instead.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # has no stubs
import _socket
import fcntl
import marshal
import os
import resource
import select
import sys
import warnings  # noqa: F401  # imported now, because execvpe would import it inside the container

from calipers.isolate.inside.libc import Long, check, function

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, NoReturn

REMOUNT, BIND, REC, PRIVATE, RDONLY = 32, 4096, 16384, 1 << 18, 1  # mount(2)
KEPT_FLAGS = 2 | 4 | 8 | 1024 | 2048  # nosuid, nodev, noexec, noatime, nodiratime: the same in mount(2) and statvfs(3)
RELATIME, ST_RELATIME = 1 << 21, 4096
DETACH = 2  # umount2(2)
NEWNS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000  # unshare(2)
PDEATHSIG, DUMPABLE, CAPBSET_DROP = 1, 4, 24  # prctl(2)
CAPABILITY_VERSION = 0x20080522
PIVOT_ROOT = {"x86_64": 155, "i686": 217, "ppc64le": 203, "s390x": 217}  # elsewhere it is 41
SET_FLAGS, UP_AND_RUNNING = 0x8914, 0x41  # ioctl request and flags of a network interface
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
OF_THE_KERNEL = ("sys", "sysrq-trigger", "irq", "bus", "fs")  # entries of /proc that are made read-only
PLACES = ("/dev", "/proc", "/sys", "/tmp", "/etc")
LOGS = ("/logs", "/logs/agent", "/logs/verifier", "/logs/artifacts")
APP = "/app"
UNSHOWN = ("/proc", "/sys", "/dev", "/tmp", "/run")
NOT_JOINED, NOT_STARTED = 125, 1  # exit codes
LENGTH = 8  # bytes before a message with its length


c_mount, c_umount, c_unshare, c_setns, c_prctl, c_capset, c_syscall = map(
    function, ("mount", "umount2", "unshare", "setns", "prctl", "capset", "syscall")
)


def mount(source: str, target: str, kind: str | None, flags: int = 0, options: str = "") -> None:
    """Mount a file system; OSError if that fails."""
    paths = (source.encode(errors="surrogateescape"), target.encode(errors="surrogateescape"))
    data = options.encode(errors="surrogateescape") or None
    check(f"mount {kind or source}", c_mount(*paths, kind.encode() if kind else None, Long(flags), data))


def bind(source: str, target: str, read_only: bool = False) -> None:
    """Show a file or folder at a second path."""
    mount(source, target, None, BIND)
    if read_only:
        flags = os.statvfs(target).f_flag
        kept = flags & KEPT_FLAGS | (RELATIME if flags & ST_RELATIME else 0)
        mount("none", target, None, REMOUNT | BIND | RDONLY | kept)


def attempted(*arguments: Any) -> bool:
    """Call `mount`; returns whether it succeeded."""
    try:
        mount(*arguments)
    except OSError:
        return False
    return True


# -- process 1


def furnish(settings: Mapping[str, Any]) -> str:
    """Build the container's file system below its folder; returns the path of its root."""
    base, kept = settings["base"], settings["kept"]
    root = f"{base}/root"
    mount("none", "/", None, REC | PRIVATE)
    mount("room", base, "tmpfs", 0, f"mode=755,{settings['files']}")
    for name in ("upper", "work", "root", "tmp"):
        os.mkdir(f"{base}/{name}")
    os.chmod(f"{base}/tmp", 0o1777)
    if settings["layers"]:
        _furnish_image(base, root, settings)
    else:
        _furnish_machine(base, root, settings)
    mount("dev", f"{root}/dev", "tmpfs", 0, "mode=755,size=64k")
    for device in DEVICES:
        os.close(os.open(f"{root}/dev/{device}", os.O_CREAT | os.O_WRONLY, 0o666))
        bind(f"/dev/{device}", f"{root}/dev/{device}")
    for folder in ("shm", "pts"):
        os.mkdir(f"{root}/dev/{folder}")
    mount("shm", f"{root}/dev/shm", "tmpfs", 0, "mode=1777,size=256m")
    if attempted("devpts", f"{root}/dev/pts", "devpts", 0, "newinstance,ptmxmode=0666"):
        os.symlink("pts/ptmx", f"{root}/dev/ptmx")
    for name, target in LINKS.items():
        os.symlink(target, f"{root}/dev/{name}")
    mount("proc", f"{root}/proc", "proc")
    if settings["numbers"]:
        _write(f"{root}/proc/sys/kernel/pid_max", b"%d" % settings["numbers"])
    for path in (f"{root}/proc/{name}" for name in OF_THE_KERNEL):
        if os.path.exists(path):
            bind(path, path, read_only=True)
    attempted("sys", f"{root}/sys", "tmpfs", 0, "mode=755,size=0")
    for folder in () if kept else LOGS[1:]:
        os.chmod(root + folder, 0o777)
    return root


def _furnish_image(base: str, root: str, settings: Mapping[str, Any]) -> None:
    """Build the root from the layers of an image, with the machine's files for resolving host names."""
    layers, kept = settings["layers"], settings["kept"]
    for number, layer in enumerate(layers):
        os.symlink(layer, f"{base}/{number}")
    lower = ":".join(str(number) for number in reversed(range(len(layers))))
    os.mkdir(f"{base}/origin")
    os.mkdir(f"{base}/none")
    os.symlink(kept or base, f"{base}/kept")
    os.chdir(base)  # so that the layers have short names, as all mount options must fit into one page
    mount("overlay", "root", "overlay", 0, f"lowerdir={lower},upperdir=kept/upper,workdir=kept/work")
    mount("overlay", "origin", "overlay", RDONLY, f"lowerdir={lower}:none")
    os.dup2(os.open("origin", os.O_RDONLY | os.O_DIRECTORY), settings["origin"])
    # a folder of the image may be a link that leads out of it, so links are removed before anything below is touched
    for folder in PLACES if kept else (*PLACES, *LOGS, APP):
        if os.path.islink(root + folder):
            os.unlink(root + folder)
        if not os.path.isdir(root + folder):
            os.mkdir(root + folder)
    for name in ("resolv.conf", "hosts"):
        if os.path.lexists(f"{root}/etc/{name}"):
            os.unlink(f"{root}/etc/{name}")
        if os.path.exists(f"/etc/{name}"):
            with open(f"/etc/{name}", "rb") as ours, open(f"{root}/etc/{name}", "xb") as theirs:
                theirs.write(ours.read())


def _furnish_machine(base: str, root: str, settings: Mapping[str, Any]) -> None:
    """Build the root from the machine's own root folder, without the hidden folders."""
    options = f"lowerdir=/,upperdir={base}/upper,workdir={base}/work"
    # without root, a folder with mounts in it, such as /, cannot be a layer; then each folder below it is one
    if not attempted("overlay", root, "overlay", 0, options):
        bind(root, root)
    if not os.path.exists(f"{root}/usr"):
        for path in sorted(f"/{name}" for name in os.listdir("/") if not name.startswith(".")):
            if path in UNSHOWN:
                os.mkdir(root + path)
            elif os.path.islink(path):
                os.symlink(os.readlink(path), root + path)
            elif os.path.isdir(path):
                for folder in (root + path, f"{base}/uppers{path}", f"{base}/works{path}"):
                    os.makedirs(folder, exist_ok=True)
                options = f"userxattr,lowerdir={path},upperdir={base}/uppers{path},workdir={base}/works{path}"
                attempted("overlay", root + path, "overlay", 0, options)
    if not os.path.exists(f"{root}/usr/bin"):
        raise OSError("overlay: /usr cannot be a layer")
    for path in settings["hidden"]:
        if os.path.isdir(root + path):
            mount("hidden", root + path, "tmpfs", 0, "mode=755,size=64m")
    for path in settings["shown"]:
        os.makedirs(root + path, exist_ok=True)
        bind(path, root + path, read_only=True)
    bind(f"{base}/tmp", f"{root}/tmp")
    for folder in (*LOGS[1:], APP):
        os.makedirs(root + folder, exist_ok=True)


def be_first(settings: Mapping[str, Any]) -> NoReturn:
    """The main function of process 1."""
    os.closerange(3, _last() + 1)
    check("prctl", c_prctl(PDEATHSIG, _signal.SIGKILL, 0, 0, 0))
    check("unshare", c_unshare(NEWNS | NEWIPC | (NEWNET if settings["loopback"] else 0)))
    os.chdir(furnish(settings))
    if settings["loopback"]:  # the loopback interface of a new namespace is down
        any_socket = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        name, flags = b"lo".ljust(16, b"\0"), UP_AND_RUNNING.to_bytes(2, sys.byteorder)
        fcntl.ioctl(any_socket.fileno(), SET_FLAGS, name + flags + bytes(14))
        any_socket.close()
    # by system calls and not by a program, which would be a program of the container with all our capabilities
    check("pivot_root", c_syscall(PIVOT_ROOT.get(os.uname().machine, 41), b".", b"."))
    check("umount", c_umount(b".", DETACH))  # the old root was mounted over the new
    os.chdir("/")
    _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)  # orphans are reaped at once, and do not count as processes
    os.write(1, b"ready\n")
    while os.read(0, 1):
        kill_all()
        os.write(1, b"done\n")
    os._exit(0)


def kill_all() -> None:
    """Kill every process of the namespace except the caller."""
    try:
        os.kill(-1, _signal.SIGKILL)
    except ProcessLookupError:
        return  # there was none


# -- the supervisor


class Supervisor:
    """Starts commands inside the container, reports their exit codes, and kills a command on request."""

    def __init__(self, channel: Any, first: int, groups: Sequence[int], rights: int) -> None:
        self._channel, self._first, self._groups, self._rights = channel, first, groups, rights
        self._alive = True  # whether process 1 is alive
        self._spaces: dict[str, int] = {}  # kind -> descriptor of the container's namespace
        self._running: dict[int, tuple[int, int]] = {}  # process -> number of the command, pipe for its exit code

    def serve(self) -> None:
        """Serve until the channel is closed, or process 1 ends; then no process of the container is left."""
        ended, wake = os.pipe()
        os.set_blocking(wake, False)
        _signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        _signal.signal(_signal.SIGCHLD, lambda number, frame: None)  # needs a handler to write to the wakeup descriptor
        poll = select.poll()
        for descriptor in (ended, self._channel.fileno()):
            poll.register(descriptor, select.POLLIN)
        self._reap(os.WNOHANG)  # processes that ended before the handler was set
        open_channel = True
        while open_channel and self._alive:
            for descriptor, _ in poll.poll():
                if descriptor == ended:
                    os.read(ended, 1 << 12)
                    self._reap(os.WNOHANG)
                else:
                    open_channel = self._answer()
        if self._alive:
            os.kill(self._first, _signal.SIGKILL)
            self._reap(0)

    def _reap(self, options: int) -> None:
        """Report the exit codes of commands that have ended; process 1, which is always the last to end, ends this."""
        while self._alive:
            process, status = os.waitpid(-1, options)
            if not process:
                return
            self._alive = process != self._first
            if process in self._running:
                code = os.waitstatus_to_exitcode(status)
                _report(self._running.pop(process)[1], code if code >= 0 else 128 - code)

    def _answer(self) -> bool:
        """Handle the next message; returns False if the channel is closed."""
        message, descriptors = receive(self._channel)
        if message is None:
            return False
        number, request = message
        if request is None:
            for process, (command, _) in self._running.items():
                if command == number:
                    os.kill(process, _signal.SIGKILL)
            return True
        *streams, report = descriptors
        try:
            process = self._start(request, streams)
            self._running[process] = (number, report)
        except OSError as error:
            os.write(streams[2], f"nsenter: {error.strerror}\n".encode())
            _report(report, NOT_STARTED)
        for stream in streams:
            os.close(stream)
        return True

    def _start(self, request: Mapping[str, Any], streams: Sequence[int]) -> int:
        """Fork a process that enters the container and executes a command; returns its pid."""
        kinds = ("ipc", "mnt") if request["network"] else ("net", "ipc", "mnt")
        for kind in kinds:
            if kind not in self._spaces:
                self._spaces[kind] = os.open(f"/proc/{self._first}/ns/{kind}", os.O_RDONLY)
        last = _last()
        try:
            process = os.fork()
        except OSError as error:
            raise OSError(error.errno, f"fork failed: {error.strerror}") from None
        if process:
            return process
        code = NOT_STARTED
        try:
            os.setpgid(0, 0)
            for descriptor, stream in enumerate(streams):
                os.dup2(stream, descriptor)
            code = NOT_JOINED
            for group in self._groups:
                os.write(group, b"0")
            code = NOT_STARTED
            die_early()
            for kind in kinds:
                check("nsenter", c_setns(self._spaces[kind], 0))
            # Until here it has more capabilities than any process inside, so none of them can inspect it. Now it closes
            # all our descriptors; and until exec its memory, a copy of the supervisor's, cannot be read from inside.
            os.closerange(3, last + 1)
            check("prctl", c_prctl(DUMPABLE, 0, 0, 0, 0))
            give_up(self._rights)
            for kind, most in request["limits"]:
                hard = resource.getrlimit(kind)[1]
                resource.setrlimit(kind, (most if hard < 0 else min(most, hard),) * 2)
            for number in (
                _signal.SIGPIPE,
                _signal.SIGXFSZ,
            ):  # Python ignores these signals; programs expect the default
                _signal.signal(number, _signal.SIG_DFL)
            os.execvpe(request["argv"][0], request["argv"], request["env"])
        except (OSError, ValueError) as error:
            os.write(2, f"{request['argv'][0]}: {_message(error)}\n".encode(errors="replace"))
        finally:
            os._exit(code)


def die_early() -> None:
    """If possible, make this process one of the first to be killed when the machine runs out of memory."""
    try:
        _write("/proc/self/oom_score_adj", b"1000")
    except OSError:
        return


def give_up(kept: int) -> None:
    """Drop all capabilities except those in the bit mask ``kept``, irrevocably."""
    for number in range(64):
        if not kept >> number & 1 and c_prctl(CAPBSET_DROP, number, 0, 0, 0):
            break  # beyond the last capability of this kernel
    low, high = kept & 0xFFFFFFFF, kept >> 32
    header, sets = (
        b"".join(number.to_bytes(4, sys.byteorder) for number in numbers)
        for numbers in ((CAPABILITY_VERSION, 0), (low, low, 0, high, high, 0))
    )
    check("capset", c_capset(header, sets))


def receive(channel: Any) -> tuple[Any, list[int]]:
    """The next message and its descriptors; (None, []) if the channel is closed."""
    data, descriptors = b"", list[int]()
    most = LENGTH
    while len(data) < most:
        block, extra, _, _ = channel.recvmsg(most - len(data), _socket.CMSG_SPACE(4 * 4), _socket.MSG_CMSG_CLOEXEC)
        if not block:
            return None, []
        for _, _, numbers in extra:
            descriptors += memoryview(numbers).cast("i")
        data += block
        if len(data) == most == LENGTH:
            most += int.from_bytes(data, "little")
    return marshal.loads(data[LENGTH:]), descriptors


def _last() -> int:
    """The highest open descriptor."""
    return max(map(int, os.listdir("/proc/self/fd")))


def _message(error: Exception) -> str:
    """The message of an error, with the file if it is known."""
    if not isinstance(error, OSError):
        return str(error)
    return f"{os.fsdecode(error.filename)}: {error.strerror}" if error.filename else error.strerror or str(error)


def _report(pipe: int, code: int) -> None:
    """Report the exit code of a command, if its pipe is still open."""
    try:
        os.write(pipe, b"%d" % code)
    except BrokenPipeError:
        return
    finally:
        os.close(pipe)


def _write(path: str, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY)
    try:
        os.write(file, data)
    finally:
        os.close(file)


def main(descriptor: int, settings: Mapping[str, Any]) -> NoReturn:
    """Create the container, and serve it until the channel with this descriptor is closed."""
    os.set_inheritable(descriptor, False)
    _signal.signal(
        _signal.SIGINT, _signal.SIG_DFL
    )  # without Python's handler, process 1 ignores interrupts from inside
    user, group = os.geteuid(), os.getegid()
    try:
        groups = [os.open(path, os.O_WRONLY) for path in settings["groups"]]
        check("unshare", c_unshare(NEWPID | (NEWUSER if user else 0)))
        if user:  # an ordinary user becomes root of the new user namespace
            _write("/proc/self/setgroups", b"deny")
            _write("/proc/self/uid_map", b"0 %d 1" % user)
            _write("/proc/self/gid_map", b"0 %d 1" % group)
        first = os.fork()
        if not first:
            be_first(settings)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1):  # process 1 keeps them for itself
            os.dup2(nothing, stream)
        os.close(nothing)
        Supervisor(_socket.socket(fileno=descriptor), first, groups, settings["rights"]).serve()
    except OSError as error:
        os.write(2, f"{_message(error)}\n".encode(errors="replace"))
    finally:
        os._exit(1)
