"""Curves over k of some rollouts: what k samples are worth, and what it costs to try until one passes."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from calipers.errors import UnknownName
from calipers.readers.read import Input
from calipers.reports.result import canonical
from calipers.rollouts.ledger import Ledger
from calipers.stats.curve import Curve, FirstSuccess

if TYPE_CHECKING:
    import polars as pl

SCHEMA = "calipers.curves/1"
FIELDS = (
    *("dataset", "model", "agent", "reward", "metric", "k", "value", "stderr", "low", "high", "tasks"),
    *("model_based", "tries", "cost_usd", "cost_usd_per_success", "why", "assumes"),
)


@dataclass(frozen=True, slots=True)
class FittedLaw:
    """The law by which curves go on beyond the samples, or why they do not."""

    assumes: str
    draws: int  # of the bootstrap
    a: float | None = None  # of the beta law; None where none was fitted
    b: float | None = None
    never_solved: float | None = None  # share of tasks
    log_likelihood: float | None = None
    fit_p: float | None = None  # of Pearson's test of the counts of passes against the law
    why: str | None = None  # why nothing beyond the samples is said


@dataclass(frozen=True, slots=True)
class CurveGroup:
    """The curves of one agent, model and dataset, by one of its rewards."""

    agent: str | None
    model: str | None
    dataset: str | None
    reward: str
    ledger: Ledger
    samples: tuple[int, int]  # the fewest and the most that a task has
    tasks: int  # with a sample
    curves: Sequence[Curve]
    first_success: Sequence[FirstSuccess]
    notes: Sequence[str] = ()
    law: FittedLaw | None = None  # None where nothing beyond the samples is asked for

    @property
    def title(self) -> str:
        """``dataset · model · agent``, as far as they are known."""
        return " · ".join(part for part in (self.dataset, self.model, self.agent) if part)

    @property
    def lines(self) -> list[Curve]:
        """The curves worth a line: not max@k where it is pass@k, as it is for rewards of 0 and 1."""
        first = [point.value or 0.0 for point in self["pass@k"].points if not point.model_based]
        best = [point.value or 0.0 for curve in self.curves if curve.metric == "max@k" for point in curve.points]
        same = all(math.isclose(one, other, abs_tol=1e-12) for one, other in zip(best, first, strict=False))
        return [curve for curve in self.curves if not (same and curve.metric == "max@k")]

    def __getitem__(self, metric: str) -> Curve:
        found = {curve.metric: curve for curve in self.curves}
        if metric not in found:
            raise UnknownName.of("curve in this group", metric, found)
        return found[metric]


@dataclass(frozen=True, slots=True)
class Curves:
    """The curves of every group. ``curves["pass@k"]`` is the curve when there is one group."""

    missing: str
    confidence: float
    threshold: float  # what a sample's reward must reach to pass
    cluster: str | None
    inputs: Sequence[Input]
    groups: Sequence[CurveGroup]
    notes: Sequence[str] = ()  # for the reader; no part of the JSON

    def __getitem__(self, metric: str) -> Curve:
        if len(self.groups) != 1:
            raise KeyError(f"there are {len(self.groups)} groups; ask .groups[i][{metric!r}]")
        return self.groups[0][metric]

    @property
    def fields(self) -> Sequence[str]:
        """The keys of a row, in order."""
        return FIELDS

    @property
    def digest(self) -> str:
        """The hash of everything that must not change: settings and numbers, no files and no words."""
        groups = [_numbers(asdict(group)) for group in self.groups]
        return "sha256:" + hashlib.sha256(canonical({**self._settings(), "groups": groups})).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """The document, ready for strict JSON."""
        from calipers import __version__

        return {
            "schema": SCHEMA,
            "calipers": __version__,
            **self._settings(),
            "inputs": [asdict(source) for source in self.inputs],
            "groups": [asdict(group) for group in self.groups],
            "digest": self.digest,
        }

    def to_json(self) -> str:
        """The document as indented JSON with a final newline."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def rows(self) -> list[dict[str, Any]]:
        """One flat row per metric and k; pass@k carries what it takes to reach a first pass."""
        found = []
        for group in self.groups:
            who = {"dataset": group.dataset, "model": group.model, "agent": group.agent, "reward": group.reward}
            tries = {one.k: one for one in group.first_success}
            for curve in group.curves:
                for point in curve.points:
                    low, high = point.interval or (None, None)
                    first = tries.get(point.k) if curve.metric == "pass@k" else None
                    found.append(
                        {
                            **who,
                            "metric": curve.metric,
                            **_without(asdict(point), "interval"),
                            "low": low,
                            "high": high,
                            "tries": first.tries if first else None,
                            "cost_usd": first.cost if first else None,
                            "cost_usd_per_success": first.cost_per_success if first else None,
                        }
                    )
        return found

    def to_polars(self) -> pl.DataFrame:
        """The rows as a polars frame."""
        import polars as pl

        return pl.DataFrame(self.rows(), infer_schema_length=None)

    def _settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("missing", "confidence", "threshold", "cluster")}


def _numbers(group: dict[str, Any]) -> dict[str, Any]:
    """A group without words, and without the law: only its points are rounded to what every machine finds."""
    curves = [
        {**curve, "points": [_without(point, "assumes") for point in curve["points"]]} for curve in group["curves"]
    ]
    return {**_without(_without(group, "notes"), "law"), "curves": curves}


def _without(found: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in found.items() if key != name}
