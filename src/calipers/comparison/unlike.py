"""What differs between two runs beside who answered: prompts, sampling, datasets, versions. Where unknown, nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from calipers.names import FORMATS
from calipers.readers.read import Input
from calipers.reports.safe import clean

LONGEST = 60
MOST = 12  # differences that are told one by one
ABSENT = object()
CALLED: Final = {
    "tasks": "the content of the tasks, with targets and verifiers,",
    "judged": "whether a verifier judged",
}
"""Names that a plan has for what its reader would call otherwise."""

Digests = Mapping[tuple[str, str], str]  # (dataset, task) -> that of the task's content


@dataclass(frozen=True, slots=True)
class Papers:
    """What a source says of how it was made: settings by name, and the digest of each task's content."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    digests: Digests = field(default_factory=dict)


def papers(inputs: Sequence[Input], digests: Digests, dataset: str | None) -> Papers:
    """What the files of a source say of a dataset's run; of several files only what they agree on."""
    found: dict[str, Any] = {}
    for one in inputs:
        settings = FORMATS.load(one.format).provenance
        for name, value in settings(one.path, dataset) if settings else ():
            if name in found and found[name] != value:
                value = ABSENT
            found[name] = value
    return Papers({name: value for name, value in found.items() if value is not ABSENT}, digests)


def differences(first: Papers, second: Papers, names: tuple[str, str], tasks: Sequence[str]) -> list[str]:
    """What both runs say and say differently, a sentence each."""
    found = []
    for name in first.settings:
        if name in second.settings and _json(first.settings[name]) != _json(second.settings[name]):
            one, two = (_shown(side.settings[name]) for side in (first, second))
            found.append(f"{CALLED.get(name, name)} differs: {one} in {names[0]}, {two} in {names[1]}")
    if len(found) > MOST:
        found = [*found[:MOST], f"and {len(found) - MOST} more settings"]
    common = set(tasks)
    changed = [
        task
        for (dataset, task), digest in first.digests.items()
        if task in common and second.digests.get((dataset, task), digest) != digest
    ]
    if changed:
        found.append(f"{_many(len(changed), 'task')} changed in between ({_some(changed)}): another digest")
    return found


def prompts_differ(one: Mapping[str, bytes], two: Mapping[str, bytes], tasks: Sequence[str]) -> list[str]:
    """Whether tasks of one id were asked with different prompts, a sentence or none."""
    asked = [task for task in tasks if task in one and task in two]
    changed = [task for task in asked if one[task] != two[task]]
    if not changed:
        return []
    said = [f"the prompt differs in {len(changed):,} of {_many(len(asked), 'common task')} ({_some(changed)})"]
    there = set(two.values())
    moved = sum(one[task] in there for task in changed)
    if moved:
        said.append(f"{moved:,} of these prompts stand under another id in the other run: tasks were paired by id")
    return said


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _shown(value: Any) -> str:
    return clean(value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False), LONGEST)


def _some(tasks: Sequence[str]) -> str:
    return ", ".join(clean(task) for task in tasks[:3]) + (", …" if len(tasks) > 3 else "")


def _many(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
