"""Who meets whom: the runs that some sources hold, matched by agent, model and dataset."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from calipers.errors import InputError, UnknownName
from calipers.rollouts.table import Rollouts

Who = tuple[str | None, str | None]  # agent, model


@dataclass(frozen=True, slots=True)
class Runner:
    """An agent and model of one source, with what they did on each dataset."""

    side: int  # the place of the source
    path: str  # of the source; "" for a table
    who: Who
    parts: Mapping[str | None, Rollouts]  # by dataset


@dataclass(frozen=True, slots=True)
class Meeting:
    """Runs to be compared on one dataset, each with its rollouts; their names are distinct."""

    dataset: str | None
    runners: Sequence[Runner]
    parts: Sequence[Rollouts]
    names: Sequence[str]
    notes: Sequence[str] = ()


def runners(side: int, path: str, rollouts: Rollouts) -> list[Runner]:
    """The runs in one source: a run is what one agent and model did."""
    found: dict[Who, dict[str | None, Rollouts]] = {}
    for part in rollouts.groups():
        agent, model, dataset = part.keys[0]
        found.setdefault((agent, model), {})[dataset] = part
    return [Runner(side, path, who, parts) for who, parts in found.items()]


def meetings(sides: Sequence[Sequence[Runner]]) -> list[Meeting]:
    """Which runs are compared with which; InputError where that is not clear.

    One source is compared within itself. Of several, the runs of one name meet each other: of the same
    agent and model, else of the same agent where each source has one model, or of the same model where
    each has one agent. A source with a single run meets every run of the others.
    """
    matched = _matched(sides)
    there = [id(runner) for those in matched for runner in those]
    alone = [runner for side in sides for runner in side if id(runner) not in there]
    notes = [f"{_titled(runner)} is only in {_called(runner)}, and left out" for runner in alone]
    found: list[Meeting] = []
    for those in matched:
        found += _by_dataset(those, names_of(those))
    return [replace(found[0], notes=[*notes, *found[0].notes]), *found[1:]]


def _matched(sides: Sequence[Sequence[Runner]]) -> list[list[Runner]]:
    if len(sides) == 1:
        if len(sides[0]) < 2:
            wrong = "holds one run only"
            raise InputError.at(_called(sides[0][0]), wrong, "give a second one to compare it with")
        return [list(sides[0])]
    if all(len(side) == 1 for side in sides):
        return [[side[0] for side in sides]]
    for part in (slice(0, 2), slice(0, 1), slice(1, 2)):  # agent and model, agent, model
        keyed = [{runner.who[part]: runner for runner in side} for side in sides]
        distinct = all(len(keys) == len(side) for keys, side in zip(keyed, sides, strict=True))
        shared = [key for key in keyed[0] if all(key in keys for keys in keyed[1:])]
        if distinct and shared:
            return [[keys[key] for keys in keyed] for key in shared]
    if sum(len(side) > 1 for side in sides) == 1 or len(sides[0]) == 1:
        return [[runner for side in sides for runner in side]]
    held = "; ".join(f"{_called(side[0])} holds {', '.join(map(_titled, side))}" for side in sides)
    raise InputError(f"which runs belong together is not clear: {held}; expected one run in each, or the same names")


def _by_dataset(those: Sequence[Runner], names: Sequence[str]) -> Iterator[Meeting]:
    if all(len(runner.parts) == 1 for runner in those):
        parts = [next(iter(runner.parts.items())) for runner in those]
        said = list(dict.fromkeys(dataset for dataset, _ in parts if dataset is not None))
        notes = [f"the datasets have different names: {', '.join(map(repr, said))}"] if len(said) > 1 else []
        yield Meeting(said[0] if len(said) == 1 else None, those, [part for _, part in parts], names, notes)
        return
    every = list(dict.fromkeys(dataset for runner in those for dataset in runner.parts))
    there = {dataset: [runner for runner in those if dataset in runner.parts] for dataset in every}
    shared = {dataset: some for dataset, some in there.items() if len(some) > 1}
    if not shared:
        held = "; ".join(f"{name} has {_listed(runner.parts)}" for name, runner in zip(names, those, strict=True))
        raise InputError(f"the runs have no dataset in common: {held}; expected the same datasets")
    alone = [dataset for dataset in every if dataset not in shared]
    notes = [f"in one run only, and left out: {_listed(alone)}"] if alone else []
    for dataset, some in shared.items():
        called = [name for name, runner in zip(names, those, strict=True) if runner in some]
        yield Meeting(dataset, some, [runner.parts[dataset] for runner in some], called, notes)
        notes = []


def names_of(those: Sequence[Runner]) -> list[str]:
    """What tells the runs apart: model, agent, both, path, or all of them."""
    paths = _tails([runner.path or f"run {runner.side + 1}" for runner in those])
    ways: list[list[str | None]] = [
        [runner.who[1] for runner in those],
        [runner.who[0] for runner in those],
        [" · ".join(filter(None, reversed(runner.who))) or None for runner in those],
        [*paths],
        [" · ".join([path, *filter(None, reversed(runner.who))]) for path, runner in zip(paths, those, strict=True)],
    ]
    for names in ways:
        given = [name for name in names if name]
        if len(set(given)) == len(those):
            return given
    return [f"{path} ({place + 1})" for place, path in enumerate(paths)]  # one file, given twice


def _tails(paths: Sequence[str]) -> list[str]:
    """As much of the end of each path as tells it from the others."""
    split = [path.rstrip(os.sep).split(os.sep) for path in paths]
    for count in range(1, max(map(len, split)) + 1):
        found = [os.sep.join(parts[-count:]) for parts in split]
        if len(set(found)) == len(set(paths)):
            return found
    return list(paths)


def chosen(meeting: Meeting, baseline: str | None) -> list[tuple[int, int]]:
    """The pairs to compare, (first, second): all of them, or each run against the baseline."""
    count = len(meeting.runners)
    if baseline is None:
        return [(one, two) for one in range(count) for two in range(one + 1, count)]
    known = [
        {name, runner.path, runner.path.rstrip(os.sep), *filter(None, runner.who)}
        for name, runner in zip(meeting.names, meeting.runners, strict=True)
    ]
    places = [place for place, words in enumerate(known) if baseline in words]
    if not places:
        raise UnknownName.of("run", baseline, meeting.names)
    if len(places) > 1:
        called = ", ".join(meeting.names[place] for place in places)
        raise InputError.at(
            "--baseline", f"{baseline!r} is the name of several runs ({called})", "expected one of them"
        )
    return [(places[0], place) for place in range(count) if place != places[0]]


def _called(runner: Runner) -> str:
    return runner.path or f"run {runner.side + 1}"


def _titled(runner: Runner) -> str:
    return repr(" · ".join(filter(None, reversed(runner.who))) or "(unnamed)")


def _listed(datasets: Mapping[str | None, object] | Sequence[str | None]) -> str:
    return ", ".join("(unnamed)" if dataset is None else repr(dataset) for dataset in datasets)
