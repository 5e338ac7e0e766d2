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
class ScorerDefaults:
    """What a scorer's class holds: the filters and metrics of a task that says nothing else."""

    default_filter_cfg: Steps = ()
    default_metric_cfg: Steps = ()


@dataclass(frozen=True, slots=True)
class Scoring:
    """A pipeline and the metrics that judge what comes out of it."""

    pipeline: Pipeline
    metrics: list[Entry]
    reduction: str | None = None  # of repeats where a metric names none; None: as 0.4.13 does without scorers


def gen() -> ScorerDefaults:
    """Generated text as it is, by exact_match."""
    return ScorerDefaults((), ({"metric": "exact_match"},))


def ll() -> ScorerDefaults:
    """Log-likelihoods, by the metrics of the output type."""
    return ScorerDefaults()


def first_token() -> ScorerDefaults:
    """The first word of the response, whatever its case and punctuation."""
    step = {"function": "regex", "regex_pattern": r"\S+"}
    return ScorerDefaults((step,), LENIENT)


def choice_match() -> ScorerDefaults:
    """The letter that the response chooses: the last that stands in parentheses, or alone."""
    return ScorerDefaults(({"function": "regex", "regex_pattern": LETTER, "group_select": -1},), LENIENT)


def regex_extraction(*, regex_pattern: str = MARKED, group_select: int = 0, fallback: Any = INVALID) -> ScorerDefaults:
    """What a pattern finds in the response; without one, the number after ``####``."""
    step = {
        "function": "regex",
        "regex_pattern": regex_pattern,
        "group_select": group_select,
        "fallback": fallback,
    }
    return ScorerDefaults((step,), LENIENT)


def scorer_of(named: str | Mapping[str, Any] | None, kind: str, location: str = "scorer") -> ScorerDefaults:
    """The scorer that a task names, or the one of its output type.

    >>> asked = {"type": "regex_extraction", "kwargs": {"regex_pattern": "is (.)"}}
    >>> scorer_of(asked, "generate_until").default_filter_cfg[0]["regex_pattern"]
    'is (.)'
    """
    if named is None:
        return gen() if kind == "generate_until" else ll()
    given: Mapping[str, Any] = {}
    if isinstance(named, Mapping):
        name, given = named.get("type"), named.get("kwargs") or {}
        if not isinstance(name, str):
            raise InputError.at(location, f"is {dict(named)!r}", "expected {type: NAME, kwargs: {...}}")
    else:
        name = named
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
    location: str = "task",
) -> list[Scoring]:
    """The pipelines of a task and their metrics.

    Without a ``filter_list`` there is one, called none: the scorer's own filters, and take_first where
    no scorer is named. A metric with a ``reduction`` needs all repeats, so then nothing is filtered, and the
    metrics without one look at the first repeat. A pipeline without a ``metric_list`` has the task's.
    """
    defaults = scorer_of(scorer, kind, f"{location}: scorer")
    task_metrics = metric_list or (defaults.default_metric_cfg if scorer is not None else ()) or None
    reduces = (
        kind == GENERATION
        and not filter_list
        and any(metric.get("reduction") is not None for metric in task_metrics or ())
    )
    steps = defaults.default_filter_cfg or (() if scorer is not None or reduces else ({"function": "take_first"},))
    scorings_made = []
    for entry in filter_list or ({"name": "none", "filter": steps},):
        where = f"{location}: filter_list: {entry.get('name', 'none')}"
        made = pipeline({**entry, "filter": entry.get("filter") or defaults.default_filter_cfg}, where)
        metrics_asked = entry.get("metric_list") or task_metrics
        metrics = metrics_of(metrics_asked, kind, f"{location}: metric_list", scored=scored, named=scorer is not None)
        scorings_made.append(Scoring(made, metrics, "take_first" if scorer is not None or reduces else None))
    names = [scoring.pipeline.name for scoring in scorings_made]
    for name in names:
        if names.count(name) > 1:
            raise InputError.at(
                f"{location}: filter_list", f"two pipelines are called {name!r}", "expected different names"
            )
    return scorings_made


def metrics_of(
    metric_list: Steps | None, kind: str, location: str = "", *, scored: bool = True, named: bool = False
) -> list[Entry]:
    """The metrics of a pipeline. Where a scorer is named, choices may also be judged by what only the 0.5 line has.

    >>> [one.higher_is_better for one in metrics_of([{"metric": "bpb"}], "multiple_choice", named=True)]
    [False]
    """
    if not named or kind != CHOICE or not scored or not metric_list:
        return entries(metric_list, kind, location, scored=scored)
    made = [_newer(metric) or entries([metric], kind, location)[0] for metric in metric_list]
    means = [
        replace(metric, aggregation="mean") if metric.name == metric.aggregation == "brier_score" else metric
        for metric in made
    ]  # there it is a document's own number
    return list({metric.name: metric for metric in means}.values())


def _newer(settings: Mapping[str, Any]) -> Entry | None:
    name = settings.get("metric")
    if not isinstance(name, str) or name not in NEWER:
        return None
    return Entry(name, settings.get("aggregation") or "mean", settings.get("higher_is_better", NEWER[name]))


def _held(name: str, maker: Any, given: Mapping[str, Any]) -> ScorerDefaults:
    """A scorer, ours or a class with the two defaults of lm-eval's."""
    try:
        made = maker(**given) if callable(maker) else maker
    except Exception as error:
        raise PluginError(f"scorer {name!r} cannot be created: {type(error).__name__}: {error}") from error
    if isinstance(made, ScorerDefaults):
        return made
    filters, metrics = (getattr(made, key, None) for key in ("default_filter_cfg", "default_metric_cfg"))
    if filters is None and metrics is None:
        right = "expected default_filter_cfg or default_metric_cfg on it"
        raise PluginError(f"scorer {name!r} is {made!r}; {right}")
    return ScorerDefaults(tuple(filters or ()), tuple(metrics or ()))
