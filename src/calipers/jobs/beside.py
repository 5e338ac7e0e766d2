"""New columns beside the old: a record with one more reward, in which every older number stays what it was.

Of a reward called NAME a line gets ``rewards.NAME``, ``NAME_answer``, ``NAME_outcome`` where that is not `scored`,
and whatever else the judge said as ``NAME_...``. A record has one outcome for all its rewards, so that it must
change where it would hide the new number, or make one of what is a gap; then it is `scored`, each reward is given
or absent by itself, and the old ones still contribute what they did.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import UNSET

from calipers.errors import InputError, LogError
from calipers.jobs.judging import Judged
from calipers.jobs.stored import Batch, Stored
from calipers.rollouts.record import CODE, FIRST_GAP, FIRST_NIL
from calipers.run.log import sync_directory

GAPS: Final = frozenset(word for word, code in CODE.items() if code >= FIRST_GAP)
_encode = msgspec.json.Encoder().encode
_ROW: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Beside:
    """Writes the lines of one new reward."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._key = _encode(name)
        self._outcome = b"," + _encode(f"{name}_outcome") + b":"
        self._answer = b"," + _encode(f"{name}_answer") + b":"
        self._tails: dict[tuple[float | None, str, bool], bytes] = {}

    def lines(self, batch: Batch, judged: Judged, worths: Sequence[float | None]) -> bytes:
        """The lines of a batch with what was judged; ``worths`` is what each of them contributes."""
        pieces: list[bytes] = []
        add, data, tails, start = pieces.append, batch.data, self._tails, 0
        special = judged.more.keys() | judged.many.keys()
        columns = zip(batch.rows, batch.ends, worths, judged.outcomes, judged.answers, strict=True)
        for row, (stored, end, worth, outcome, answer) in enumerate(columns):
            begun = data[start : end - 1]  # all but the last brace
            start = end + 1
            line = begun if outcome == "scored" == stored.outcome else _with_outcome(begun, stored, worth)
            if line is None or stored.rewards is not UNSET or stored.before is not None or row in special:
                add(self._rewritten(row, batch, judged, worth))
                continue
            add(line)
            add(tails.get((worth, outcome, answer is None)) or self._tail(worth, outcome, answer is None))
            if answer is not None:
                add(_encode(answer))
                add(b"}\n")
        return b"".join(pieces)

    def _tail(self, worth: float | None, outcome: str, silent: bool) -> bytes:
        """What follows the old keys: up to the answer where there is one, else to the end of the line."""
        given = b"" if worth is None else b',"rewards":{' + self._key + b":" + _encode(worth) + b"}"
        said = b"" if outcome == "scored" else self._outcome + _encode(outcome)
        tail = given + said + (b"}\n" if silent else self._answer)
        if len(self._tails) < 10_000:
            self._tails[worth, outcome, silent] = tail
        return tail

    def _rewritten(self, row: int, batch: Batch, judged: Judged, worth: float | None) -> bytes:
        """A line with more to it than a reward at its end: taken apart and put together again."""
        stored, said, name = batch.rows[row], judged.outcomes[row], self._name
        rewards = {name: worth, **{f"{name}_{key}": value for key, value in judged.many.get(row, {}).items()}}
        decoded: dict[str, Any] = _ROW.decode(batch.line(row))
        record = {key: value for key, value in decoded.items() if not key.startswith(f"{name}_")}
        held = {key: value for key, value in (stored.rewards or {}).items() if key not in rewards}
        outcome = stored.outcome
        if outcome in GAPS and worth is not None:
            record.pop("reward", None)  # it stood beside a gap, and counted for nothing
            held, outcome = {}, "scored"
        elif outcome not in (None, "scored", *GAPS) and (worth is None or _hides(outcome, worth)):
            outcome = "scored"
            if stored.reward is None and not held:
                record["reward"] = 0.0  # what the old outcome contributed
        if outcome != stored.outcome:
            record["outcome"] = outcome
        held |= {key: value for key, value in rewards.items() if value is not None}
        record.pop("rewards", None)
        if held:
            record["rewards"] = held
        mine = {
            "outcome": None if said == "scored" else said,
            "answer": judged.answers[row],
            **judged.more.get(row, {}),
        }
        return _encode(record | {f"{name}_{key}": value for key, value in mine.items() if value is not None}) + b"\n"


def _hides(outcome: str | None, worth: float | None) -> bool:
    """Whether an outcome makes 0 of the new number, as it does of every other."""
    return bool(worth) and FIRST_NIL <= CODE[str(outcome)] < FIRST_GAP


def _with_outcome(line: bytes, stored: Stored, worth: float | None) -> bytes | None:
    """The line, if its outcome lets old and new be what they are, or with another in its place; None if not easily."""
    outcome = stored.outcome
    if outcome in (None, "scored") or ((outcome in GAPS) == (worth is None) and not _hides(outcome, worth)):
        return line
    if worth is None or stored.reward is not None or outcome not in GAPS:
        return None
    written = b'"outcome":"' + str(outcome).encode() + b'"'
    place = line.find(written)
    if place < 0 or line.find(b"{", 1, place) >= 0:  # none, or perhaps one of an object inside
        return None
    return line[:place] + b'"outcome":"scored"' + line[place + len(written) :]


@contextmanager
def whole_or_nothing(path: str) -> Iterator[Callable[[bytes], None]]:
    """What writes to a file that takes its place when all is written; LogError when it cannot be."""
    real = os.path.realpath(path)
    beside = os.path.join(os.path.dirname(real), f".{os.path.basename(real)[:100]}.{os.urandom(4).hex()}.part")
    try:
        file = open(beside, "xb", buffering=0)  # noqa: SIM115
    except OSError as error:
        raise InputError.at(path, f"cannot be written ({error.strerror})", "choose another --out") from None

    def write(data: bytes) -> None:
        left = memoryview(data)
        with _told(path):
            while left:
                left = left[file.write(left) :]

    try:
        with file:
            yield write
            with _told(path):
                os.fsync(file.fileno())
                os.replace(beside, real)
                sync_directory(Path(real).parent)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise


@contextmanager
def _told(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LogError.of(path, error) from None
