"""The plan of a comparison: the tasks and samples it needs, the differences it can show, and the price."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from calipers.reports.document import (
    Blank,
    Block,
    Document,
    Glance,
    Name,
    Row,
    Sentence,
    SentenceList,
    Table,
    TableColumn,
    Title,
)
from calipers.reports.figures import counted, figure, percent
from calipers.reports.page import Page
from calipers.reports.sentences import money
from calipers.reports.untrusted_text import clean

SCHEMA = "calipers.plan/1"
RANGE = "95 % range"


@dataclass(frozen=True, slots=True)
class Design:
    """A number of tasks with a number of samples each, in both runs."""

    tasks: int
    samples: int
    rollouts: int  # of both runs together
    price: float | None  # of both runs together; None where no price is known
    smallest: float | None  # the smallest difference that it shows with the requested power
    power: float | None  # to show the requested difference
    clusters: int | None = None  # None where tasks are not in clusters
    smallest_range: tuple[float, float | None] | None = (
        None  # 95 %, by the pilot; None above: larger than any possible difference
    )
    tasks_range: tuple[int, int | None] | None = (
        None  # tasks that the requested difference may need; None above: unlimited
    )
    cannot_tell: bool | None = None  # whether that range is too wide to plan by


@dataclass(frozen=True, slots=True)
class Variance:
    """The variance of one task's difference; per task and run ``between`` and ``within``, where known."""

    difference: float  # of the true means, over tasks: more samples do not reduce it
    first: float  # of one sample, in each run
    second: float
    divided: bool  # False: without repeats all of it is in difference
    between: float | None = None
    within: float | None = None
    correlation: float | None = None  # of the true task means of both runs
    difference_range: tuple[float, float] | None = None  # 95 %, by the pilot


@dataclass(frozen=True, slots=True)
class StudyClusters:
    """The clusters of the pilot's tasks; every design has clusters of the same size."""

    key: str
    count: int  # in the pilot
    tasks_per_cluster: float  # the mean
    design_effect: float | None  # factor on the variance of the mean, compared with independent tasks


@dataclass(frozen=True, slots=True, repr=False)
class Study(Page):
    """The plan of a comparison: tasks, samples, the difference it shows, and the price."""

    source: str  # where the variances come from, in words
    metric: str
    detect: float | None
    power: float
    alpha: float
    paired: bool
    variance: Variance
    have: Design | None  # the available tasks and samples
    endless: float | None  # the smallest difference on those tasks with unlimited samples
    samples_needed: int | None  # per task, to show the requested difference on those tasks; None: no number is enough
    designs: Sequence[Design]  # that show the requested difference, by samples per task
    samples_worth: int | None  # more samples per task add little; None: every sample counts in full
    budget: float | None
    best: Design | None  # for the budget, with at most --tasks tasks
    best_here: Design | None  # for the budget, with the available tasks; None where that is the same
    price_per_sample: float | None
    price_per_task: float
    advice: Sequence[str]
    notes: Sequence[str] = ()
    clusters: StudyClusters | None = None

    def page(self) -> Document:
        """The page and its data, for renderers."""
        return document(self)

    def glance(self) -> Glance:
        """The first advice, the designs, and the test, for a notebook."""
        table = next((block for block in _blocks(self) if isinstance(block, Table)), None)
        sentence = f"{self.advice[0]}." if self.advice else self.headline()
        return Glance(sentence[0].upper() + sentence[1:], table, "; ".join(_facts(self)))

    def headline(self) -> str:
        """What it says, in a line."""
        wanted = f"a difference of {self.detect:g} in " if self.detect is not None else ""
        return f"{wanted}{self.metric}, {len(self.designs)} designs, power {self.power:g}"

    def to_dict(self) -> dict[str, Any]:
        """The document, ready for strict JSON."""
        from calipers import __version__

        return {"schema": SCHEMA, "calipers": __version__, **asdict(self)}


def document(study: Study) -> Document:
    """A plan as a page: the variances, the designs in tables, and advice."""
    return Document(partial(_blocks, study), study.to_dict, escaped="")


def _blocks(study: Study) -> Iterator[Block]:
    yield Title("", markdown=("Plan for ", Name(study.metric)))
    yield Sentence(clean(f"{study.metric}: {study.source}", 400), markdown=Name(study.source, 400))
    yield SentenceList([Sentence(fact) for fact in _facts(study)])
    for title, heads, rows in _tables(study):
        yield Blank()
        yield Sentence(title)
        yield Table([TableColumn(head, "right") for head in heads], [Row(row) for row in rows])
    yield Blank()
    yield SentenceList([Sentence(advice) for advice in study.advice])


def _facts(study: Study) -> Iterator[str]:
    variance = study.variance
    known = f" (95 % range {_range(variance.difference_range)})" if variance.difference_range else ""
    if variance.divided:
        within = variance.first if variance.first == variance.second else (variance.first + variance.second) / 2
        yield (
            f"variance of a task's difference: {figure(variance.difference)} between tasks{known}, "
            f"{figure(within)} within tasks (per sample and run)"
        )
    else:
        unknown = "between and within tasks together: the part of sampling is not known"
        yield f"variance of a task's difference: {figure(variance.difference)}{known}, {unknown}"
    if study.clusters is not None:
        yield _clustered(study.clusters)
    kind = "paired: both runs on the same tasks" if study.paired else "unpaired: different tasks in each run"
    yield f"{kind}; two-sided test at {percent(study.alpha)}, power {percent(study.power)}"


def _clustered(clusters: StudyClusters) -> str:
    sentence = f"tasks in clusters by {clean(clusters.key, 80)}, about {clusters.tasks_per_cluster:.3g} tasks each"
    if clusters.design_effect is None:
        return sentence
    return f"{sentence}: the variance is {clusters.design_effect:.3g} times that of independent tasks (design effect)"


def _tables(study: Study) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    priced = study.price_per_sample is not None
    cost = ["price"] if priced else []
    within = ["clusters"] if study.clusters is not None else []
    if study.have is not None:
        have = study.have
        reach = [RANGE] if have.smallest_range else []
        heads = ["tasks", *within, "samples", "rollouts", *cost, "smallest difference", *reach, *(_asked(study))]
        row = [*_counts(have), *_price(have, priced), figure(have.smallest)]
        row += [
            *([_range(have.smallest_range)] if have.smallest_range else []),
            *([_power(have)] if study.detect else []),
        ]
        yield "with the available tasks and samples:", heads, [row]
    if study.designs:
        ranged = any(design.tasks_range for design in study.designs)
        heads = ["samples", "tasks", *within, "rollouts", *cost, *([f"tasks, {RANGE}"] if ranged else [])]
        rows = []
        for design in study.designs:
            *tasks, samples, rollouts = _counts(design)
            rows.append(
                [samples, *tasks, rollouts, *_price(design, priced), *([_tasks_range(design)] if ranged else [])]
            )
        sized = ", in clusters of the same size" if study.clusters is not None else ""
        yield f"to show a difference of {figure(study.detect)}{sized}:", heads, rows
    if study.best is not None:
        best = study.best
        heads = ["tasks", *within, "samples", "rollouts", *cost, "smallest difference", *(_asked(study))]
        rows = [
            [
                *_counts(design),
                *_price(design, priced),
                figure(design.smallest),
                *([_power(design)] if study.detect else []),
            ]
            for design in dict.fromkeys(filter(None, (best, study.best_here)))
        ]
        yield f"the best use of a budget of {money(study.budget or 0.0)}:", heads, rows


def _tasks_range(design: Design) -> str:
    if design.tasks_range is None:
        return "–"
    low, high = design.tasks_range
    reach = f"{low:,} to {f'{high:,}' if high is not None else 'unlimited'}"
    return f"{reach} (pilot too small)" if design.cannot_tell else reach


def _range(ends: tuple[float, float | None]) -> str:
    low, high = ends
    return f"{figure(low)} to {figure(high) if high is not None else 'more than the range of rewards'}"


def _asked(study: Study) -> list[str]:
    return [f"power to show {figure(study.detect)}"] if study.detect else []


def _counts(design: Design) -> list[str]:
    counts = (design.tasks, design.clusters, design.samples, design.rollouts)
    return [f"{count:,}" for count in counts if count is not None]


def _price(design: Design, priced: bool) -> list[str]:
    return ["–" if design.price is None else money(design.price)] if priced else []


def _power(design: Design) -> str:
    return "–" if design.power is None else f"{100 * design.power:.0f} %"


def tasks_and_samples(tasks: int, samples: int) -> str:
    """``40 tasks with 8 samples each``."""
    return f"{counted(tasks, 'task')} with {counted(samples, 'sample')} each"
