"""The result of a score: groups of rollouts, each with its ledger and its estimates."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

import msgspec

from calipers.errors import InputError, UnknownName
from calipers.formats.read import Input
from calipers.reports.document import (
    Blank,
    Block,
    Document,
    Instead,
    Name,
    Output,
    Picture,
    Piece,
    Row,
    Sentence,
    SentenceList,
    Styled,
    Table,
    TableColumn,
    Text,
    Title,
)
from calipers.reports.figures import (
    EACH_BY_ITSELF,
    POLICY,
    account,
    advice,
    counted,
    decimals,
    ends,
    exceptions,
    figure,
    over,
    percent,
    reason,
    remarks,
    size,
    stopped,
    undefined,
    whole_account,
)
from calipers.reports.json import encoded
from calipers.reports.page import Page
from calipers.reports.untrusted_text import clean
from calipers.rollouts.ledger import Ledger
from calipers.rollouts.stop import Stop
from calipers.stats.estimate import Estimate, Signature
from calipers.stats.suite import Means, SuiteMeans
from calipers.stats.variance import Split, Unsplit

if TYPE_CHECKING:
    pass

SCHEMA = "calipers.result/1"
FIELDS = (
    *("dataset", "model", "agent", "by", "slice", "metric", "value", "stderr", "low", "high", "method"),
    *("tasks", "samples", "undefined_tasks", "lowest", "highest", "higher_is_better", "why", "signature"),
)
NOT_SAID = "the document does not say why"
_WIDEST_NAME = 20  # columns of a name that has its figures beside it
UNBIASED = "unbiased estimate: "


@dataclass(frozen=True, slots=True)
class Slice:
    """Some rollouts of a group: their ledger and their estimates, by the requested metric names."""

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
    own: Mapping[str, Any] = field(default_factory=dict)  # what a dialect adds to the document, under its own key
    warnings: Sequence[str] = ()  # why its numbers may mislead; not in the digest
    stop: Stop | None = None  # the rule that stopped its run early; not in the digest

    @property
    def title(self) -> str:
        """``dataset · model · agent``, as far as they are known."""
        return " · ".join(part for part in (self.dataset, self.model, self.agent) if part)


@dataclass(frozen=True, slots=True, repr=False)
class Result(Page):
    """The result of a score. ``result["pass@3"]`` is the estimate when there is one group."""

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

    def __getitem__(self, name: str) -> Estimate:
        if len(self.groups) != 1:
            titles = ", ".join(group.title or "(unnamed)" for group in self.groups)
            raise KeyError(f"there are {len(self.groups)} groups ({titles}); use result.groups[i][{name!r}]")
        return self.groups[0][name]

    @property
    def digest(self) -> str:
        """The hash of the settings and the groups, without economics: equal digests mean equal numbers."""
        parts = {"dialect": self.dialect, "missing": self.missing, "confidence": self.confidence, "seed": self.seed}
        left_out = ("economics", "stopped", "warnings")
        documents = list(map(_group, self.groups))
        groups = [{key: value for key, value in group.items() if key not in left_out} for group in documents]
        return "sha256:" + hashlib.sha256(canonical({**parts, "groups": groups})).hexdigest()

    def page(self) -> Document:
        """The page and its data, for renderers."""
        return document(self)

    def headline(self) -> str:
        """What it says, in a line."""
        first = self.groups[0] if self.groups else None
        if first is None or len(self.groups) > 1:
            return f"{len(self.groups)} groups"
        named = [f"{name} {_short(estimate)}" for name, estimate in first.metrics.items()]
        return ", ".join(filter(None, [first.title, *named[:3], f"{first.ledger.planned} rollouts"]))

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """The result that a document was made of; its notes, which are for the reader alone, are not in it."""
        try:
            known = {name: document[name] for name in ("dialect", "missing", "confidence", "seed")}
            inputs = msgspec.convert(document["inputs"], list[Input])
            groups = [_group_of(group) for group in document["groups"]]
            means = [_suite_of(suite) for suite in document.get("suites", ())]
            own = {key: value for key, value in document.items() if key not in _KEYS}
            return cls(**known, inputs=inputs, groups=groups, suites=means, own=own, stopped=document.get("stopped"))
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
        }

    def to_json(self) -> str:
        """The result document as indented JSON with a final newline."""
        return encoded(self.to_dict())

    def rows(self) -> list[dict[str, Any]]:
        """One flat row per number: group, slice, metric, and every field of its estimate."""
        flat = []
        for group in self.groups:
            who = {"dataset": group.dataset, "model": group.model, "agent": group.agent}
            parts: list[tuple[str | None, str | None, Slice]] = [(None, None, group)]
            parts += [(key, value, part) for key, cut in group.breakdowns.items() for value, part in cut.items()]
            for key, value, part in parts:
                for name, estimate in part.metrics.items():
                    flat.append({**who, "by": key, "slice": value, "metric": name, **_flat(estimate)})
        return flat


def _short(estimate: Estimate) -> str:
    """A number and its interval, in a line."""
    if estimate.value is None:
        return "undefined"
    ends = f" [{estimate.interval[0]:.4g}, {estimate.interval[1]:.4g}]" if estimate.interval else ""
    return f"{estimate.value:.4g}{ends}"


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


def _suite(suite: SuiteMeans) -> dict[str, Any]:
    metrics = {
        name: {"macro": _estimate(mean.macro), "micro": _estimate(mean.micro)} for name, mean in suite.metrics.items()
    }
    return {"agent": suite.agent, "model": suite.model, "datasets": list(suite.datasets), "metrics": metrics}


def _variance(splits: Mapping[str, Split | Unsplit]) -> dict[str, Any]:
    """The parts of each reward's variance: numbers only, so that the digest does not depend on words."""
    return {
        key: {"tasks": part.tasks, "sampling": part.sampling, "samples_per_task": part.samples_per_task}
        if isinstance(part, Split)
        else None
        for key, part in splits.items()
    }


def _slice(part: Slice) -> dict[str, Any]:
    metrics = dict(zip(part.metrics, map(_estimate, part.metrics.values()), strict=True))
    ledger = asdict(part.ledger)
    for name in ("exceptions", "lacking"):
        if not ledger[name]:  # absent where there are none, so that older digests stay the same
            del ledger[name]
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
        "signature": str(estimate.made),
        # only where they apply
        **({"samples_per_task": list(estimate.samples_per_task)} if estimate.samples_per_task else {}),
        **({"heaviest": dict(zip(("task", "share"), estimate.heaviest, strict=True))} if estimate.heaviest else {}),
    }


LAST = ("digest", "stopped")
_KEYS = frozenset(
    (*("schema", "calipers", "dialect", "missing", "confidence", "seed"), "inputs", "groups", "suites", *LAST)
)
_GROUP_KEYS = frozenset(
    ("agent", "model", "dataset", "ledger", "metrics", "breakdowns", "economics", "variance", "warnings", "stopped")
)


def _group_of(group: Mapping[str, Any]) -> Group:
    """A group from its document."""
    economics = dict(group["economics"])
    totals = economics.pop("total")
    part, stop = _slice_of(group), group.get("stopped")
    return Group(
        part.ledger,
        part.metrics,
        group["agent"],
        group["model"],
        group["dataset"],
        {key: {value: _slice_of(cut) for value, cut in cuts.items()} for key, cuts in group["breakdowns"].items()},
        economics={name: _estimate_of(number) for name, number in economics.items()},
        totals=totals,
        variance={key: _split_of(shares) for key, shares in group["variance"].items()},
        own={key: value for key, value in group.items() if key not in _GROUP_KEYS},
        warnings=group.get("warnings", ()),
        stop=None if stop is None else msgspec.convert(stop, Stop),
    )


def _split_of(shares: Mapping[str, Any] | None) -> Split | Unsplit:
    return Unsplit(NOT_SAID) if shares is None else Split(**shares)


def _slice_of(part: Mapping[str, Any]) -> Slice:
    ledger = msgspec.convert(part["ledger"], Ledger)
    return Slice(ledger, {name: _estimate_of(number) for name, number in part["metrics"].items()})


def _suite_of(suite: Mapping[str, Any]) -> SuiteMeans:
    metrics = {
        name: Means(_estimate_of(means["macro"]), _estimate_of(means["micro"]))
        for name, means in suite["metrics"].items()
    }
    return SuiteMeans(suite["agent"], suite["model"], suite["datasets"], metrics)


def _estimate_of(number: Mapping[str, Any]) -> Estimate:
    """An estimate from its document."""
    fields = {key: value for key, value in number.items() if key not in ("signature", "heaviest")}
    pairs = {key: tuple(fields[key]) for key in ("interval", "bounds", "samples_per_task") if fields.get(key)}
    heaviest = number.get("heaviest") and (number["heaviest"]["task"], number["heaviest"]["share"])
    return Estimate(**{**fields, **pairs}, made=Signature.of(number["signature"]), heaviest=heaviest)


def _flat(estimate: Estimate) -> dict[str, Any]:
    fields = {
        name: value for name, value in _estimate(estimate).items() if name not in ("samples_per_task", "heaviest")
    }
    for name, first, last in (("interval", "low", "high"), ("bounds", "lowest", "highest")):
        fields[first], fields[last] = fields.pop(name) or (None, None)
    return fields


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def document(result: Result) -> Document:
    """A result as a page: each group with its ledger and a table of its numbers, then the means over datasets."""
    return Document(partial(_blocks, result), result.to_dict, FIELDS, result.rows, escaped="|_<")


def _blocks(result: Result) -> Iterator[Block]:
    groups = map(partial(_group_blocks, result=result), result.groups)
    suites = map(partial(_suite_blocks, result=result), result.suites)
    return chain.from_iterable(chain(groups, suites, [_origin(result)]))


def described(estimate: Estimate) -> str:
    """What a number is, in a few words: the estimator in its signature, not the name it was requested by."""
    from calipers.metrics.cards import CARDS, filled

    card, k = CARDS.get(estimate.made.metric), estimate.made.k
    if card is None or estimate.made.over:
        script = estimate.made.metric == "metric_script"
        return "computed by a metric script" if script else "computed by a plugin from all rewards"
    beyond = card.name == "bayes_pass@{k}" and k is not None and k * estimate.tasks > estimate.samples
    even = estimate.value is not None and not estimate.samples_per_task  # else sample counts may depend on results
    unbiased = UNBIASED if card.unbiased and even else ""
    return unbiased + filled(card.short, k) + (", extrapolated beyond the samples" if beyond else "")


def title(group: Group, result: Result) -> str:
    """The name of a group; empty when it has none and is the only group."""
    return clean(group.title, 200) or ("(unnamed)" if len(result.groups) > 1 else "")


def named(name: str, estimate: Estimate) -> tuple[Name, str]:
    """A metric's name with an arrow that shows which direction is better."""
    return Name(name), {True: " ↑", False: " ↓", None: ""}[estimate.higher_is_better]


def _group_blocks(group: Group, result: Result) -> Iterator[Block]:
    yield Title(Name(name, None) if (name := title(group, result)) else "")
    account_of, raised = whole_account(group.ledger, result.missing), exceptions(group.ledger)
    yield Sentence(account_of, markdown="; ".join(filter(None, (account_of, raised))))
    yield Sentence(raised, markdown="")
    if group.stop:
        yield Sentence(Name(stopped(group.stop), None))
    yield Blank()
    if group.metrics:
        rows = []
        for name, estimate in group.metrics.items():
            what = described(estimate)
            if group.stop:  # a run that its results stopped has no unbiased estimate
                what = what.removeprefix(UNBIASED)
            rows.append(_row([named(name, estimate)], estimate, [what, *remarks(estimate, group.ledger)]))
        yield _estimates([_first("metric")], rows, result, notes_head="what it is")
    for key, words in advice(group.metrics, group.variance):
        yield Sentence(("mean reward (", Name(key), f"): {words}") if key else f"mean reward: {words}", "note")
    for words in group.warnings:
        yield Sentence(f"warning: {words}", markdown=(Styled("Warning:"), f" {words}"))
    for key, cut in group.breakdowns.items():
        yield from _breakdown(key, cut, result)
    if group.economics or group.totals:
        yield from _economics(group, result)
    yield Blank()


def _breakdown(key: str, cut: Mapping[str, Slice], result: Result) -> Iterator[Block]:
    """A metric at a time, its slices under one another, so that their intervals can be compared."""
    yield Blank()
    if not cut:
        yield Sentence(("by ", Name(key), ": no rollouts"), "strong", whole=True)
        return
    yield Sentence(("by ", Name(key)), "strong", whole=True, markdown="")
    yield SentenceList(
        [Sentence((Name(value), f": {account(part.ledger, result.missing)}"), indent=1) for value, part in cut.items()]
    )
    yield Blank()
    rows = []
    for name in next(iter(cut.values())).metrics:
        for value, part in cut.items():
            estimate = part[name]
            notes = [*undefined(estimate.undefined_tasks), *reason(estimate)]
            full = "; ".join(remarks(estimate, part.ledger))
            rows.append(_row([Name(value), named(name, estimate)], estimate, notes, full))
    yield _estimates([_first(Name(key), ("by ", Name(key))), TableColumn("metric", heading=True)], rows, result)
    if len(cut) > 1:
        yield Sentence(EACH_BY_ITSELF, "note")


def _suite_blocks(suite: SuiteMeans, result: Result) -> Iterator[Block]:
    """The means over datasets, a metric at a time."""
    yield Title(Name(over(suite), None))
    datasets = [piece for name in suite.datasets for piece in (", ", Name(name))]
    yield Sentence(tuple(datasets[1:]))
    yield Blank()
    rows = []
    for name, means in suite.metrics.items():
        for kind, estimate in (("macro", means.macro), ("micro", means.micro)):
            why = reason(estimate)  # it names a dataset
            names = tuple(Name(words, None) for words in why)
            rows.append(_row([kind, named(name, estimate)], estimate, why, names))
    yield _estimates([_first("over datasets"), TableColumn("metric", heading=True)], rows, result)
    yield Sentence(
        "macro: every dataset has the same weight; micro: every task has the same weight", "note", whole=True
    )
    yield Blank()


def _economics(group: Group, result: Result) -> Iterator[Block]:
    from calipers.metrics.cards import CARDS

    yield Blank()
    whys: dict[str, list[str]] = {}
    rows = []
    for name, estimate in group.economics.items():
        card = CARDS.get(estimate.made.metric)
        what = "; ".join([described(estimate), *remarks(estimate)])
        rows.append(_row([named(name, estimate)], estimate, (), what, unit=card.unit if card else "", picture=False))
        for why in reason(estimate):
            whys.setdefault(why, []).append(clean(name))
    yield _estimates([_first("economics")], rows, result, notes_head="what it is", only=None if rows else "terminal")
    for why, names in whys.items():
        yield Sentence(f"{', '.join(names)}: {why}", "note", indent=1, markdown="")
    totals: list[Piece] = []
    for name, amount in group.totals.items():
        totals += [f"{', ' if totals else ' '}{_total(amount)}\N{NO-BREAK SPACE}", Name(name)]
    yield Sentence(("total:", *totals), markdown=None if totals else "")


def _total(amount: float) -> str:
    """A sum of usage: a count in full, anything else to four digits."""
    return figure(amount, 0 if abs(amount) < 1e15 and amount == int(amount) else None)


def _first(head: Text, markdown: Text | None = None) -> TableColumn:
    return TableColumn(head, style="strong", markdown=markdown, widest=_WIDEST_NAME)


def _estimates(
    first: Sequence[TableColumn], rows: Sequence[Row], result: Result, notes_head: str = "", only: Output | None = None
) -> Table:
    """A table of estimates. A narrow terminal shows the number of tasks and samples under a row."""
    columns = [
        *first,
        TableColumn("value", "point", "value", optional=True),
        TableColumn("± stderr", "point", optional=True),
        TableColumn(f"{percent(result.confidence)} interval", optional=True),
        TableColumn(style="chart", only="terminal", optional=True, yields=2),
        TableColumn("unit", only="terminal", optional=True),
        TableColumn("n", optional=True, yields=1),
    ]
    return Table(columns, rows, notes_head=notes_head, once="every row:", only=only)


def _row(
    first: Sequence[Text],
    estimate: Estimate,
    notes: Sequence[str],
    markdown: Text | None = None,
    *,
    unit: str = "",
    picture: bool = True,
) -> Row:
    places, number = decimals(estimate), size(estimate)
    drawn: Picture | str = ""
    if picture and estimate.value is not None and estimate.interval is not None:
        drawn = Picture(estimate.value, *estimate.interval)
    cells = [figure(estimate.value, places), figure(estimate.stderr, places), ends(estimate.interval, places)]
    return Row([*first, *cells, drawn, unit, number], [*notes, Instead(number)], markdown)


def _origin(result: Result) -> Iterator[Block]:
    """The inputs, the settings and the digest: equal digests mean equal numbers."""
    sources: list[Piece] = []
    for source in result.inputs[:3]:
        what = source.format, counted(source.rollouts, "rollout")
        yield Sentence((Name(source.path, None), f": {', '.join(what)}"), "note", markdown="")
        sources += [", " if sources else "", Name(source.path, None), f" ({', '.join(what)})"]
    more = ""
    if len(result.inputs) > 3:
        more = f"and {counted(len(result.inputs) - 3, 'file')} more"
        yield Sentence(more, "note", whole=True, markdown="")
    policy = POLICY.get(result.missing, result.missing)
    settings = Name(result.dialect), f" definitions; missing rollouts {policy}; seed {result.seed}; digest "
    before = (*sources, f" {more}" if more else "", "; " if sources else "")
    digest = Name(result.digest[:23])
    yield Sentence((*settings, digest, "…"), "note", markdown=(*before, *settings, digest))
