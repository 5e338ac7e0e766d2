"""What a generated answer, or the likelihood of a text, is worth, by the metrics of a task of lm-evaluation-harness."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from calipers.errors import CalipersError, InputError, PluginError
from calipers.systems.lm_eval.scores.entries import Entry, Rules, matches

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


def score_answer(metrics: Sequence[Entry], target: Any, answer: Any, *, several: bool = False) -> dict[str, Any]:
    """A document's scores: numbers, pairs for corpus metrics, and a metric for each key of a function's answer."""
    typed = all(entry.name != "bypass" for entry in metrics)
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
        return {entry.name: _matched(answer, reference if several else [reference], entry.rules)}
    if entry.name in PAIRS or callable(entry.aggregation):
        return {entry.name: (reference, "" if answer is None else answer)}
    raise InputError(f"metric {entry.name!r} scores no generated answer; expected exact_match or another that does")


def _matched(answer: Any, references: Sequence[Any], rules: Rules) -> float:
    """Whether an answer is any of the references; of a list of repeats, the share that is. No answer is none."""
    if isinstance(answer, list) and not rules.regexes_to_ignore and answer:
        return math.fsum(_matched(value, references, rules) for value in answer) / len(answer)
    if answer is None:
        return 0.0
    return max((matches(answer, value, rules) for value in references), default=0.0)


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
