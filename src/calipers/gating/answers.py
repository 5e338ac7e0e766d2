"""What a result answers: the numbers of each group, from a result document or from rollouts scored now."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from calipers.errors import InputError
from calipers.pipeline import score
from calipers.readers.files import STDIN
from calipers.reports.result import SCHEMA

LARGEST: Final = 1 << 28
_LOOK: Final = 1 << 16
_MARK: Final = re.compile(rb'"schema"\s*:\s*"calipers\.result/')


class Number(msgspec.Struct, frozen=True, gc=False):
    """An estimate, as far as a gate needs it."""

    value: float | None
    interval: tuple[float, float] | None = None
    why: str | None = None
    tasks: int = 0


class Ledger(msgspec.Struct, frozen=True, gc=False):
    """How many rollouts there should be, and how many have no number."""

    planned: int
    gaps: int


class Cut(msgspec.Struct, frozen=True):
    """Some rollouts of a group."""

    ledger: Ledger
    metrics: dict[str, Number]


class Group(msgspec.Struct, frozen=True):
    """The rollouts of one agent, model and dataset."""

    ledger: Ledger
    metrics: dict[str, Number]
    agent: str | None = None
    model: str | None = None
    dataset: str | None = None
    breakdowns: dict[str, dict[str, Cut]] = msgspec.field(default_factory=dict)
    economics: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def who(self) -> tuple[str | None, str | None, str | None]:
        """Agent, model and dataset."""
        return self.agent, self.model, self.dataset

    @property
    def title(self) -> str:
        """``dataset · model · agent``, as far as they are known."""
        return " · ".join(part for part in (self.dataset, self.model, self.agent) if part) or "(unnamed)"

    def numbers(self) -> dict[str, Number]:
        """Its metrics, and those of what it cost."""
        spent = {name: one for name, one in self.economics.items() if name != "total"}
        return {**msgspec.convert(spent, dict[str, Number]), **self.metrics}


class _Document(msgspec.Struct):
    schema: str
    groups: list[Group]


@dataclass(frozen=True, slots=True)
class Answers:
    """The groups of one result."""

    path: str
    groups: Sequence[Group]
    document: bool  # finished numbers: nothing more can be asked of them
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Scoring:
    """How rollouts are turned into numbers, where a result is rollouts."""

    dialect: str | None = None
    missing: str | None = None
    cluster: str | None = None
    reward: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    confidence: float | None = None
    seed: int | None = None

    def given(self) -> dict[str, Any]:
        """What was asked for, by the names of `score`."""
        held = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in held.items() if value not in (None, {})}


def is_document(path: str) -> bool:
    """Whether a file is a result of ours, by what stands at its beginning or at its end."""
    if path == STDIN or not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            head = file.read(_LOOK)
            if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
                return False
            file.seek(max(os.path.getsize(path) - _LOOK, 0))
            return any(_MARK.search(part) for part in (head[:1024], file.read(_LOOK)))
    except OSError as error:
        raise InputError.at(path, f"cannot be read ({error.strerror})") from None


def answers(path: str, metrics: Sequence[str], by: Sequence[str], scoring: Scoring) -> Answers:
    """The numbers of a result document; or of rollouts, scored for these metrics and slices."""
    if not is_document(path):
        result = score(path, list(metrics) or None, by=list(by), **scoring.given())
        found = msgspec.convert(result.to_dict(), _Document)
        return Answers(path, found.groups, document=False, notes=result.notes)
    if given := scoring.given():
        options = ", ".join(f"--{name}" for name in given)
        raise InputError.at(path, f"is a finished result, and {options} is about scoring", "expected rollouts")
    return Answers(path, _read(path).groups, document=True)


def _read(path: str) -> _Document:
    if os.path.getsize(path) > LARGEST:
        raise InputError.at(path, f"larger than {LARGEST >> 20} MiB", "expected a result as calipers score writes it")
    with open(path, "rb") as file:
        text = file.read().removeprefix(b"\xef\xbb\xbf")
    try:
        found = msgspec.json.decode(text, type=_Document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        wrong = f"is no whole result document ({str(error).rstrip('.')})"
        raise InputError.at(path, wrong, f"expected {SCHEMA}, as calipers score --out writes it") from None
    if found.schema != SCHEMA:
        raise InputError.at(path, f"its schema is {found.schema!r}", f"expected {SCHEMA!r}")
    return found
