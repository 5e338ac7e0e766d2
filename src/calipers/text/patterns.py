"""Untrusted regular expressions, with a time limit.

`search`, `find_all` and `remove` give what `re` gives, or `RegexTimeout`. Three ways lead there, the cheapest first:
a pattern whose work on a text of this length is provably small runs as it is; on the main thread an alarm stops all
others (`time_limit`); elsewhere, and where the alarm is somebody else's, a process of our own runs them (`Worker`). It
is started when first needed, and lines of JSON go both ways. It limits its own time by the alarm of its main thread, so
it survives a bad pattern; only one that does not even answer late is killed.

How much work a pattern can be is an upper bound, from Python's own parse tree. The matcher of `re` tries, at every
place of the text, every way through the pattern until one fits. For each node of the tree we count the ways through it
and the steps to walk them all, on a text of n characters:

- a character, a class, an anchor: one way, one step (a class as many as it has items);
- a sequence: ways multiply; steps are ``s1 + w1 (s2 + w2 (s3 + ...))``;
- alternatives: both add up;
- ``x{a,b}``: h = min(b, n / width of x) rounds; the ways are the sum of ``w^i`` for i from a to h, the steps
  ``(s + 1)`` times the sum of ``w^i`` for i below h;
- a look-around: the steps of its body, and one way;
- a back-reference: one way, n steps.

What the matcher leaves out (it is cleverer than this in places) only makes the bound looser.
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
from re import _parser  # type: ignore[attr-defined]  # the tree is not public; what is unknown in it is not bounded
from typing import IO, Any, Final, Literal, cast

from calipers.errors import CalipersError, InputError
from calipers.time_limit import Rang, Unavailable, within

Action = Literal["search", "find_all", "remove", "compile"]

LIMIT: Final = 1.0  # seconds for one text


class RegexTimeout(CalipersError):
    """A pattern that came to no end within its limit: there is neither a match nor none."""


@dataclass(frozen=True, slots=True)
class Found:
    """A match: the text it was found in, and where it and its groups are."""

    text: str
    spans: tuple[tuple[int, int], ...]  # the whole match, then group by group; (-1, -1): no part in the match

    def __getitem__(self, group: int) -> str | None:
        """The text of a group, 0 for the whole match; None for one that has no part in it."""
        start, end = self.spans[group]
        return None if start < 0 else self.text[start:end]

    def groups(self) -> tuple[str | None, ...]:
        """The text of every group; the whole match is none."""
        return tuple(self[group] for group in range(1, len(self.spans)))


def search(pattern: str, text: str, *, ignore_case: bool = False, limit: float = LIMIT) -> Found | None:
    """The first match in a text, as `re.search` finds it; None when there is none.

    >>> search(r"(\\d+) apples", "no, 12 apples")[1]
    '12'
    >>> search("(a+)+$", "a" * 40 + "!", limit=0.05)
    Traceback (most recent call last):
    ...
    calipers.text.patterns.RegexTimeout: pattern '(a+)+$' took longer than 0.05 s on a text of 41 characters
    """
    spans = _run("search", pattern, text, ignore_case, limit)
    return None if spans is None else Found(text, spans)


def find_all(
    pattern: str, text: str, *, ignore_case: bool = False, limit: float = LIMIT
) -> list[str] | list[tuple[str, ...]]:
    """Every match, as `re.findall` lists them: texts, or tuples where the pattern has several groups.

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
    """Nothing for a pattern that can be used; else `BadPattern`, or `RegexTimeout` where reading it takes too long."""
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
    compiled(pattern, ignore_case)  # there it was done in time, so it will be here; next time the bound is known
    if isinstance(answer, list) and (action == "search" or (answer and isinstance(answer[0], list))):
        shaped = map(tuple, answer)  # JSON has no tuples
        return tuple(shaped) if action == "search" else list(shaped)
    return answer


def _timeout(pattern: str, text: str, limit: float) -> RegexTimeout:
    shown = pattern if len(pattern) <= 80 else f"{pattern[:77]}..."
    return RegexTimeout(f"pattern {shown!r} took longer than {limit:g} s on a text of {len(text)} characters")


LONGEST: Final = 10_000  # characters of a pattern
KEPT: Final = 10_000  # patterns; a benchmark may have one per task


class BadPattern(InputError, re.error):
    """A pattern that cannot be compiled; also the class of error that `re` raises for one."""

    def __init__(self, pattern: str, why: str, position: int | None = None) -> None:
        re.error.__init__(self, why, pattern, position)
        shown = pattern if len(pattern) <= 80 else f"{pattern[:77]}..."
        where = "" if position is None else f" at position {position}"
        self.args = (f"pattern {shown!r}: {why}{where}; expected a regular expression of Python's re",)


@dataclass(frozen=True, slots=True)
class Compiled:
    """A pattern, and the length of the longest text on which it may run without a watch."""

    pattern: re.Pattern[str]
    harmless: int


_kept: dict[tuple[str, bool], Compiled] = {}


def known(pattern: str, ignore_case: bool) -> Compiled | None:
    """A pattern that was compiled before."""
    return _kept.get((pattern, ignore_case))


def compiled(pattern: str, ignore_case: bool) -> Compiled:
    """A pattern, compiled once; `BadPattern` for what is none."""
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
    except (OverflowError, Warning) as error:  # a warning, where the user made errors of them
        raise BadPattern(pattern, str(error)) from None


def attempt(action: Action, pattern: str, ignore_case: bool, text: str) -> Any:
    """Compile a pattern, if need be, and apply it."""
    return apply(action, compiled(pattern, ignore_case), text)


def apply(action: Action, program: Compiled, text: str) -> Any:
    """The spans of the first match or None; the list of all matches; the text without them; nothing."""
    if action == "search":
        match = program.pattern.search(text)
        return None if match is None else match.regs
    if action == "remove":
        return program.pattern.sub("", text)
    return program.pattern.findall(text) if action == "find_all" else None


AT_MOST: Final = 0.5  # seconds, more than STEPS ever take: 0.1 in the worst of many thousand random patterns
STEPS: Final = 5_000_000
LONGEST_TEXT: Final = 2**22


def harmless_up_to(pattern: str, flags: re.RegexFlag) -> int:
    """The length of text up to which searching, or finding all, takes at most STEPS; 0 where none is proven.

    >>> harmless_up_to("(a+)+$", re.NOFLAG) < 100 < 10_000 < harmless_up_to("answer: [0-9]", re.NOFLAG)
    True
    """
    tree = _parser.parse(pattern, flags)
    groups = tree.state.groups  # the whole match is one; all of them are saved and restored on the way
    proven, length = 0, 16
    while length <= LONGEST_TEXT and 2 * (length + 1) * groups * _sequence(tree, length)[1] <= STEPS:
        proven, length = length, 2 * length
    return proven


def _sequence(nodes: Any, length: int) -> tuple[float, float]:
    """(ways, steps) of what stands in a row."""
    ways, steps = 1.0, 0.0
    for op, argument in nodes:
        more, cost = _node(str(op), argument, length)
        steps += ways * (cost + 1)
        ways *= more
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
            each = [_sequence(branch, length) for branch in argument[1]]
            return sum(ways for ways, _ in each), sum(steps + 1 for _, steps in each)
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
    if rounds > 32 or ways > STEPS:  # beyond all hope, and beyond what a float can hold
        return math.inf, math.inf
    return sum(ways**i for i in range(fewest, rounds + 1)), (steps + 1) * sum(ways**i for i in range(rounds))


GRACE: Final = 0.5  # seconds beyond the limit before it is killed
STARTING: Final = 60.0  # seconds for an interpreter to start, on a machine that is busy
PROGRAM: Final = "import sys; sys.path[:] = sys.argv[1:]; from calipers.text.patterns import serve; serve()"


class Worker:
    """One process for all threads, which wait for each other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, question: list[Any], limit: float) -> tuple[str, Any]:
        """(kind, answer): ``done``, ``bad`` with what is wrong, ``timeout``, or ``died``."""
        with self._lock:
            process = self._running()
            end = time.monotonic() + limit + GRACE
            line = json.dumps([question, limit]).encode() + b"\n"
            try:
                reply = _receive(process, end) if _send(process, line, end) else None
            except BaseException:
                self._stop()  # its answer, should it come, would be taken for that to the next question
                raise
            if not reply:
                self._stop()
                return ("timeout" if reply is None else "died"), None
        kind, answer = json.loads(reply)
        return kind, answer

    def stop(self) -> None:
        """End the process, if there is one."""
        with self._lock:
            self._stop()

    def forget(self) -> None:
        """After a fork: whoever held the lock is not here, and the process is no child of ours, as `poll` finds out."""
        self._lock = threading.Lock()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._stop()
        command = [sys.executable, "-c", PROGRAM, *sys.path]
        pipe = subprocess.PIPE
        try:  # a session of its own, as Ctrl-C is for us
            self._process = subprocess.Popen(command, bufsize=0, stdin=pipe, stdout=pipe, start_new_session=True)
        except OSError as error:
            raise CalipersError(f"cannot start the process that matches regular expressions: {error}") from error
        if not _receive(self._process, time.monotonic() + STARTING):
            self._stop()
            raise CalipersError("the process that matches regular expressions does not start")
        return self._process

    def _stop(self) -> None:
        if self._process is not None:
            with self._process as process:  # which closes its pipes and waits for it
                process.kill()
            self._process = None


def _send(process: subprocess.Popen[bytes], data: bytes, end: float) -> bool:
    """Whether all of it was taken in time. A process that died says so when it is asked for its answer."""
    pipe = cast(IO[bytes], process.stdin).fileno()
    os.set_blocking(pipe, False)
    left = memoryview(data)
    while left:
        if not _ready(pipe, select.POLLOUT, end):
            return False
        try:
            left = left[os.write(pipe, left) :]
        except BrokenPipeError:
            return True
    return True


def _receive(process: subprocess.Popen[bytes], end: float) -> bytes | None:
    """A line; None when it does not come in time, b"" when it never will."""
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
    """The process itself: answer questions until there are no more."""
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
