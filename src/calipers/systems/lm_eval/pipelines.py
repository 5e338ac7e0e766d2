"""lm-evaluation-harness' filters and pipelines: the steps of a ``filter_list``, applied to all responses.

There are three kinds of filters: `Each` maps one response at a time, `Select` chooses which repeats to keep, and
`Whole` gets everything at once, as lm-eval's filter classes do. `check_ends` tests a pattern before a run.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from calipers.errors import InputError, PluginError, UnknownName
from calipers.names import Index
from calipers.rollouts.column import Bools, Ints
from calipers.systems.lm_eval import INVALID
from calipers.text import patterns
from calipers.text.filters import WORTH, Plain, plain
from calipers.text.patterns import RegexTimeout

if TYPE_CHECKING:
    import polars as pl

Doc = Mapping[str, Any]
MARKED: Final = r"#### (\-?[0-9\.\,]+)"
"""lm-eval's default pattern of a regex filter: the number after GSM8K's marker."""

PAIR: Final = r"\('([^']*)', '([^']*)'\)"
_LABELLED: Final = tuple(
    (label, re.compile(rf"\b(?:{words})\b\s*:"))
    for label, words in (
        ("PER", "person|people|persons|per"),
        ("LOC", "location|counties|places|country|continent|loc"),
        ("ORG", "organization|company|org"),
        ("DATE", "time|date"),
    )
)
_SPAN: Final = re.compile(r"(PER|LOC|ORG|DATE):\s*([^$]+)")


@dataclass(frozen=True, slots=True)
class Each:
    """A filter of one response: it returns the answer, and False if the answer is only a fallback."""

    answer: Callable[[Any, Doc], tuple[Any, bool]]
    pattern: tuple[str, int, Any] | None = None  # `regex` only: pattern, group_select, fallback


@dataclass(frozen=True, slots=True)
class Select:
    """A filter of repeats: it returns the indices of a document's responses to keep."""

    keep: Callable[[Sequence[Any]], Sequence[int]]
    alone: bool = False  # whether the result is a single answer instead of a list
    votes: bool = False  # whether repeats without an answer are excluded first


@dataclass(frozen=True, slots=True)
class Whole:
    """A user's filter, from all responses and all documents to one entry per document."""

    apply: Callable[[list[Any], list[Doc]], Iterable[Any]]


def regex(*, regex_pattern: str = MARKED, group_select: int = 0, fallback: Any = INVALID) -> Each:
    r"""Match number ``group_select`` of a pattern, stripped; the fallback if there is no such match.

    If the pattern has several groups, the answer is the first that is not empty; a single group that matched nothing
    is an empty answer, not a missing one. A response that is not text has no match.

    >>> regex().answer("so #### 12", {}), regex(regex_pattern=r"\d").answer("none", {})
    (('12', True), ('[invalid]', False))
    """
    patterns.check(regex_pattern)

    def answer(response: Any, doc: Doc) -> tuple[Any, bool]:
        match = _match(regex_pattern, response, group_select)
        if match is None:
            return fallback, False
        if isinstance(match, str):
            return match.strip(), True
        filled = next(filter(None, match), None)
        if filled is None:
            return (fallback.strip() if isinstance(fallback, str) else fallback), False
        return filled.strip(), True

    return Each(answer, (regex_pattern, group_select, fallback))


def multi_choice_regex(
    *,
    regex_pattern: str = MARKED,
    group_select: int = 0,
    fallback: Any = INVALID,
    ignore_case: bool = False,
    ignore_punctuation: bool = False,
    regexes_to_ignore: Sequence[str] | str | None = None,
) -> Each:
    """The letter of a choice: from a match of the pattern, else the text of a choice, else a letter after a colon.

    The document's ``choices`` are searched in the response, longest first, after removing what is to be ignored from
    both. If nothing is found, the answer is the fallback.
    """
    ignored = ignored_patterns(regexes_to_ignore, "filter 'multi_choice_regex'")
    patterns.check(regex_pattern)

    def normal(text: str) -> str:
        for pattern in ignored:
            text = patterns.remove(pattern, text)
        text = text.lower() if ignore_case else text
        return _without_punctuation(text) if ignore_punctuation else text

    def answer(response: Any, doc: Doc) -> tuple[Any, bool]:
        text = response if isinstance(response, str) else ""
        choices = _choices(doc)
        match = _match(regex_pattern, text, group_select)
        first = match if isinstance(match, str) else next(filter(None, match or ()), "")
        if first.strip():
            return first.strip(), True
        letters = [chr(ord("A") + index) for index in range(len(choices))]
        letter_of = {normal(choice.strip()): letter for choice, letter in zip(choices, letters, strict=True)}
        hits = _occurrences(sorted(letter_of, key=len, reverse=True), normal(text))
        hit = (_at(hits, group_select) or "").strip()
        if hit:  # not in letter_of if removing what is ignored left whitespace at an end of the choice
            return f"({letter_of[hit]})" if hit in letter_of else hit, True
        after_colon = _match(rf":[\s]*({'|'.join(map(re.escape, letters))})", text, group_select) if letters else None
        if isinstance(after_colon, str) and after_colon.strip():
            return f"({after_colon.strip()})", True
        return fallback, False

    return Each(answer)


def remove_whitespace() -> Each:
    """The response without whitespace at its ends; whitespace inside it stays."""
    return Each(lambda response, doc: (_text("remove_whitespace", response).strip(), True))


def lowercase() -> Each:
    """The response in lower case."""
    return Each(lambda response, doc: (_text("lowercase", response).lower(), True))


def uppercase() -> Each:
    """The response in upper case."""
    return Each(lambda response, doc: (_text("uppercase", response).upper(), True))


def regex_pos(*, regex_pattern: str = "", group_select: int = 0, fallback: Any = None) -> Each:
    """The list of tags of all pairs ``('word', 'TAG')``; as in lm-eval, the pattern and the selection are ignored."""
    default = ["invalid"] if fallback is None else fallback

    def answer(response: Any, doc: Doc) -> tuple[Any, bool]:
        tags = [pair[1] for pair in patterns.find_all(PAIR, _text("regex_pos", response))]
        return (tags, True) if tags else (default, False)

    return Each(answer)


def format_span() -> Each:
    """The named entities of a response in a uniform format, ``per: jane doe $ loc: kenya``."""

    def answer(response: Any, doc: Doc) -> tuple[Any, bool]:
        text = _text("format_span", response).lower()
        for label, words in _LABELLED:
            text = words.sub(f"{label}:", text)
        spans = _SPAN.findall(text.rstrip("$").replace("\n", "$").strip())
        values = [(label, value.strip()) for label, listed in spans for value in listed.split(",")]
        return " $ ".join(f"{label.lower()}: {value}" for label, value in values if value.lower() != "none"), True

    return Each(answer)


def mapped(*, mapping_dict: Mapping[Any, Any] | None = None, default_value: Any = None) -> Each:
    """The value of the response in a mapping; for a response not in it the default, which counts as no answer."""
    table = mapping_dict or {}
    if not isinstance(table, Mapping):
        raise InputError.at("filter 'map'", f"mapping_dict is {mapping_dict!r}", "expected a mapping")

    def answer(response: Any, doc: Doc) -> tuple[Any, bool]:
        known = not isinstance(response, (list, dict)) and response in table
        return (table[response], True) if known else (default_value, False)

    return Each(answer)


def decontaminate(*, path: str) -> Select:
    """Every repeat unchanged, because lm-evaluation-harness 0.4.13 does not implement this filter or read ``path``."""
    return noop()


def take_first() -> Select:
    """The first repeat, as a single answer."""
    return Select(lambda values: [0], alone=True)


def take_first_k(*, k: int) -> Select:
    """The first k repeats."""
    if not isinstance(k, int) or k < 1:
        raise InputError.at("filter 'take_first_k'", f"k is {k!r}", "expected a positive integer")

    def keep(values: Sequence[Any]) -> Sequence[int]:
        if len(values) < k:
            expected = f"expected repeats: {k} or more"
            raise InputError.at("filter 'take_first_k'", f"{len(values)} responses, but k is {k}", expected)
        return range(k)

    return Select(keep)


def majority_vote() -> Select:
    """The most frequent answer of the repeats, the first of equally frequent ones; fallbacks count as answers."""

    def keep(values: Sequence[Any]) -> Sequence[int]:
        try:
            winner = Counter(values).most_common(1)[0][0]
        except TypeError:
            expected = "expected answers that can be compared, such as text"
            raise InputError.at("filter 'majority_vote'", "an answer is a list", expected) from None
        return [values.index(winner)]

    return Select(keep, votes=True)


def custom(*, filter_fn: Callable[[list[Any], list[Doc]], Iterable[Any]]) -> Whole:
    """A user's function, ``filter_fn(resps, docs)``."""
    if not callable(filter_fn):
        raise InputError.at("filter 'custom'", f"filter_fn is {filter_fn!r}", "expected a function (!function)")
    return Whole(filter_fn)


def noop() -> Select:
    """Every repeat unchanged."""
    return Select(lambda values: range(len(values)))


def _match(pattern: str, response: Any, select: int) -> str | tuple[str, ...] | None:
    """The match of this number in the list that `re.findall` returns; None if there are too few."""
    matches: Sequence[Any] = patterns.find_all(pattern, response if isinstance(response, str) else "")
    match: str | tuple[str, ...] | None = _at(matches, select)
    return match


def _at(matches: Sequence[Any], index: int) -> Any:
    return matches[index] if -len(matches) <= index < len(matches) else None


def _text(name: str, response: Any) -> str:
    if isinstance(response, str):
        return response
    raise InputError.at(f"filter {name!r}", f"a response is {response!r}", "expected text")


def ignored_patterns(given: Any, location: str) -> tuple[str, ...]:
    """The patterns of ``regexes_to_ignore``, given as one, a list, or None; InputError for anything else."""
    listed = (given,) if isinstance(given, str) else given or ()
    if not isinstance(listed, (list, tuple)):
        raise InputError.at(location, f"regexes_to_ignore is {given!r}", "expected a list of patterns as text")
    for pattern in listed:
        if not isinstance(pattern, str):
            raise InputError.at(location, f"regexes_to_ignore has {pattern!r}", "expected patterns as text")
        patterns.check(pattern)
    return tuple(listed)


def _choices(doc: Doc) -> Sequence[str]:
    choices = doc.get("choices")
    if isinstance(choices, (list, tuple)) and all(isinstance(choice, str) for choice in choices):
        return choices
    problem = f"choices is {choices!r}" if "choices" in doc else "the document has no 'choices'"
    raise InputError.at("filter 'multi_choice_regex'", problem, "expected a column 'choices' with a list of texts")


def _occurrences(texts: Sequence[str], within: str) -> list[str]:
    """The occurrences of some texts in another, left to right and not overlapping, as `re.findall` lists them.

    If two texts occur at the same position, the first in the list is taken. An empty text occurs at every position
    where no other one does.
    """
    nonempty = [text for text in texts if text]
    hits, position = [], 0
    while position <= len(within):
        hit = next((text for text in nonempty if within.startswith(text, position)), "")
        if hit or len(nonempty) < len(texts):
            hits.append(hit)
        position += len(hit) or 1
    return hits


def _without_punctuation(text: str) -> str:
    """The text without any character whose Unicode category is punctuation."""
    import unicodedata

    return "".join(character for character in text if not unicodedata.category(character).startswith("P"))


FIRST, LAST = 0, -1  # the only values of group_select for which a search need not list all matches


@dataclass(frozen=True, slots=True)
class _Search:
    """The result of searching N texts for a pattern at once."""

    answers: list[Any]  # [N] the fallback where there is no match
    matched: Bools  # [N]
    unsearched: Ints  # indices of the texts that must be searched one by one


def _search(pattern: str, select: int, fallback: Any, texts: Sequence[str]) -> _Search | None:
    """Search many texts at once; None if all must be searched one by one.

    That is so if the pattern is not plain, if neither the first nor the last match is selected, or if there are too
    few texts for it to be faster.

    >>> _search("#### ([0-9]+)", 0, "[invalid]", ["#### 12", "none"] * 50).answers[:2]
    ['12', '[invalid]']
    """
    rust = plain(pattern) if len(texts) >= WORTH and select in (FIRST, LAST) else None
    if rust is None:
        return None
    unsearched = [index for index, text in enumerate(texts) if not text.isascii()] if rust.ascii_only else []
    try:
        answers, matched = _extracted(rust, texts, fallback, last=select == LAST)
    except UnicodeEncodeError:  # half of a surrogate pair, which Rust does not accept as text
        return None
    return _Search(answers, matched, np.array(unsearched, dtype=np.int64))


def _extracted(rust: Plain, texts: Sequence[str], fallback: Any, *, last: bool) -> tuple[list[Any], Bools]:
    """The answer in each text, and whether there was one."""
    import polars as pl

    series = pl.Series(texts, dtype=pl.String)
    if last:  # matching the last match again gives the same groups, because a plain pattern has no lookaround
        series = series.str.extract_all(rust.pattern).list.last()
    if not rust.groups:
        matches = series if last else series.str.extract(rust.pattern, 0)
        return _stripped(matches, fallback), matches.is_not_null().to_numpy()
    has_match = series.is_not_null() if last else series.str.contains(rust.pattern)
    groups = [series.str.extract(rust.pattern, group) for group in range(1, rust.groups + 1)]
    if rust.groups == 1:  # a group that did not take part in the match is an empty answer
        group_texts = pl.select(pl.when(has_match).then(groups[0].fill_null(""))).to_series()
        return _stripped(group_texts, fallback), has_match.to_numpy()
    first_nonempty = pl.select(pl.coalesce([pl.when(group != "").then(group) for group in groups])).to_series()
    answers = _stripped(first_nonempty, fallback)
    matched = first_nonempty.is_not_null().to_numpy()
    if isinstance(fallback, str) and fallback.strip() != fallback:  # lm-eval strips it if all groups are empty
        for row in np.flatnonzero(has_match.to_numpy() & ~matched).tolist():
            answers[row] = fallback.strip()
    return answers, matched


def _stripped(series: pl.Series, fallback: Any) -> list[Any]:
    """Answers stripped as Python's `str.strip` does, with the fallback in place of nulls."""
    stripped = series.str.strip_chars(_whitespace())
    if isinstance(fallback, str):
        return stripped.fill_null(fallback).to_list()
    return [fallback if answer is None else answer for answer in stripped.to_list()]


@cache
def _whitespace() -> str:
    """Every character that `str.strip` removes; Rust strips a different set."""
    return "".join(filter(str.isspace, map(chr, range(sys.maxunicode + 1))))


FILTERS: Final = Index(
    "lm_eval filter",
    {
        "custom": "calipers.systems.lm_eval.pipelines:custom",
        "decontaminate": "calipers.systems.lm_eval.pipelines:decontaminate",
        "format_span": "calipers.systems.lm_eval.pipelines:format_span",
        "lowercase": "calipers.systems.lm_eval.pipelines:lowercase",
        "majority_vote": "calipers.systems.lm_eval.pipelines:majority_vote",
        "map": "calipers.systems.lm_eval.pipelines:mapped",
        "multi_choice_regex": "calipers.systems.lm_eval.pipelines:multi_choice_regex",
        "noop": "calipers.systems.lm_eval.pipelines:noop",
        "regex": "calipers.systems.lm_eval.pipelines:regex",
        "regex_pos": "calipers.systems.lm_eval.pipelines:regex_pos",
        "remove_whitespace": "calipers.systems.lm_eval.pipelines:remove_whitespace",
        "take_first": "calipers.systems.lm_eval.pipelines:take_first",
        "take_first_k": "calipers.systems.lm_eval.pipelines:take_first_k",
        "uppercase": "calipers.systems.lm_eval.pipelines:uppercase",
    },
    groups={"calipers.filters": ""},
)

UNPARSED, STOPPED = "unparsed", "filter_timeout"
WORDS: Final = ("scored", UNPARSED, STOPPED)
"""The outcome words of an answer, best first; their indices are the codes."""

_UNPARSED, _TIMED_OUT = 1, 2
Step = Each | Select | Whole


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A named sequence of filters."""

    name: str = "none"
    steps: tuple[Step, ...] = ()
    functions: tuple[str, ...] = field(default=())  # the names of the steps


@dataclass(frozen=True, slots=True)
class FilteredAnswers:
    """A pipeline's answers for each document."""

    values: list[Any]  # [D] an answer after take_first, else a list over the repeats that were kept
    words: NDArray[np.uint8]  # index into WORDS of each repeat that was kept, document after document
    starts: Ints  # [D + 1] index of each document's first entry in ``words``

    def outcomes(self, document: int) -> list[str]:
        """The outcome word of each kept repeat of a document: scored, unparsed or filter_timeout."""
        return [WORDS[code] for code in self.words[self.starts[document] : self.starts[document + 1]].tolist()]

    def outcome(self, document: int) -> str:
        """The outcome word of a document: the best of its repeats."""
        codes = self.words[self.starts[document] : self.starts[document + 1]]
        return WORDS[int(codes.min())] if len(codes) else WORDS[0]

    def all_outcomes(self) -> list[str]:
        """The outcome word of every document."""
        if len(self.words) == len(self.values) and bool((np.diff(self.starts) == 1).all()):
            return [WORDS[code] for code in self.words.tolist()]
        return [self.outcome(document) for document in range(len(self.values))]


def pipeline(entry: Mapping[str, Any], location: str = "filter_list") -> Pipeline:
    """The pipeline of an entry of a ``filter_list``; InputError if a setting is wrong.

    >>> import calipers
    >>> entry = {"name": "strict", "filter": [{"function": "regex"}, {"function": "take_first"}]}
    >>> calipers.lm_eval_pipeline(entry).functions
    ('regex', 'take_first')
    """
    listed = entry.get("filter") or ()
    if not isinstance(listed, (list, tuple)) or not all(isinstance(step, Mapping) for step in listed):
        raise InputError.at(location, f"filter is {listed!r}", "expected a list of {function: NAME, ...}")
    steps = tuple(step_of(step, location) for step in listed)
    names = tuple(str(getattr(step["function"], "__name__", step["function"])) for step in listed)
    return Pipeline(str(entry.get("name", "none")), steps, names)


def step_of(entry: Mapping[str, Any], location: str = "filter_list") -> Step:
    """The filter of a step ``{function: NAME, setting: value, ...}``; settings may also be under ``kwargs``."""
    if "function" not in entry:
        raise InputError.at(location, f"a step is {dict(entry)!r}", "expected a key 'function'")
    function, settings = entry["function"], settings_of(entry, ("function",))
    if not isinstance(function, str):
        return _user_filter(function, settings)
    if function in FILTERS.entries:
        return _built_in_filter(function, FILTERS.load(function), settings, location)
    plugin = FILTERS.plugin(function)
    if plugin is None:
        raise FILTERS.unknown(function)
    return _user_filter(plugin, settings)


def settings_of(entry: Mapping[str, Any], others: Collection[str] = ()) -> dict[str, Any]:
    """The settings of a filter or a metric: its keys except ``others``, and those under ``kwargs``."""
    kwargs = entry.get("kwargs") or {}
    if not isinstance(kwargs, Mapping):
        raise InputError(f"kwargs is {kwargs!r}; expected a mapping from setting to value")
    return {key: value for key, value in entry.items() if key != "kwargs" and key not in others} | dict(kwargs)


def filtered(through: Pipeline, resps: Sequence[Sequence[Any]], docs: Sequence[Doc]) -> FilteredAnswers:
    """Apply a pipeline to the responses of all documents, ``resps`` [documents x repeats].

    A filter after `take_first` gets the single response as a list of one. If a pattern exceeds its time limit, the
    answer is None, later filters skip it, and majority_vote ignores it.
    """
    state = _Responses.of(resps)
    for step in through.steps:
        if isinstance(step, Whole):
            state = _apply_whole(step, state, docs)
        elif isinstance(step, Each):
            state = _apply_each(step, state, docs)
        else:
            state = _apply_select(step, state)
    values = state.values if state.alone else state.lists()
    return FilteredAnswers(values, state.words, state.starts)


@dataclass(frozen=True, slots=True)
class _Responses:
    """The responses between two steps, all in one list, document after document."""

    values: list[Any]  # [R]
    words: NDArray[np.uint8]  # [R] index into WORDS
    starts: Ints  # [D + 1] index of each document's first response
    alone: bool = False  # whether each document has a single answer instead of a list

    @classmethod
    def of(cls, lists: Sequence[Sequence[Any]]) -> _Responses:
        starts = np.concatenate([[0], np.cumsum([len(responses) for responses in lists])]).astype(np.int64)
        values = list(chain.from_iterable(lists))
        return cls(values, np.zeros(len(values), dtype=np.uint8), starts)

    def lists(self) -> list[Any]:
        return [self.values[start:stop] for start, stop in pairwise(self.starts.tolist())]


def _built_in_filter(name: str, factory: Any, settings: Mapping[str, Any], location: str) -> Step:
    known = inspect.signature(factory).parameters
    for key in settings:
        if key not in known:
            raise UnknownName.of(f"setting of filter {name!r}", str(key), known, "" if known else "it takes none")
    for key, parameter in known.items():
        if key not in settings and parameter.default is parameter.empty:
            raise InputError.at(location, f"filter {name!r} has no {key}", f"expected {key}: VALUE")
        expected = _expected_type(key, settings.get(key, parameter.default))
        if expected:
            raise InputError.at(location, f"filter {name!r}: {key} is {settings[key]!r}", f"expected {expected}")
    step: Step = factory(**settings)
    return step


def _expected_type(key: str, value: Any) -> str:
    """The type that a setting should have, for an error message; "" if the value has it."""
    if key in ("group_select", "k") and (not isinstance(value, int) or isinstance(value, bool)):
        return "an integer"
    if key in ("ignore_case", "ignore_punctuation") and not isinstance(value, bool):
        return "true or false"
    return "a pattern as text" if key == "regex_pattern" and not isinstance(value, str) else ""


def _user_filter(factory: Any, settings: Mapping[str, Any]) -> Step:
    """A filter of a user or a plugin: a class with ``apply(resps, docs)``, or a function of one text."""
    if inspect.isfunction(factory):
        return Each(partial(_call_on_text, factory, settings))
    try:
        created = factory if isinstance(factory, (Each, Select, Whole)) else factory(**settings)
    except Exception as error:
        raise PluginError(f"filter {factory!r} cannot be created: {type(error).__name__}: {error}") from error
    if isinstance(created, (Each, Select, Whole)):
        return created
    if not callable(getattr(created, "apply", None)):
        raise PluginError(f"filter {factory!r} creates {created!r}; expected an object with apply(resps, docs)")
    return Whole(created.apply)


def _call_on_text(function: Any, settings: Mapping[str, Any], response: Any, doc: Doc) -> tuple[Any, bool]:
    try:
        answer = function(response, **settings)
    except RegexTimeout:
        raise
    except Exception as error:
        raise PluginError(f"filter {function.__name__!r} failed: {type(error).__name__}: {error}") from error
    return (INVALID, False) if answer is None else (answer, True)


def _apply_each(step: Each, state: _Responses, docs: Sequence[Doc]) -> _Responses:
    values, words = state.values, state.words.copy()
    search = None
    if step.pattern is not None:
        search = _search(*step.pattern, [value if isinstance(value, str) else "" for value in values])
    rows: Sequence[int] = range(len(values))
    timed_out = words == _TIMED_OUT
    if search is not None:
        words[~search.matched & ~timed_out] = _UNPARSED
        words[search.unsearched] = state.words[search.unsearched]
        values = search.answers
        rows = search.unsearched.tolist()
        for row in (*rows, *np.flatnonzero(timed_out).tolist()):
            values[row] = state.values[row]
    else:
        values = list(values)
    documents = np.searchsorted(state.starts, rows, side="right") - 1
    for row, document in zip(rows, documents.tolist(), strict=True):
        if words[row] == _TIMED_OUT:
            continue
        try:
            values[row], matched = step.answer(values[row], docs[document] if document < len(docs) else {})
        except RegexTimeout:
            values[row], words[row], matched = None, _TIMED_OUT, True
        if not matched:
            words[row] = _UNPARSED
    return _Responses(values, words, state.starts)


def _apply_select(step: Select, state: _Responses) -> _Responses:
    sizes = np.diff(state.starts)
    if len(sizes) and sizes.min() == 0:
        raise InputError("a document has no responses; expected at least one for each")
    if step.alone:
        first_rows = state.starts[:-1]
        if len(first_rows) == len(state.values):
            return replace(state, alone=True)
        values = [state.values[row] for row in first_rows.tolist()]
        return _Responses(values, state.words[first_rows], np.arange(len(first_rows) + 1), alone=True)
    kept: list[list[int]] = []
    for start, stop in pairwise(state.starts.tolist()):
        rows = list(range(start, stop))
        if step.votes:
            rows = [row for row in rows if state.words[row] != _TIMED_OUT] or rows[:1]
        kept.append([rows[index] for index in step.keep([state.values[row] for row in rows])])
    kept_rows = list(chain.from_iterable(kept))
    starts = np.concatenate([[0], np.cumsum([len(rows) for rows in kept])]).astype(np.int64)
    return _Responses([state.values[row] for row in kept_rows], state.words[kept_rows], starts)


def _apply_whole(step: Whole, state: _Responses, docs: Sequence[Doc]) -> _Responses:
    """Apply a user's filter to the lists of repeats or, after take_first, to the answers, as lm-eval does."""
    resps = list(state.values) if state.alone else state.lists()
    try:
        answers = list(step.apply(resps, list(docs)))
    except Exception as error:
        raise PluginError(f"a filter failed: {type(error).__name__}: {error}") from error
    if len(answers) != len(resps):
        raise PluginError(f"a filter returned {len(answers)} entries for {len(resps)} documents; expected one for each")
    if all(isinstance(answer, (list, tuple)) for answer in answers):
        return _Responses.of(answers)
    return replace(_Responses.of([[answer] for answer in answers]), alone=True)


PROBE_CHARACTERS: Final = "aA0 .,_-\n"  # tried together with the letters and digits of the pattern
PROBE_LENGTH: Final = 40  # a pattern with exponential backtracking needs 2^40 steps
PROBE_SECONDS: Final = 0.5
PROBE_END: Final = "\0"  # a character that makes the match fail at the end


def check_ends(pattern: str) -> None:
    """InputError for a pattern that times out on one repeated character; it does not prove that others never do.

    >>> check_ends("#### ([0-9]+)")
    >>> check_ends("(a+)+$")
    Traceback (most recent call last):
    ...
    calipers.errors.InputError: pattern '(a+)+$' does not finish matching 40 times 'a'; expected no nested repetitions
    """
    for character in sorted({*PROBE_CHARACTERS, *filter(str.isalnum, pattern)}):
        try:
            patterns.find_all(pattern, character * PROBE_LENGTH + PROBE_END, limit=PROBE_SECONDS)
        except RegexTimeout:
            shown = pattern if len(pattern) <= 80 else f"{pattern[:77]}..."
            problem = f"pattern {shown!r} does not finish matching {PROBE_LENGTH} times {character!r}"
            raise InputError(f"{problem}; expected no nested repetitions") from None


def patterns_of(entry: Mapping[str, Any]) -> Iterator[str]:
    """Every pattern among the settings of a filter or a metric, also under ``kwargs``."""
    settings = settings_of(entry)
    ignored = settings.get("regexes_to_ignore") or ()
    for pattern in (settings.get("regex_pattern"), *([ignored] if isinstance(ignored, str) else ignored)):
        if isinstance(pattern, str):
            yield pattern
