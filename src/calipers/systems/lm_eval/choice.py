"""Multiple choice: log-likelihoods of the choices in, what a document is worth out, by lm-eval's names."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from calipers.errors import InputError, UnknownName

NOWHERE: Final = -100
"""lm-eval's index for a gold answer that is none of the choices."""

Gold = int | list[int]


@dataclass(frozen=True, slots=True)
class Choices:
    """What a model said of one document's choices."""

    texts: Sequence[str]  # [C]
    lls: Sequence[float]  # [C] log-likelihood of each, given the question
    greedy: Sequence[bool]  # [C] whether it is what the model would have said
    gold: Gold
    unconditional: Sequence[float] | None = None  # [C] log-likelihood of each on its own

    @classmethod
    def of(cls, texts: Sequence[str], results: Sequence[Sequence[Any]], gold: Any, *, mutual: bool = False) -> Choices:
        """From a document's results, ``[log-likelihood, is_greedy]`` a request.

        With ``mutual`` there may be twice as many, the second half without the question.
        """
        lls = [float(ll) for ll, _ in results]
        count = len(texts)
        if len(lls) not in (count, 2 * count) or (len(lls) != count and not mutual):
            raise InputError.at("multiple_choice", f"{len(lls)} results for {count} choices", "expected one for each")
        rest = lls[count:] if len(lls) > count else None
        return cls(texts, lls[:count], [bool(flag) for _, flag in results[:count]], gold_of(gold, texts), rest)


def gold_of(target: Any, texts: Sequence[str]) -> Gold:
    """The index of the right choice, or the list of several; a text is looked up; NOWHERE for what is no choice.

    >>> gold_of("no", ["yes", "no"]), gold_of([0, 7], ["a", "b"]), gold_of("maybe", ["yes", "no"])
    (1, [0, -100], -100)
    """
    if isinstance(target, (list, tuple)):
        return [index for choice in target if isinstance(index := gold_of(choice, texts), int)]
    if isinstance(target, str):
        return texts.index(target) if target in texts else NOWHERE
    if not isinstance(target, int):
        right = "expected the index or the text of a choice"
        raise InputError.at("multiple_choice", f"the target is {target!r}", right)
    return target if 0 <= target < len(texts) else NOWHERE  # there a negative one is no choice of acc either


def argmax(values: Sequence[float]) -> int:
    """The place of the largest value, the first of equals; the first NaN counts as the largest."""
    best = 0
    for index, value in enumerate(values):
        if math.isnan(value):
            return index
        if value > values[best]:
            best = index
    return best


def softmax(values: Sequence[float]) -> list[float]:
    """The values as chances that add up to 1."""
    highest = max(values)
    weights = [math.exp(value - highest) for value in values]
    whole = math.fsum(weights)
    return [weight / whole for weight in weights]


def squared_distance(chances: Sequence[float], gold: int) -> float:
    """How far some choices' chances are from the truth, which gives one of them all: 0 to 2."""
    return math.fsum((chance - (choice == gold)) ** 2 for choice, chance in enumerate(chances))


def acc(of: Choices) -> float:
    """1.0 when the likeliest choice is right."""
    return _right(of, of.lls)


def acc_norm(of: Choices) -> float:
    """1.0 when the choice that is likeliest per character is right."""
    return _right(of, [_per(ll, len(text)) for ll, text in zip(of.lls, of.texts, strict=True)])


def acc_bytes(of: Choices) -> float:
    """1.0 when the choice that is likeliest per UTF-8 byte is right."""
    return _right(of, _per_byte(of))


def acc_mutual_info(of: Choices) -> float:
    """1.0 when the choice that the question makes likelier by most is right."""
    if of.unconditional is None:
        right = "expected the unconditional log-likelihoods, too"
        raise InputError.at("acc_mutual_info", "no log-likelihoods of the choices on their own", right)
    if isinstance(of.gold, list) and len(of.gold) > 1:
        raise InputError.at("acc_mutual_info", "several targets", "expected a single one")
    return _right(of, [ll - alone for ll, alone in zip(of.lls, of.unconditional, strict=True)])


def exact_match(of: Choices) -> int:
    """1 when a right choice is just what the model would have said."""
    return int(any(of.greedy[choice] for choice in _golds(of) if choice != NOWHERE))


def pair(of: Choices) -> tuple[Gold, int]:
    """(gold, likeliest): for f1 and mcc, which look at all documents together."""
    return of.gold, argmax(of.lls)


def brier_pair(of: Choices) -> tuple[Gold, list[float]]:
    """(gold, the chance of each choice): for brier_score."""
    return of.gold, softmax(of.lls)


def likelihood(of: Choices) -> tuple[Gold, list[float]]:
    """(gold, log-likelihoods)."""
    return of.gold, list(of.lls)


SCORES: Final[Mapping[str, Callable[[Choices], Any]]] = {  # in the order of lm-eval's results
    "acc": acc,
    "f1": pair,
    "mcc": pair,
    "matthews_corrcoef": pair,
    "acc_norm": acc_norm,
    "acc_bytes": acc_bytes,
    "exact_match": exact_match,
    "brier_score": brier_pair,
    "likelihood": likelihood,
    "acc_mutual_info": acc_mutual_info,
}


def score_choices(of: Choices, names: Sequence[str]) -> dict[str, Any]:
    """A document's scores, of the names that mean something here; in lm-eval's order, whatever was asked first."""
    return {name: score(of) for name, score in SCORES.items() if name in names}


def brier(of: Choices) -> float:
    """The squared distance between the chances and the truth, 0 to 2."""
    gold = _only(of, "brier_score")
    return squared_distance(softmax(of.lls), gold)


def bpb(of: Choices) -> float:
    """Bits per byte of the right choice."""
    return -_per_byte(of)[_only(of, "bpb")] / math.log(2)


def logprob(of: Choices) -> float:
    """The log-likelihood of the right choice."""
    return of.lls[_only(of, "logprob")]


def choice_logprob(of: Choices) -> float:
    """The log of the right choice's chance among the choices."""
    return _log_softmax(of.lls)[_only(of, "choice_logprob")]


def choice_prob_norm(of: Choices) -> float:
    """The right choice's chance among the choices, by log-likelihoods per byte."""
    return softmax(_per_byte(of))[_only(of, "choice_prob_norm")]


def choice_logprob_norm(of: Choices) -> float:
    """The log of `choice_prob_norm`."""
    return _log_softmax(_per_byte(of))[_only(of, "choice_logprob_norm")]


MORE: Final[Mapping[str, Callable[[Choices], Any]]] = {  # of the unreleased 0.5 line, whose brier_score is per document
    **SCORES,
    "exact_match_mc": exact_match,
    "brier_score": brier,
    "bpb": bpb,
    "logprob": logprob,
    "choice_logprob": choice_logprob,
    "choice_prob_norm": choice_prob_norm,
    "choice_logprob_norm": choice_logprob_norm,
}


NEWER: Final[Mapping[str, bool]] = {  # which only that line has -> whether more of it is better
    "exact_match_mc": True,
    "bpb": False,
    "logprob": True,
    "choice_logprob": True,
    "choice_prob_norm": True,
    "choice_logprob_norm": True,
}


def score_more(of: Choices, names: Sequence[str], *, several: bool = False) -> dict[str, Any]:
    """A document's scores by the names of the 0.5 line, in the order asked for; one target unless ``several``."""
    if isinstance(of.gold, list) and not several:
        raise InputError.at("multiple_choice", f"the target is {of.gold!r}", "expected one, or multiple_targets: true")
    for name in names:
        if name not in MORE:
            raise UnknownName.of("lm_eval metric", name, MORE)
    return {name: MORE[name](of) for name in names}


def _golds(of: Choices) -> list[int]:
    return of.gold if isinstance(of.gold, list) else [of.gold]


def _right(of: Choices, values: Sequence[float]) -> float:
    return float(argmax(values) in _golds(of))


def _only(of: Choices, name: str) -> int:
    golds = _golds(of)
    if len(golds) == 1 and golds[0] != NOWHERE:
        return golds[0]
    raise InputError.at(name, f"the target is {of.gold!r}", "expected the index of one choice")


def _per(ll: float, length: int) -> float:
    """The share of each unit of length; nothing at all weighs infinitely, and 0 / 0 is no number."""
    if length:
        return ll / length
    return math.nan if ll == 0 or math.isnan(ll) else math.copysign(math.inf, ll)


def _per_byte(of: Choices) -> list[float]:
    return [_per(ll, len(text.encode("utf-8", "surrogatepass"))) for ll, text in zip(of.lls, of.texts, strict=True)]


def _log_softmax(values: Sequence[float]) -> list[float]:
    highest = max(values)
    whole = highest + math.log(math.fsum(math.exp(value - highest) for value in values))
    return [value - whole for value in values]
