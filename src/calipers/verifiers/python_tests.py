"""Python code written by a model, verified by tests that are data.

The candidate (the code of the completion) gets only the inputs of the tests, inside the sandbox. Its answers come back
as JSON or as printed text and are compared outside. It never sees the expected answers, and cannot write a verdict.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import chain
from threading import Event
from typing import Any, Final

from calipers.clients import Completion
from calipers.errors import InputError, VerifierError
from calipers.isolate import Limits, Mechanism, SandboxError
from calipers.isolate.launch import Launched, launch, probe, view
from calipers.tasks import Task
from calipers.verifiers import Verdict, check_flag, check_names, check_number, fault
from calipers.verifiers.reasoning import of_answer
from calipers.verifiers.workers import sandboxed

# `*+` never backtracks, so that a line that is not a fence is refused in linear and not in quadratic time
FENCE: Final = re.compile(r"( {0,12})(`{3,}|~{3,})[ \t]*+([^\s`]*+)[^`]*+")
PYTHON: Final = frozenset({"py", "python", "python3"})


def python_in(text: str) -> str | None:
    """The last block marked as Python, else the last unmarked one, else the whole text if it has no fences.

    A block that is never closed ends with the text. None if there is only white space, or only blocks of other
    languages.

    >>> python_in("Try:\\n```python\\nprint(1)\\n```\\nIt prints\\n```\\n1\\n```\\n")
    'print(1)\\n'
    """
    blocks = fenced(text)
    if not blocks:
        return text if text.strip() else None
    for wanted in (PYTHON, {""}):
        programs = [code for language, code in blocks if language in wanted and code.strip()]
        if programs:
            return programs[-1]
    return None


def fenced(text: str) -> list[tuple[str, str]]:
    """Every fenced block as (language, code), in order; the indentation of its fence is removed from the code."""
    blocks: list[tuple[str, list[str]]] = []
    opened: re.Match[str] | None = None
    for line in text.splitlines(keepends=True):
        fence = FENCE.fullmatch(line.rstrip())
        if opened is None:
            if fence:
                opened = fence
                blocks.append((fence[3].lower(), []))
        elif fence and not fence[3] and fence[2].startswith(opened[2]):
            opened = None
        else:
            indent = opened[1]
            blocks[-1][1].append(line.removeprefix(indent))
    return [(language, "".join(lines)) for language, lines in blocks]


PARAMS: Final = ("entry_point", "partial", "rel_tol", "abs_tol", "seconds", "total_seconds", "memory_mb")
PRINTED: Final = frozenset({"input", "output"})
CALLED: Final = frozenset({"args", "kwargs", "expected"})
GIVEN: Final = ("input", "args", "kwargs")  # the keys of a test that a candidate can see
REL_TOL: Final = 1e-9
SECONDS: Final = 10.0  # for one test
TOTAL_SECONDS: Final = 60.0  # for all tests of a candidate; tests that are not run in time are failed
REPORT_BYTES: Final = 32 << 20  # of all answers to all tests


@dataclass(frozen=True, slots=True)
class CandidateOutput:
    """The candidate's answer to one test: its exit code (None if it was stopped) and its output."""

    exit_code: int | None
    cut: bool  # whether the output was longer than allowed
    output: bytes


class PythonTests:
    """Reward 1 for code that passes every test, else 0; with ``partial`` the fraction of tests it passes.

    The tests are the target: ``{"input", "output"}`` for a script, ``{"args", "kwargs", "expected"}`` for calls of
    ``entry_point``. A candidate that crashes, is too slow or says too much fails that test.
    """

    name = "python_tests"
    rerunnable = True
    forgeable = False

    def check(self, task: Task) -> None:
        """Refuse tests that cannot be run, and invalid limits."""
        check_names(task, PARAMS)
        check_flag(task, "partial")
        for name in ("rel_tol", "abs_tol"):
            check_number(task, name, least=0)
        for name in ("seconds", "total_seconds", "memory_mb"):
            check_number(task, name, least=0.1 if name != "memory_mb" else 32)
        entry_point = task.params.get("entry_point")
        if entry_point is not None and not _is_name(entry_point):
            raise fault(task, f"entry_point is {entry_point!r}", "expected a name such as 'solve' or 'Solution.solve'")
        if not isinstance(task.target, Sequence) or isinstance(task.target, str) or not task.target:
            raise fault(task, "target contains no tests", 'expected a list such as [{"input": "1 2", "output": "3"}]')
        for number, test in enumerate(task.target):
            problem = _problem_of(test, entry_point is not None)
            if problem:
                keys = "args, kwargs and expected" if entry_point is not None else "input and output, both text"
                raise fault(task, f"target[{number}] {problem}", f"expected a test with {keys}")

    def gold(self, task: Task) -> None:
        """No answer is known to pass, as the tests contain no program."""

    def ready(self) -> None:
        """SandboxError with the reasons if candidates cannot be run here."""
        probe()

    @of_answer
    async def verify(self, task: Task, completion: Completion) -> Verdict:
        """The verdict on one completion; `unparsed` if there is no code in it."""
        try:
            self.check(task)
        except InputError as error:
            raise VerifierError(str(error)) from error
        code = python_in(completion.text)
        if code is None:
            return Verdict(0.0, outcome="unparsed", fields={"passed": 0, "tests": len(task.target)})
        answers = await sandboxed(lambda stop: ask(task, code, stop))
        passed = sum(_passes(task, test, answer) for test, answer in zip(task.target, answers, strict=True))
        reward = passed / len(answers) if task.params.get("partial") else float(passed == len(answers))
        return Verdict(reward, fields={"passed": passed, "tests": len(answers)})


def ask(task: Task, code: str, stop: Event | None = None, mechanism: Mechanism | None = None) -> list[CandidateOutput]:
    """The candidate's answer to each test, all from one sandbox, which does not get the expected answers."""
    params = task.params
    limits = Limits(seconds=float(params.get("seconds", SECONDS)), memory_mb=int(params.get("memory_mb", 512)))
    total = float(params.get("total_seconds", max(TOTAL_SECONDS, limits.seconds)))
    job = {
        "code": code,
        "entry_point": params.get("entry_point"),
        "tests": [{key: test[key] for key in GIVEN if key in test} for test in json.loads(json.dumps(task.target))],
        "total_seconds": total,
        "report_bytes": REPORT_BYTES,
    }
    launched = launch(mechanism or probe(), "calls", job, view(limits.disk_mb), limits, seconds=total, stop=stop)
    return _answers(launched, len(task.target))


def same(answer: Any, expected: Any, params: Mapping[str, Any]) -> bool:
    """Whether two JSON values agree: integers exactly, other numbers within the tolerances, NaN only with NaN.

    >>> same([1, 0.1 + 0.2], [1.0, 0.3], {}), same(True, 1, {}), same({"a": 1}, {"a": 1, "b": 2}, {})
    (True, False, False)
    """
    if isinstance(answer, bool) or isinstance(expected, bool):
        return answer is expected
    if isinstance(answer, (int, float)) and isinstance(expected, (int, float)):
        if isinstance(answer, int) and isinstance(expected, int):
            return answer == expected
        if answer != answer or expected != expected:
            return answer != answer and expected != expected
        rel_tol, abs_tol = float(params.get("rel_tol", REL_TOL)), float(params.get("abs_tol", 0.0))
        try:
            return math.isclose(answer, expected, rel_tol=rel_tol, abs_tol=abs_tol)
        except OverflowError:  # an integer beyond the largest float
            return False
    if isinstance(answer, list) and isinstance(expected, (list, tuple)):
        pairs = zip(answer, expected, strict=False)
        return len(answer) == len(expected) and all(same(first, second, params) for first, second in pairs)
    if isinstance(answer, dict) and isinstance(expected, Mapping):
        return answer.keys() == expected.keys() and all(same(answer[key], expected[key], params) for key in answer)
    return type(answer) is type(expected) and bool(answer == expected)


def same_text(answer: str, expected: str, params: Mapping[str, Any]) -> bool:
    """Whether two printed texts agree, apart from white space at the ends of lines and of the text.

    With a tolerance among the params, words that are numbers need only agree within the tolerance.

    >>> same_text("1 \\n2\\n\\n", "1\\n2", {}), same_text("0.3", "0.33", {}), same_text("0.3", "0.33", {"abs_tol": 0.1})
    (True, False, True)
    """
    answered, wanted = ([line.rstrip() for line in text.rstrip().splitlines()] for text in (answer, expected))
    if answered == wanted or not params.keys() & {"rel_tol", "abs_tol"}:
        return answered == wanted
    answered_words, wanted_words = ([line.split() for line in lines] for lines in (answered, wanted))
    if [*map(len, answered_words)] != [*map(len, wanted_words)]:
        return False
    pairs = zip(chain(*answered_words), chain(*wanted_words), strict=True)
    return all(first == second or _close(first, second, params) for first, second in pairs)


def _close(first: str, second: str, params: Mapping[str, Any]) -> bool:
    try:
        return same(float(first), float(second), params)
    except ValueError:
        return False


def _passes(task: Task, test: Mapping[str, Any], answer: CandidateOutput) -> bool:
    if answer.exit_code != 0 or answer.cut:
        return False
    if task.params.get("entry_point") is None:
        return same_text(answer.output.decode(errors="surrogateescape"), test["output"], task.params)
    try:
        return same(json.loads(answer.output), test.get("expected"), task.params)
    except (ValueError, RecursionError):  # not JSON, or nested too deeply
        return False


def _answers(launched: Launched, tests: int) -> list[CandidateOutput]:
    """The answers in the report of `inside.first`; a candidate that was stopped fails the tests that were not run."""
    report, answers = BytesIO(launched.report), list[CandidateOutput]()
    while (header := report.readline()) and len(answers) < tests:
        try:
            exit_code, cut, size = header.split()
            output = report.read(length := int(size))
            if len(output) != length:
                raise ValueError("the output ends early")
            answers.append(CandidateOutput(None if exit_code == b"-" else int(exit_code), cut == b"1", output))
        except ValueError:
            if launched.stopped:
                break  # it was killed while it wrote this answer
            raise SandboxError("the sandbox's report cannot be read") from None
    if len(answers) < tests and not launched.stopped:
        raise SandboxError("the sandbox ended before all tests ran")
    return answers + [CandidateOutput(None, False, b"")] * (tests - len(answers))


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and all(part.isidentifier() for part in value.split("."))


def _problem_of(test: Any, called: bool) -> str:
    """The reason why a test cannot be run; '' for a valid test."""
    if not isinstance(test, Mapping):
        return f"is {test!r}"
    unknown = sorted(test.keys() - (CALLED if called else PRINTED))
    if unknown:
        return f"has {unknown[0]!r}"
    if not called:
        return "" if all(isinstance(test.get(key), str) for key in PRINTED) else "has no input or no output"
    if "expected" not in test:
        return "has no expected"
    if not isinstance(test.get("args", []), (list, tuple)) or not isinstance(test.get("kwargs", {}), Mapping):
        return "has args that are not a list, or kwargs that are not an object"
    return ""


PYTHON_TESTS: Final = PythonTests()
