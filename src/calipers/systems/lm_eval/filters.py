"""lm-evaluation-harness' filters, each made from the settings of a step in a task's ``filter_list``.

Three kinds: `Each` looks at one response at a time, `Select` says which repeats to keep, `Whole` is handed
everything at once, as somebody else's code wants it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from calipers.errors import InputError
from calipers.text import patterns

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
    ignored = _patterns(regexes_to_ignore)
    for pattern in (regex_pattern, *ignored):
        patterns.check(pattern)

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
        hit = _at(hits, group_select) or ""
        if hit.strip():
            return f"({letter_of[hit]})", True
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


def _patterns(given: Sequence[str] | str | None) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given or ())


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
