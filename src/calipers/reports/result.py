"""The result of a score: groups of rollouts, each with its ledger and its estimates."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn, Self

import msgspec

from calipers.errors import InputError, UnknownName
from calipers.formats.read import Input
from calipers.remarks import Remark
from calipers.reports.document import Block, Document, Glance
from calipers.reports.page import Page
from calipers.reports.remark_texts import documents_of
from calipers.rollouts.checks import Check
from calipers.rollouts.ledger import Ledger
from calipers.rollouts.record import Stop
from calipers.stats.estimate import Estimate, Signature
from calipers.stats.scales import SCALES
from calipers.stats.suite import Means, SuiteMeans
from calipers.stats.variance import Split, Unsplit
from calipers.typed import complete

SCHEMA = "calipers.result/1"
FIELDS = (
    *("dataset", "model", "agent", "by", "slice", "metric", "value", "stderr", "low", "high", "method"),
    *("tasks", "samples", "undefined_tasks", "lowest", "highest", "higher_is_better", "why", "signature"),
    *("worst_low", "worst_high"),
)
NOT_SAID = "the document does not say why"


@dataclass(frozen=True, slots=True)
class Slice:
    """Some of a group's rollouts: their ledger, and their estimates by requested metric name."""

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
    variance: Mapping[str, Split | Unsplit] = field(default_factory=dict)  # reward -> the parts of its variance
    own: Mapping[str, Any] = field(default_factory=dict)  # what a dialect adds to the document, under other keys
    warnings: Sequence[str] = ()  # why its numbers may mislead; not in the digest
    remarks: Sequence[Remark] = ()  # the same as data, and what explains its numbers; not in the digest
    ends_seen: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # reward -> its ends; not in the digest
    first_tries: Mapping[str, Estimate] = field(default_factory=dict)  # if tasks stop at a pass; not in the digest
    stop: Stop | None = None  # the rule that stopped its run early; not in the digest

    @property
    def title(self) -> str:
        """``dataset · model · agent``, those that are known."""
        return " · ".join(part for part in (self.dataset, self.model, self.agent) if part)


@dataclass(frozen=True, slots=True, repr=False)
class Result(Page):
    """The result of a score. ``result["pass@3"]`` is an estimate if there is exactly one group."""

    dialect: str
    missing: str
    confidence: float
    seed: int
    inputs: Sequence[Input]
    groups: Sequence[Group]
    notes: Sequence[str] = ()  # for the reader; not in the JSON
    suites: Sequence[SuiteMeans] = ()  # means over datasets; not in the digest
    stopped: str | None = None  # the rule that stopped the run early; not in the digest
    own: Mapping[str, Any] = field(default_factory=dict)  # what another system adds to the document; not in the digest
    failed: Sequence[str] = ()  # the notes about errors in code that came with the rollouts
    interval: str | None = None  # the interval method that was requested by name; not in the JSON
    checks: Sequence[Check] = ()  # numbers that the rollouts' own systems report, and ours; not in the digest

    def __bool__(self) -> NoReturn:
        raise TypeError("a result is neither true nor false: use result['mean_reward'].value, or calipers.gate(result)")

    def __getitem__(self, name: str) -> Estimate:
        if len(self.groups) != 1:
            titles = ", ".join(group.title or "(unnamed)" for group in self.groups)
            raise KeyError(f"there are {len(self.groups)} groups ({titles}); use result.groups[i][{name!r}]")
        return self.groups[0][name]

    @property
    def digest(self) -> str:
        """The hash of the settings and the groups, without economics: equal digests mean equal numbers."""
        return "sha256:" + hashlib.sha256(covered(self)).hexdigest()

    def page(self) -> Document:
        """The page and its data, for renderers."""
        return document(self)

    def glance(self) -> Glance:
        """The sentence, the numbers and the ledger, for a notebook."""
        from calipers.reports.result_page import glance

        return glance(self)

    def headline(self) -> str:
        """The main finding on one line: ``arith · tiny-model: mean_reward 0.440 [0.339, 0.546], 40 tasks, ...``."""
        from calipers.reports.result_page import headline

        return headline(self)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Read the result from its document; without its notes, which are for the reader only."""
        try:
            known = {name: document[name] for name in ("dialect", "missing", "confidence", "seed")}
            _check([known["dialect"], known["missing"]], list[str])
            _check([known["confidence"], known["seed"]], list[float])
            inputs = msgspec.convert(document["inputs"], complete(list[Input]))
            groups = [_group_of(group) for group in document["groups"]]
            means = [_suite_of(suite) for suite in document.get("suites", ())]
            own = {key: value for key, value in document.items() if key not in _KEYS}
            checks = msgspec.convert(document.get("checks", []), complete(list[Check]))
            stopped = document.get("stopped")
            result = cls(**known, inputs=inputs, groups=groups, suites=means, own=own, stopped=stopped, checks=checks)
            covered(result)  # so that the result has a digest
            return result
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"not a result of this version: {type(error).__name__}: {error}") from None

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
            **({"checks": [asdict(check) for check in self.checks]} if self.checks else {}),
        }

    def rows(self) -> list[dict[str, Any]]:
        """One flat row per number: group, slice, metric, and every field of its estimate."""
        flat = []
        for group in self.groups:
            group_fields = {"dataset": group.dataset, "model": group.model, "agent": group.agent}
            parts: list[tuple[str | None, str | None, Slice]] = [(None, None, group)]
            parts += [(key, value, part) for key, cut in group.breakdowns.items() for value, part in cut.items()]
            for key, value, part in parts:
                for name, estimate in part.metrics.items():
                    flat.append({**group_fields, "by": key, "slice": value, "metric": name, **_flat(estimate)})
        return flat


def covered(result: Result) -> bytes:
    """The text that the digest covers: the settings and the groups, without economics."""
    kept = ("dialect", "missing", "confidence", "seed")
    groups = list(map(_numbers, map(_group, result.groups)))
    return canonical({**{name: getattr(result, name) for name in kept}, "groups": groups})


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
            "total": {name: finite(amount) for name, amount in group.totals.items()},
        },
        "variance": _variance(group.variance),
        **({"warnings": list(group.warnings)} if group.warnings else {}),
        **({"remarks": documents_of(group.remarks)} if group.remarks else {}),
        **({"ends_seen": {key: list(ends) for key, ends in group.ends_seen.items()}} if group.ends_seen else {}),
        **({"first_tries": _estimates(group.first_tries)} if group.first_tries else {}),
        **({"stopped": {**asdict(group.stop), "bias": group.stop.bias}} if group.stop else {}),
        **group.own,
    }


def _suite(suite: SuiteMeans) -> dict[str, Any]:
    metrics = {name: _means(mean) for name, mean in suite.metrics.items()}
    return {"agent": suite.agent, "model": suite.model, "datasets": list(suite.datasets), "metrics": metrics}


def _means(means: Means) -> dict[str, Any]:
    document: dict[str, Any] = {"macro": _estimate(means.macro), "micro": _estimate(means.micro)}
    if means.no_mean is not None:
        document |= {"undecided_by": SCALES, "remarks": documents_of(means.remarks)}
    return document


def _variance(splits: Mapping[str, Split | Unsplit]) -> dict[str, Any]:
    """The parts of each reward's variance: only numbers, so that the digest does not depend on texts."""
    return {
        key: {"tasks": part.tasks, "sampling": part.sampling, "samples_per_task": part.samples_per_task}
        if isinstance(part, Split)
        else None
        for key, part in splits.items()
    }


_LATE = ("passed", "rewarded", "samples_per_task", "asked_again", "tasks_passed", "not_filled")
"""Keys of a ledger that are not in the digest, so that results from before these keys existed keep their digest."""


_NOT_COVERED = ("economics", "stopped", "warnings", "remarks", "ends_seen", "first_tries")
"""Keys of a group that are not in the digest."""


def _numbers(group: dict[str, Any]) -> dict[str, Any]:
    """The part of a group's document that the digest covers."""
    kept = {key: value for key, value in group.items() if key not in _NOT_COVERED}
    cuts = {key: {value: _counted(part) for value, part in cut.items()} for key, cut in group["breakdowns"].items()}
    return {**_counted(kept), "breakdowns": cuts}


def _counted(part: dict[str, Any]) -> dict[str, Any]:
    return {**part, "ledger": {key: value for key, value in part["ledger"].items() if key not in _LATE}}


def _slice(part: Slice) -> dict[str, Any]:
    metrics = _estimates(part.metrics)
    ledger = asdict(part.ledger)
    for name in ("exceptions", "lacking", *_LATE):
        if not ledger[name] and ledger[name] != 0:  # no key for an empty value, so that older digests stay the same
            del ledger[name]
    return {"ledger": ledger, "metrics": metrics}


def _estimates(estimates: Mapping[str, Estimate]) -> dict[str, Any]:
    return {name: _estimate(estimate) for name, estimate in estimates.items()}


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {
        "value": finite(estimate.value),
        "stderr": estimate.stderr,
        "interval": estimate.interval and list(estimate.interval),
        "method": estimate.method,
        "tasks": estimate.tasks,
        "samples": estimate.samples,
        "undefined_tasks": estimate.undefined_tasks,
        "bounds": estimate.bounds and list(estimate.bounds),
        "higher_is_better": estimate.higher_is_better,
        "why": estimate.why,
        "signature": str(estimate.made),
        # only where they apply
        **({"samples_per_task": list(estimate.samples_per_task)} if estimate.samples_per_task else {}),
        **({"heaviest": dict(zip(("task", "share"), estimate.heaviest, strict=True))} if estimate.heaviest else {}),
        **({"threshold": threshold} if (threshold := estimate.threshold) not in (None, 1.0) else {}),
        **({"worst_interval": list(worst)} if (worst := estimate.worst_interval) else {}),
        **(
            {"filled_intervals": [ends and list(ends) for ends in filled]}
            if (filled := estimate.filled_intervals)
            else {}
        ),
    }


_KEYS = frozenset(
    (
        "schema",
        "calipers",
        "dialect",
        "missing",
        "confidence",
        "seed",
        "inputs",
        "groups",
        "suites",
        "digest",
        "stopped",
        "checks",
    )
)
_GROUP_KEYS = frozenset(
    (
        *("agent", "model", "dataset", "ledger", "metrics", "breakdowns", "economics", "variance", "warnings"),
        *("stopped", "remarks", "ends_seen", "first_tries"),
    )
)


def _group_of(group: Mapping[str, Any]) -> Group:
    """A group from its document."""
    economics = dict(group["economics"])
    totals = {name: math.inf if amount is None else amount for name, amount in economics.pop("total").items()}
    part, stop = _slice_of(group), group.get("stopped")
    _check([group["agent"], group["model"], group["dataset"]], list[str | None])
    _check(
        [totals, group["variance"], group.get("warnings", ())],
        tuple[dict[str, float], dict[str, Split | None], list[str]],
    )
    return Group(
        part.ledger,
        part.metrics,
        group["agent"],
        group["model"],
        group["dataset"],
        {key: {value: _slice_of(cut) for value, cut in cuts.items()} for key, cuts in group["breakdowns"].items()},
        economics={name: _estimate_of(number) for name, number in economics.items()},
        totals=totals,
        variance={key: Split(**of) if of is not None else Unsplit(NOT_SAID) for key, of in group["variance"].items()},
        own={key: value for key, value in group.items() if key not in _GROUP_KEYS},
        warnings=group.get("warnings", ()),
        remarks=[_remark_of(remark) for remark in group.get("remarks", ())],
        ends_seen={key: (low, high) for key, (low, high) in group.get("ends_seen", {}).items()},
        first_tries={name: _estimate_of(number) for name, number in group.get("first_tries", {}).items()},
        stop=None if stop is None else msgspec.convert(stop, complete(Stop)),
    )


def _remark_of(remark: Mapping[str, Any]) -> Remark:
    return Remark(remark["code"], remark["values"], remark["severity"])


def _slice_of(part: Mapping[str, Any]) -> Slice:
    ledger = msgspec.convert(part["ledger"], complete(Ledger))
    return Slice(ledger, {name: _estimate_of(number) for name, number in part["metrics"].items()})


def _suite_of(suite: Mapping[str, Any]) -> SuiteMeans:
    metrics = {name: _means_of(means) for name, means in suite["metrics"].items()}
    _check([suite["agent"], suite["model"]], list[str | None])
    _check(suite["datasets"], list[str])
    return SuiteMeans(suite["agent"], suite["model"], suite["datasets"], metrics)


def _means_of(means: Mapping[str, Any]) -> Means:
    remarks = [Remark(each["code"], each["values"], each["severity"]) for each in means.get("remarks", ())]
    return Means(_estimate_of(means["macro"]), _estimate_of(means["micro"]), remarks)


_DERIVED = frozenset(("signature", "heaviest", "worst_interval", "filled_intervals", "threshold"))
"""Keys of an estimate's document that are no fields of an estimate as they are written."""


def _estimate_of(number: Mapping[str, Any]) -> Estimate:
    """An estimate from its document."""
    fields = {key: value for key, value in number.items() if key not in _DERIVED}
    pairs = {key: tuple(fields[key]) for key in ("interval", "bounds", "samples_per_task") if fields.get(key)}
    heaviest = number.get("heaviest") and (number["heaviest"]["task"], number["heaviest"]["share"])
    filled = [None if ends is None else tuple(ends) for ends in number.get("filled_intervals") or ()]
    estimate = Estimate(
        **{**fields, **pairs},
        made=Signature.of(number["signature"]),
        heaviest=heaviest,
        filled_intervals=(filled[0], filled[1]) if filled else None,
    )
    _check(estimate, Estimate)
    return estimate


def _check(value: Any, kind: Any) -> None:
    """Raise ValidationError for a value of another type.

    The converted value is not used, because the digest covers a number as it was written (1 and 1.0 differ).
    """
    msgspec.convert(msgspec.to_builtins(value), complete(kind))


_NOT_IN_ROWS = ("samples_per_task", "heaviest", "filled_intervals", "threshold")
_PAIRS = (
    ("interval", "low", "high"),
    ("bounds", "lowest", "highest"),
    ("worst_interval", "worst_low", "worst_high"),
)


def _flat(estimate: Estimate) -> dict[str, Any]:
    fields = {name: value for name, value in _estimate(estimate).items() if name not in _NOT_IN_ROWS}
    fields["worst_interval"] = estimate.worst_interval
    for name, first, last in _PAIRS:
        fields[first], fields[last] = fields.pop(name) or (None, None)
    return fields


def finite(value: float | None) -> float | None:
    """The number as strict JSON can write it: None if it is not finite."""
    return value if value is not None and math.isfinite(value) else None


def document(
    result: Result, *, details: bool = False, economics: bool = False, every: bool = False, command: str = ""
) -> Document:
    """A result as a page: the sentence, the numbers and the ledger on 25 lines.

    ``economics`` adds the table of times and costs, and ``every`` shows all rows on a page of any length. ``details``
    shows everything: standard errors, definitions, the bounds of each metric, the ledger of each slice. ``command`` is
    the command with these options, followed by a space, if another command prints the page.
    """

    def blocks() -> Iterator[Block]:
        from calipers.reports import result_page

        if details:
            return result_page.detailed_blocks(result)
        return result_page.blocks(result, economics, every, command)

    return Document(blocks, result.to_dict, FIELDS, result.rows, paged=not details)
