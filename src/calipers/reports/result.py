"""The result of a scoring: groups of rollouts, each with its ledger and its estimates."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from calipers.errors import UnknownName
from calipers.readers.read import Input
from calipers.rollouts.ledger import Ledger
from calipers.rollouts.stop import Stop
from calipers.stats.estimate import Estimate
from calipers.stats.suite import Suite
from calipers.stats.variance import Split, Unsplit

if TYPE_CHECKING:
    import polars as pl

SCHEMA = "calipers.result/1"


@dataclass(frozen=True, slots=True)
class Slice:
    """Some rollouts of a group: their ledger and their estimates, by the names asked for."""

    ledger: Ledger
    metrics: Mapping[str, Estimate]

    def __getitem__(self, name: str) -> Estimate:
        if name not in self.metrics:
            raise UnknownName.of("metric in this result", name, self.metrics)
        return self.metrics[name]


@dataclass(frozen=True, slots=True)
class Group(Slice):
    """All rollouts of one agent, model and dataset."""

    agent: str | None = None
    model: str | None = None
    dataset: str | None = None
    breakdowns: Mapping[str, Mapping[str, Slice]] = field(default_factory=dict)  # key -> value -> slice
    economics: Mapping[str, Estimate] = field(default_factory=dict)
    totals: Mapping[str, float] = field(default_factory=dict)  # usage column -> sum
    variance: Mapping[str, Split | Unsplit] = field(default_factory=dict)  # reward -> what its variance is made of
    own: Mapping[str, Any] = field(default_factory=dict)  # what a dialect adds to the document, under a key of its own
    warnings: Sequence[str] = ()  # why its numbers may mislead; no part of the digest
    stop: Stop | None = None  # the rule that ended its run before the plan did; no part of the digest

    @property
    def title(self) -> str:
        """``dataset · model · agent``, as far as they are known."""
        return " · ".join(part for part in (self.dataset, self.model, self.agent) if part)


@dataclass(frozen=True, slots=True)
class Result:
    """What a scoring found. ``result["pass@3"]`` is the estimate when there is one group."""

    dialect: str
    missing: str
    confidence: float
    seed: int
    inputs: Sequence[Input]
    groups: Sequence[Group]
    notes: Sequence[str] = ()  # for the reader; no part of the JSON
    suites: Sequence[Suite] = ()  # means over datasets; no part of the digest
    stopped: str | None = None  # the rule that ended the run before its plan did; no part of the digest
    own: Mapping[str, Any] = field(default_factory=dict)  # what another system adds to the document; likewise

    def __getitem__(self, name: str) -> Estimate:
        if len(self.groups) != 1:
            titles = ", ".join(group.title or "(unnamed)" for group in self.groups)
            raise KeyError(f"there are {len(self.groups)} groups ({titles}); ask result.groups[i][{name!r}]")
        return self.groups[0][name]

    @property
    def digest(self) -> str:
        """The hash of everything that must not change: settings and groups, without economics."""
        parts = {"dialect": self.dialect, "missing": self.missing, "confidence": self.confidence, "seed": self.seed}
        left_out = ("economics", "stopped", "warnings")
        groups = [{key: value for key, value in _group(group).items() if key not in left_out} for group in self.groups]
        return "sha256:" + hashlib.sha256(canonical({**parts, "groups": groups})).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """The result document, ready for strict JSON: an undefined number is None."""
        from calipers import __version__

        return {
            "schema": SCHEMA,
            "calipers": __version__,
            "dialect": self.dialect,
            "missing": self.missing,
            "confidence": self.confidence,
            "seed": self.seed,
            "inputs": [asdict(source) for source in self.inputs],
            "groups": [_group(group) for group in self.groups],
            "suites": [_suite(suite) for suite in self.suites],
            **self.own,
            "digest": self.digest,
            **({"stopped": self.stopped} if self.stopped else {}),
        }

    def to_json(self) -> str:
        """The result document as indented JSON with a final newline."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def rows(self) -> list[dict[str, Any]]:
        """One flat row per number: group, slice, metric, and every field of its estimate."""
        found = []
        for group in self.groups:
            who = {"dataset": group.dataset, "model": group.model, "agent": group.agent}
            parts: list[tuple[str | None, str | None, Slice]] = [(None, None, group)]
            parts += [(key, value, part) for key, cut in group.breakdowns.items() for value, part in cut.items()]
            for key, value, part in parts:
                for name, estimate in part.metrics.items():
                    found.append({**who, "by": key, "slice": value, "metric": name, **_flat(estimate)})
        return found

    def to_polars(self) -> pl.DataFrame:
        """The rows as a polars frame."""
        import polars as pl

        return pl.DataFrame(self.rows(), infer_schema_length=None)


def canonical(value: Any) -> bytes:
    """JSON with sorted keys, no spaces, shortest round-trip floats, as UTF-8."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _group(group: Group) -> dict[str, Any]:
    return {
        "agent": group.agent,
        "model": group.model,
        "dataset": group.dataset,
        **_slice(group),
        "breakdowns": {
            key: {value: _slice(part) for value, part in cut.items()} for key, cut in group.breakdowns.items()
        },
        "economics": {
            **{name: _estimate(estimate) for name, estimate in group.economics.items()},
            "total": {name: _finite(amount) for name, amount in group.totals.items()},
        },
        "variance": _variance(group.variance),
        **({"warnings": list(group.warnings)} if group.warnings else {}),
        **({"stopped": {**asdict(group.stop), "bias": group.stop.bias}} if group.stop else {}),
        **group.own,
    }


def _suite(suite: Suite) -> dict[str, Any]:
    metrics = {
        name: {"macro": _estimate(mean.macro), "micro": _estimate(mean.micro)} for name, mean in suite.metrics.items()
    }
    return {"agent": suite.agent, "model": suite.model, "datasets": list(suite.datasets), "metrics": metrics}


def _variance(splits: Mapping[str, Split | Unsplit]) -> dict[str, Any]:
    """The parts of each reward's variance, numbers only: words would make the digest depend on them."""
    return {
        key: {"tasks": part.tasks, "sampling": part.sampling, "samples_per_task": part.samples_per_task}
        if isinstance(part, Split)
        else None
        for key, part in splits.items()
    }


def _slice(part: Slice) -> dict[str, Any]:
    metrics = {name: _estimate(estimate) for name, estimate in part.metrics.items()}
    ledger = asdict(part.ledger)
    if not part.ledger.exceptions:  # where none are known, the document, and so the digest, says nothing of them
        del ledger["exceptions"]
    return {"ledger": ledger, "metrics": metrics}


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {
        "value": _finite(estimate.value),
        "stderr": estimate.stderr,
        "interval": estimate.interval and list(estimate.interval),
        "method": estimate.method,
        "tasks": estimate.tasks,
        "samples": estimate.samples,
        "undefined_tasks": estimate.undefined_tasks,
        "bounds": estimate.bounds and list(estimate.bounds),
        "higher_is_better": estimate.higher_is_better,
        "why": estimate.why,
        "signature": estimate.signature,
        # these stand where there is something to say
        **({"samples_per_task": list(estimate.samples_per_task)} if estimate.samples_per_task else {}),
        **({"heaviest": dict(zip(("task", "share"), estimate.heaviest, strict=True))} if estimate.heaviest else {}),
    }


def _flat(estimate: Estimate) -> dict[str, Any]:
    found = {name: value for name, value in _estimate(estimate).items() if name not in ("samples_per_task", "heaviest")}
    for name, first, last in (("interval", "low", "high"), ("bounds", "lowest", "highest")):
        ends = found.pop(name)
        found[first], found[last] = ends or (None, None)
    return found


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
