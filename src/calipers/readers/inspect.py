"""The logs of inspect, archives and single files: a rollout for each epoch of each sample, run or not.

What was planned is what the log says: the samples chosen of the dataset, as often as there are epochs. A sample
that the log has lost, or that never began, is `not_run`; nothing leaves the denominator unseen.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final

import numpy as np

from calipers.errors import InputError
from calipers.readers.divide import Progress
from calipers.readers.files import BOM, LARGEST_WHOLE, Source
from calipers.readers.inspect_archive import MAGIC, Archive
from calipers.readers.inspect_log import Header, Log, Sample, checked, decoded
from calipers.readers.inspect_rows import error_kind, group, record, unread
from calipers.readers.jsonl import JsonLines, LineError
from calipers.rollouts.ledger import ERROR_KIND
from calipers.rollouts.part import Labels, Part, Places

HEADER: Final = "header.json"
START: Final = "_journal/start.json"
AT_ONCE: Final = 1024  # samples
MOST_PLANNED: Final = 100_000_000
_LOG: Final = re.compile(rb'\{\s*"version"\s*:\s*\d+\s*,\s*"(?:status|eval)"\s*:')
_SAMPLE: Final = re.compile(r"samples/.+\.json")


def is_archive(head: bytes) -> bool:
    """Whether a file that begins like this may be an archive of inspect's: a zip, of whatever."""
    return head.startswith(MAGIC)


def is_log(head: bytes) -> bool:
    """Whether a file that begins like this is a log in one piece."""
    return _LOG.match(head.removeprefix(BOM).lstrip()) is not None


def read(source: Source, names: Mapping[str, str], labels: Collection[str], progress: Progress) -> list[Part]:
    """The rollouts of a log: those in it, and `not_run` for those that were planned and are not."""
    if names:
        raise InputError.at("--columns", "a log of inspect has names of its own", "expected none beside it")
    reading = _Reading(source.path, labels)
    if not is_archive(source.head):
        text = source.everything(LARGEST_WHOLE).removeprefix(BOM)
        log = decoded(text, Log, source.path)
        progress(len(text))
        if log.samples is None:
            right = "expected the log with its samples; inspect writes none with --no-log-samples"
            raise InputError.at(source.path, "holds numbers and no samples", right)
        return reading.parts(log, log.samples)
    if not source.divisible:
        wrong = "is a zip archive that is packed again, or in a pipe"
        raise InputError.at(source.path, wrong, "expected its file as it is: it is read from its end")
    with Archive(source.path) as archive:
        header = header_of(archive)
        return reading.parts(header, _samples(archive, progress))


def header_of(archive: Archive) -> Header:
    """What an archive says of itself; of one that was cut off, what it said at the start."""
    for name in (HEADER, START):
        if name in archive.members:
            return decoded(archive.read(name), Header, f"{archive.path}: {name}")
    right = f"expected {HEADER} or {START}, as inspect writes them"
    raise InputError.at(archive.path, "is a zip archive, but no log of inspect", right)


def sample_names(archive: Archive) -> list[str]:
    """The members that are samples."""
    return [name for name in archive.members if _SAMPLE.fullmatch(name)]


def _samples(archive: Archive, progress: Progress) -> Iterator[Sample]:
    for name in sample_names(archive):
        yield decoded(archive.read(name), Sample, f"{archive.path}: {name}")
        progress(archive.members[name].compress_size)


class _Reading:
    """One log while it is read."""

    def __init__(self, path: str, labels: Collection[str]) -> None:
        self._path = path
        self._labels = labels
        self._there: dict[str, set[int]] = {}
        self._kinds: list[str | None] = []
        self._unread = Counter[str]()

    def parts(self, header: Header, samples: Iterable[Sample]) -> list[Part]:
        """What was run, and what was not."""
        checked(header, self._path)
        found = self._gathered(self._path, self._records(header, samples), "sample ")
        owed = self._gathered(f"{self._path}: plan", map(json.dumps, self._owed(header)), "sample ")
        if any(self._kinds):
            numbers = {kind: number for number, kind in enumerate(dict.fromkeys(filter(None, self._kinds)))}
            code = np.array([numbers.get(kind or "", -1) for kind in self._kinds], dtype=np.int64)
            found = replace(found, labels={**found.labels, ERROR_KIND: Labels(code, list(numbers))})
        parts = [part for part in (found, owed) if len(part)]
        notes = [*self._notes(header)]
        return [replace(part, planned_from="plan", notes=[] if place else notes) for place, part in enumerate(parts)]

    def _records(self, header: Header, samples: Iterable[Sample]) -> Iterator[str]:
        for sample in samples:
            if sample.epoch < 1:
                wrong = f"sample {sample.id!r} has the epoch {sample.epoch}"
                raise InputError.at(self._path, wrong, "expected epochs from 1")
            self._there.setdefault(str(sample.id), set()).add(sample.epoch)
            self._kinds.append(error_kind(sample))
            self._unread.update(unread(sample))
            try:
                yield json.dumps(_plain(record(sample, header.eval, labelled=bool(self._labels))))
            except RecursionError:
                wrong = f"sample {sample.id!r} has metadata that is nested too deeply"
                raise InputError.at(self._path, wrong, "expected text or numbers for --by") from None

    def _owed(self, header: Header) -> Iterator[dict[str, Any]]:
        """A record for each planned epoch of a sample that the log has not."""
        plan, epochs = header.eval.dataset, max(header.eval.config.epochs or 1, 1)
        tasks = [*map(str, plan.sample_ids or ())]
        count = len(tasks) or self._count(header, epochs)
        if count * epochs > MOST_PLANNED:
            raise InputError.at(self._path, f"{count * epochs} samples are planned", f"expected at most {MOST_PLANNED}")
        if not tasks:  # a count, and no names: those that never came have none
            lost = range(1, count - len(self._there) + 1)
            tasks = [*self._there, *(f"(not in the log: {number})" for number in lost)]
        for task in tasks:
            for epoch in range(1, epochs + 1):
                if epoch not in self._there.get(task, ()):
                    yield {"task": task, "sample": epoch - 1, "outcome": "not_run", **group(header.eval)}

    def _count(self, header: Header, epochs: int) -> int:
        """How many samples were chosen, by what an older log says of it."""
        if header.results is not None and header.results.total_samples:
            return header.results.total_samples // epochs
        samples, limit = header.eval.dataset.samples or 0, header.eval.config.limit
        if isinstance(limit, int):
            return min(samples, limit)
        if limit is not None and len(limit) == 2:
            return max(min(samples, limit[1]) - limit[0], 0)
        return samples

    def _gathered(self, place: str, lines: Iterator[str], unit: str) -> Part:
        reader = JsonLines(place, {}, self._labels)
        try:
            while block := [*islice(lines, AT_ONCE)]:
                reader.read("".join(f"{line}\n" for line in block).encode("utf-8", "replace"))
            part = reader.finish()
        except LineError as error:
            line, wrong, right = error.args
            raise InputError.at(f"{place}:{unit}{line}", wrong, right) from None
        return replace(part, places=Places(place, unit, part.places.blocks))

    def _notes(self, header: Header) -> Iterator[str]:
        if header.status == "started":
            yield f"{self._path}: the run is not finished: it goes on, or was cut off"
        elif header.status != "success":
            why = f" ({header.error.message})" if header.error and header.error.message else ""
            yield f"{self._path}: the run ended with {header.status!r}{why}"
        for scorer, count in self._unread.items():
            said = "1 sample has" if count == 1 else f"{count:,} samples have"
            yield f"{self._path}: {said} a value of {scorer!r} that is no grade and no number: a gap, not a 0"


def _plain(value: Any) -> Any:
    """JSON as all can read it: no NaN, no half characters."""
    if isinstance(value, dict):
        return {_plain(str(key)): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    return None if isinstance(value, float) and not math.isfinite(value) else value
