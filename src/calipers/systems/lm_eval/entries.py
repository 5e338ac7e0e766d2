"""The metrics of a task's ``metric_list``: their aggregations, directions and settings, and how they score answers.

An answer is generated text, or the likelihood of a text. A scorer is a named pair of defaults: the filters that
extract the answer and the metrics that score it. The task's own lists have precedence over its scorer's defaults,
and these over the defaults of its output type.
"""

from __future__ import annotations

import inspect
import math
import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from calipers.errors import CalipersError, InputError, PluginError, UnknownName, nearest
from calipers.names import Index
from calipers.systems.lm_eval import INVALID
from calipers.systems.lm_eval.pipelines import MARKED, Pipeline, ignored_patterns, pipeline, settings_of
from calipers.systems.lm_eval.tasks import Trusted
from calipers.text.patterns import known, remove

PUNCTUATION: Final = str.maketrans("", "", string.punctuation)
DIGITS: Final = str.maketrans("", "", string.digits)
_MAX_REMEMBERED: Final = 200_000  # normalised texts


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of exact_match: it ignores, in this order, patterns, case, ASCII punctuation and ASCII digits."""

    regexes_to_ignore: tuple[str, ...] = ()
    ignore_case: bool = False
    ignore_punctuation: bool = False
    ignore_numbers: bool = False

    @classmethod
    def of(cls, location: str = "exact_match", **given: Any) -> Rules:
        """The rules given by these settings of a metric; InputError for a setting of the wrong type."""
        patterns = ignored_patterns(given.pop("regexes_to_ignore", None), location)
        for name, value in given.items():
            if not isinstance(value, bool):
                raise InputError.at(location, f"{name} is {value!r}", "expected true or false")
        return cls(patterns, **given)


NO_RULES: Final = Rules()


def normalised(text: Any, rules: Rules) -> Any:
    """A text without what the rules ignore; InputError for a value that is not text, if there are any rules.

    >>> normalised("$1,200.", Rules(regexes_to_ignore=(",",), ignore_punctuation=True))
    '1200'
    """
    if rules == NO_RULES:
        return text
    if not isinstance(text, str):
        raise InputError.at("exact_match", f"{text!r} is not text", "expected text when something is to be ignored")
    for pattern in rules.regexes_to_ignore:
        compiled = known(pattern, False)
        harmless = compiled is not None and len(text) <= compiled.harmless
        text = compiled.pattern.sub("", text) if compiled is not None and harmless else remove(pattern, text)
    text = text.lower() if rules.ignore_case else text
    text = text.translate(PUNCTUATION) if rules.ignore_punctuation else text
    return text.translate(DIGITS) if rules.ignore_numbers else text


def matches(answer: Any, references: Sequence[Any], rules: Rules = NO_RULES) -> float:
    """1.0 if an answer equals any of the references, else 0.0; for a list of repeats, the share that does.

    A missing answer (None) scores 0.0, an empty list NaN. A list together with ``regexes_to_ignore`` is an error, as
    in lm-eval.

    >>> matches("Paris", ["paris"], Rules(ignore_case=True)), matches(["5", "4", "5", "5"], ["5"])
    (1.0, 0.75)
    """
    if answer is None:
        return 0.0
    if not isinstance(answer, (list, tuple)):
        equal = (bool(normalised(answer, rules) == normalised(reference, rules)) for reference in references)
        return float(max(equal, default=False))
    if rules.regexes_to_ignore:
        expected = "expected one answer: end the pipeline with take_first, or give the metric a reduction"
        raise InputError.at("exact_match", "regexes_to_ignore for a list of repeats", expected)
    values = [matches(value, references, rules) for value in answer]
    return math.fsum(values) / len(values) if values else math.nan


def match_all(predictions: Sequence[str], references: Sequence[str], rules: Rules = NO_RULES) -> list[float]:
    """`matches` for many pairs of texts; each distinct text is normalised only once.

    >>> match_all(["a", "B."], ["a", "b"], Rules(ignore_case=True, ignore_punctuation=True))
    [1.0, 1.0]
    """
    if rules == NO_RULES:
        return [1.0 if left == right else 0.0 for left, right in zip(predictions, references, strict=True)]
    cache: dict[str, str] = {}

    def normal(text: str) -> str:
        if text not in cache:
            if len(cache) >= _MAX_REMEMBERED:
                cache.clear()
            cache[text] = normalised(text, rules)
        return cache[text]

    pairs = zip(predictions, references, strict=True)
    return [1.0 if left == right or normal(left) == normal(right) else 0.0 for left, right in pairs]


GENERATION, CHOICE = "generate_until", "multiple_choice"
LIKELIHOOD, ROLLING = "loglikelihood", "loglikelihood_rolling"


@dataclass(frozen=True, slots=True)
class KnownMetric:
    """The defaults of a metric that lm-eval knows by name."""

    aggregation: str
    higher_is_better: bool
    kinds: tuple[str, ...]  # the output types whose documents it can score
    settings: tuple[str, ...] = ()


_EXACT: Final = ("regexes_to_ignore", "ignore_case", "ignore_punctuation", "ignore_numbers")
_FLAGS: Final = _EXACT[1:]
_TEXT: Final = (GENERATION,)
KNOWN: Final[Mapping[str, KnownMetric]] = {
    "acc": KnownMetric("mean", True, (CHOICE, LIKELIHOOD)),
    "acc_norm": KnownMetric("mean", True, (CHOICE,)),
    "acc_bytes": KnownMetric("mean", True, (CHOICE,)),
    "acc_mutual_info": KnownMetric("mean", True, (CHOICE,)),
    "acc_all": KnownMetric("mean", True, ()),
    "likelihood": KnownMetric("mean", True, (CHOICE,)),
    "exact_match": KnownMetric("mean", True, (GENERATION, CHOICE), _EXACT),
    "f1": KnownMetric("f1", True, (GENERATION, CHOICE), ("average",)),
    "mcc": KnownMetric("matthews_corrcoef", True, (GENERATION, CHOICE)),
    "matthews_corrcoef": KnownMetric("matthews_corrcoef", True, (GENERATION, CHOICE)),
    "brier_score": KnownMetric("brier_score", False, (CHOICE,)),
    "perplexity": KnownMetric("perplexity", False, (LIKELIHOOD, ROLLING)),
    "word_perplexity": KnownMetric("weighted_perplexity", False, (ROLLING,)),
    "byte_perplexity": KnownMetric("weighted_perplexity", False, (ROLLING,)),
    "bits_per_byte": KnownMetric("bits_per_byte", False, (ROLLING,)),
    "bleu": KnownMetric("bleu", True, _TEXT),
    "chrf": KnownMetric("chrf", True, _TEXT),
    "chrf++": KnownMetric("chrf++", True, _TEXT),
    "ter": KnownMetric("ter", False, _TEXT),
    "bypass": KnownMetric("bypass", True, (GENERATION, CHOICE, LIKELIHOOD, ROLLING)),
}
NEWER: Final[Mapping[str, bool]] = {  # metrics that only lm-eval 0.5 has -> whether higher is better
    "exact_match_mc": True,
    "bpb": False,
    "logprob": True,
    "choice_logprob": True,
    "choice_prob_norm": True,
    "choice_logprob_norm": True,
}
DEFAULTS: Final[Mapping[str, tuple[str, ...]]] = {
    GENERATION: ("exact_match",),
    CHOICE: ("acc", "acc_norm"),
    LIKELIHOOD: ("perplexity", "acc"),
    ROLLING: ("word_perplexity", "byte_perplexity", "bits_per_byte"),
}
_FIELDS: Final = ("metric", "aggregation", "higher_is_better", "hf_evaluate", "reduction", "k")


@dataclass(frozen=True, slots=True)
class Entry:
    """A metric of a task."""

    name: str
    aggregation: str | Callable[[list[Any]], Any] = "mean"
    higher_is_better: bool | None = True
    settings: Mapping[str, Any] = field(default_factory=dict)
    function: Callable[..., Any] | None = None  # a user's function, or one of the library evaluate
    reduction: str | Callable[..., Any] | None = None  # over repeats; None: not given
    k: int | Sequence[int] | None = None  # for pass_at_k

    @property
    def rules(self) -> Rules:
        """The rules of exact_match, from the entry's settings."""
        return Rules.of(**self.settings)


def entries(
    metric_list: Sequence[Mapping[str, Any]] | None, kind: str, location: str = "", *, scored: bool = True
) -> list[Entry]:
    """The metrics of a task with output type ``kind``; if a name is listed twice, the last entry is used.

    If not ``scored``, the task's own ``process_results`` computes the scores, and any name is accepted. A metric of
    the library ``evaluate`` is a script that is run, so its entry must be `Trusted`.

    >>> [entry.name for entry in entries(None, "multiple_choice")]
    ['acc', 'acc_norm']
    """
    listed = metric_list or [{"metric": name} for name in DEFAULTS.get(kind, ())]
    return list({entry.name: entry for entry in (_entry(each, kind, location, scored) for each in listed)}.values())


def silently_ignored(metrics: Sequence[Entry], kind: str) -> list[str]:
    """The names of the metrics that lm-eval silently ignores for this output type; the user should be told."""
    if kind == GENERATION:
        return []
    return [entry.name for entry in metrics if entry.function or kind not in KNOWN[entry.name].kinds]


def _entry(given: Mapping[str, Any], kind: str, location: str, scored: bool) -> Entry:
    name = given.get("metric")
    settings = settings_of(given, _FIELDS)
    k = settings.pop("k", given.get("k"))
    if callable(name):
        known, function = None, name
        name = str(getattr(name, "__name__", type(name).__name__))
    elif not isinstance(name, str):
        raise _input_error(location, f"a metric is {name!r}", "expected a name")
    else:
        known = KNOWN.get(name)
        from_evaluate = scored and kind == GENERATION and (known is None or bool(given.get("hf_evaluate")))
        function = _from_evaluate(name, location, trusted=isinstance(given, Trusted)) if from_evaluate else None
    aggregation = given.get("aggregation") or (known.aggregation if known else None)
    if known is not None and function is None and scored:
        settings = _checked_settings(name, known, settings, kind, location, paired=callable(aggregation))
    elif known is None and function is None and scored:
        raise UnknownName.of("lm_eval metric", name, KNOWN)
    if aggregation is None and scored:
        raise _input_error(location, f"metric {name!r} has no aggregation", "expected one, such as aggregation: mean")
    direction = _direction(given, known.higher_is_better if known else None, location)
    if function is not None and k is not None and given.get("reduction") is None:
        settings, k = {**settings, "k": k}, None  # a function with k computes pass@k itself, as HumanEval's does
    ks = k if isinstance(k, list) else [k]
    if k is not None and not (ks and all(type(count) is int and count > 0 for count in ks)):
        raise _input_error(location, f"k is {k!r}", "expected a positive integer, or a list of them")
    return Entry(name, aggregation or "mean", direction, settings, function, given.get("reduction"), k)


def _checked_settings(
    name: str, known: KnownMetric, settings: dict[str, Any], kind: str, location: str, *, paired: bool
) -> dict[str, Any]:
    """A metric's settings, validated; ``paired``: a function aggregates (target, answer), so any metric is allowed."""
    if kind != GENERATION:
        return settings  # lm-eval does not use the settings of log-likelihood metrics
    if kind not in known.kinds and not paired:
        suitable = ", ".join(metric_name for metric_name, metric in KNOWN.items() if kind in metric.kinds)
        raise _input_error(location, f"metric {name!r} is not a metric of {kind}", f"expected one of {suitable}")
    unused = _EXACT if paired and name != "exact_match" else ()
    for key in settings:
        if key not in (*known.settings, *unused):
            names = (*known.settings, *_FIELDS)  # the key may be a misspelt field of the entry
            names = names if nearest(str(key), names) else known.settings
            raise UnknownName.of(f"setting of metric {name!r}", str(key), names, "" if names else "it takes none")
    if name == "exact_match":
        settings = {key: _flag(value) if key in _FLAGS else value for key, value in settings.items()}
        Rules.of(f"{location}: exact_match" if location else "exact_match", **settings)
    return settings


def _direction(given: Mapping[str, Any], default: bool | None, location: str = "") -> bool | None:
    """Whether higher is better, as the entry says, else by default."""
    direction = given.get("higher_is_better", default)
    if direction is None or isinstance(direction, bool):
        return direction
    raise _input_error(location, f"higher_is_better is {direction!r:.60}", "expected true or false")


def _input_error(location: str, problem: str, expected: str = "") -> InputError:
    """The error for an entry of a metric_list; without a ``location``, the caller adds it."""
    if location:
        return InputError.at(location, problem, expected)
    return InputError(f"{problem}; {expected}" if expected else problem)


def _flag(value: Any) -> Any:
    """The value of a flag. YAML folds a list below ``ignore_case: true`` into one text, which lm-eval takes as true.

    >>> _flag('true - "." - ","'), _flag(False)
    (True, False)
    """
    return True if isinstance(value, str) and value.startswith("true -") else value


def _from_evaluate(name: str, location: str, *, trusted: bool) -> Callable[..., Any]:
    """Load a metric of the library ``evaluate`` by name; every key of its result becomes a metric.

    The name may be the path of a folder with a script; otherwise the library looks for it on the hub. Either way the
    script is run.
    """
    try:
        import evaluate  # type: ignore[import-not-found, import-untyped, unused-ignore]  # an extra, seldom here
    except ImportError:
        if name in KNOWN:
            expected = "install it (pip install evaluate), or remove hf_evaluate"
            raise _input_error(location, f"hf_evaluate for {name!r} needs the library evaluate", expected) from None
        hint = "it may be a metric of the library evaluate, which is not installed"
        raise UnknownName(f"{UnknownName.of('lm_eval metric', name, KNOWN)} ({hint})") from None
    if not trusted:
        unknown = "" if name in KNOWN else f"{UnknownName.of('lm_eval metric', name, KNOWN)}; "
        problem = f"{unknown}a metric of the library evaluate is a script, which would run"
        raise _input_error(location, problem, "read it, then run it with --trust")
    try:
        metric = evaluate.load(name)
    except Exception as error:  # the library raises errors of many classes
        first_line = str(error).strip().partition("\n")[0]
        raise _input_error(location, f"{name!r} cannot be loaded from evaluate ({first_line})") from error

    def compute(references: Any, predictions: Any, **settings: Any) -> Any:
        return metric.compute(references=references, predictions=predictions, **settings)

    return compute


CORPUS_METRICS: Final = ("bleu", "chrf", "chrf++", "ter", "f1", "mcc", "matthews_corrcoef")
"""Metrics computed from all documents together: the value of a document is its pair (reference, answer).

So it is for any metric that a function of the task's own aggregates.
"""


def reference_of(target: Any, answer: Any, *, multiple_targets: bool, typed: bool = True) -> Any:
    """The reference that an answer is compared with: the target converted to the answer's type, as in lm-eval.

    With ``multiple_targets``, any of which is correct, it is the list of them, unconverted. The target stays as it is
    if it is not to be ``typed``, or if the answer is None or a list.

    >>> reference_of(7, "7", multiple_targets=False), reference_of("2", 2, multiple_targets=False)
    ('7', 2)
    """
    if multiple_targets:
        return list(target) if isinstance(target, (list, tuple)) else [target]
    if not typed or answer is None or isinstance(answer, list) or type(target) is type(answer):
        return target
    try:
        return type(answer)(target)
    except (TypeError, ValueError):
        expected = f"expected a target that can be read as {type(answer).__name__}"
        raise InputError(f"the target is {target!r}, and the answer {answer!r}; {expected}") from None


def score_answer(
    metrics: Sequence[Entry], target: Any, answer: Any, *, multiple_targets: bool = False, typed: bool = True
) -> dict[str, Any]:
    """A document's scores by metric: numbers, pairs for corpus metrics, and one per key of a function's result."""
    reference = reference_of(target, answer, multiple_targets=multiple_targets, typed=typed)
    scores: dict[str, Any] = {}
    for entry in metrics:
        scores |= _score(entry, reference, answer, multiple_targets)
    return scores


def process(function: Callable[..., Any], doc: Mapping[str, Any], results: Sequence[Any]) -> dict[str, Any]:
    """A document's scores by the task's own function; PluginError if it fails or does not return a mapping."""
    try:
        scores = function(doc, list(results))
    except CalipersError:
        raise
    except Exception as error:
        raise PluginError(f"process_results failed: {type(error).__name__}: {error}") from error
    if not isinstance(scores, Mapping):
        raise PluginError(f"process_results returned {scores!r}; expected a mapping from metric to number")
    return dict(scores)


def _score(entry: Entry, reference: Any, answer: Any, multiple_targets: bool) -> dict[str, Any]:
    if entry.function is not None:
        if not multiple_targets:
            return _named_scores(entry, _called(entry, reference, answer))
        by_target = [_named_scores(entry, _called(entry, target, answer)) for target in reference]
        return {key: max(scores[key] for scores in by_target) for key in by_target[0]} if by_target else {}
    if entry.name == "bypass":
        return {entry.name: None}
    if entry.name == "exact_match":
        return {entry.name: matches(answer, reference if multiple_targets else [reference], entry.rules)}
    if entry.name in CORPUS_METRICS or callable(entry.aggregation):
        return {entry.name: (reference, "" if answer is None else answer)}
    raise InputError(
        f"metric {entry.name!r} does not score generated answers; expected one that does, such as exact_match"
    )


def _called(entry: Entry, reference: Any, answer: Any) -> Any:
    """The result of a metric function for one pair; a function without these keywords gets ``[reference, answer]``."""
    function = entry.function
    if function is None:
        raise InputError(f"metric {entry.name!r} has no function; expected one")
    try:
        return function(references=[reference], predictions=[answer], **entry.settings)
    except CalipersError:
        raise
    except TypeError as error:
        keyword_error = error
    except Exception as error:
        raise _failed(entry, error) from error
    try:
        return function([reference, answer])
    except CalipersError:
        raise
    except TypeError:
        raise _failed(entry, keyword_error) from keyword_error  # it accepts neither, and this error is clearer
    except Exception as error:
        raise _failed(entry, error) from error


def _failed(entry: Entry, error: Exception) -> PluginError:
    return PluginError(f"metric {entry.name!r} failed: {type(error).__name__}: {error}")


def _named_scores(entry: Entry, value: Any) -> dict[str, Any]:
    return {str(key): score for key, score in value.items()} if isinstance(value, Mapping) else {entry.name: value}


_BLANKS: Final = re.compile(r"\s+")


def words(text: str) -> int:
    """The number of words as lm-eval counts them: pieces between whitespace, including empty ones at either end.

    >>> words("Hello wide world"), words(" lead"), words("")
    (3, 2, 1)
    """
    return len(_BLANKS.split(text))


def score_loglikelihood(result: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    """The scores of a continuation, from ``[log-likelihood, is_greedy]``; other names are ignored."""
    ll, greedy = _pair(result)
    scores = {"perplexity": ll, "acc": int(greedy)}
    return {name: value for name, value in scores.items() if name in names}


def score_rolling(ll: float, text: str, names: Sequence[str]) -> dict[str, Any]:
    """The scores of a whole text: its log-likelihood, alone or with its number of words or bytes as the weight."""
    size = len(text.encode("utf-8", "surrogatepass"))
    scores: dict[str, Any] = {"perplexity": ll}
    scores |= {"word_perplexity": (ll, words(text)), "byte_perplexity": (ll, size), "bits_per_byte": (ll, size)}
    return {name: value for name, value in scores.items() if name in names}


def _pair(result: Sequence[Any]) -> tuple[float, bool]:
    try:
        ll, greedy = result
        return float(ll), bool(greedy)
    except (TypeError, ValueError):
        expected = "expected [log-likelihood, is_greedy]"
        raise InputError.at("loglikelihood", f"a result is {result!r}", expected) from None


Steps = Sequence[Mapping[str, Any]]

LENIENT: Final = ({"metric": "exact_match", "ignore_case": True, "ignore_punctuation": True},)
LETTER: Final = r"\(([A-Ha-h])\)|(?<![\w'])([A-H])(?![\w'])"
"""A letter from A to H in parentheses, or a capital one that is a word of its own. I is excluded, as it is a word."""

SCORERS: Final = Index(
    "scorer",
    {
        "gen": "calipers.systems.lm_eval.entries:gen",
        "choice_match": "calipers.systems.lm_eval.entries:choice_match",
        "first_token": "calipers.systems.lm_eval.entries:first_token",
        "ll": "calipers.systems.lm_eval.entries:ll",
        "regex": "calipers.systems.lm_eval.entries:regex_extraction",
        "regex_extraction": "calipers.systems.lm_eval.entries:regex_extraction",
        # the class names of the same scorers
        "ChoiceMatchScorer": "calipers.systems.lm_eval.entries:choice_match",
        "FirstTokenScorer": "calipers.systems.lm_eval.entries:first_token",
        "GenScorer": "calipers.systems.lm_eval.entries:gen",
        "LLScorer": "calipers.systems.lm_eval.entries:ll",
        "RegexExtractionScorer": "calipers.systems.lm_eval.entries:regex_extraction",
    },
    groups={"calipers.scorers": ""},
)


@dataclass(frozen=True, slots=True)
class ScorerDefaults:
    """The defaults that a scorer provides: filters and metrics for a task that does not list its own."""

    default_filter_cfg: Steps = ()
    default_metric_cfg: Steps = ()


@dataclass(frozen=True, slots=True)
class Scoring:
    """A pipeline and the metrics that score its output."""

    pipeline: Pipeline
    metrics: list[Entry]
    reduction: str | None = None  # of repeats for a metric without its own; None: as 0.4.13 does without scorers

    @property
    def typed(self) -> bool:
        """Whether a target is converted to the answer's type; lm-eval does not do so if ``bypass`` is a metric."""
        return all(entry.name != "bypass" for entry in self.metrics)


def gen() -> ScorerDefaults:
    """Score generated text, unfiltered, with exact_match."""
    return ScorerDefaults((), ({"metric": "exact_match"},))


def ll() -> ScorerDefaults:
    """Score log-likelihoods with the default metrics of the output type."""
    return ScorerDefaults()


def first_token() -> ScorerDefaults:
    """Compare the first word of the response, ignoring case and punctuation."""
    step = {"function": "regex", "regex_pattern": r"\S+"}
    return ScorerDefaults((step,), LENIENT)


def choice_match() -> ScorerDefaults:
    """Compare the letter of a choice: the last one in the response that is in parentheses or a word of its own."""
    return ScorerDefaults(({"function": "regex", "regex_pattern": LETTER, "group_select": -1},), LENIENT)


def regex_extraction(*, regex_pattern: str = MARKED, group_select: int = 0, fallback: Any = INVALID) -> ScorerDefaults:
    """Compare the match of a pattern in the response; by default the number after ``####``."""
    step = {"function": "regex", "regex_pattern": regex_pattern, "group_select": group_select, "fallback": fallback}
    return ScorerDefaults((step,), LENIENT)


def scorer_of(scorer: str | Mapping[str, Any] | None, kind: str, location: str = "scorer") -> ScorerDefaults:
    """The scorer that a task specifies, or the default one of its output type.

    >>> scorer = {"type": "regex_extraction", "kwargs": {"regex_pattern": "is (.)"}}
    >>> scorer_of(scorer, "generate_until").default_filter_cfg[0]["regex_pattern"]
    'is (.)'
    """
    if scorer is None:
        return gen() if kind == GENERATION else ll()
    kwargs: Mapping[str, Any] = {}
    if isinstance(scorer, Mapping):
        name, kwargs = scorer.get("type"), scorer.get("kwargs") or {}
        if not isinstance(name, str) or not isinstance(kwargs, Mapping):
            raise InputError.at(location, f"is {dict(scorer)!r}", "expected {type: NAME, kwargs: {...}}")
    else:
        name = scorer
    factory = SCORERS.load(name) if name in SCORERS.entries else SCORERS.plugin(name)
    if factory is None:
        raise SCORERS.unknown(name)
    if name in SCORERS.entries:
        known = inspect.signature(factory).parameters
        for key in kwargs:
            if key not in known:
                raise UnknownName.of(f"setting of scorer {name!r}", str(key), known, "" if known else "it takes none")
    return _defaults_of(name, factory, kwargs)


def scorings(
    kind: str,
    *,
    filter_list: Steps | None = None,
    metric_list: Steps | None = None,
    scorer: str | Mapping[str, Any] | None = None,
    scored: bool = True,
    location: str = "task",
) -> list[Scoring]:
    """The pipelines of a task, each with its metrics.

    Without a ``filter_list`` there is one pipeline, called none, with the scorer's default filters, or with take_first
    if the task names no scorer. A metric with a ``reduction`` needs all repeats, so such a task has no filters then,
    and its metrics without a reduction use the first repeat. A pipeline without a ``metric_list`` has the task's.
    """
    defaults = scorer_of(scorer, kind, f"{location}: scorer")
    task_metrics = metric_list or (defaults.default_metric_cfg if scorer is not None else ()) or None
    reduces = (
        kind == GENERATION
        and not filter_list
        and any(metric.get("reduction") is not None for metric in task_metrics or ())
    )
    steps = defaults.default_filter_cfg or (() if scorer is not None or reduces else ({"function": "take_first"},))
    plan: list[Scoring] = []
    for entry in filter_list or ({"name": "none", "filter": steps},):
        where = f"{location}: filter_list: {entry.get('name', 'none')}"
        filters = pipeline({**entry, "filter": entry.get("filter") or defaults.default_filter_cfg}, where)
        listed = entry.get("metric_list") or task_metrics
        metrics = metrics_of(listed, kind, f"{location}: metric_list", scored=scored, has_scorer=scorer is not None)
        plan.append(Scoring(filters, metrics, "take_first" if scorer is not None or reduces else None))
    names = [scoring.pipeline.name for scoring in plan]
    for name in names:
        if names.count(name) > 1:
            problem = f"two pipelines are called {name!r}"
            raise InputError.at(f"{location}: filter_list", problem, "expected different names")
    return plan


def metrics_of(
    metric_list: Steps | None, kind: str, location: str = "", *, scored: bool = True, has_scorer: bool = False
) -> list[Entry]:
    """The metrics of a pipeline. A multiple-choice task with a scorer may also use metrics that only lm-eval 0.5 has.

    >>> [entry.higher_is_better for entry in metrics_of([{"metric": "bpb"}], "multiple_choice", has_scorer=True)]
    [False]
    """
    if not has_scorer or kind != CHOICE or not scored or not metric_list:
        return entries(metric_list, kind, location, scored=scored)
    metrics: dict[str, Entry] = {}
    for settings in metric_list:
        metric = _newer(settings) or entries([settings], kind, location)[0]
        if metric.name == metric.aggregation == "brier_score":  # in 0.5 it is a number of each document
            metric = replace(metric, aggregation="mean")
        metrics[metric.name] = metric
    return list(metrics.values())


def _newer(settings: Mapping[str, Any]) -> Entry | None:
    name = settings.get("metric")
    if not isinstance(name, str) or name not in NEWER:
        return None
    return Entry(name, settings.get("aggregation") or "mean", _direction(settings, NEWER[name]))


def _defaults_of(name: str, factory: Any, kwargs: Mapping[str, Any]) -> ScorerDefaults:
    """The defaults of a scorer: a function of ours, or a plugin's object with the two attributes of lm-eval's class."""
    try:
        scorer = factory(**kwargs) if callable(factory) else factory
    except Exception as error:
        raise PluginError(f"scorer {name!r} cannot be created: {type(error).__name__}: {error}") from error
    if isinstance(scorer, ScorerDefaults):
        return scorer
    filters, metrics = (getattr(scorer, key, None) for key in ("default_filter_cfg", "default_metric_cfg"))
    if filters is None and metrics is None:
        expected = "expected default_filter_cfg or default_metric_cfg on it"
        raise PluginError(f"scorer {name!r} is {scorer!r}; {expected}")
    return ScorerDefaults(tuple(filters or ()), tuple(metrics or ()))
