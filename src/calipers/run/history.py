"""What a run's log says already: the last attempt at each rollout, in little memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from calipers.errors import InputError
from calipers.readers.files import LONGEST_LINE, LongLine, line_blocks
from calipers.rollouts.record import Outcome

_RIGHT = "mend the line, or take it out to have its rollout run again"


class Past(msgspec.Struct, frozen=True, gc=False):
    """What became of a rollout, by its highest attempt."""

    attempt: int
    outcome: str
    reward: float | None
    cost: float | None  # dollars, of all its attempts, judging included; None when nobody said


class _Usage(msgspec.Struct, gc=False):
    cost_usd: float | None = None


class _Line(msgspec.Struct, gc=False):
    """The few keys of a record that a run asks for when it continues; all others are passed over."""

    task: str
    sample: int
    attempt: int = 1
    outcome: Outcome | None = None
    reward: float | bool | None = None
    usage: _Usage | None = None
    judge_cost_usd: float | None = None


_DECODER = msgspec.json.Decoder(_Line)


def read_history(log: Path) -> dict[tuple[str, int], Past]:
    """The last of each (task, sample) in a log of whole lines; InputError for a line that is no record."""
    found: dict[tuple[str, int], Past] = {}
    texts: dict[str, str] = {}  # a task's id and a reward stand in many lines, and once in memory
    numbers: dict[float, float] = {}
    for number, line in _lines(log):
        key = texts.setdefault(line.task, line.task), line.sample
        reward = None if line.reward is None else float(line.reward)
        reward = reward if reward is None else numbers.setdefault(reward, reward)
        cost = _sum(line.usage.cost_usd if line.usage else None, line.judge_cost_usd)
        outcome = line.outcome or ("missing" if reward is None else "scored")
        before = found.get(key)
        if before is not None:
            if before.attempt == line.attempt:
                wrong = f"task {line.task!r} sample {line.sample} attempt {line.attempt} stands in an earlier line, too"
                raise InputError.at(f"{log}:{number}", wrong, "expected each attempt once; take one of them out")
            cost = _sum(before.cost, cost)
            if before.attempt > line.attempt:
                found[key] = Past(before.attempt, before.outcome, before.reward, cost)
                continue
        found[key] = Past(line.attempt, outcome, reward, cost)
    return found


def _lines(log: Path) -> Iterator[tuple[int, _Line]]:
    """The records of a log, each with the number of its line."""
    number = 0
    try:
        with open(log, "rb", buffering=0) as file:
            for block in line_blocks(file.readinto):
                lines = bytes(block).count(b"\n")
                try:
                    records = _DECODER.decode_lines(block)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    records = []
                if len(records) == lines:
                    yield from enumerate(records, number + 1)
                else:
                    yield from _one_by_one(log, bytes(block), number)
                number += lines
    except LongLine:
        wrong = f"a line is longer than {LONGEST_LINE >> 20} MiB"
        raise InputError.at(str(log), wrong, _RIGHT) from None
    except OSError as error:
        raise InputError.at(str(log), f"cannot be read ({error.strerror})") from None


def _one_by_one(log: Path, block: bytes, before: int) -> Iterator[tuple[int, _Line]]:
    """The records of a block that is not a record a line: some are blank, or one is broken."""
    for number, line in enumerate(block.split(b"\n"), before + 1):
        if line.strip():
            try:
                yield number, _DECODER.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise InputError.at(f"{log}:{number}", f"is no record ({error})", _RIGHT) from None


def _sum(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else one + other
