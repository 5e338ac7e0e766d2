"""lm-evaluation-harness' pipelines: the steps of a ``filter_list``, over all responses of a task.

::

    responses [documents x repeats] ──► step ──► step ──► an answer, or a list over repeats, for each document

Beside every answer stands what the ledger says of it: `scored`, `unparsed` where a filter fell back,
`filter_timeout` where a pattern came to no end. The answer itself is lm-eval's.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from calipers.answers.lm_eval_fast import searched
from calipers.answers.lm_eval_filters import INVALID, Doc, Each, Select, Whole
from calipers.errors import InputError, PluginError, UnknownName
from calipers.names import Index
from calipers.regexes import RegexTimeout

FILTERS: Final = Index(
    "lm_eval filter",
    {
        "custom": "calipers.answers.lm_eval_filters:custom",
        "format_span": "calipers.answers.lm_eval_filters:format_span",
        "lowercase": "calipers.answers.lm_eval_filters:lowercase",
        "majority_vote": "calipers.answers.lm_eval_filters:majority_vote",
        "map": "calipers.answers.lm_eval_filters:mapped",
        "multi_choice_regex": "calipers.answers.lm_eval_filters:multi_choice_regex",
        "noop": "calipers.answers.lm_eval_filters:noop",
        "regex": "calipers.answers.lm_eval_filters:regex",
        "regex_pos": "calipers.answers.lm_eval_filters:regex_pos",
        "remove_whitespace": "calipers.answers.lm_eval_filters:remove_whitespace",
        "take_first": "calipers.answers.lm_eval_filters:take_first",
        "take_first_k": "calipers.answers.lm_eval_filters:take_first_k",
        "uppercase": "calipers.answers.lm_eval_filters:uppercase",
    },
    groups={"calipers.filters": ""},
)

FOUND, LOST, STOPPED = "scored", "unparsed", "filter_timeout"
Step = Each | Select | Whole
Lists = list[list[Any]]  # [documents x repeats]
Words = list[list[str]]  # the ledger's word for each


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A named row of filters."""

    name: str = "none"
    steps: tuple[Step, ...] = ()
    functions: tuple[str, ...] = field(default=())  # the names of the steps


@dataclass(frozen=True, slots=True)
class Answers:
    """What a pipeline made of each document's responses."""

    values: list[Any]  # [D] an answer after take_first, else a list over the repeats that were kept
    outcomes: list[list[str]]  # [D] for each repeat that was kept: scored, unparsed or filter_timeout

    def outcome(self, document: int) -> str:
        """The ledger's word for a document: the best of its repeats."""
        words = self.outcomes[document]
        return next((word for word in (FOUND, LOST, STOPPED) if word in words), FOUND)


def pipeline(entry: Mapping[str, Any], place: str = "filter_list") -> Pipeline:
    """An entry of a ``filter_list``, its filters found and their settings checked.

    >>> pipeline({"name": "strict", "filter": [{"function": "regex"}, {"function": "take_first"}]}).functions
    ('regex', 'take_first')
    """
    steps = entry.get("filter") or ()
    if isinstance(steps, (str, Mapping)) or not all(isinstance(step, Mapping) for step in steps):
        raise InputError.at(place, f"filter is {steps!r}", "expected a list of {function: NAME, ...}")
    made = [step_of(step, place) for step in steps]
    names = tuple(str(getattr(step["function"], "__name__", step["function"])) for step in steps)
    return Pipeline(str(entry.get("name", "none")), tuple(made), names)


def step_of(settings: Mapping[str, Any], place: str = "filter_list") -> Step:
    """One step: ``{function: NAME, setting: value, ...}``, the settings also under ``kwargs``."""
    if "function" not in settings:
        raise InputError.at(place, f"a step is {dict(settings)!r}", "expected a key 'function'")
    asked = settings["function"]
    given = {key: value for key, value in settings.items() if key not in ("function", "kwargs")}
    given |= settings.get("kwargs") or {}
    if not isinstance(asked, str):
        return _foreign(asked, given)
    if asked in FILTERS.entries:
        return _made(asked, FILTERS.load(asked), given, place)
    plugin = FILTERS.plugin(asked)
    if plugin is None:
        raise FILTERS.unknown(asked)
    return _foreign(plugin, given)


def filtered(through: Pipeline, resps: Sequence[Sequence[Any]], docs: Sequence[Doc]) -> Answers:
    """The answers of all documents, ``resps`` being their responses, [documents x repeats].

    A filter that follows `take_first` sees the one response as a list of one. Where a pattern runs out of
    time the answer is None, later filters pass it by, and it does not vote.
    """
    values = [list(responses) for responses in resps]
    outcomes = [[FOUND] * len(responses) for responses in values]
    alone = False
    for step in through.steps:
        if isinstance(step, Whole):
            values, alone = _whole(step, values, docs, alone)
            outcomes = [[FOUND] * len(held) for held in values]
        elif isinstance(step, Each):
            alone = False
            values, outcomes = _each(step, values, outcomes, docs)
        else:
            alone = step.alone
            values, outcomes = _selected(step, values, outcomes)
    return Answers([held[0] for held in values] if alone else list(values), outcomes)


def _made(name: str, maker: Any, given: Mapping[str, Any], place: str) -> Step:
    known = inspect.signature(maker).parameters
    for key in given:
        if key not in known:
            raise UnknownName.of(f"setting of filter {name!r}", key, known, "" if known else "it takes none")
    for key, parameter in known.items():
        if key not in given and parameter.default is parameter.empty:
            raise InputError.at(place, f"filter {name!r} lacks {key}", f"expected {key}: VALUE")
        right = _right(key, given.get(key, parameter.default))
        if right:
            raise InputError.at(place, f"filter {name!r}: {key} is {given[key]!r}", f"expected {right}")
    step: Step = maker(**given)
    return step


def _right(key: str, value: Any) -> str:
    """What a setting should have been; nothing when it is that."""
    wholes, flags = ("group_select", "k"), ("ignore_case", "ignore_punctuation")
    if key in wholes and (not isinstance(value, int) or isinstance(value, bool)):
        return "an integer"
    if key in flags and not isinstance(value, bool):
        return "true or false"
    return "a pattern as text" if key == "regex_pattern" and not isinstance(value, str) else ""


def _foreign(thing: Any, given: Mapping[str, Any]) -> Step:
    """A filter of somebody else's: a class with ``apply(resps, docs)``, or a function of one text."""
    if inspect.isfunction(thing):
        return Each(partial(_of_text, thing, given))
    try:
        made = thing if isinstance(thing, (Each, Select, Whole)) else thing(**given)
    except Exception as error:
        raise PluginError(f"filter {thing!r} cannot be made: {type(error).__name__}: {error}") from error
    if isinstance(made, (Each, Select, Whole)):
        return made
    if not callable(getattr(made, "apply", None)):
        raise PluginError(f"filter {thing!r} makes {made!r}; expected an object with apply(resps, docs)")
    return Whole(made.apply)


def _of_text(find: Any, given: Mapping[str, Any], response: Any, doc: Doc) -> tuple[Any, bool]:
    try:
        answer = find(response, **given)
    except RegexTimeout:
        raise
    except Exception as error:
        raise PluginError(f"filter {find.__name__!r} failed: {type(error).__name__}: {error}") from error
    return (INVALID, False) if answer is None else (answer, True)


def _each(step: Each, values: Lists, outcomes: Words, docs: Sequence[Doc]) -> tuple[Lists, Words]:
    flat = [value for held in values for value in held]
    known: Sequence[tuple[Any, bool] | None] | None = None
    if step.pattern is not None:
        known = searched(*step.pattern, [value if isinstance(value, str) else "" for value in flat])
    if known is not None and None not in known and not any(STOPPED in words for words in outcomes):
        return _shared(known, values, outcomes)
    found: Lists = []
    words: Words = []
    at = 0
    for document, (held, before) in enumerate(zip(values, outcomes, strict=True)):
        doc = docs[document] if document < len(docs) else {}
        pairs = [
            _one(step, held[place], before[place], doc, known[at + place] if known else None)
            for place in range(len(held))
        ]
        at += len(held)
        found.append([value for value, _ in pairs])
        words.append([word for _, word in pairs])
    return found, words


def _shared(known: Sequence[Any], values: Lists, outcomes: Words) -> tuple[Lists, Words]:
    """What was found for all responses at once, given back to their documents."""
    each = iter(known)
    pairs = [[next(each) for _ in held] for held in values]
    words = [
        before
        if all(found for _, found in some)
        else [word if found else LOST for word, (_, found) in zip(before, some, strict=True)]
        for before, some in zip(outcomes, pairs, strict=True)
    ]
    return [[value for value, _ in some] for some in pairs], words


def _one(step: Each, value: Any, word: str, doc: Doc, known: tuple[Any, bool] | None) -> tuple[Any, str]:
    if word == STOPPED:
        return value, word
    try:
        answer, found = step.answer(value, doc) if known is None else known
    except RegexTimeout:
        return None, STOPPED
    return answer, word if found else LOST


def _selected(step: Select, values: Lists, outcomes: Words) -> tuple[Lists, Words]:
    found: Lists = []
    words: Words = []
    for held, before in zip(values, outcomes, strict=True):
        if len(held) == 1 and step.alone:
            found.append(held)
            words.append(before)
            continue
        kept = _kept(step, held, before)
        found.append([held[place] for place in kept])
        words.append([before[place] for place in kept])
    return found, words


def _kept(step: Select, held: list[Any], outcomes: list[str]) -> Sequence[int]:
    if not held:
        raise InputError("a document has no responses; expected at least one for each")
    if not step.votes or STOPPED not in outcomes:
        return step.keep(held)
    there = [place for place, word in enumerate(outcomes) if word != STOPPED]
    return [there[place] for place in step.keep([held[place] for place in there])] if there else [0]


def _whole(step: Whole, values: list[list[Any]], docs: Sequence[Doc], alone: bool) -> tuple[list[list[Any]], bool]:
    """What lm-eval hands a filter: lists over repeats, or bare answers after take_first."""
    given: list[Any] = [held[0] for held in values] if alone else list(values)
    try:
        found = list(step.apply(given, list(docs)))
    except Exception as error:
        raise PluginError(f"a filter failed: {type(error).__name__}: {error}") from error
    if len(found) != len(values):
        raise PluginError(f"a filter returned {len(found)} entries for {len(values)} documents; expected one for each")
    if all(isinstance(held, (list, tuple)) for held in found):
        return [list(held) for held in found], False
    return [[held] for held in found], True
