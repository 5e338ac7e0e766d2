"""Attempts to escape: secrets, files, network, other processes, more privileges."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest
from isolate.captive import captive, said

ROOT = Path(__file__).parents[2]
SECRET = "sk-not-for-models-7c1d9e"

SYSCALLS = """
    import ctypes, errno, os, sys
    libc = ctypes.CDLL(None, use_errno=True)
    def call(name, *args):
        done = getattr(libc, name)(*args)
        print(name, "worked" if done >= 0 else "refused")
"""


def test_no_secret_in_the_environment_of_anybody(mechanism, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    code = """
        import glob, os
        print(os.environ)
        for path in [*glob.glob("/proc/[0-9]*/environ"), *glob.glob("/proc/[0-9]*/cmdline"), *glob.glob("/proc/*")]:
            try:
                print(path, open(path, "rb").read(100000))
            except OSError as error:
                print(path, error)
    """
    printed = "\n".join(said(code, mechanism))
    assert "/proc/1/environ" in printed
    assert SECRET not in printed
    assert f"/proc/{os.getpid()}/environ" not in printed


def test_no_file_of_the_machine(mechanism, tmp_path):
    kept = tmp_path / "key"
    kept.write_text(SECRET)
    kept.chmod(0o644)
    places = [kept, ROOT, ROOT / "pyproject.toml", Path.home() / ".bashrc", sys.prefix, "/etc/shadow", "/etc/hostname"]
    places += [
        "/proc/1/root/etc/shadow",
        "/proc/1/cwd",
        f"/proc/{os.getpid()}",
        "/sys/class",
        "/dev/mem",
        "/run",
        "/var",
    ]
    code = """
        import os, sys
        for path in sys.argv[1:]:
            try:
                os.listdir(path) if os.path.isdir(path) else open(path).read(1)
                print("read", path)
            except OSError as error:
                print("refused")
    """
    assert said(code, mechanism, *map(str, places)) == ["refused"] * len(places)


def test_the_home_holds_the_interpreter_and_nothing_else(mechanism):
    code = """
        import os, sys
        seen = []
        prefix = os.path.dirname(os.path.dirname(sys.executable))
        for folder in sys.argv[1:]:
            for top, folders, files in os.walk(folder):
                if top.startswith((prefix + "/lib", prefix + "/bin")):
                    folders.clear()
                else:
                    seen += files
        print(seen)
    """
    assert said(code, mechanism, str(Path.home()), "/home", "/mnt", "/opt", "/srv") == ["[]"]


def test_nothing_can_be_written_but_scratch(mechanism):
    code = """
        import os, sys
        tops = ["/", "/usr", "/usr/lib", "/usr/bin", "/etc", "/dev", "/tests", "/proc", "/proc/sys/kernel"]
        for top in [*tops, sys.prefix, os.path.dirname(os.__file__), "/tmp", "/app"]:
            try:
                open(f"{top}/new", "w").close()
                print(top)
            except OSError:
                pass
        for path in ("/etc/passwd", "/tests/a", sys.executable, os.__file__, "/proc/sys/kernel/core_pattern"):
            for attempt in (lambda: open(path, "a"), lambda: os.chmod(path, 0o777), lambda: os.unlink(path)):
                try:
                    attempt()
                    print(path)
                except OSError:
                    pass
    """
    assert said(code, mechanism, files={"tests/a": b""}, folders=["/app"]) == ["/tmp", "/app"]


def test_no_network_not_even_of_this_machine(mechanism):
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(f"\0calipers-{os.getpid()}")  # an abstract name, which no directory guards
        unix.listen()
        code = """
            import socket, sys
            port, name = int(sys.argv[1]), chr(0) + sys.argv[2]
            for family, place in [(2, ("127.0.0.1", port)), (2, ("192.0.2.1", 80)), (10, ("::1", port)), (1, name),
                                  (40, (2, 1)), (16, (0, 0)), (17, ("lo", 0)), (38, ("hash", "sha256"))]:
                try:
                    made = socket.socket(family, 3 if family in (16, 17) else 1 if family != 38 else 5)
                    made.settimeout(1)
                    made.bind(place) if family in (16, 17, 38) else made.connect(place)
                    print("reached", family)
                except OSError:
                    print("refused")
        """
        assert said(code, mechanism, str(tcp.getsockname()[1]), f"calipers-{os.getpid()}") == ["refused"] * 8


def test_no_other_process_can_be_signalled(mechanism):
    code = """
        import os, sys
        for pid in map(int, sys.argv[1:]):
            try:
                os.kill(pid, 0)
                print("reached")
            except OSError:
                print("refused")
        try:
            os.kill(-1, 9)  # everybody
        except ProcessLookupError:
            print("nobody else is here")
    """
    others = [os.getppid(), os.getpid()]
    assert said(code, mechanism, *map(str, others)) == ["refused", "refused", "nobody else is here"]


def test_process_1_cannot_be_ended_or_looked_into(mechanism):
    code = (
        SYSCALLS
        + """
    for number in range(1, 65):
        try:
            os.kill(1, number)
        except OSError:
            pass
    call("ptrace", 16, 1, 0, 0)
    call("process_vm_readv", 1, 0, 0, 0, 0, 0)
    for path in ("/proc/1/fd", "/proc/1/mem", "/proc/1/environ", "/proc/1/maps"):
        try:
            os.listdir(path) if path.endswith("fd") else open(path, "r+b")
            print(path)
        except OSError:
            pass
    """
    )
    assert said(code, mechanism) == ["ptrace refused", "process_vm_readv refused"]


@pytest.mark.parametrize(
    "attempt",
    [
        'call("setuid", 0)',
        'call("setgid", 0)',
        'call("setgroups", 1, (ctypes.c_int * 1)(0))',
        'call("unshare", 0x10000000)',  # a user namespace, in which it would have every capability
        'call("unshare", 0x00020000)',
        'call("mount", b"tmpfs", b"/tmp", b"tmpfs", 0, None)',
        'call("mount", None, b"/", None, 32 | 4096, None)',  # remount, read-write
        'call("umount2", b"/etc/passwd", 2)',
        'call("chroot", b"/tmp")',
        'call("setns", 0, 0)',
        'call("sethostname", b"mine", 4)',
        'call("memfd_create", b"x", 0)',  # memory that belongs to no process
        'call("shmget", 0, 1 << 30, 0o1600)',
        'call("clone", 0, 0, 0x10000000 | 17, 0)',
        'call("syscall", 435, 0, 88)',  # clone3, whose flags no filter sees
        'call("syscall", 425, 8, 0)',  # io_uring
        'call("syscall", 321, 0, 0, 0)',  # bpf
        'call("reboot", 0)',
        'call("mknod", b"/tmp/disk", 0o60666, os.makedev(8, 0))',
    ],
)
def test_no_more_rights_and_no_other_root(mechanism, attempt):
    ran = captive(SYSCALLS + f"    {attempt}", mechanism)
    refused = ran.stdout.endswith(b" refused\n") or ran.exit_code == -11  # clone without a stack
    assert refused, (ran.stdout, ran.stderr)


def test_the_classic_way_out_of_a_chroot(mechanism):
    code = """
        import os
        os.mkdir("/tmp/hole")
        up = os.open("/", os.O_RDONLY)
        try:
            os.chroot("/tmp/hole")
        except OSError:
            print("refused")
        os.fchdir(up)
        for _ in range(50):
            os.chdir("..")
        print(sorted(os.listdir(".")) == sorted(os.listdir("/")))
    """
    assert said(code, mechanism) == ["refused", "True"]


def test_a_program_with_the_set_user_bit_gives_nothing(mechanism):
    ran = captive("import os; os.execv('/usr/bin/su', ['su', '-c', 'id -u'])", mechanism, stdin=b"\n")
    assert ran.exit_code != 0
    assert b"0\n" not in ran.stdout
