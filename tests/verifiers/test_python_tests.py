"""Code verified by tests that are data: what passes, what fails, and that no candidate can forge a pass."""

from __future__ import annotations

import asyncio
import math
import secrets
from pathlib import Path
from time import process_time

import pytest

from calipers.clients import Completion
from calipers.errors import InputError, VerifierError
from calipers.isolate import SandboxError, probe
from calipers.isolate.launch import attempt, forgo
from calipers.tasks import Task
from calipers.verifiers.python_tests import PYTHON_TESTS, python_in, same, same_text

SOONER = {  # what these do from their first moment they would do until the usual limit too
    "fork_bomb": {"seconds": 0.25},
    "kill_parent_late": {"seconds": 0.25},
    "recursion": {"memory_mb": 128},
}
CHEATS = sorted((Path(__file__).parent / "cheats").glob("*.txt"))
ADD = [{"input": "1 2\n", "output": "3\n"}, {"input": "40 2\n", "output": "42"}]
TOTAL = [{"args": [[1, 2]], "expected": 3}, {"args": [[]], "kwargs": {"start": 5}, "expected": 5}]


@pytest.fixture
def sandbox():
    try:
        probe()
    except SandboxError as error:
        pytest.skip(str(error))


def judged(text, target, **params):
    task = Task("t", "?", "python_tests", target, params)
    PYTHON_TESTS.check(task)
    return asyncio.run(PYTHON_TESTS.verify(task, Completion(text)))


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize(
    ("code", "passed"),
    [
        ("print(sum(map(int, input().split())))", 2),
        ("import sys\nprint(sum(int(n) for n in sys.stdin.read().split()), end='   \\n\\n')", 2),
        ("import sys\nfor line in sys.stdin: print(eval(line.replace(' ', '+')))", 2),
        ("import os\nos.write(1, b'%d' % sum(map(int, os.read(0, 99).split())))", 2),
        ("if __name__ == '__main__': print(sum(map(int, input().split())))", 2),
        ("import atexit; atexit.register(lambda: print(sum(map(int, input().split()))))", 2),
        ("import threading\nthreading.Thread(target=lambda: print(sum(map(int, input().split())))).start()", 2),
        ("print(sum(map(int, input().split())))\nraise SystemExit", 2),
        ("print(sum(map(int, input().split())))\nexit_code = 1; raise SystemExit(1)", 0),  # it says it failed
        ("print(sum(map(int, input().split())))\n1 / 0", 0),
        ("print(3)", 1),
        ("print('Answer:', sum(map(int, input().split())))", 0),
        ("def broken(:", 0),
        ("import no_such_module", 0),
        ("while True: pass", 0),
        ("print('3\\n' * 10_000_000)", 0),
        ("print('\\udc80')", 0),
        ("x" * 10_000_000, 0),  # a candidate of 10 MB
        ("(" * 100_000, 0),
        ("print(3)\0", 0),
    ],
)
def test_scripts(code, passed):
    verdict = judged(f"```python\n{code}\n```", ADD, seconds=0.25 if "while" in code else 10)
    assert verdict.fields == {"passed": passed, "tests": 2}
    assert verdict.reward == float(passed == 2)
    assert verdict.outcome == ""


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize(
    ("code", "entry_point", "passed"),
    [
        ("def total(numbers, start=0): return sum(numbers, start)", "total", 2),
        ("class Sums:\n    def total(self, numbers, start=0): return sum(numbers, start)", "Sums.total", 2),
        ("def total(numbers, start=0):\n    print('noise')\n    return float(sum(numbers, start))", "total", 2),
        ("def total(numbers): return sum(numbers)", "total", 1),  # no such keyword
        ("def totals(numbers, start=0): return sum(numbers, start)", "total", 0),
        ("def total(numbers, start=0): return {sum(numbers, start)}", "total", 0),  # a set is no JSON
        ("def total(numbers, start=0): return str(sum(numbers, start))", "total", 0),
        ("total = 3", "total", 0),
        ("def total(numbers, start=0): return numbers.append(1) or sum(numbers) - 1 + start", "total", 2),
    ],
)
def test_calls(code, entry_point, passed):
    verdict = judged(code, TOTAL, entry_point=entry_point)
    assert verdict.fields == {"passed": passed, "tests": 2}
    assert verdict.reward == float(passed == 2)


@pytest.mark.usefixtures("sandbox")
def test_each_test_begins_anew():
    code = "seen = []\ndef count():\n    seen.append(1)\n    return len(seen)"
    assert judged(code, [{"expected": 1}] * 3, entry_point="count").reward == 1


@pytest.mark.usefixtures("sandbox")
def test_partial_is_the_share():
    assert judged("print(3)", ADD, partial=True).reward == 0.5


@pytest.mark.usefixtures("sandbox")
def test_a_slow_candidate_uses_up_its_own_time_only():
    tests = [{"args": [n], "expected": n} for n in range(3)]
    code = "import time\ndef f(n):\n    while n == 1: time.sleep(1)\n    return n"
    assert judged(code, tests, entry_point="f", partial=True, seconds=2).fields == {"passed": 2, "tests": 3}
    assert judged(code, tests, entry_point="f", partial=True, seconds=60, total_seconds=2).fields["passed"] == 1


@pytest.mark.usefixtures("sandbox")
def test_a_candidate_that_takes_all_memory_fails_what_is_left():
    code = "import os, time\ndef f(n):\n    for _ in range(6 * n):\n        if os.fork() == 0:\n"
    code += "            kept = bytearray(b'x') * (40 << 20)\n            time.sleep(60)\n"
    code += "    time.sleep(60 * n)\n    return n"
    tests = [{"args": [n], "expected": n} for n in range(3)]
    verdict = judged(code, tests, entry_point="f", partial=True, seconds=60, memory_mb=100)
    assert verdict.fields == {"passed": 1, "tests": 3}


@pytest.mark.usefixtures("sandbox")
def test_a_run_that_is_given_up_leaves_no_candidate_running():
    endless = Task("t", "?", "python_tests", ADD, {"seconds": 600, "total_seconds": 600})

    async def give_up_then_ask():
        running = [asyncio.create_task(PYTHON_TESTS.verify(endless, Completion("while True: pass"))) for _ in range(64)]
        await asyncio.sleep(0)  # each has its place in the queue, and some have begun
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        honest = Completion("print(sum(map(int, input().split())))")
        return await asyncio.wait_for(PYTHON_TESTS.verify(Task("t", "?", target=ADD), honest), 300)

    assert asyncio.run(give_up_then_ask()).reward == 1


@pytest.mark.parametrize("text", ["", "  \n\t", "```java\nclass A {}\n```", "```python\n\n```"])
def test_without_code_it_is_unparsed(text):
    verdict = judged(text, ADD)
    assert (verdict.reward, verdict.outcome, verdict.fields) == (0, "unparsed", {"passed": 0, "tests": 2})


def test_without_a_sandbox_nothing_is_judged(monkeypatch, tmp_path):
    attempt.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    try:
        with pytest.raises(VerifierError, match="--unsafe-no-sandbox") as failed:
            judged("print(3)", ADD)
        assert failed.value.outcome == "verifier_failed"
    finally:
        attempt.cache_clear()


def test_without_a_sandbox_it_can_be_forgone(monkeypatch, tmp_path):
    attempt.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    forgo()
    try:
        assert judged("print(sum(map(int, input().split())))", ADD).reward == 1
        assert judged("while True: pass", ADD, seconds=0.25).reward == 0
        assert judged("import os\nwhile os.fork(): os.wait()\nos.kill(-os.getpgrp(), 9)", ADD).reward == 0
    finally:
        forgo(False)
        attempt.cache_clear()


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize("cheat", CHEATS, ids=lambda path: path.stem)
@pytest.mark.parametrize("entry_point", [None, "solve"])
def test_no_cheat_pays(cheat, entry_point):
    """The expected answers cannot be computed, so any reward would be forged."""
    limits = {"seconds": 0.5, **SOONER.get(cheat.stem, {})}
    tokens = [f"TOKEN-{secrets.token_hex(16)}" for _ in range(3)]
    if entry_point:
        target = [{"args": [number], "expected": token} for number, token in enumerate(tokens)]
        verdict = judged(cheat.read_text(), target, entry_point=entry_point, **limits)
    else:
        target = [{"input": f"{number}\n", "output": token} for number, token in enumerate(tokens)]
        verdict = judged(cheat.read_text(), target, **limits)
    assert (verdict.reward, verdict.fields) == (0.0, {"passed": 0, "tests": 3})


@pytest.mark.usefixtures("sandbox")
def test_a_cheat_that_knew_would_be_paid():
    """The cheats fail because they do not know the answers, and not because they cannot answer."""
    knows = "def solve(n):\n    import os\n    os.write(3, b'\"TOKEN\"')\n    os._exit(0)"
    assert judged(knows, [{"args": [1], "expected": "TOKEN"}], entry_point="solve").reward == 1


def test_there_is_a_cheat_for_every_trick():
    assert len(CHEATS) >= 30


@pytest.mark.parametrize(
    ("answer", "expected", "params", "agree"),
    [
        (0.1 + 0.2, 0.3, {}, True),
        (0.31, 0.3, {}, False),
        (0.31, 0.3, {"abs_tol": 0.02}, True),
        (1, 1.0, {}, True),
        (True, 1, {}, False),
        (0, False, {}, False),
        (None, None, {}, True),
        (None, 0, {}, False),
        ("1", 1, {}, False),
        (math.nan, math.nan, {}, True),
        (math.nan, 0.0, {"abs_tol": 9}, False),
        (math.inf, math.inf, {}, True),
        pytest.param(10**400, 1e308, {"rel_tol": 9}, False, id="beyond every float"),
        (2**53 + 1, 2**53, {}, False),  # whole numbers are compared as such
        ([1, [2]], [1, [2]], {}, True),
        ([1, 2], [1], {}, False),
        ({"a": 0.1 + 0.2}, {"a": 0.3}, {}, True),
        ({"a": 1}, {"b": 1}, {}, False),
        ([], {}, {}, False),
    ],
)
def test_json_values_agree(answer, expected, params, agree):
    assert same(answer, expected, params) is agree


@pytest.mark.parametrize(
    ("answer", "expected", "params", "agree"),
    [
        ("1  \n2\t\n\n", "1\n2", {}, True),
        (" 1", "1", {}, False),  # white space before a line means something
        ("1\n\n2", "1\n2", {}, False),
        ("1\r\n2\r\n", "1\n2\n", {}, True),
        ("0.33 a", "0.3333 a", {"abs_tol": 0.01}, True),
        ("0.33 a", "0.3333 b", {"abs_tol": 0.01}, False),
        ("0.33", "0.3333 1", {"abs_tol": 0.01}, False),
        ("nan", "0", {"abs_tol": 1}, False),
        ("", "", {}, True),
    ],
)
def test_printed_texts_agree(answer, expected, params, agree):
    assert same_text(answer, expected, params) is agree


@pytest.mark.parametrize("line", ["a" * 50_000, " " * 50_000])
def test_a_line_that_is_almost_a_fence_takes_no_time(line):
    began = process_time()
    assert python_in(f"```{line}`x") == f"```{line}`x"
    assert process_time() - began < 0.5  # in time that grew with the square of its length it took four seconds


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("print(1)", "print(1)"),
        ("```python\na\n```\nor\n```py\nb\n```", "b\n"),
        ("```python\na\n```\nprints\n```\n1\n```", "a\n"),  # an unmarked block after it is output
        ("```\na\n```", "a\n"),
        ("```Python3 title=x\na\n```", "a\n"),
        ("```python\na", "a"),  # the model was cut off
        ("~~~python\n```\n~~~", "```\n"),
        ("````python\n```\n````", "```\n"),
        ("1. so:\n   ```python\n   if a:\n       b\n   ```", "if a:\n    b\n"),
        ("```bash\nls\n```", None),
        ("use `x` here", "use `x` here"),
        (" ", None),
    ],
)
def test_code_in_text(text, code):
    assert python_in(text) == code


@pytest.mark.parametrize(
    ("target", "params", "wrong"),
    [
        (None, {}, "target contains no tests"),
        ([], {}, "target contains no tests"),
        ("1", {}, "target contains no tests"),
        ([1], {}, "target[0] is 1"),
        ([{"input": "1"}], {}, "target[0] has no input or no output"),
        ([*ADD, {"input": 1, "output": "1"}], {}, "target[2] has no input or no output"),
        ([{"args": [], "expected": 1}], {}, "target[0] has 'args'"),
        ([{"args": []}], {"entry_point": "f"}, "target[0] has no expected"),
        ([{"args": 1, "expected": 1}], {"entry_point": "f"}, "target[0] has args that are not a list"),
        (TOTAL, {"entry_point": "os.system('x')"}, "entry_point is"),
        (ADD, {"seconds": 0}, "seconds is 0"),
        (ADD, {"partial": "false"}, "partial is 'false'"),
        (ADD, {"timeout": 3}, "no param of python_tests named 'timeout'"),
    ],
)
def test_tasks_that_cannot_be_judged(target, params, wrong):
    with pytest.raises(InputError) as refused:
        PYTHON_TESTS.check(Task("t", "?", "python_tests", target, params))
    assert str(refused.value).startswith(f"task 't': {wrong}")
