"""Compare what both sides wrote for the same task."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CLOSE = 1e-9  # maximum relative difference of numbers
COUNTED = ("requests", "sample metrics", "values", "standard errors", "group values")
_NEITHER = ("alias", "name", "sample_len", "sample_count")  # keys of a row of results that are not numbers of the task


@dataclass
class Compared:
    """The number of comparisons by their kind, and the differences."""

    counts: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def check(self, what: str, where: str, ours: Any, theirs: Any) -> None:
        """Count a comparison, and record a difference."""
        self.counts[what] += 1
        if not alike(ours, theirs):
            self.differences.append(f"{what}: {where}: ours {_short(ours)}, theirs {_short(theirs)}")


def compared(ours: Path, theirs: Path) -> Compared:
    """Compare every request, sample metric, value, standard error and group value in two folders of files."""
    found = Compared()
    mine, other = _results(ours), _results(theirs)
    groups = other.get("groups") or {}
    for name in {**other["results"], **mine["results"]}:
        rows = mine["results"].get(name, {}), other["results"].get(name, {})
        for key in {**rows[1], **rows[0]}:
            if key not in _NEITHER:
                what = "group values" if name in groups else "standard errors" if "_stderr," in key else "values"
                found.check(what, f"{name} {key}", *(row.get(key, "nothing") for row in rows))
    for block in ("n-shot", "higher_is_better"):
        for name in other.get(block, {}):
            found.check("values", f"{name} {block}", mine.get(block, {}).get(name), other[block][name])
    samples = _samples(ours), _samples(theirs)
    for key in {**samples[1], **samples[0]}:
        _sample(found, key, samples[0].get(key, {}), samples[1].get(key, {}))
    return found


def _sample(found: Compared, key: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    asked = ours.get("arguments", {}), theirs.get("arguments", {})
    for number in {**asked[1], **asked[0]}:
        pair = [one.get(number, "nothing") for one in asked]
        found.check("requests", f"{key} {number}", *pair)
    for name in ("target", "filtered_resps", "doc_hash", "target_hash"):
        found.check("sample metrics", f"{key} {name}", ours.get(name), theirs.get(name))
    for name in dict.fromkeys([*theirs.get("metrics", ()), *ours.get("metrics", ())]):
        found.check("sample metrics", f"{key} {name}", ours.get(name, "nothing"), theirs.get(name, "nothing"))


def alike(ours: Any, theirs: Any) -> bool:
    """Whether two JSON values are equal, with numbers compared within `CLOSE`.

    >>> alike({"a": [1, "x"]}, {"a": [1.0, "x"]}), alike(0.5, 0.5000001), alike(float("nan"), float("nan"))
    (True, False, True)
    """
    if isinstance(ours, (int, float)) and isinstance(theirs, (int, float)):
        both_nan = math.isnan(ours) and math.isnan(theirs)
        return both_nan or math.isclose(ours, theirs, rel_tol=CLOSE, abs_tol=1e-12)
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(alike(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(alike, ours, theirs))
    return bool(ours == theirs)


def _results(folder: Path) -> dict[str, Any]:
    (path,) = folder.rglob("results_*.json")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _samples(folder: Path) -> dict[str, dict[str, Any]]:
    return {key: row for path in sorted(folder.rglob("samples_*.jsonl")) for key, row in _rows(path)}


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    task = path.stem.removeprefix("samples_").rpartition("_")[0]
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line:
            row = json.loads(line)
            yield f"{task} document {row['doc_id']} {row['filter']}", row


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 160 else f"{text[:120]}...{text[-30:]}"
