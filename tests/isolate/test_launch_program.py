"""The input of a program in the sandbox, and its output."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from isolate.captive import captive, said

from calipers.errors import InputError
from calipers.isolate import Limits, Ran, run
from calipers.isolate.launch import interpreter


@pytest.mark.parametrize(
    ("script", "stdin", "expected"),
    [
        ("cat; echo no >&2; exit 3", b"in", (3, b"in", b"no\n")),
        ("kill -9 $$", b"", (-signal.SIGKILL, b"", b"")),
        ("true", b"x" * 5_000_000, (0, b"", b"")),  # nobody reads it, and nobody waits for that
        ("head -c 3", b"x" * 5_000_000, (0, b"xxx", b"")),
        ("printf '\\377\\000'", b"", (0, b"\xff\x00", b"")),
        ("exec 1>&- 2>&-; sleep 0.2", b"", (0, b"", b"")),  # closed streams are not the end of it
    ],
)
def test_streams_and_exit_status(mechanism, script, stdin, expected):
    ran = run(["/bin/sh", "-c", script], stdin=stdin, mechanism=mechanism)
    assert (ran.exit_code, ran.stdout, ran.stderr) == expected
    assert (ran.stopped, ran.cut) == ("", False)


def test_what_is_not_there_says_so(mechanism):
    ran = run(["/no/such/program"], mechanism=mechanism)
    assert (ran.exit_code, ran.stderr) == (127, b"/no/such/program: No such file or directory\n")


def test_it_is_nobody_with_nothing(mechanism):
    code = """
        import os
        print(os.getresuid(), os.getresgid(), os.getcwd(), sorted(os.environ), os.listdir("/tmp"))
        held = [line.split() for line in open("/proc/self/status") if line[:3] in ("Cap", "NoN", "Sec")]
        print(*(f"{name}{int(value, 16)}" for name, value in held if name != "Seccomp_filters:"))
        print([number for number in range(3, 1000) if os.path.exists(f"/proc/self/fd/{number}")])
    """
    who, rights, streams = said(code, mechanism)
    nobody = (65534, 65534, 65534)
    assert who == f"{nobody} {nobody} /tmp ['HOME', 'LANG', 'PATH', 'TMPDIR'] []"
    assert rights == "CapInh:0 CapPrm:0 CapEff:0 CapBnd:0 CapAmb:0 NoNewPrivs:1 Seccomp:2"
    assert streams == "[]"  # beyond stdin, stdout and stderr


def test_inputs_are_there_to_read_and_files_come_back(mechanism):
    ran = run(
        ["/bin/sh", "-c", "cat /tests/deep/a.txt > /logs/verifier/out; echo x > /tests/deep/a.txt; echo $?"],
        files={"tests/deep/a.txt": b"as it was"},
        folders=["/logs/verifier"],
        collect=["/logs/verifier/out", "/logs/verifier/none"],
        mechanism=mechanism,
    )
    assert ran.files == {"/logs/verifier/out": b"as it was"}
    assert ran.stdout != b"0\n"


@pytest.mark.parametrize(
    ("made", "comes_back"),
    [
        ("echo fine > out", True),
        ("mkdir out", False),
        ("mkfifo out", False),  # which would keep a reader waiting
        ("echo x > other; ln -s other out", False),  # a link may lead anywhere
        ("head -c 2000000 /dev/zero > out", False),  # longer than output may be
    ],
)
def test_only_ordinary_files_come_back(mechanism, made, comes_back):
    script = f"cd /logs; {made}"
    ran = run(["/bin/sh", "-c", script], folders=["/logs"], collect=["/logs/out"], mechanism=mechanism)
    assert ran.exit_code == 0
    assert (ran.files != {}) is comes_back


@pytest.mark.parametrize("name", ["../a", "/a", "", "etc/passwd", "tests/../../a", "tmp/a"])
def test_inputs_stay_where_they_belong(mechanism, name):
    with pytest.raises(InputError, match="cannot be copied into the sandbox"):
        run(["/bin/true"], files={name: b""}, mechanism=mechanism)


def test_sandboxes_side_by_side_share_no_limit(mechanism):
    code = """
        import os, sys, time
        for _ in range(15):
            if os.fork() == 0:
                sys.stdin.read()  # until all are there
                os._exit(0)
        print("all")
    """
    limits = Limits(processes=20)
    with ThreadPoolExecutor(4) as pool:
        every = list(pool.map(lambda _: said(code, mechanism, limits=limits), range(4)))
    assert every == [["all"]] * 4


def test_whoever_started_it_may_change_their_mind(mechanism):
    stop, found = threading.Event(), list[Ran]()
    thread = threading.Thread(target=lambda: found.append(captive("while True: pass", mechanism, stop=stop)))
    thread.start()
    stop.set()
    thread.join()
    assert [ran.stopped for ran in found] == ["caller"]


def test_the_interpreter_is_all_there_is_of_its_home(mechanism):
    code = """
        import os, sys
        print(sys.executable, len(os.listdir("/etc")), os.path.exists("/sys"), os.path.exists("/home"))
    """
    assert said(code, mechanism) == [f"{interpreter()} {_etc()} False False"]


def _etc() -> int:
    from pathlib import Path

    return 1 + sum(Path("/etc", name).exists() for name in ("ld.so.cache", "alternatives"))
