"""The metrics of a task's ``metric_list``: each entry with its aggregation, direction and settings decided, and what an
answer, or the likelihood of a text, is worth by it.

A scorer is a pair of defaults under one name: which filters find the answer and which metrics judge it. What a task
says itself comes first, then its scorer's defaults, then those of its output type.
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
from calipers.systems.lm_eval.pipelines import INVALID, MARKED, Pipeline, ignored_patterns, pipeline, settings_of
from calipers.systems.lm_eval.tasks.task_file import Trusted
from calipers.text.patterns import known, remove

PUNCTUATION: Final = str.maketrans("", "", string.punctuation)
DIGITS: Final = str.maketrans("", "", string.digits)
KEPT: Final = 200_000  # texts remembered without what is ignored


@dataclass(frozen=True, slots=True)
class Rules:
    """What exact_match ignores, in this order: patterns, case, ASCII punctuation, ASCII digits."""

    regexes_to_ignore: tuple[str, ...] = ()
    ignore_case: bool = False
    ignore_punctuation: bool = False
    ignore_numbers: bool = False

    @classmethod
    def of(cls, location: str = "exact_match", **given: Any) -> Rules:
        """The rules that these settings ask for; InputError for one of the wrong type."""
        patterns = ignored_patterns(given.pop("regexes_to_ignore", None), location)
        for name, value in given.items():
            if not isinstance(value, bool):
                raise InputError.at(location, f"{name} is {value!r}", "expected true or false")
        return cls(patterns, **given)

    @property
    def any(self) -> bool:
        """Whether anything is ignored at all."""
        return bool(self.regexes_to_ignore) or self.ignore_case or self.ignore_punctuation or self.ignore_numbers


NOTHING: Final = Rules()


def normal(text: Any, rules: Rules) -> Any:
    """One side of a comparison without what is ignored; InputError for what is no text, if anything is.

    >>> normal("$1,200.", Rules(regexes_to_ignore=(",",), ignore_punctuation=True))
    '1200'
    """
    if not rules.any:
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


def matches(answer: Any, references: Sequence[Any], rules: Rules = NOTHING) -> float:
    """1.0 when an answer equals any of the references, else 0.0; of a list over repeats, the share that does.

    A list together with patterns to ignore is an error, as it is in lm-eval. No answer is 0.0, an empty list NaN.

    >>> matches("Paris", ["paris"], Rules(ignore_case=True)), matches(["5", "4", "5", "5"], ["5"])
    (1.0, 0.75)
    """
    if answer is None:
        return 0.0
    if not isinstance(answer, (list, tuple)):
        return max((float(bool(normal(answer, rules) == normal(each, rules))) for each in references), default=0.0)
    if rules.regexes_to_ignore:
        right = "expected one answer: end the pipeline with take_first, or give the metric a reduction"
        raise InputError.at("exact_match", "regexes_to_ignore for a list of repeats", right)
    values = [matches(value, references, rules) for value in answer]
    return math.fsum(values) / len(values) if values else math.nan


def match_all(predictions: Sequence[str], references: Sequence[str], rules: Rules = NOTHING) -> list[float]:
    """`matches` for each of many pairs of texts. Equal texts are equal whatever is ignored; others are made so once.

    >>> match_all(["a", "B."], ["a", "b"], Rules(ignore_case=True, ignore_punctuation=True))
    [1.0, 1.0]
    """
    if not rules.any:
        return [1.0 if left == right else 0.0 for left, right in zip(predictions, references, strict=True)]
    made: dict[str, str] = {}

    def plain(text: str) -> str:
        stripped = made.get(text)
        if stripped is None:
            if len(made) >= KEPT:
                made.clear()
            stripped = made[text] = normal(text, rules)
        return stripped

    pairs = zip(predictions, references, strict=True)
    return [1.0 if left == right or plain(left) == plain(right) else 0.0 for left, right in pairs]


GENERATION, CHOICE = "generate_until", "multiple_choice"
LIKELIHOOD, ROLLING = "loglikelihood", "loglikelihood_rolling"


@dataclass(frozen=True, slots=True)
class KnownMetric:
    """A metric that lm-eval has by name."""

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
NEWER: Final[Mapping[str, bool]] = {  # which only that line has -> whether more of it is better
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
_OWN: Final = ("metric", "aggregation", "higher_is_better", "hf_evaluate", "reduction", "k")


@dataclass(frozen=True, slots=True)
class Entry:
    """One metric of a task."""

    name: str
    aggregation: str | Callable[[list[Any]], Any] = "mean"
    higher_is_better: bool | None = True
    settings: Mapping[str, Any] = field(default_factory=dict)
    function: Callable[..., Any] | None = None  # the user's own, or one of another library
    reduction: str | Callable[..., Any] | None = None  # None: none was asked for
    k: int | Sequence[int] | None = None  # for pass_at_k

    @property
    def rules(self) -> Rules:
        """What exact_match ignores."""
        return Rules.of(**self.settings)


def entries(
    metric_list: Sequence[Mapping[str, Any]] | None, kind: str, location: str = "", *, scored: bool = True
) -> list[Entry]:
    """The metrics of a task of one output type; of two entries with one name the last counts.

    Not ``scored``: the task's own ``process_results`` makes the numbers, and any name will do. A metric of the
    library ``evaluate`` is a script that is run, so its entry has to be `Trusted`.

    >>> [entry.name for entry in entries(None, "multiple_choice")]
    ['acc', 'acc_norm']
    """
    listed = metric_list or [{"metric": name} for name in DEFAULTS.get(kind, ())]
    made = [_entry(settings, kind, location, scored) for settings in listed]
    return list({entry.name: entry for entry in made}.values())


def passed_by(metrics: Sequence[Entry], kind: str) -> list[str]:
    """The metrics that lm-eval leaves out of this output type without a word; worth a note to the user."""
    if kind == GENERATION:
        return []
    return [entry.name for entry in metrics if entry.function or kind not in KNOWN[entry.name].kinds]


def _entry(given: Mapping[str, Any], kind: str, location: str, scored: bool) -> Entry:
    name = given.get("metric")
    settings = settings_of(given, _OWN)
    k = settings.pop("k", given.get("k"))
    if callable(name):
        known, function = None, name
        name = str(getattr(name, "__name__", type(name).__name__))
    elif not isinstance(name, str):
        raise _wrong(location, f"a metric is {name!r}", "expected a name")
    else:
        known = KNOWN.get(name)
        wanted = scored and kind == GENERATION and (known is None or bool(given.get("hf_evaluate")))
        function = _of_evaluate(name, location, trusted=isinstance(given, Trusted)) if wanted else None
    aggregation = given.get("aggregation") or (known.aggregation if known else None)
    if known is not None and function is None and scored:
        settings = _check(name, known, settings, kind, location, paired=callable(aggregation))
    elif known is None and function is None and scored:
        raise UnknownName.of("lm_eval metric", name, KNOWN)
    if aggregation is None and scored:
        raise _wrong(location, f"metric {name!r} has no aggregation", "expected one, such as aggregation: mean")
    direction = given.get("higher_is_better", known.higher_is_better if known else None)
    if function is not None and k is not None and given.get("reduction") is None:
        settings, k = {**settings, "k": k}, None  # a function that counts passes itself, as HumanEval's does
    ks = k if isinstance(k, list) else [k]
    if k is not None and not (ks and all(type(count) is int and count > 0 for count in ks)):
        raise _wrong(location, f"k is {k!r}", "expected a positive integer, or a list of them")
    return Entry(name, aggregation or "mean", direction, settings, function, given.get("reduction"), k)


def _check(
    name: str, known: KnownMetric, settings: dict[str, Any], kind: str, location: str, *, paired: bool
) -> dict[str, Any]:
    """A metric's settings, checked; ``paired``: a function adds up (target, answer), so any metric will do."""
    if kind != GENERATION:
        return settings  # lm-eval hands none on where it looks at log-likelihoods
    if kind not in known.kinds and not paired:
        suited = [other for other, metric in KNOWN.items() if kind in metric.kinds]
        raise _wrong(location, f"metric {name!r} is not a metric of {kind}", f"expected one of {', '.join(suited)}")
    inert = _EXACT if paired and name != "exact_match" else ()
    for key in settings:
        if key not in (*known.settings, *inert):
            names = (*known.settings, *_OWN)  # a field of the entry itself may be meant
            names = names if nearest(str(key), names) else known.settings
            raise UnknownName.of(f"setting of metric {name!r}", str(key), names, "" if names else "it takes none")
    if name == "exact_match":
        settings = {key: _folded(value) if key in _FLAGS else value for key, value in settings.items()}
        Rules.of(f"{location}: exact_match" if location else "exact_match", **settings)
    return settings


def _wrong(location: str, wrong: str, right: str = "") -> InputError:
    """What is wrong with an entry; whoever gives no place says himself where it stands."""
    return InputError.at(location, wrong, right) if location else InputError(f"{wrong}; {right}" if right else wrong)


def _folded(value: Any) -> Any:
    """A flag as it is meant: YAML folds a list below ``ignore_case: true`` into one text, which lm-eval takes as true.

    >>> _folded('true - "." - ","'), _folded(False)
    (True, False)
    """
    return True if isinstance(value, str) and value.startswith("true -") else value


def _of_evaluate(name: str, location: str, *, trusted: bool) -> Callable[..., Any]:
    """A metric of the library ``evaluate``, loaded by its name; every key of its answer becomes a metric.

    A name is also the path of a folder with a script, from the working directory. Else it is looked for on
    the hub; either way somebody's script is run.
    """
    try:
        import evaluate  # type: ignore[import-not-found, import-untyped, unused-ignore]  # an extra, seldom here
    except ImportError:
        if name in KNOWN:
            right = "install it (pip install evaluate), or remove hf_evaluate"
            raise _wrong(location, f"hf_evaluate for {name!r} needs the library evaluate", right) from None
        hint = "it may be a metric of the library evaluate, which is not installed"
        near = UnknownName.of("lm_eval metric", name, KNOWN)
        raise UnknownName(f"{near} ({hint})") from None
    if not trusted:
        unknown = "" if name in KNOWN else f"{UnknownName.of('lm_eval metric', name, KNOWN)}; "
        wrong = f"{unknown}a metric of the library evaluate is a script, which would run"
        raise _wrong(location, wrong, "read it, then run it with --trust")
    try:
        metric = evaluate.load(name)
    except Exception as error:  # the library's errors are of every class there is
        first = str(error).strip().partition("\n")[0]
        raise _wrong(location, f"{name!r} cannot be loaded from evaluate ({first})") from error

    def compute(references: Any, predictions: Any, **settings: Any) -> Any:
        return metric.compute(references=references, predictions=predictions, **settings)

    return compute


PAIRS = ("bleu", "chrf", "chrf++", "ter", "f1", "mcc", "matthews_corrcoef")
"""Metrics of all documents together: a document keeps (reference, answer) for them, and for any other that a
function of the task's own adds up."""


def reference_of(target: Any, answer: Any, *, several: bool, typed: bool = True) -> Any:
    """What an answer is compared with: the target in the answer's own type, as lm-eval compares.

    A list of targets stays one where any of them will do (``several``). No answer has no type.

    >>> reference_of(7, "7", several=False), reference_of("2", 2, several=False)
    ('7', 2)
    """
    if several:
        return list(target) if isinstance(target, (list, tuple)) else [target]
    if not typed or answer is None or isinstance(answer, list) or type(target) is type(answer):
        return target
    try:
        return type(answer)(target)
    except (TypeError, ValueError):
        right = f"expected a target that can be read as {type(answer).__name__}"
        raise InputError(f"the target is {target!r}, and the answer {answer!r}; {right}") from None


def score_answer(
    metrics: Sequence[Entry], target: Any, answer: Any, *, several: bool = False, typed: bool = True
) -> dict[str, Any]:
    """A document's scores: numbers, pairs for corpus metrics, and a metric for each key of a function's answer."""
    reference = reference_of(target, answer, several=several, typed=typed)
    scores: dict[str, Any] = {}
    for entry in metrics:
        scores |= _score(entry, reference, answer, several)
    return scores


def process(function: Callable[..., Any], doc: Mapping[str, Any], results: Sequence[Any]) -> dict[str, Any]:
    """A document's scores by the task's own function; PluginError when it fails or gives no mapping."""
    try:
        scores = function(doc, list(results))
    except CalipersError:
        raise
    except Exception as error:
        raise PluginError(f"process_results failed: {type(error).__name__}: {error}") from error
    if not isinstance(scores, Mapping):
        raise PluginError(f"process_results returned {scores!r}; expected a mapping from metric to number")
    return dict(scores)


def _score(entry: Entry, reference: Any, answer: Any, several: bool) -> dict[str, Any]:
    if entry.function is not None:
        if not several:
            return _spread(entry, _called(entry, reference, answer))
        each = [_spread(entry, _called(entry, target, answer)) for target in reference]
        return {key: max(scores[key] for scores in each) for key in each[0]} if each else {}
    if entry.name == "bypass":
        return {entry.name: None}
    if entry.name == "exact_match":
        return {entry.name: matches(answer, reference if several else [reference], entry.rules)}
    if entry.name in PAIRS or callable(entry.aggregation):
        return {entry.name: (reference, "" if answer is None else answer)}
    raise InputError(
        f"metric {entry.name!r} does not score generated answers; expected one that does, such as exact_match"
    )


def _called(entry: Entry, reference: Any, answer: Any) -> Any:
    """What a function makes of one pair; one that takes no keywords is handed ``[reference, answer]``."""
    function = entry.function
    if function is None:
        raise InputError(f"metric {entry.name!r} has no function; expected one")
    try:
        return function(references=[reference], predictions=[answer], **entry.settings)
    except CalipersError:
        raise
    except TypeError as error:
        first = error
    except Exception as error:
        raise _failed(entry, error) from error
    try:
        return function([reference, answer])
    except CalipersError:
        raise
    except TypeError:
        raise _failed(entry, first) from first  # it takes neither: what it said of the keywords is the reason
    except Exception as error:
        raise _failed(entry, error) from error


def _failed(entry: Entry, error: Exception) -> PluginError:
    return PluginError(f"metric {entry.name!r} failed: {type(error).__name__}: {error}")


def _spread(entry: Entry, value: Any) -> dict[str, Any]:
    return {str(key): score for key, score in value.items()} if isinstance(value, Mapping) else {entry.name: value}


_BLANKS: Final = re.compile(r"\s+")


def words(text: str) -> int:
    """How many pieces blanks cut a text into: one more for a blank at either end, one for no text at all.

    >>> words("Hello wide world"), words(" lead"), words("")
    (3, 2, 1)
    """
    return len(_BLANKS.split(text))


def score_loglikelihood(result: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    """The scores of a continuation, from ``[log-likelihood, is_greedy]``; other names are passed by."""
    ll, greedy = _pair(result)
    scores = {"perplexity": ll, "acc": int(greedy)}
    return {name: value for name, value in scores.items() if name in names}


def score_rolling(ll: float, text: str, names: Sequence[str]) -> dict[str, Any]:
    """The scores of a whole text: its log-likelihood, alone or with its words or its bytes."""
    size = len(text.encode("utf-8", "surrogatepass"))
    scores: dict[str, Any] = {"perplexity": ll}
    scores |= {"word_perplexity": (ll, words(text)), "byte_perplexity": (ll, size), "bits_per_byte": (ll, size)}
    return {name: value for name, value in scores.items() if name in names}


def _pair(result: Sequence[Any]) -> tuple[float, bool]:
    try:
        ll, greedy = result
        return float(ll), bool(greedy)
    except (TypeError, ValueError):
        right = "expected [log-likelihood, is_greedy]"
        raise InputError.at("loglikelihood", f"a result is {result!r}", right) from None


Steps = Sequence[Mapping[str, Any]]

LENIENT: Final = ({"metric": "exact_match", "ignore_case": True, "ignore_punctuation": True},)
LETTER: Final = r"\(([A-Ha-h])\)|(?<![\w'])([A-H])(?![\w'])"
"""A letter in parentheses, or a capital that stands alone; not I, which is a word."""

SCORERS: Final = Index(
    "scorer",
    {
        "gen": "calipers.systems.lm_eval.entries:gen",
        "choice_match": "calipers.systems.lm_eval.entries:choice_match",
        "first_token": "calipers.systems.lm_eval.entries:first_token",
        "ll": "calipers.systems.lm_eval.entries:ll",
        "regex": "calipers.systems.lm_eval.entries:regex_extraction",
        "regex_extraction": "calipers.systems.lm_eval.entries:regex_extraction",
        # the same by the names of their classes
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
    """What a scorer's class holds: the filters and metrics of a task that says nothing else."""

    default_filter_cfg: Steps = ()
    default_metric_cfg: Steps = ()


@dataclass(frozen=True, slots=True)
class Scoring:
    """A pipeline and the metrics that judge what comes out of it."""

    pipeline: Pipeline
    metrics: list[Entry]
    reduction: str | None = None  # of repeats where a metric names none; None: as 0.4.13 does without scorers

    @property
    def typed(self) -> bool:
        """Whether a target is read in the answer's type, which lm-eval leaves out where ``bypass`` is a metric."""
        return all(entry.name != "bypass" for entry in self.metrics)


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
    step = {"function": "regex", "regex_pattern": regex_pattern, "group_select": group_select, "fallback": fallback}
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
        if not isinstance(name, str) or not isinstance(given, Mapping):
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
                raise UnknownName.of(f"setting of scorer {name!r}", str(key), known, "" if known else "it takes none")
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
