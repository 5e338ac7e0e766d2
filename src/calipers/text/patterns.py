"""Untrusted regular expressions, with a time limit.

`search`, `find_all` and `remove` return the same as `re`, or raise `RegexTimeout`. There are three ways to run a
pattern, the cheapest first:

- a pattern whose work on a text of this length is provably small runs without a time limit;
- on the main thread, other patterns run under an alarm (`time_limit`);
- on other threads, or if the alarm is in use by other code, they run in a process of our own (`Worker`). The process is
  started when first needed, and questions and answers are lines of JSON. It limits its own time by the alarm of its
  main thread, so it survives a bad pattern; it is killed only if it does not answer shortly after the limit.

The work of a pattern is bounded from Python's own parse tree. At every position of the text, the matcher of `re` tries
every way through the pattern until one fits. For each node of the tree we count the ways through it and the steps to
walk all of them, on a text of n characters:

- a character, a class, an anchor: one way, one step (for a class, as many as it has items);
- a sequence: ways multiply; steps are ``s1 + w1 (s2 + w2 (s3 + ...))``;
- alternatives: both add up;
- ``x{a,b}``: h = min(b, n / width of x) rounds; the ways are the sum of ``w^i`` for i from a to h, the steps
  ``(s + 1)`` times the sum of ``w^i`` for i below h;
- a look-around: the steps of its body, and one way;
- a back-reference: one way, n steps.

Where the matcher is cleverer than this, the bound is only looser.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import re
import select
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from functools import partial
from re import _parser  # type: ignore[attr-defined]  # the tree is not public; unknown nodes in it have no bound
from typing import IO, Any, Final, Literal, cast

from calipers.errors import CalipersError, InputError
from calipers.time_limit import Rang, Unavailable, within

Action = Literal["search", "find_all", "remove", "compile"]

LIMIT: Final = 1.0  # seconds for one text


class RegexTimeout(CalipersError):
    """A pattern took longer than its limit, so that it is unknown whether it matches."""


@dataclass(frozen=True, slots=True)
class Match:
    """A match: the text that was searched, and the spans of the match and its groups."""

    text: str
    spans: tuple[tuple[int, int], ...]  # of the whole match, then of each group; (-1, -1) for an unused group

    def __getitem__(self, group: int) -> str | None:
        """The text of a group (0 is the whole match); None for a group that did not take part in the match."""
        start, end = self.spans[group]
        return None if start < 0 else self.text[start:end]

    def groups(self) -> tuple[str | None, ...]:
        """The text of every group, without the whole match."""
        return tuple(self[group] for group in range(1, len(self.spans)))


def search(pattern: str, text: str, *, ignore_case: bool = False, limit: float = LIMIT) -> Match | None:
    """The first match in a text, as `re.search` finds it; None if there is none.

    >>> search(r"(\\d+) apples", "no, 12 apples")[1]
    '12'
    >>> search("(a+)+$", "a" * 40 + "!", limit=0.05)
    Traceback (most recent call last):
    ...
    calipers.text.patterns.RegexTimeout: pattern '(a+)+$' took longer than 0.05 s on a text of 41 characters
    """
    spans = _run("search", pattern, text, ignore_case, limit)
    return None if spans is None else Match(text, spans)


def find_all(
    pattern: str, text: str, *, ignore_case: bool = False, limit: float = LIMIT
) -> list[str] | list[tuple[str, ...]]:
    """Every match, as `re.findall` lists them: texts, or tuples if the pattern has several groups.

    >>> find_all("([a-z])=([0-9])", "a=1, b=2")
    [('a', '1'), ('b', '2')]
    """
    matches: list[str] | list[tuple[str, ...]] = _run("find_all", pattern, text, ignore_case, limit)
    return matches


def remove(pattern: str, text: str, *, ignore_case: bool = False, limit: float = LIMIT) -> str:
    """The text without any of the matches, as ``re.sub(pattern, "", text)`` leaves it.

    >>> remove(r"[,$]", "$1,200")
    '1200'
    """
    left: str = _run("remove", pattern, text, ignore_case, limit)
    return left


def check(pattern: str, *, ignore_case: bool = False, limit: float = LIMIT) -> None:
    """Raise `BadPattern` for an invalid pattern, and `RegexTimeout` for one that takes too long to compile."""
    _run("compile", pattern, "", ignore_case, limit)


def _run(action: Action, pattern: str, text: str, ignore_case: bool, limit: float) -> Any:
    compiled = known(pattern, ignore_case)
    if compiled is not None and len(text) <= compiled.harmless and limit >= AT_MOST:
        return apply(action, compiled, text)
    try:
        return within(limit, partial(attempt, action, pattern, ignore_case, text))
    except Unavailable:
        return _elsewhere(action, pattern, text, ignore_case, limit)
    except Rang:
        raise _timeout(pattern, text, limit) from None


def _elsewhere(action: Action, pattern: str, text: str, ignore_case: bool, limit: float) -> Any:
    kind, answer = WORKER.ask([action, pattern, ignore_case, text], limit)
    if kind == "bad":
        raise BadPattern(pattern, *answer)
    if kind == "timeout":
        raise _timeout(pattern, text, limit)
    if kind == "died":
        raise RegexTimeout(
            f"pattern {pattern!r} crashed the process that matched it against a text of {len(text)} characters"
        )
    compiled(pattern, ignore_case)  # the worker compiled it in time, so this is fast; now its bound is known here
    if isinstance(answer, list) and (action == "search" or (answer and isinstance(answer[0], list))):
        shaped = map(tuple, answer)  # JSON has no tuples
        return tuple(shaped) if action == "search" else list(shaped)
    return answer


def _timeout(pattern: str, text: str, limit: float) -> RegexTimeout:
    shown = pattern if len(pattern) <= 80 else f"{pattern[:77]}..."
    return RegexTimeout(f"pattern {shown!r} took longer than {limit:g} s on a text of {len(text)} characters")


LONGEST: Final = 10_000  # characters of a pattern
KEPT: Final = 10_000  # compiled patterns that are cached, as a benchmark may have one per task


class BadPattern(InputError, re.error):
    """A pattern that cannot be compiled; also the class of error that `re` raises for one."""

    def __init__(self, pattern: str, reason: str, position: int | None = None) -> None:
        re.error.__init__(self, reason, pattern, position)
        shown = pattern if len(pattern) <= 80 else f"{pattern[:77]}..."
        place = "" if position is None else f" at position {position}"
        self.args = (f"pattern {shown!r}: {reason}{place}; expected a regular expression of Python's re",)


@dataclass(frozen=True, slots=True)
class Compiled:
    """A pattern, and the length of the longest text on which it may run without a time limit."""

    pattern: re.Pattern[str]
    harmless: int


_kept: dict[tuple[str, bool], Compiled] = {}


def known(pattern: str, ignore_case: bool) -> Compiled | None:
    """The compiled pattern from the cache; None if it is not there."""
    return _kept.get((pattern, ignore_case))


def compiled(pattern: str, ignore_case: bool) -> Compiled:
    """The compiled pattern, from the cache if possible; `BadPattern` for an invalid one."""
    program = _kept.get((pattern, ignore_case))
    if program is None:
        if len(_kept) >= KEPT:
            _kept.clear()
        program = _kept[pattern, ignore_case] = _compile(pattern, re.IGNORECASE if ignore_case else re.NOFLAG)
    return program


def _compile(pattern: str, flags: re.RegexFlag) -> Compiled:
    if len(pattern) > LONGEST:
        raise BadPattern(pattern, f"it has {len(pattern)} characters; the maximum is {LONGEST}")
    try:
        return Compiled(re.compile(pattern, flags), harmless_up_to(pattern, flags))
    except re.error as error:
        raise BadPattern(pattern, error.msg, error.pos) from None
    except RecursionError:
        raise BadPattern(pattern, "it is nested too deeply") from None
    except (OverflowError, Warning) as error:  # a warning, if the user turned warnings into errors
        raise BadPattern(pattern, str(error)) from None


def attempt(action: Action, pattern: str, ignore_case: bool, text: str) -> Any:
    """Compile a pattern, unless it is cached, and apply it."""
    return apply(action, compiled(pattern, ignore_case), text)


def apply(action: Action, program: Compiled, text: str) -> Any:
    """The result of an action: the spans of the first match or None, all matches, or the text without them."""
    if action == "search":
        match = program.pattern.search(text)
        return None if match is None else match.regs
    if action == "remove":
        return program.pattern.sub("", text)
    return program.pattern.findall(text) if action == "find_all" else None


AT_MOST: Final = 0.5  # seconds, more than STEPS take: 0.1 s for the slowest of many thousand random patterns
STEPS: Final = 5_000_000
LONGEST_TEXT: Final = 2**22


def harmless_up_to(pattern: str, flags: re.RegexFlag) -> int:
    """The length of text up to which searching, or finding all, takes at most STEPS; 0 if there is no proof.

    >>> harmless_up_to("(a+)+$", re.NOFLAG) < 100 < 10_000 < harmless_up_to("answer: [0-9]", re.NOFLAG)
    True
    """
    tree = _parser.parse(pattern, flags)
    groups = tree.state.groups  # includes the whole match; `re` saves and restores all of them at each step
    proven, length = 0, 16
    while length <= LONGEST_TEXT and 2 * (length + 1) * groups * _sequence(tree, length)[1] <= STEPS:
        proven, length = length, 2 * length
    return proven


def _sequence(nodes: Any, length: int) -> tuple[float, float]:
    """(ways, steps) of a sequence of nodes."""
    ways, steps = 1.0, 0.0
    for op, argument in nodes:
        node_ways, node_steps = _node(str(op), argument, length)
        steps += ways * (node_steps + 1)
        ways *= node_ways
    return ways, steps


def _node(op: str, argument: Any, length: int) -> tuple[float, float]:
    match op:
        case "LITERAL" | "NOT_LITERAL" | "ANY" | "AT" | "FAILURE":
            return 1, 1
        case "IN":
            return 1, 1 + len(argument)
        case "SUBPATTERN" | "ASSERT" | "ASSERT_NOT" | "ATOMIC_GROUP":
            ways, steps = _sequence(argument if op == "ATOMIC_GROUP" else argument[-1], length)
            return (1 if op.startswith("ASSERT") else ways), steps
        case "BRANCH":
            branches = [_sequence(branch, length) for branch in argument[1]]
            return sum(ways for ways, _ in branches), sum(steps + 1 for _, steps in branches)
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            fewest, most, body = argument
            return _repeat(fewest, most, body, length)
        case "GROUPREF":
            return 1, 1 + length
        case _:
            return math.inf, math.inf


def _repeat(fewest: int, most: int, body: Any, length: int) -> tuple[float, float]:
    width = body.getwidth()[0]
    rounds = max(fewest, min(most, length // width) if width else most)
    ways, steps = _sequence(body, length)
    if ways == 1:
        return rounds - fewest + 1, (steps + 1) * rounds
    if rounds > 32 or ways > STEPS:  # far too many steps, and perhaps more than a float can hold
        return math.inf, math.inf
    return sum(ways**i for i in range(fewest, rounds + 1)), (steps + 1) * sum(ways**i for i in range(rounds))


GRACE: Final = 0.5  # seconds beyond the limit after which the worker is killed
STARTING: Final = 60.0  # seconds for an interpreter to start on a busy machine
PROGRAM: Final = "import sys; sys.path[:] = sys.argv[1:]; from calipers.text.patterns import serve; serve()"


class Worker:
    """The worker process, which all threads share; it answers one question at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, question: list[Any], limit: float) -> tuple[str, Any]:
        """(kind, answer): ``done`` with the result, ``bad`` with the error, ``timeout``, or ``died``."""
        with self._lock:
            process = self._running()
            end = time.monotonic() + limit + GRACE
            line = json.dumps([question, limit]).encode() + b"\n"
            try:
                reply = _receive(process, end) if _send(process, line, end) else None
            except BaseException:
                self._stop()  # else its answer would be taken for the answer to the next question
                raise
            if not reply:
                self._stop()
                return ("timeout" if reply is None else "died"), None
        kind, answer = json.loads(reply)
        return kind, answer

    def stop(self) -> None:
        """End the process, if it is running."""
        with self._lock:
            self._stop()

    def forget(self) -> None:
        """Reset the lock after a fork, as its holder may not exist here; `poll` then finds that the process is lost."""
        self._lock = threading.Lock()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._stop()
        command = [sys.executable, "-c", PROGRAM, *sys.path]
        pipe = subprocess.PIPE
        try:  # in a session of its own, so that it does not receive Ctrl-C
            self._process = subprocess.Popen(command, bufsize=0, stdin=pipe, stdout=pipe, start_new_session=True)
        except OSError as error:
            raise CalipersError(f"cannot start the process that matches regular expressions: {error}") from error
        if not _receive(self._process, time.monotonic() + STARTING):
            self._stop()
            raise CalipersError("the process that matches regular expressions does not start")
        return self._process

    def _stop(self) -> None:
        if self._process is not None:
            with self._process as process:  # on exit, closes its pipes and waits for it
                process.kill()
            self._process = None


def _send(process: subprocess.Popen[bytes], data: bytes, end: float) -> bool:
    """Send data to a process; returns whether all was sent in time. True also if it died, which `_receive` reports."""
    pipe = cast(IO[bytes], process.stdin).fileno()
    os.set_blocking(pipe, False)
    unsent = memoryview(data)
    while unsent:
        if not _ready(pipe, select.POLLOUT, end):
            return False
        try:
            unsent = unsent[os.write(pipe, unsent) :]
        except BrokenPipeError:
            return True
    return True


def _receive(process: subprocess.Popen[bytes], end: float) -> bytes | None:
    """A line from a process; None if it does not come in time, b"" if the process has ended."""
    pipe = cast(IO[bytes], process.stdout).fileno()
    parts: list[bytes] = []
    while not parts or not parts[-1].endswith(b"\n"):
        if not _ready(pipe, select.POLLIN, end):
            return None
        parts.append(os.read(pipe, 1 << 20))
        if not parts[-1]:
            return b""
    return b"".join(parts)


def _ready(pipe: int, event: int, end: float) -> bool:
    waiting = select.poll()
    waiting.register(pipe, event)
    return bool(waiting.poll(max(0.0, end - time.monotonic()) * 1000))


def serve() -> None:
    """The main function of the worker process: answer questions until the input ends."""
    out = sys.stdout.buffer
    out.write(b"ready\n")
    out.flush()
    for line in sys.stdin.buffer:
        question, limit = json.loads(line)
        reply: tuple[str, Any]
        try:
            reply = "done", within(limit, partial(attempt, *question))
        except Rang:
            reply = "timeout", None
        except BadPattern as error:
            reply = "bad", [error.msg, error.pos]
        out.write(json.dumps(reply).encode() + b"\n")
        out.flush()


WORKER: Final = Worker()
atexit.register(WORKER.stop)
os.register_at_fork(after_in_child=WORKER.forget)
