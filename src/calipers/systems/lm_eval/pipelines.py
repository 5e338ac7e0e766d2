"""lm-evaluation-harness' filters, and its pipelines: the steps of a ``filter_list``, over all responses.

Three kinds of filters: `Each` looks at one response at a time, `Select` says which repeats to keep, `Whole` is handed
everything at once, as somebody else's code wants it. A pipeline can be tried out before a run.
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
from calipers.text import patterns
from calipers.text.filters import WORTH, Plain, plain
from calipers.text.patterns import RegexTimeout

if TYPE_CHECKING:
    import polars as pl

Doc = Mapping[str, Any]
INVALID: Final = "[invalid]"
"""What lm-eval writes where its regex filters find no answer."""

MARKED: Final = r"#### (\-?[0-9\.\,]+)"
"""lm-eval's pattern where a regex filter is given none: the number after GSM8K's marker."""


PAIR: Final = r"\('([^']*)', '([^']*)'\)"
LABELS: Final = (
    ("PER", "person|people|persons|per"),
    ("LOC", "location|counties|places|country|continent|loc"),
    ("ORG", "organization|company|org"),
    ("DATE", "time|date"),
)
_LABELLED: Final = tuple((label, re.compile(rf"\b(?:{words})\b\s*:")) for label, words in LABELS)
_SPAN: Final = re.compile(r"(PER|LOC|ORG|DATE):\s*([^$]+)")


@dataclass(frozen=True, slots=True)
class Each:
    """A filter of one response: its answer, and whether it found one or fell back."""

    answer: Callable[[Any, Doc], tuple[Any, bool]]
    pattern: tuple[str, int, Any] | None = None  # of `regex`: pattern, which match, fallback; None for all others


@dataclass(frozen=True, slots=True)
class Select:
    """A filter of repeats: which of a document's responses to keep, by place."""

    keep: Callable[[Sequence[Any]], Sequence[int]]
    alone: bool = False  # what it keeps is one answer and no list
    votes: bool = False  # a repeat without an answer has no say


@dataclass(frozen=True, slots=True)
class Whole:
    """Somebody else's filter: all responses and all documents in, an entry for each document out."""

    apply: Callable[[list[Any], list[Doc]], Iterable[Any]]


def regex(*, regex_pattern: str = MARKED, group_select: int = 0, fallback: Any = INVALID) -> Each:
    r"""Match number ``group_select`` of a pattern, stripped; the fallback where there is none.

    Of several groups the first that is not empty counts; a single group that matched nothing is an
    empty answer, not a missing one. What is no text has no match.

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
    """A letter in parentheses: by the pattern, else by the text of a choice, else by what follows a colon.

    The document's ``choices`` are looked for, longest first, in the response; both are stripped of what
    is to be ignored. Last comes a bare letter after a colon, then the fallback.
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
        if hit:  # itself, where a choice begins or ends with a blank once what is to be ignored is gone
            return f"({letter_of[hit]})" if hit in letter_of else hit, True
        after_colon = _match(rf":[\s]*({'|'.join(map(re.escape, letters))})", text, group_select) if letters else None
        if isinstance(after_colon, str) and after_colon.strip():
            return f"({after_colon.strip()})", True
        return fallback, False

    return Each(answer)


def remove_whitespace() -> Each:
    """The response without blanks at its ends; those inside it stay."""
    return Each(lambda response, doc: (text_of("remove_whitespace", response).strip(), True))


def lowercase() -> Each:
    """The response in lower case."""
    return Each(lambda response, doc: (text_of("lowercase", response).lower(), True))


def uppercase() -> Each:
    """The response in upper case."""
    return Each(lambda response, doc: (text_of("uppercase", response).upper(), True))


def regex_pos(*, regex_pattern: str = "", group_select: int = 0, fallback: Any = None) -> Each:
    """The tags of all pairs ``('word', 'TAG')``, as a list; the pattern and the selection change nothing."""
    instead = ["invalid"] if fallback is None else fallback

    def answer(response: Any, doc: Doc) -> tuple[Any, bool]:
        tags = [pair[1] for pair in patterns.find_all(PAIR, text_of("regex_pos", response))]
        return (tags, True) if tags else (instead, False)

    return Each(answer)


def format_span() -> Each:
    """Named entities in one shape: ``per: jane doe $ loc: kenya``, whatever words and lines the response used."""

    def answer(response: Any, doc: Doc) -> tuple[Any, bool]:
        text = text_of("format_span", response).lower()
        for label, words in _LABELLED:
            text = words.sub(f"{label}:", text)
        spans = _SPAN.findall(text.rstrip("$").replace("\n", "$").strip())
        values = [(label, value.strip()) for label, listed in spans for value in listed.split(",")]
        return " $ ".join(f"{label.lower()}: {value}" for label, value in values if value.lower() != "none"), True

    return Each(answer)


def mapped(*, mapping_dict: Mapping[Any, Any] | None = None, default_value: Any = None) -> Each:
    """What a table says for the response; the default, as no answer, for one that is not in it."""
    table = mapping_dict or {}
    if not isinstance(table, Mapping):
        raise InputError.at("filter 'map'", f"mapping_dict is {mapping_dict!r}", "expected a mapping")

    def answer(response: Any, doc: Doc) -> tuple[Any, bool]:
        known = not isinstance(response, (list, dict)) and response in table
        return (table[response], True) if known else (default_value, False)

    return Each(answer)


def decontaminate(*, path: str) -> Select:
    """Every repeat as it is: lm-evaluation-harness 0.4.13 has this filter without a body, and never reads ``path``."""
    return noop()


def take_first() -> Select:
    """The first repeat alone."""
    return Select(lambda values: [0], alone=True)


def take_first_k(*, k: int) -> Select:
    """The first k repeats."""
    if not isinstance(k, int) or k < 1:
        raise InputError.at("filter 'take_first_k'", f"k is {k!r}", "expected a positive integer")

    def keep(values: Sequence[Any]) -> Sequence[int]:
        if len(values) < k:
            right = f"expected repeats: {k} or more"
            raise InputError.at("filter 'take_first_k'", f"{len(values)} responses, but k is {k}", right)
        return range(k)

    return Select(keep)


def majority_vote() -> Select:
    """The answer that most repeats gave, the earliest of equals; a fallback votes like any other."""

    def keep(values: Sequence[Any]) -> Sequence[int]:
        try:
            winner = Counter(values).most_common(1)[0][0]
        except TypeError:
            right = "expected answers that can be compared, such as text"
            raise InputError.at("filter 'majority_vote'", "an answer is a list", right) from None
        return [values.index(winner)]

    return Select(keep, votes=True)


def custom(*, filter_fn: Callable[[list[Any], list[Doc]], Iterable[Any]]) -> Whole:
    """A function of the user's own, ``filter_fn(resps, docs)``."""
    if not callable(filter_fn):
        raise InputError.at("filter 'custom'", f"filter_fn is {filter_fn!r}", "expected a function (!function)")
    return Whole(filter_fn)


def noop() -> Select:
    """Every repeat as it is."""
    return Select(lambda values: range(len(values)))


def _match(pattern: str, response: Any, select: int) -> str | tuple[str, ...] | None:
    """A match by its number, as `re.findall` lists them; None when there is none of that number."""
    matches: Sequence[Any] = patterns.find_all(pattern, response if isinstance(response, str) else "")
    match: str | tuple[str, ...] | None = _at(matches, select)
    return match


def _at(matches: Sequence[Any], index: int) -> Any:
    return matches[index] if -len(matches) <= index < len(matches) else None


def text_of(name: str, response: Any) -> str:
    """A response that has to be text."""
    if isinstance(response, str):
        return response
    raise InputError.at(f"filter {name!r}", f"a response is {response!r}", "expected text")


def ignored_patterns(given: Any, location: str) -> tuple[str, ...]:
    """The patterns of ``regexes_to_ignore``: one, a list of them, or none; InputError for anything else."""
    several = (given,) if isinstance(given, str) else given or ()
    if not isinstance(several, (list, tuple)):
        raise InputError.at(location, f"regexes_to_ignore is {given!r}", "expected a list of patterns as text")
    for pattern in several:
        if not isinstance(pattern, str):
            raise InputError.at(location, f"regexes_to_ignore has {pattern!r}", "expected patterns as text")
        patterns.check(pattern)
    return tuple(several)


def _choices(doc: Doc) -> Sequence[str]:
    choices = doc.get("choices")
    if isinstance(choices, (list, tuple)) and all(isinstance(choice, str) for choice in choices):
        return choices
    wrong = f"choices is {choices!r}" if "choices" in doc else "the document has no 'choices'"
    raise InputError.at("filter 'multi_choice_regex'", wrong, "expected a column 'choices' with a list of texts")


def _occurrences(texts: Sequence[str], within: str) -> list[str]:
    """Which of some texts stand in another, left to right, none overlapping; earlier in the list wins at a place.

    What `re.findall` makes of their alternatives: an empty text is found at every place where no other is.
    """
    filled = [text for text in texts if text]
    hits, at = [], 0
    while at <= len(within):
        hit = next((text for text in filled if within.startswith(text, at)), "")
        if hit or len(filled) < len(texts):
            hits.append(hit)
        at += len(hit) or 1
    return hits


def _without_punctuation(text: str) -> str:
    """The text without any character whose Unicode category is punctuation."""
    import unicodedata

    return "".join(character for character in text if not unicodedata.category(character).startswith("P"))


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

    >>> import calipers
    >>> entry = {"name": "strict", "filter": [{"function": "regex"}, {"function": "take_first"}]}
    >>> calipers.lm_eval_pipeline(entry).functions
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
    function, given = settings["function"], settings_of(settings, ("function",))
    if not isinstance(function, str):
        return _foreign(function, given)
    if function in FILTERS.entries:
        return _made(function, FILTERS.load(function), given, location)
    plugin = FILTERS.plugin(function)
    if plugin is None:
        raise FILTERS.unknown(function)
    return _foreign(plugin, given)


def settings_of(entry: Mapping[str, Any], others: Collection[str] = ()) -> dict[str, Any]:
    """The settings of a filter or a metric: its keys, but for ``others``, and those below ``kwargs``."""
    further = entry.get("kwargs") or {}
    if not isinstance(further, Mapping):
        raise InputError(f"kwargs is {further!r}; expected a mapping from setting to value")
    return {key: value for key, value in entry.items() if key != "kwargs" and key not in others} | dict(further)


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
            raise UnknownName.of(f"setting of filter {name!r}", str(key), known, "" if known else "it takes none")
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
    given = settings_of(settings)
    several = given.get("regexes_to_ignore") or ()
    for pattern in (given.get("regex_pattern"), *([several] if isinstance(several, str) else several)):
        if isinstance(pattern, str):
            yield pattern
