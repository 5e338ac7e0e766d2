"""lm-evaluation-harness' pipelines: the steps of a ``filter_list``, over all responses, or tried out before a run."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from calipers.errors import InputError, PluginError, UnknownName
from calipers.names import Index
from calipers.rollouts.column import Bools, Ints
from calipers.systems.lm_eval.filters import INVALID, Doc, Each, Select, Whole
from calipers.text import patterns
from calipers.text.filters import WORTH, Plain, plain
from calipers.text.patterns import RegexTimeout

if TYPE_CHECKING:
    import polars as pl


ENDS: Final = (0, -1)  # the matches that can be had without listing all: the first, the last


@dataclass(frozen=True, slots=True)
class Searched:
    """What a pattern found in N texts."""

    answers: list[Any]  # [N] the fallback where there is none
    found: Bools  # [N]
    left: Ints  # the places of texts that have to be looked at singly


def searched(pattern: str, select: int, fallback: Any, texts: Sequence[str]) -> Searched | None:
    """The answers in many texts; None when they have to be looked at singly, all of them.

    That is when the pattern is not plain, another match than the first or last is asked for, or there
    are too few texts for it to pay.

    >>> searched("#### ([0-9]+)", 0, "[invalid]", ["#### 12", "none"] * 50).answers[:2]
    ['12', '[invalid]']
    """
    rust = plain(pattern) if len(texts) >= WORTH and select in ENDS else None
    if rust is None:
        return None
    odd = np.array([not text.isascii() for text in texts]) if rust.ascii_only else np.zeros(len(texts), dtype=bool)
    try:
        answers, matched = _extracted(rust, texts, fallback, last=select == ENDS[1])
    except UnicodeEncodeError:  # half of a surrogate pair, which is no text to Rust
        return None
    return Searched(answers, matched, np.flatnonzero(odd))


def _extracted(rust: Plain, texts: Sequence[str], fallback: Any, *, last: bool) -> tuple[list[Any], Bools]:
    import polars as pl

    series = pl.Series(texts, dtype=pl.String)
    if last:  # a match is found again in itself, groups and all, as nothing plain looks beyond it
        series = series.str.extract_all(rust.pattern).list.last()
    if not rust.groups:
        whole = series if last else series.str.extract(rust.pattern, 0)
        return _filled(whole, fallback), whole.is_not_null().to_numpy()
    there = series.is_not_null() if last else series.str.contains(rust.pattern)
    groups = [series.str.extract(rust.pattern, group) for group in range(1, rust.groups + 1)]
    if rust.groups == 1:  # one that has no part in the match is an empty answer
        group_texts = pl.select(pl.when(there).then(groups[0].fill_null(""))).to_series()
        return _filled(group_texts, fallback), there.to_numpy()
    filled = pl.select(pl.coalesce([pl.when(group != "").then(group) for group in groups])).to_series()
    answers = _filled(filled, fallback)
    matched = filled.is_not_null().to_numpy()
    if isinstance(fallback, str) and fallback.strip() != fallback:  # which lm-eval strips where all groups are empty
        for row in np.flatnonzero(there.to_numpy() & ~matched).tolist():
            answers[row] = fallback.strip()
    return answers, matched


def _filled(series: pl.Series, fallback: Any) -> list[Any]:
    """Answers stripped as Python strips, the fallback in the gaps."""
    stripped = series.str.strip_chars(_blanks())
    if isinstance(fallback, str):
        return stripped.fill_null(fallback).to_list()
    return [fallback if answer is None else answer for answer in stripped.to_list()]


@cache
def _blanks() -> str:
    """Every character that `str.strip` takes for a blank; Rust's list is another."""
    return "".join(filter(str.isspace, map(chr, range(sys.maxunicode + 1))))


FILTERS: Final = Index(
    "lm_eval filter",
    {
        "custom": "calipers.systems.lm_eval.filters:custom",
        "decontaminate": "calipers.systems.lm_eval.filters:decontaminate",
        "format_span": "calipers.systems.lm_eval.filters:format_span",
        "lowercase": "calipers.systems.lm_eval.filters:lowercase",
        "majority_vote": "calipers.systems.lm_eval.filters:majority_vote",
        "map": "calipers.systems.lm_eval.filters:mapped",
        "multi_choice_regex": "calipers.systems.lm_eval.filters:multi_choice_regex",
        "noop": "calipers.systems.lm_eval.filters:noop",
        "regex": "calipers.systems.lm_eval.filters:regex",
        "regex_pos": "calipers.systems.lm_eval.filters:regex_pos",
        "remove_whitespace": "calipers.systems.lm_eval.filters:remove_whitespace",
        "take_first": "calipers.systems.lm_eval.filters:take_first",
        "take_first_k": "calipers.systems.lm_eval.filters:take_first_k",
        "uppercase": "calipers.systems.lm_eval.filters:uppercase",
    },
    groups={"calipers.filters": ""},
)

WORDS: Final = ("scored", "unparsed", "filter_timeout")
"""What the ledger says of an answer, the best first."""

LOSE, STOP = 1, 2  # the codes of the latter two
STOPPED: Final = WORDS[STOP]
Step = Each | Select | Whole


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A named sequence of filters."""

    name: str = "none"
    steps: tuple[Step, ...] = ()
    functions: tuple[str, ...] = field(default=())  # the names of the steps


@dataclass(frozen=True, slots=True)
class FilteredAnswers:
    """What a pipeline made of each document's responses."""

    values: list[Any]  # [D] an answer after take_first, else a list over the repeats that were kept
    words: NDArray[np.uint8]  # codes of WORDS, for each repeat that was kept, document after document
    starts: Ints  # [D + 1] where each document's words begin

    def outcomes(self, document: int) -> list[str]:
        """The ledger's word for each repeat of a document that was kept: scored, unparsed or filter_timeout."""
        return [WORDS[code] for code in self.words[self.starts[document] : self.starts[document + 1]].tolist()]

    def outcome(self, document: int) -> str:
        """The ledger's word for a document: the best of its repeats."""
        codes = self.words[self.starts[document] : self.starts[document + 1]]
        return WORDS[int(codes.min())] if len(codes) else WORDS[0]

    def all_outcomes(self) -> list[str]:
        """The ledger's word for every document."""
        if len(self.words) == len(self.values) and bool((np.diff(self.starts) == 1).all()):
            return [WORDS[code] for code in self.words.tolist()]
        return [self.outcome(document) for document in range(len(self.values))]


def pipeline(entry: Mapping[str, Any], location: str = "filter_list") -> Pipeline:
    """The pipeline of an entry of a ``filter_list``, with its settings checked.

    >>> pipeline({"name": "strict", "filter": [{"function": "regex"}, {"function": "take_first"}]}).functions
    ('regex', 'take_first')
    """
    steps = entry.get("filter") or ()
    if isinstance(steps, (str, Mapping)) or not all(isinstance(step, Mapping) for step in steps):
        raise InputError.at(location, f"filter is {steps!r}", "expected a list of {function: NAME, ...}")
    made = [step_of(step, location) for step in steps]
    names = tuple(str(getattr(step["function"], "__name__", step["function"])) for step in steps)
    return Pipeline(str(entry.get("name", "none")), tuple(made), names)


def step_of(settings: Mapping[str, Any], location: str = "filter_list") -> Step:
    """One step: ``{function: NAME, setting: value, ...}``, the settings also under ``kwargs``."""
    if "function" not in settings:
        raise InputError.at(location, f"a step is {dict(settings)!r}", "expected a key 'function'")
    function = settings["function"]
    given = {key: value for key, value in settings.items() if key not in ("function", "kwargs")}
    given |= settings.get("kwargs") or {}
    if not isinstance(function, str):
        return _foreign(function, given)
    if function in FILTERS.entries:
        return _made(function, FILTERS.load(function), given, location)
    plugin = FILTERS.plugin(function)
    if plugin is None:
        raise FILTERS.unknown(function)
    return _foreign(plugin, given)


def filtered(through: Pipeline, resps: Sequence[Sequence[Any]], docs: Sequence[Doc]) -> FilteredAnswers:
    """The answers of all documents, ``resps`` being their responses, [documents x repeats].

    A filter that follows `take_first` sees the one response as a list of one. Where a pattern runs out of
    time the answer is None, later filters pass it by, and it does not vote.
    """
    state = _Responses.of(resps)
    for step in through.steps:
        if isinstance(step, Whole):
            state = _whole(step, state, docs)
        elif isinstance(step, Each):
            state = _each(step, state, docs)
        else:
            state = _selected(step, state)
    values = state.values if state.alone else state.lists()
    return FilteredAnswers(values, state.words, state.starts)


@dataclass(frozen=True, slots=True)
class _Responses:
    """Responses on their way, document after document in one list."""

    values: list[Any]  # [R]
    words: NDArray[np.uint8]  # [R]
    starts: Ints  # [D + 1]
    alone: bool = False  # each document has one answer and no list

    @classmethod
    def of(cls, lists: Sequence[Sequence[Any]]) -> _Responses:
        starts = np.concatenate([[0], np.cumsum([len(responses) for responses in lists])]).astype(np.int64)
        values = list(chain.from_iterable(lists))
        return cls(values, np.zeros(len(values), dtype=np.uint8), starts)

    def lists(self) -> list[Any]:
        bounds = self.starts.tolist()
        return [self.values[first:last] for first, last in pairwise(bounds)]


def _made(name: str, maker: Any, given: Mapping[str, Any], location: str) -> Step:
    known = inspect.signature(maker).parameters
    for key in given:
        if key not in known:
            raise UnknownName.of(f"setting of filter {name!r}", key, known, "" if known else "it takes none")
    for key, parameter in known.items():
        if key not in given and parameter.default is parameter.empty:
            raise InputError.at(location, f"filter {name!r} has no {key}", f"expected {key}: VALUE")
        right = _right(key, given.get(key, parameter.default))
        if right:
            raise InputError.at(location, f"filter {name!r}: {key} is {given[key]!r}", f"expected {right}")
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
        raise PluginError(f"filter {thing!r} cannot be created: {type(error).__name__}: {error}") from error
    if isinstance(made, (Each, Select, Whole)):
        return made
    if not callable(getattr(made, "apply", None)):
        raise PluginError(f"filter {thing!r} creates {made!r}; expected an object with apply(resps, docs)")
    return Whole(made.apply)


def _of_text(find: Any, given: Mapping[str, Any], response: Any, doc: Doc) -> tuple[Any, bool]:
    try:
        answer = find(response, **given)
    except RegexTimeout:
        raise
    except Exception as error:
        raise PluginError(f"filter {find.__name__!r} failed: {type(error).__name__}: {error}") from error
    return (INVALID, False) if answer is None else (answer, True)


def _each(step: Each, state: _Responses, docs: Sequence[Doc]) -> _Responses:
    values, words = state.values, state.words.copy()
    known = None
    if step.pattern is not None:
        known = searched(*step.pattern, [value if isinstance(value, str) else "" for value in values])
    rows: Sequence[int] = range(len(values))
    stopped = words == STOP
    if known is not None:
        words[~known.found & ~stopped] = LOSE
        words[known.left] = state.words[known.left]
        kept, values = values, known.answers
        rows = known.left.tolist()
        for row in (*rows, *np.flatnonzero(stopped).tolist()):
            values[row] = kept[row]
    else:
        values = list(values)
    documents = np.searchsorted(state.starts, rows, side="right") - 1
    for row, document in zip(rows, documents.tolist(), strict=True):
        if words[row] == STOP:
            continue
        try:
            values[row], matched = step.answer(values[row], docs[document] if document < len(docs) else {})
        except RegexTimeout:
            values[row], words[row], matched = None, STOP, True
        if not matched:
            words[row] = LOSE
    return _Responses(values, words, state.starts)


def _selected(step: Select, state: _Responses) -> _Responses:
    sizes = np.diff(state.starts)
    if len(sizes) and sizes.min() == 0:
        raise InputError("a document has no responses; expected at least one for each")
    if step.alone:
        firsts = state.starts[:-1]
        if len(firsts) == len(state.values):
            return replace(state, alone=True)
        values = [state.values[row] for row in firsts.tolist()]
        return _Responses(values, state.words[firsts], np.arange(len(firsts) + 1), alone=True)
    kept: list[list[int]] = []
    for first, last in zip(state.starts[:-1].tolist(), state.starts[1:].tolist(), strict=True):
        there = list(range(first, last))
        if step.votes:
            there = [row for row in there if state.words[row] != STOP] or there[:1]
        kept.append([there[index] for index in step.keep([state.values[row] for row in there])])
    places = list(chain.from_iterable(kept))
    starts = np.concatenate([[0], np.cumsum([len(rows) for rows in kept])]).astype(np.int64)
    return _Responses([state.values[row] for row in places], state.words[places], starts)


def _whole(step: Whole, state: _Responses, docs: Sequence[Doc]) -> _Responses:
    """What lm-eval hands a filter: lists over repeats, or bare answers after take_first."""
    given = list(state.values) if state.alone else state.lists()
    try:
        answers = list(step.apply(given, list(docs)))
    except Exception as error:
        raise PluginError(f"a filter failed: {type(error).__name__}: {error}") from error
    if len(answers) != len(given):
        raise PluginError(f"a filter returned {len(answers)} entries for {len(given)} documents; expected one for each")
    if all(isinstance(answer, (list, tuple)) for answer in answers):
        return _Responses.of(answers)
    return replace(_Responses.of([[answer] for answer in answers]), alone=True)


TRIED: Final = "aA0 .,_-\n"  # besides the letters and digits of the pattern itself
TIMES: Final = 40  # a doubling each is 2^40 steps
SECONDS: Final = 0.5
LAST: Final = "\0"  # what no pattern expects


def check_ends(pattern: str) -> None:
    """InputError for a pattern that comes to no end on one character many times over; of others nothing is proven.

    >>> check_ends("#### ([0-9]+)")
    >>> check_ends("(a+)+$")
    Traceback (most recent call last):
    ...
    calipers.errors.InputError: pattern '(a+)+$' does not finish matching 40 times 'a'; expected no nested repetitions
    """
    for character in sorted({*TRIED, *filter(str.isalnum, pattern)}):
        try:
            patterns.find_all(pattern, character * TIMES + LAST, limit=SECONDS)
        except patterns.RegexTimeout:
            shown = pattern if len(pattern) <= 80 else f"{pattern[:77]}..."
            wrong = f"pattern {shown!r} does not finish matching {TIMES} times {character!r}"
            raise InputError(f"{wrong}; expected no nested repetitions") from None


def patterns_of(settings: Mapping[str, Any]) -> Iterator[str]:
    """Every pattern among the settings of a filter or a metric, also under ``kwargs``."""
    given = {**settings, **(settings.get("kwargs") or {})}
    several = given.get("regexes_to_ignore") or ()
    for pattern in (given.get("regex_pattern"), *([several] if isinstance(several, str) else several)):
        if isinstance(pattern, str):
            yield pattern
