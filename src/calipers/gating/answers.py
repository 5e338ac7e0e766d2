"""What a result answers: the numbers of each group, from a result document or from rollouts scored now."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from calipers.comparison.named import named
from calipers.comparison.values import short
from calipers.errors import InputError
from calipers.gating.groups import Group, Number
from calipers.gating.requirement import Requirement
from calipers.gating.table import Shown, Who, picked, worked_out, written
from calipers.gating.worst import Key, scored_filled
from calipers.pipeline import score
from calipers.readers.files import STDIN
from calipers.readers.run_stop import stop_said
from calipers.reports.result import SCHEMA
from calipers.rollouts.stop import Stop
from calipers.stats.stopped import NO_SEQUENCE

LARGEST: Final = 1 << 28
ZERO: Final = "zero"
_LOOK: Final = 1 << 16
_MARK: Final = re.compile(rb'"schema"\s*:\s*"calipers\.result/')


class _Document(msgspec.Struct):
    schema: str
    groups: list[Group]
    confidence: float | None = None
    lm_eval: list[Shown] = []
    missing: str = "gap"
    stopped: str | None = None


@dataclass(frozen=True, slots=True)
class Answers:
    """The groups of one result."""

    path: str
    groups: Sequence[Group]
    document: bool  # finished numbers: nothing more can be asked of them
    notes: Sequence[str] = ()
    tables: Mapping[Who, Mapping[str, Number]] = field(default_factory=dict)  # of lm-evaluation-harness, by group
    known: Sequence[str] = ()  # the names that their tables have
    confidence: float | None = None  # of the intervals
    filled: Mapping[int, Mapping[Who, Group]] = field(default_factory=dict)  # an end of the range -> the groups with
    # every missing rollout there, where that is asked for
    unknown: Mapping[Key, str] = field(default_factory=dict)  # a metric of which that says nothing -> why
    zero: bool = False  # missing rollouts count 0, by the rule that was asked for

    @property
    def once(self) -> bool:
        """Whether it cannot be scored again: it is finished, or was read as it came."""
        return self.document or self.path == STDIN

    def of_table(self, group: Group, wanted: Requirement) -> Number | None:
        """What a requirement names in the table of a group; None where that has nothing of the name.

        InputError where another group has it: then one of them is to be picked.
        """
        found = picked(self.tables.get(group.who, {}), wanted.metric)
        if found is None:
            there = [one for one in self.groups if picked(self.tables.get(one.who, {}), wanted.metric)]
            if there:
                wrong = f"{group.title} has no {wanted.metric}, and {there[0].title} has"
                raise InputError.at(self.path, wrong, "pick the group, such as by --dataset, or dataset: in a policy")
            return None
        if wanted.by is not None:
            return Number(None, why=f"{wanted.metric} has no value in a slice, only delta({wanted.metric}[...])")
        if group.stopped is not None and found.interval is not None:
            return msgspec.structs.replace(found, interval=None, why=NO_SEQUENCE)
        return found


@dataclass(frozen=True, slots=True)
class Scoring:
    """How rollouts are turned into numbers, where a result is rollouts."""

    dialect: str | None = None
    missing: str | None = None
    cluster: str | None = None
    reward: str | None = None
    range: tuple[float, float] | None = None
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
        return _scored(path, metrics, by, scoring)
    if given := scoring.given():
        options = ", ".join(f"--{name}" for name in given)
        raise InputError.at(path, f"is a finished result, and {options} is about scoring", "expected rollouts")
    held = _read(path)
    tables = written(held.lm_eval, [group.who for group in held.groups])
    known = short(key for table in tables.values() for key in table)
    return Answers(
        path, held.groups, True, _stops(path, held), tables, known, held.confidence, zero=held.missing == ZERO
    )


def _scored(path: str, metrics: Sequence[str], by: Sequence[str], scoring: Scoring) -> Answers:
    asked = named(list(metrics) or None, scoring.dialect, [path])
    result = score(path, asked.ours or None, by=list(by), **scoring.given())
    found = msgspec.convert(result.to_dict(), _Document)
    tables: dict[Who, dict[str, Number]] = {}
    known: list[str] = []
    if asked.theirs:
        for group in found.groups:
            tables[group.who], keys = worked_out(
                result.inputs, group.who, list(asked.theirs), result.confidence, result.seed
            )
            known += keys
        if not known and not any(tables.values()):
            raise next(iter(asked.theirs.values()))
    warned = [f"warning: {said}" for group in result.groups for said in group.warnings]
    notes = [*result.notes, *_stops("", found), *warned]
    zero = found.missing == ZERO
    return Answers(path, found.groups, False, notes, tables, short(known), found.confidence, zero=zero)


def with_filled(found: Answers, metrics: Sequence[str], by: Sequence[str], scoring: Scoring, *ends: int) -> Answers:
    """The same with rollouts scored once more for each end of the range (`BOTTOM`, `TOP`), every missing one there."""
    held, unknown = dict(found.filled), dict(found.unknown)
    asked = named(list(metrics) or None, scoring.dialect, [found.path])
    for end in ends:
        if end not in held:
            filled = scored_filled(found.path, asked.ours or None, by, scoring.given(), end)
            twins = msgspec.convert(filled.result.to_dict(), _Document).groups
            held[end] = {group.who: group for group in twins}
            unknown |= filled.unknown
    return replace(found, filled=held, unknown=unknown)


def _stops(path: str, found: _Document) -> list[str]:
    """That stopping rules ended runs of a result, where its notes do not say it, and what that does to its values."""
    if found.stopped is None:
        return []
    biases = [group.stopped.bias for group in found.groups if group.stopped and group.stopped.bias]
    if not biases:  # of an earlier version
        stop = stop_said(found.stopped)
        biases = [Stop(stop.rule, stop.metric, stop.side).bias]
    return [*([f"{path}: {found.stopped}"] if path else []), *dict.fromkeys(biases)]


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
