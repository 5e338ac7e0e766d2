"""The two processes of ours that a container has: the supervisor, outside of it, and its process 1, inside.

Process 1 is a fork of the supervisor that furnishes the container and leaves the host's root folder. It ends, and with
it every other process inside, when whoever holds the other end of its input does, or the supervisor. Until then it ends
all others when asked, since it alone needs no place for a new process to do so.

Every command is a fork of the supervisor too, which enters the container: an interpreter for each would take longer
than most commands do. It has given up all rights but a container's before a program of the container runs, since that
may be anybody's, and before that it holds nothing of ours any more that somebody inside could use.

`container` sends this file, compiled, to an interpreter that has not even `site`. Nothing is imported that takes long
to load (ctypes, signal, socket), and nothing after the start, where a module of the container's could come in its
place.
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
import warnings  # noqa: F401  # execvpe imports it, which is too late there

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
SET_FLAGS, UP_AND_RUNNING = 0x8914, 0x41  # of a network interface
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
OF_THE_KERNEL = ("sys", "sysrq-trigger", "irq", "bus", "fs")  # in /proc, and nobody's to write to
PLACES = ("/dev", "/proc", "/sys", "/tmp", "/etc")
LOGS = ("/logs", "/logs/agent", "/logs/verifier", "/logs/artifacts")
APP = "/app"
UNSHOWN = ("/proc", "/sys", "/dev", "/tmp", "/run")
NOT_JOINED, NOT_STARTED = 125, 1  # exit codes
LENGTH = 8  # bytes before a message that say how long it is


c_mount, c_umount, c_unshare, c_setns, c_prctl, c_capset, c_syscall = map(
    function, ("mount", "umount2", "unshare", "setns", "prctl", "capset", "syscall")
)


def mount(source: str, target: str, kind: str | None, flags: int = 0, options: str = "") -> None:
    """Mount something; OSError where that fails."""
    words = (source.encode(errors="surrogateescape"), target.encode(errors="surrogateescape"))
    data = options.encode(errors="surrogateescape") or None
    check(f"mount {kind or source}", c_mount(*words, kind.encode() if kind else None, Long(flags), data))


def bind(source: str, target: str, read_only: bool = False) -> None:
    """Show a file or folder at a second place."""
    mount(source, target, None, BIND)
    if read_only:
        known = os.statvfs(target).f_flag
        kept = known & KEPT_FLAGS | (RELATIME if known & ST_RELATIME else 0)
        mount("none", target, None, REMOUNT | BIND | RDONLY | kept)


def attempted(*words: Any) -> bool:
    """Whether something could be mounted."""
    try:
        mount(*words)
    except OSError:
        return False
    return True


# -- process 1


def furnish(settings: Mapping[str, Any]) -> str:
    """Make the container's file system below its folder; its root."""
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
    for place in (f"{root}/proc/{name}" for name in OF_THE_KERNEL):
        if os.path.exists(place):
            bind(place, place, read_only=True)
    attempted("sys", f"{root}/sys", "tmpfs", 0, "mode=755,size=0")
    for folder in () if kept else LOGS[1:]:
        os.chmod(root + folder, 0o777)
    return root


def _furnish_image(base: str, root: str, settings: Mapping[str, Any]) -> None:
    """The layers of an image, and of the machine only what tells names of hosts."""
    layers, kept = settings["layers"], settings["kept"]
    for number, layer in enumerate(layers):
        os.symlink(layer, f"{base}/{number}")
    lower = ":".join(str(number) for number in reversed(range(len(layers))))
    os.mkdir(f"{base}/origin")
    os.mkdir(f"{base}/none")
    os.symlink(kept or base, f"{base}/kept")
    os.chdir(base)  # the layers' names are short: all of them must fit into one page
    mount("overlay", "root", "overlay", 0, f"lowerdir={lower},upperdir=kept/upper,workdir=kept/work")
    mount("overlay", "origin", "overlay", RDONLY, f"lowerdir={lower}:none")
    os.dup2(os.open("origin", os.O_RDONLY | os.O_DIRECTORY), settings["origin"])
    # What an image holds may be a link that leads out of it: nothing below it is touched before that is known.
    for place in PLACES if kept else (*PLACES, *LOGS, APP):
        if os.path.islink(root + place):
            os.unlink(root + place)
        if not os.path.isdir(root + place):
            os.mkdir(root + place)
    for name in ("resolv.conf", "hosts"):
        if os.path.lexists(f"{root}/etc/{name}"):
            os.unlink(f"{root}/etc/{name}")
        if os.path.exists(f"/etc/{name}"):
            with open(f"/etc/{name}", "rb") as ours, open(f"{root}/etc/{name}", "xb") as theirs:
                theirs.write(ours.read())


def _furnish_machine(base: str, root: str, settings: Mapping[str, Any]) -> None:
    """The machine's own root folder, without what is hidden."""
    options = f"lowerdir=/,upperdir={base}/upper,workdir={base}/work"
    # Without root, a folder with mounts in it, as / is, cannot be a layer: then each folder below it is one by itself.
    if not attempted("overlay", root, "overlay", 0, options):
        bind(root, root)
    if not os.path.exists(f"{root}/usr"):
        for place in sorted(f"/{name}" for name in os.listdir("/") if not name.startswith(".")):
            if place in UNSHOWN:
                os.mkdir(root + place)
            elif os.path.islink(place):
                os.symlink(os.readlink(place), root + place)
            elif os.path.isdir(place):
                for folder in (root + place, f"{base}/uppers{place}", f"{base}/works{place}"):
                    os.makedirs(folder, exist_ok=True)
                options = f"userxattr,lowerdir={place},upperdir={base}/uppers{place},workdir={base}/works{place}"
                attempted("overlay", root + place, "overlay", 0, options)
    if not os.path.exists(f"{root}/usr/bin"):
        raise OSError("overlay: /usr cannot be a layer")
    for place in settings["hidden"]:
        if os.path.isdir(root + place):
            mount("hidden", root + place, "tmpfs", 0, "mode=755,size=64m")
    for place in settings["shown"]:
        os.makedirs(root + place, exist_ok=True)
        bind(place, root + place, read_only=True)
    bind(f"{base}/tmp", f"{root}/tmp")
    for folder in (*LOGS[1:], APP):
        os.makedirs(root + folder, exist_ok=True)


def be_first(settings: Mapping[str, Any]) -> NoReturn:
    """The life of process 1."""
    os.closerange(3, _last() + 1)
    check("prctl", c_prctl(PDEATHSIG, _signal.SIGKILL, 0, 0, 0))
    check("unshare", c_unshare(NEWNS | NEWIPC | (NEWNET if settings["loopback"] else 0)))
    os.chdir(furnish(settings))
    if settings["loopback"]:  # which is down at first
        any_socket = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        name, flags = b"lo".ljust(16, b"\0"), UP_AND_RUNNING.to_bytes(2, sys.byteorder)
        fcntl.ioctl(any_socket.fileno(), SET_FLAGS, name + flags + bytes(14))
        any_socket.close()
    # By calls, and no program: it would be one of the container's, with all our rights.
    check("pivot_root", c_syscall(PIVOT_ROOT.get(os.uname().machine, 41), b".", b"."))
    check("umount", c_umount(b".", DETACH))  # the old root lay above the new
    os.chdir("/")
    _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)  # whose parent has gone is buried at once, and takes no place
    os.write(1, b"ready\n")
    while os.read(0, 1):
        kill_all()
        os.write(1, b"done\n")
    os._exit(0)


def kill_all() -> None:
    """Kill every process of the namespace but the caller."""
    try:
        os.kill(-1, _signal.SIGKILL)
    except ProcessLookupError:
        return  # there was none


# -- the supervisor


class Supervisor:
    """It starts commands, says how each ended, and ends one when asked."""

    def __init__(self, channel: Any, first: int, groups: Sequence[int], rights: int) -> None:
        self._channel, self._first, self._groups, self._rights = channel, first, groups, rights
        self._alive = True  # process 1
        self._spaces: dict[str, int] = {}  # descriptors of the container's namespaces
        self._running: dict[int, tuple[int, int]] = {}  # by process: the command's number, and where to say its end

    def serve(self) -> None:
        """Until the channel ends, or process 1 does; then nobody of the container is left."""
        ended, wake = os.pipe()
        os.set_blocking(wake, False)
        _signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        _signal.signal(_signal.SIGCHLD, lambda number, frame: None)  # which is enough to be woken by one
        poll = select.poll()
        for descriptor in (ended, self._channel.fileno()):
            poll.register(descriptor, select.POLLIN)
        self._reap(os.WNOHANG)  # who ended before there was a handler
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

    def _reap(self, how: int) -> None:
        """Say of commands that have ended how, until process 1 has: it is always the last."""
        while self._alive:
            process, status = os.waitpid(-1, how)
            if not process:
                return
            self._alive = process != self._first
            if process in self._running:
                code = os.waitstatus_to_exitcode(status)
                _say(self._running.pop(process)[1], code if code >= 0 else 128 - code)

    def _answer(self) -> bool:
        """Do what the next message says; False when there is none any more."""
        message, descriptors = receive(self._channel)
        if message is None:
            return False
        number, request = message
        if request is None:
            for process, (command, _) in self._running.items():
                if command == number:
                    os.kill(process, _signal.SIGKILL)
            return True
        *streams, told = descriptors
        try:
            process = self._start(request, streams)
            self._running[process] = (number, told)
        except OSError as error:
            os.write(streams[2], f"nsenter: {error.strerror}\n".encode())
            _say(told, NOT_STARTED)
        for stream in streams:
            os.close(stream)
        return True

    def _start(self, request: Mapping[str, Any], streams: Sequence[int]) -> int:
        """Fork a command into the container, of whose processes each fork of ours is one."""
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
            # Now it still has more rights than anybody inside, who so cannot look at it; then it holds nothing of ours,
            # and until it is another program its memory, a copy of the supervisor's, stays closed to them.
            os.closerange(3, last + 1)
            check("prctl", c_prctl(DUMPABLE, 0, 0, 0, 0))
            give_up(self._rights)
            for what, most in request["limits"]:
                hard = resource.getrlimit(what)[1]
                resource.setrlimit(what, (most if hard < 0 else min(most, hard),) * 2)
            for number in (_signal.SIGPIPE, _signal.SIGXFSZ):  # which Python ignores
                _signal.signal(number, _signal.SIG_DFL)
            os.execvpe(request["argv"][0], request["argv"], request["env"])
        except (OSError, ValueError) as error:
            os.write(2, f"{request['argv'][0]}: {_why(error)}\n".encode(errors="replace"))
        finally:
            os._exit(code)


def die_early() -> None:
    """Be among the first that the kernel ends when the machine has no memory left, where that can be had."""
    try:
        _write("/proc/self/oom_score_adj", b"1000")
    except OSError:
        return


def give_up(kept: int) -> None:
    """Have no other rights than these, and no way to others; the numbers of capabilities are its bits."""
    for number in range(64):
        if not kept >> number & 1 and c_prctl(CAPBSET_DROP, number, 0, 0, 0):
            break  # the kernel knows no more of them
    low, high = kept & 0xFFFFFFFF, kept >> 32
    header, sets = (
        b"".join(number.to_bytes(4, sys.byteorder) for number in numbers)
        for numbers in ((CAPABILITY_VERSION, 0), (low, low, 0, high, high, 0))
    )
    check("capset", c_capset(header, sets))


def receive(channel: Any) -> tuple[Any, list[int]]:
    """The next message and the descriptors that came with it; None when there is none any more."""
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
    """The highest descriptor."""
    return max(map(int, os.listdir("/proc/self/fd")))


def _why(error: Exception) -> str:
    """What went wrong, and where if that is known."""
    if not isinstance(error, OSError):
        return str(error)
    return f"{os.fsdecode(error.filename)}: {error.strerror}" if error.filename else error.strerror or str(error)


def _say(told: int, code: int) -> None:
    """Say how a command ended, if somebody still wants to know."""
    try:
        os.write(told, b"%d" % code)
    except BrokenPipeError:
        return
    finally:
        os.close(told)


def _write(path: str, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY)
    try:
        os.write(file, data)
    finally:
        os.close(file)


def main(descriptor: int, settings: Mapping[str, Any]) -> NoReturn:
    """Make the container, and serve it until the end of the channel with this descriptor."""
    os.set_inheritable(descriptor, False)
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # Python would end of it; process 1 now hears none from inside
    user, group = os.geteuid(), os.getegid()
    try:
        groups = [os.open(path, os.O_WRONLY) for path in settings["groups"]]
        check("unshare", c_unshare(NEWPID | (NEWUSER if user else 0)))
        if user:  # whose rights end at a user namespace, in which he is root
            _write("/proc/self/setgroups", b"deny")
            _write("/proc/self/uid_map", b"0 %d 1" % user)
            _write("/proc/self/gid_map", b"0 %d 1" % group)
        first = os.fork()
        if not first:
            be_first(settings)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1):  # they are process 1's alone
            os.dup2(nothing, stream)
        os.close(nothing)
        Supervisor(_socket.socket(fileno=descriptor), first, groups, settings["rights"]).serve()
    except OSError as error:
        os.write(2, f"{_why(error)}\n".encode(errors="replace"))
    finally:
        os._exit(1)
