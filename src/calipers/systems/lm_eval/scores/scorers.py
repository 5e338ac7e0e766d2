"""Scorers: a pair of defaults, which filters find the answer and which metrics judge it, under one name.

What a task says itself comes first, then its scorer's defaults, then those of its output type.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from calipers.errors import InputError, PluginError, UnknownName
from calipers.names import Index
from calipers.systems.lm_eval.filters import INVALID, MARKED
from calipers.systems.lm_eval.pipelines import Pipeline, pipeline
from calipers.systems.lm_eval.scores.choice import NEWER
from calipers.systems.lm_eval.scores.entries import CHOICE, GENERATION, Entry, entries

Steps = Sequence[Mapping[str, Any]]

LENIENT: Final = ({"metric": "exact_match", "ignore_case": True, "ignore_punctuation": True},)
LETTER: Final = r"\(([A-Ha-h])\)|(?<![\w'])([A-H])(?![\w'])"
"""A letter in parentheses, or a capital that stands alone; not I, which is a word."""

SCORERS: Final = Index(
    "scorer",
    {
        "gen": "calipers.systems.lm_eval.scores.scorers:gen",
        "choice_match": "calipers.systems.lm_eval.scores.scorers:choice_match",
        "first_token": "calipers.systems.lm_eval.scores.scorers:first_token",
        "ll": "calipers.systems.lm_eval.scores.scorers:ll",
        "regex": "calipers.systems.lm_eval.scores.scorers:regex_extraction",
        "regex_extraction": "calipers.systems.lm_eval.scores.scorers:regex_extraction",
        # the same by the names of their classes
        "ChoiceMatchScorer": "calipers.systems.lm_eval.scores.scorers:choice_match",
        "FirstTokenScorer": "calipers.systems.lm_eval.scores.scorers:first_token",
        "GenScorer": "calipers.systems.lm_eval.scores.scorers:gen",
        "LLScorer": "calipers.systems.lm_eval.scores.scorers:ll",
        "RegexExtractionScorer": "calipers.systems.lm_eval.scores.scorers:regex_extraction",
    },
    groups={"calipers.scorers": ""},
)


@dataclass(frozen=True, slots=True)
class Scorer:
    """What a scorer's class holds: the filters and metrics of a task that says nothing else."""

    default_filter_cfg: Steps = ()
    default_metric_cfg: Steps = ()


@dataclass(frozen=True, slots=True)
class Scoring:
    """A pipeline and the metrics that judge what comes out of it."""

    pipeline: Pipeline
    metrics: list[Entry]
    reduction: str | None = None  # of repeats where a metric names none; None: as 0.4.13 does without scorers


def gen() -> Scorer:
    """Generated text as it is, by exact_match."""
    return Scorer((), ({"metric": "exact_match"},))


def ll() -> Scorer:
    """Log-likelihoods, by the metrics of the output type."""
    return Scorer()


def first_token() -> Scorer:
    """The first word of the response, whatever its case and punctuation."""
    step = {"function": "regex", "regex_pattern": r"\S+"}
    return Scorer((step,), LENIENT)


def choice_match() -> Scorer:
    """The letter that the response chooses: the last that stands in parentheses, or alone."""
    return Scorer(({"function": "regex", "regex_pattern": LETTER, "group_select": -1},), LENIENT)


def regex_extraction(*, regex_pattern: str = MARKED, group_select: int = 0, fallback: Any = INVALID) -> Scorer:
    """What a pattern finds in the response; without one, the number after ``####``."""
    step = {
        "function": "regex",
        "regex_pattern": regex_pattern,
        "group_select": group_select,
        "fallback": fallback,
    }
    return Scorer((step,), LENIENT)


def scorer_of(asked: str | Mapping[str, Any] | None, kind: str, place: str = "scorer") -> Scorer:
    """The scorer that a task names, or the one of its output type.

    >>> asked = {"type": "regex_extraction", "kwargs": {"regex_pattern": "is (.)"}}
    >>> scorer_of(asked, "generate_until").default_filter_cfg[0]["regex_pattern"]
    'is (.)'
    """
    if asked is None:
        return gen() if kind == "generate_until" else ll()
    given: Mapping[str, Any] = {}
    if isinstance(asked, Mapping):
        name, given = asked.get("type"), asked.get("kwargs") or {}
        if not isinstance(name, str):
            raise InputError.at(place, f"is {dict(asked)!r}", "expected {type: NAME, kwargs: {...}}")
    else:
        name = asked
    maker = SCORERS.load(name) if name in SCORERS.entries else SCORERS.plugin(name)
    if maker is None:
        raise SCORERS.unknown(name)
    if name in SCORERS.entries:
        known = inspect.signature(maker).parameters
        for key in given:
            if key not in known:
                raise UnknownName.of(f"setting of scorer {name!r}", key, known, "" if known else "it takes none")
    return _held(name, maker, given)


def scorings(
    kind: str,
    *,
    filter_list: Steps | None = None,
    metric_list: Steps | None = None,
    scorer: str | Mapping[str, Any] | None = None,
    scored: bool = True,
    place: str = "task",
) -> list[Scoring]:
    """The pipelines of a task and their metrics.

    Without a ``filter_list`` there is one, called none: the scorer's own filters, and take_first where
    no scorer is named. A metric with a ``reduction`` needs all repeats, so then nothing is filtered, and the
    metrics without one look at the first repeat. A pipeline without a ``metric_list`` has the task's.
    """
    held = scorer_of(scorer, kind, f"{place}: scorer")
    own = metric_list or (held.default_metric_cfg if scorer is not None else ()) or None
    reduces = kind == GENERATION and not filter_list and any(one.get("reduction") is not None for one in own or ())
    steps = held.default_filter_cfg or (() if scorer is not None or reduces else ({"function": "take_first"},))
    found = []
    for entry in filter_list or ({"name": "none", "filter": steps},):
        where = f"{place}: filter_list: {entry.get('name', 'none')}"
        made = pipeline({**entry, "filter": entry.get("filter") or held.default_filter_cfg}, where)
        asked = entry.get("metric_list") or own
        metrics = metrics_of(asked, kind, f"{place}: metric_list", scored=scored, named=scorer is not None)
        found.append(Scoring(made, metrics, "take_first" if scorer is not None or reduces else None))
    names = [one.pipeline.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise InputError.at(f"{place}: filter_list", f"two pipelines are called {name!r}", "expected other names")
    return found


def metrics_of(
    asked: Steps | None, kind: str, place: str = "", *, scored: bool = True, named: bool = False
) -> list[Entry]:
    """The metrics of a pipeline. Where a scorer is named, choices may also be judged by what only the 0.5 line has.

    >>> [one.higher_is_better for one in metrics_of([{"metric": "bpb"}], "multiple_choice", named=True)]
    [False]
    """
    if not named or kind != CHOICE or not scored or not asked:
        return entries(asked, kind, place, scored=scored)
    found = [_newer(one) or entries([one], kind, place)[0] for one in asked]
    means = [
        replace(one, aggregation="mean") if one.name == one.aggregation == "brier_score" else one for one in found
    ]  # there it is a document's own number
    return list({one.name: one for one in means}.values())


def _newer(asked: Mapping[str, Any]) -> Entry | None:
    name = asked.get("metric")
    if not isinstance(name, str) or name not in NEWER:
        return None
    return Entry(name, asked.get("aggregation") or "mean", asked.get("higher_is_better", NEWER[name]))


def _held(name: str, maker: Any, given: Mapping[str, Any]) -> Scorer:
    """A scorer, ours or a class with the two defaults of lm-eval's."""
    try:
        made = maker(**given) if callable(maker) else maker
    except Exception as error:
        raise PluginError(f"scorer {name!r} cannot be made: {type(error).__name__}: {error}") from error
    if isinstance(made, Scorer):
        return made
    filters, metrics = (getattr(made, key, None) for key in ("default_filter_cfg", "default_metric_cfg"))
    if filters is None and metrics is None:
        right = "expected default_filter_cfg or default_metric_cfg on it"
        raise PluginError(f"scorer {name!r} is {made!r}; {right}")
    return Scorer(tuple(filters or ()), tuple(metrics or ()))
