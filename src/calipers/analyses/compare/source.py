"""One source of a comparison: its rollouts, its texts, and the settings of its run.

The table of rollouts keeps no texts, so that the files are read once more, and only what is wanted kept. Where a source
says nothing, is a pipe, or is of a kind that keeps no texts, there is nothing here.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

import msgspec
import numpy as np

from calipers.analyses.compare.document_table import DocumentTable, table_of
from calipers.errors import display
from calipers.formats.convert import texts_of_rows
from calipers.formats.format import BAD, Format, Raw, Text
from calipers.formats.read import Input, begin
from calipers.names import FORMATS
from calipers.pipeline import Progress, Source, read, score_rollouts
from calipers.reports.page import load
from calipers.reports.result import Result
from calipers.reports.untrusted_text import clean
from calipers.request import Plan, RequestedMetric
from calipers.rollouts.table import Part, Rollouts
from calipers.stats.estimate import Estimate
from calipers.stores import local

Key = tuple[str | None, ...]  # agent, model, dataset
LONGEST = 4_000  # characters of an answer that are kept
DEEPEST = 32  # lists and objects within each other in which a text is looked for


@dataclass(slots=True)
class Texts:
    """What one group of rollouts says."""

    prompts: dict[str, bytes] = field(default_factory=dict)  # task -> hash of its prompt
    documents: dict[str, bytes] = field(default_factory=dict)  # task -> hash of the document it is made of
    targets: dict[str, bytes] = field(default_factory=dict)  # task -> hash of its right answer
    answers: dict[str, tuple[float, str]] = field(default_factory=dict)  # task -> (sample, text) of its first sample


def contents(
    inputs: Sequence[Input], keys: Sequence[Key], columns: Mapping[str, str], wanted: Mapping[Key, Collection[str]]
) -> dict[Key, Texts]:
    """What the files of one side say: prompts of all tasks, answers of the wanted ones, by group."""
    by_group = {key: Texts() for key in keys}
    every = frozenset(task for tasks in wanted.values() for task in tasks)
    for key, text in texts_by_group(inputs, keys, columns, every):
        texts, task = by_group[key], text.task
        if task not in texts.prompts and (prompt := prompt_of(text)) is not None:
            texts.prompts[task] = _hash(prompt)
        if text.document and task not in texts.documents:
            texts.documents[task] = text.document.encode()
        if text.target and task not in texts.targets:
            texts.targets[task] = text.target.encode()
        # of several attempts at one sample, the later record is the later attempt
        first = task not in texts.answers or text.sample <= texts.answers[task][0]
        if first and task in wanted.get(key, ()) and (answer := _answer(text)):
            texts.answers[task] = text.sample, answer[:LONGEST]
    return by_group


def texts_by_group(
    inputs: Sequence[Input], keys: Sequence[Key], columns: Mapping[str, str], wanted: frozenset[str]
) -> Iterator[tuple[Key, Text]]:
    """What the files say, each text with its group: the first of every task, all of the wanted ones."""
    owner: dict[Key, Key | None] = {}
    for file in inputs:
        for text in _texts(file, columns, wanted):
            who = text[:3]
            if who not in owner:
                owner[who] = _owner(who, keys)
            key = owner[who]
            if key is not None:
                yield key, text


def spoken(value: Any, deepest: int = DEEPEST) -> str | None:
    """What a JSON value says: a text, the last text of messages or parts, a number as it is written.

    >>> spoken([{"role": "user", "content": "6 x 7?"}, {"role": "assistant", "content": [{"text": "42"}]}])
    '42'
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        inside = reversed(value)
    elif isinstance(value, dict):
        inside = iter([value.get(key) for key in ("content", "text", "output")])
    else:
        return json.dumps(value) if isinstance(value, (bool, int, float)) else str(value)
    texts = (spoken(inner, deepest - 1) for inner in inside) if deepest else iter(())
    return next((text for text in texts if text is not None), None)


def _texts(file: Input, columns: Mapping[str, str], wanted: frozenset[str]) -> Iterator[Text]:
    kind: Format = FORMATS.load(file.format)
    texts = kind.texts or (texts_of_rows if kind.said or kind.extras else None)
    if texts is not None and (os.path.isfile(path := local(file.path)) or os.path.isdir(path)):
        yield from texts(path, columns, wanted)  # a pipe gives its bytes once


def _owner(who: Key, keys: Sequence[Key]) -> Key | None:
    """The group that a record belongs to, by what it says of itself; None where several may be meant."""
    matches = [key for key in keys if all(name is None or name == known for name, known in zip(who, key, strict=True))]
    exact = [key for key in matches if key == who]
    return (exact or matches)[0] if len(exact or matches) == 1 else None


def prompt_of(text: Text) -> str | None:
    """The text of a prompt: what the only message says, or all of them as they are; None without one."""
    value = _value(text.prompt)
    if value is None or value == "":
        return None
    alone = value[0] if isinstance(value, list) and len(value) == 1 else value
    words = spoken(alone) if isinstance(alone, (str, dict)) else None
    return _written(value) if words is None else words


def said(stored: Any) -> str | None:
    """What a stored value says, decoded where that was left to be done."""
    return spoken(_value(stored))


def error_of(text: Text) -> str | None:
    """What went wrong in a rollout: ``timeout: no answer after 60 s``; None where the record has no error."""
    value = _value(text.error)
    if isinstance(value, dict):
        parts = [str(value[key]) for key in ("kind", "message") if value.get(key)]
        return ": ".join(parts) or _written(value)
    return spoken(value)


def _answer(text: Text) -> str | None:
    answers = (said(stored) for stored in (text.answer, text.completion))
    return next((answer for answer in answers if answer is not None), None)


def _value(stored: Any) -> Any:
    """A value, decoded where that was left to be done; None for what is no JSON."""
    if not isinstance(stored, Raw):
        return stored
    try:
        return msgspec.json.decode(stored) if stored else None
    except BAD:
        return None


def _written(value: Any) -> str | None:
    try:
        return json.dumps(value, sort_keys=True, default=str)
    except RecursionError:
        return None


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.strip().encode("utf-8", "replace"), digest_size=16).digest()


LONGEST_SETTING = 60
MOST = 12  # settings that are named one by one
ABSENT = object()
CALLED: Final = {
    "tasks": "the content of the tasks (with targets and verifiers)",
    "judged": "whether a verifier was used",
}
"""Plainer names for settings of a plan."""

Digests = Mapping[tuple[str, str], str]  # (dataset, task) -> that of the task's content


def settings_of(inputs: Sequence[Input], dataset: str | None) -> dict[str, Any]:
    """How the files of a source say that a dataset's run was made; of several files only what they agree on."""
    settings: dict[str, Any] = {}
    for file in inputs:
        provenance = FORMATS.load(file.format).provenance
        for name, value in provenance(file.path, dataset) if provenance else ():
            settings[name] = ABSENT if name in settings and settings[name] != value else value
    return {name: value for name, value in settings.items() if value is not ABSENT}


def settings_differ(first: Mapping[str, Any], second: Mapping[str, Any], names: tuple[str, str]) -> list[str]:
    """The settings that both runs have and have differently, a sentence each."""
    notes = []
    for name, value in first.items():
        if name in second and _json(value) != _json(second[name]):
            shown = f"{_shown(value)} in {names[0]}, {_shown(second[name])} in {names[1]}"
            notes.append(f"{CALLED.get(name, name)} differs: {shown}")
    return [*notes[:MOST], f"and {len(notes) - MOST} more settings"] if len(notes) > MOST else notes


def tasks_differ(first: Digests, second: Digests, tasks: Sequence[str]) -> list[str]:
    """Whether the content of tasks has changed, a sentence or none."""
    common = set(tasks)
    changed = [
        task
        for (dataset, task), digest in first.items()
        if task in common and second.get((dataset, task), digest) != digest
    ]
    return (
        [f"{_many(len(changed), 'task')} changed between the runs ({_some(changed)}): their digests differ"]
        if changed
        else []
    )


def prompts_differ(first: Mapping[str, bytes], second: Mapping[str, bytes], tasks: Sequence[str]) -> list[str]:
    """Whether tasks of one id were asked with different prompts, a sentence or none."""
    known = [task for task in tasks if task in first and task in second]
    changed = [task for task in known if first[task] != second[task]]
    if not changed:
        return []
    notes = [f"the prompt differs in {len(changed):,} of {_many(len(known), 'common task')} ({_some(changed)})"]
    there = set(second.values())
    moved = sum(first[task] in there for task in changed)
    if moved:
        notes.append(f"{moved:,} of these prompts have another id in the other run; tasks were paired by id")
    return notes


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _shown(value: Any) -> str:
    return clean(value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False), LONGEST_SETTING)


def _some(tasks: Sequence[str]) -> str:
    return ", ".join(clean(task) for task in tasks[:3]) + (", …" if len(tasks) > 3 else "")


def _many(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class ReadSource:
    """What was read from one source."""

    path: str  # what it is called; "" for a table
    rollouts: Rollouts
    digests: Digests
    columns: Mapping[str, str]
    hashed: Callable[[], list[Input]]  # the files, once they are hashed
    known: list[dict[Key, Texts]] = field(default_factory=list)  # what was read before
    tables: dict[Key, DocumentTable | None] = field(default_factory=dict)  # likewise

    def texts(self, wanted: Mapping[Key, Collection[str]]) -> dict[Key, Texts]:
        """Prompts, and the answers to the wanted tasks, by group."""
        return contents(self.hashed(), self.rollouts.keys, self.columns, wanted)

    def prompts(self, key: Key) -> Texts:
        """What a group says but for its answers; read once, however many runs it meets."""
        if not self.known:
            self.known.append(self.texts({}))
        return self.known[0].get(key) or Texts()

    def settings(self, dataset: str | None) -> dict[str, Any]:
        """How the run on a dataset was made, as far as the files say."""
        return settings_of(self.hashed(), dataset)

    def table(self, key: Key) -> DocumentTable | None:
        """What its documents keep for the numbers of lm-evaluation-harness' table of a group; read once."""
        if key not in self.tables:
            self.tables[key] = table_of(self.hashed(), key)
        return self.tables[key]

    @property
    def documented(self) -> bool:
        """Whether its records carry the hash of the document each task is made of."""
        return any(FORMATS.load(file.format).has_documents for file in self.hashed())


@dataclass(frozen=True, slots=True)
class CalledTable:
    """A table in memory, and what it is to be called in place of a path."""

    name: str
    table: Source


def read_source(
    source: Source, columns: Mapping[str, str], labels: Collection[str], progress: Progress | None
) -> ReadSource:
    """Read one source: anything that can be scored."""
    if isinstance(source, CalledTable):
        return replace(read_source(source.table, columns, labels, progress), path=source.name)
    given = [source] if isinstance(source, (str, os.PathLike)) else source if isinstance(source, (list, tuple)) else []
    paths = [os.fspath(path) for path in given if isinstance(path, (str, os.PathLike))]
    if paths and len(paths) == len(given):
        parts: list[Part] = []
        rollouts, inputs = begin(paths, columns=columns, labels=labels, progress=progress, kept=parts)
        digests = {key: digest for part in parts for key, digest in part.digests.items()}
        return ReadSource(display(" ".join(paths)), rollouts, digests, columns, cache(inputs))
    return ReadSource("", read(source, columns=columns, labels=labels), {}, columns, list)


@dataclass(frozen=True, slots=True)
class FinishedResult:
    """A result that was given instead of rollouts."""

    path: str  # "" for one in memory
    result: Result


def finished_results(sources: Sequence[Source]) -> tuple[list[FinishedResult], list[Source]]:
    """Results that are finished, and what has rollouts to read; of a folder of runs, what is inside."""
    from calipers.formats.read import is_result, unfolded

    finished, others = [], []
    for source in unfolded(sources):
        if isinstance(source, Result):
            finished.append(FinishedResult("", source))
        elif isinstance(source, (str, os.PathLike)) and is_result(os.fspath(source)):
            result = load(source)
            assert isinstance(result, Result)
            finished.append(FinishedResult(os.fspath(source), result))
        else:
            others.append(source)
    return finished, others


def on_tasks(rollouts: Rollouts, tasks: Collection[str]) -> Rollouts:
    """The rollouts of some tasks."""
    there = np.array([task in tasks for task in rollouts.tasks], dtype=np.bool_)
    return rollouts if there.all() else rollouts.where(there[rollouts.task])


def estimate_of(part: Rollouts, request: RequestedMetric, plan: Plan) -> Estimate:
    """A metric of some rollouts as `score` has it; what is missing was looked for before."""
    policy = "gap" if plan.missing == "fail" else plan.missing
    result = score_rollouts(part, replace(plan, asked=[request], by=(), missing=policy, afterwards=None))
    return next(iter(result.groups[0].metrics.values()))
