"""What candidates did to be judged by nobody, or by themselves: the limits of process 1, its pipes, its memory.

A candidate that breaks its verifier would be left out instead of failing. So each attack here must leave process 1 at
work, which is shown by the test that comes after the attack: it is run, and its answer comes back.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from isolate.captive import alive, as_ordinary_user, captive, said

from calipers.clients import Completion
from calipers.isolate import Limits, run
from calipers.tasks import Task
from calipers.verifiers.python_tests import PYTHON_TESTS, CandidateOutput, ask
from calipers.verifiers.test_sh import FOLDERS, REWARD_TXT

NUMBERS = {"x86_64": (251, 314), "aarch64": (30, 274)}[os.uname().machine]  # ioprio_set, sched_setattr

# each is tried on process 1, on all processes of the user, and on the group of process 1; none may work
ATTACKS = {
    "files": "resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0))",
    "file size": "resource.prlimit(1, resource.RLIMIT_FSIZE, (0, 0))",
    "processes": "resource.prlimit(1, resource.RLIMIT_NPROC, (0, 0))",
    "memory": "resource.prlimit(1, resource.RLIMIT_AS, (0, 0))",
    "computing": "resource.prlimit(1, resource.RLIMIT_CPU, (0, 0))",
    "priority": "os.setpriority(os.PRIO_PROCESS, 1, 19)",
    "priority of all": "os.setpriority(os.PRIO_USER, 0, 19)",
    "priority of its group": "os.setpriority(os.PRIO_PGRP, 1, 19)",
    "scheduler": "os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0))",
    "parameters": "os.sched_setparam(1, os.sched_param(0))",
    "processor": "os.sched_setaffinity(1, {min(os.sched_getaffinity(0))})",
    "attributes": f"call({NUMBERS[1]}, 1, bytes(48), 0)",
    "disk": f"call({NUMBERS[0]}, 1, 1, 3 << 13)",
    "disk of all": f"call({NUMBERS[0]}, 3, 0, 3 << 13)",
    "64 bits": "call(302, 1 << 32 | 1, 7, bytes(16), 0)",  # the kernel reads 32 of them
}
TRY = """
import ctypes, os, resource
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    wide = [ctypes.c_long(one) if isinstance(one, int) else one for one in args]
    if libc.syscall(ctypes.c_long(number), *wide) < 0:
        raise OSError(ctypes.get_errno(), "refused")
def attack():
    try:
        ATTACK
        return "it worked"
    except OSError:
        return "refused"
"""


def answers(mechanism, code, tests, **params):
    """The output of a candidate in each test."""
    target = [{"args": [one], "expected": None} for one in tests]
    return ask(Task("t", "?", target=target, params={"entry_point": "f", **params}), code, mechanism=mechanism)


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_process_1_keeps_its_limits_and_its_priority(mechanism, attack):
    code = TRY.replace("ATTACK", attack) + "def f(n):\n    return attack() if n == 0 else 'still here'\n"
    first, *rest = answers(mechanism, code, range(3))
    assert first == CandidateOutput(0, False, b'"refused"')
    assert rest == [CandidateOutput(0, False, b'"still here"')] * 2


def test_no_signal_reaches_process_1_not_even_by_way_of_the_kernel(mechanism):
    code = """
import fcntl, os, signal, socket
def f(n):
    if n:
        return "still here"
    for number in range(1, 65):
        ours, theirs = socket.socketpair()
        try:
            fcntl.fcntl(ours, fcntl.F_SETOWN, 1)  # whom the kernel tells when there is something to read
            fcntl.fcntl(ours, fcntl.F_SETSIG, number)
            fcntl.fcntl(ours, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
            theirs.send(b"x")
            os.kill(1, number)
        except OSError:
            pass
"""
    assert [one.output for one in answers(mechanism, code, range(3))] == [b"null", b'"still here"', b'"still here"']


def test_what_is_its_own_a_program_may_change(mechanism):
    code = """
        import mmap, os, resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        print(resource.getrlimit(resource.RLIMIT_NOFILE), resource.prlimit(0, resource.RLIMIT_NOFILE, (32, 32)))
        before = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, 0, min(before + 3, 19))
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        os.sched_setaffinity(0, os.sched_getaffinity(0))
        print(os.nice(1) == min(before + 4, 19))
    """
    assert said(code, mechanism) == ["(64, 64) (64, 64)", "True"]


def test_a_script_keeps_its_reward_whatever_the_completion_does(mechanism):
    attack = (
        "import resource\nfor what in range(16):\n    try: resource.prlimit(1, what, (0, 0))\n    except OSError: pass"
    )
    script = f"echo 0.25 > {REWARD_TXT}; python3 /input/completion.txt; echo 0 > {REWARD_TXT}"
    ran = run(
        ["/bin/sh", "-c", script],
        files={"input/completion.txt": attack.encode()},
        folders=FOLDERS,
        collect=[REWARD_TXT],
        mechanism=mechanism,
    )
    assert (ran.stopped, ran.files) == ("", {REWARD_TXT: b"0\n"})


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests are those of an ordinary user already")
@pytest.mark.parametrize("name", ["bwrap", "unshare"])
def test_nor_can_it_where_an_ordinary_user_runs_it(name):
    code = """
        from calipers.isolate import Limits, run
        from calipers.isolate.launch import launch
        from calipers.isolate.launch import interpreter, view
        attack = '''
        import os, resource
        for attempt in (lambda: resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0)),
                        lambda: os.setpriority(os.PRIO_PROCESS, 1, 19), lambda: os.setpriority(os.PRIO_USER, 0, 19),
                        lambda: os.sched_setaffinity(1, {0})):
            try:
                attempt()
                print("it worked")
            except OSError:
                print("refused")
        open("/tmp/left", "w").write("here")
        '''
        import textwrap
        argv = [interpreter(), "-I", "-S", "-c", textwrap.dedent(attack)]
        ran = run(argv, collect=["/tmp/left"], mechanism=how)
        print(ran.stdout.split(), ran.files)
        code = "import resource\\ndef f(n): return n or resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0))"
        job = {"code": code, "entry_point": "f", "tests": [{"args": [0]}, {"args": [7]}], "total_seconds": 60}
        print(launch(how, "calls", {**job, "report_bytes": 999}, view(8), Limits(), seconds=60).report)
        hold = "held = bytearray(b'x') * (60 << 20); time.sleep(1000)"
        code = f'''
        import os, threading, time
        def start():
            for _ in range(8):
                if os.fork() == 0:
                    {hold}
            time.sleep(1000)
        threading.Thread(target=start).start()
        '''
        argv = [interpreter(), "-I", "-S", "-c", textwrap.dedent(code)]
        print(run(argv, limits=Limits(memory_mb=160, seconds=60), mechanism=how).stopped)
        argv = ["/bin/sh", "-c", "head -c 100M /dev/zero > /tmp/a; sleep 1000"]
        print(run(argv, limits=Limits(memory_mb=64, disk_mb=150, seconds=60), mechanism=how).stopped)
    """
    refused = [b"refused"] * 4
    first, report, *memory = as_ordinary_user(code, name)
    assert first == f"{refused} {{'/tmp/left': b'here'}}"
    assert report == repr(b"127 0 0\n0 0 1\n7")  # the first test is the candidate's failure, the second is run
    assert memory == ["memory", "memory"]


@pytest.fixture
def crowded():
    """With as many open descriptors as in a run of three hundred calls at once."""
    with ExitStack() as stack:
        for _ in range(150):
            for end in os.pipe():
                stack.callback(os.close, end)
        yield


FORGE = """
import os
def held():
    found = []
    for number in range(3, 5000):
        try:
            os.fstat(number)
            found.append(number)
        except OSError:
            pass
    return found
def forge(text):
    for number in held():
        if number != 3:  # on which a call answers
            try:
                os.write(number, text)
            except OSError:
                pass
"""


@pytest.mark.usefixtures("crowded")
def test_a_program_holds_no_descriptor_but_its_own_however_many_are_open(mechanism):
    assert said(FORGE + "print(held())", mechanism) == ["[]"]
    held = answers(mechanism, FORGE + "def f(n): return held()", range(2))
    assert held == [CandidateOutput(0, False, b"[3]")] * 2  # its answer
    inside = "import os, sys, subprocess\n" + FORGE + "def f(n): return 0 if held() == [3] else 1"
    assert [one.output for one in answers(mechanism, inside, range(1))] == [b"0"]


@pytest.mark.usefixtures("crowded")
@pytest.mark.parametrize("text", [b"0 0 4\ntrue" * 9, b"garbage\n", b"\xff\x00\n", b"1 2\n", b"- - -\n", b"0 0 -1\n"])
def test_nothing_a_candidate_writes_is_a_report(text):
    code = (
        FORGE + f"forge({text!r})\ndef f(n):\n    forge({text!r})\n    return False\nos.write(3, {text!r})\nos._exit(0)"
    )
    task = Task("t", "?", target=[{"args": [n], "expected": True} for n in range(4)], params={"entry_point": "f"})
    verdict = asyncio.run(PYTHON_TESTS.verify(task, Completion(code)))
    assert (verdict.reward, verdict.fields) == (0.0, {"passed": 0, "tests": 4})


@pytest.mark.usefixtures("crowded")
def test_sandboxes_side_by_side_hold_no_pipe_of_each_other(mechanism):
    code = FORGE + "forge(b'0 0 4\\ntrue' * 9)\ndef f(n):\n    forge(b'garbage\\n')\n    return [n, held()]"
    with ThreadPoolExecutor(6) as pool:
        every = list(pool.map(lambda one: answers(mechanism, code, [one]), range(24)))
    assert every == [[CandidateOutput(0, False, b"[%d, [3]]" % one)] for one in range(24)]


MEMORY = {
    "children of another thread": """
        def start():
            for _ in range(8):
                if os.fork() == 0:
                    held = bytearray(b"x") * (60 << 20)
                    time.sleep(1000)
            time.sleep(1000)
        threading.Thread(target=start).start()
    """,
    "children of children of threads": """
        def start(depth, forked):
            if os.fork() == 0:
                if depth:
                    below = threading.Event()
                    threading.Thread(target=start, args=(depth - 1, below)).start()
                    below.wait()
                held = bytearray(b"x") * (60 << 20)
                time.sleep(1000)
            forked.set()
            time.sleep(1000)
        threading.Thread(target=start, args=(6, threading.Event())).start()
    """,
    "files in memory": """
        for number in range(10):
            with open(f"/tmp/{number}", "wb") as file:
                file.write(bytes(20 << 20))
        time.sleep(1000)
    """,
    "files that have no name any more": """
        kept = []
        for number in range(10):
            kept.append(open(f"/tmp/{number}", "wb"))
            os.unlink(f"/tmp/{number}")
            kept[-1].write(bytes(20 << 20))
        time.sleep(1000)
    """,
    "files that are mapped": """
        kept = []
        for number in range(10):
            if os.fork() == 0:
                with open(f"/tmp/{number}", "w+b") as file:
                    file.truncate(20 << 20)
                    held = mmap.mmap(file.fileno(), 20 << 20)
                    held[:] = bytes(20 << 20)
                time.sleep(1000)
        time.sleep(1000)
    """,
}


@pytest.mark.parametrize("code", MEMORY.values(), ids=MEMORY)
def test_all_memory_counts_whoever_holds_it(mechanism, code, request):
    marker = f"marker-{os.getpid()}-{request.node.name}"
    program = "\n        import mmap, os, threading, time" + code
    limits = Limits(memory_mb=160, disk_mb=400, seconds=60)
    ran = captive(program.replace("\n    ", "\n"), mechanism, marker, limits=limits)
    assert (ran.stopped, ran.exit_code) == ("memory", None), ran.stderr
    assert alive(marker) == []


@pytest.mark.parametrize(
    "attempt",
    [
        "mmap.mmap(-1, 1 << 20)",  # shared, and without a file
        "mmap.mmap(-1, 1 << 20, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS, mmap.PROT_READ)",
        "mmap.mmap(os.open('/dev/zero', os.O_RDWR), 1 << 20)",  # the same by another name
        "mmap.mmap(os.open('/dev/zero', os.O_RDONLY), 1 << 20, mmap.MAP_SHARED, mmap.PROT_READ)",
        "os.memfd_create('x')",
    ],
)
def test_memory_that_nobody_could_count_is_not_given(mechanism, attempt):
    code = f"""
        import mmap, os
        try:
            {attempt}
            print("given")
        except OSError:
            print("refused")
    """
    assert said(code, mechanism) == ["refused"]


def test_what_programs_do_with_shared_memory_still_works(mechanism):
    code = """
        import mmap, multiprocessing, os
        from multiprocessing import shared_memory
        value, lock = multiprocessing.Value("i", 40), multiprocessing.Lock()
        def add():
            with lock:
                value.value += 2
        child = multiprocessing.get_context("fork").Process(target=add)
        child.start()
        child.join()
        shared = shared_memory.SharedMemory(create=True, size=4096)
        shared.buf[0] = 7
        print(value.value, shared.buf[0], open("/dev/zero", "rb").read(2), len(mmap.mmap(-1, 99, mmap.MAP_PRIVATE)))
        shared.close()
        shared.unlink()
    """
    assert said(code, mechanism) == ["42 7 b'\\x00\\x00' 99"]


def test_a_candidate_that_takes_the_memory_fails_its_tests_and_not_its_verifier(mechanism):
    code = "import os, threading, time\ndef grow():\n    for _ in range(6):\n        if os.fork() == 0:\n"
    code += "            kept = bytearray(b'x') * (40 << 20)\n            time.sleep(60)\n    time.sleep(60)\n"
    code += (
        "def f(n):\n    if n == 1:\n        threading.Thread(target=grow).start()\n        time.sleep(60)\n    return n"
    )
    first, *rest = answers(mechanism, code, range(3), memory_mb=100, seconds=60)
    assert first == CandidateOutput(0, False, b"0")
    assert not any(one.exit_code == 0 and not one.cut for one in rest)
