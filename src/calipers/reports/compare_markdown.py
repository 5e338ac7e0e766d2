"""A comparison as Markdown, for a pull request: the verdicts, the numbers, what flipped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from calipers.reports.compare import Changed, Comparison, Contest, Pair, Ranks
from calipers.reports.compare_words import (
    about_ranks,
    answer,
    best_in,
    chance,
    common,
    detail,
    figures,
    hints,
    names_of,
    sentences,
    settings,
    tally,
    under_verdicts,
    ways,
    word,
)
from calipers.reports.figures import figure, percent
from calipers.reports.markdown import Cells, code
from calipers.reports.safe import clean

ANSWER = 120  # characters of an answer in a cell


def render(found: Comparison) -> str:
    """The comparison as a page of Markdown in which no name can become a link, a mention or an image."""
    blocks = [block for contest in found.contests for block in _contest(contest, found)]
    return "\n\n".join([*blocks, *(f"- {_prose(note)}" for note in found.notes), _prose(settings(found))]) + "\n"


def _contest(contest: Contest, found: Comparison) -> Iterator[str]:
    if contest.dataset:
        yield f"### {code(contest.dataset, None)}"
    for pair in contest.pairs:
        yield from _pair(pair, contest, found)
    for ranks in contest.ranks:
        yield from _ranks(ranks, contest, found)


def _pair(pair: Pair, contest: Contest, found: Comparison) -> Iterator[str]:
    names = names_of(contest.runs)
    both = names[pair.first], names[pair.second]
    yield f"#### {code(both[1], None)} against {code(both[0], None)}"
    yield "\n".join(
        line
        for (verdict, said), below in zip(sentences(pair, both), under_verdicts(pair, both), strict=True)
        for line in (f"- **{verdict}**: {_prose(said)}", *(f"  - {_prose(text)}" for text in below))
    )
    yield "\n".join(f"- {_prose(text)}" for text in filter(None, (common(pair, both), hints(pair), *pair.notes)))
    numbers = ("first", "second", "difference", f"{percent(found.confidence)} interval", "p", "p adjusted")
    yield _table(
        ("metric", *numbers, "verdict", ""),
        (
            (
                code(f.metric if f.by is None else f"{f.metric} | {f.by}={f.slice}", 80),
                *figures(f),
                *(chance(p).replace("<", "&lt;") for p in (f.p, f.p_adjusted)),
                word(f),
                _prose("; ".join(detail(f, both))),
            )
            for f in pair.findings
        ),
    )
    flips = pair.flips
    if flips and (flips.worse or flips.better):
        yield f"by {code(flips.metric)}, task by task: {tally(pair)}"
        for what, those in zip(ways(pair), (flips.regressions, flips.fixes), strict=True):
            if those:
                yield _table((what, "first", "second", "first answered", "second answered"), _changed(those))


def _changed(those: Sequence[Changed]) -> Iterator[Cells]:
    for one in those:
        texts = ("" if text is None else code(answer(text, ANSWER), None) for text in one.answers)
        yield (code(one.task), f"{one.first:.4g}", f"{one.second:.4g}", *texts)


def _ranks(ranks: Ranks, contest: Contest, found: Comparison) -> Iterator[str]:
    if ranks.why:
        yield _prose(f"no ranks by {ranks.metric}: {ranks.why}")
        return
    names = names_of(contest.runs)
    yield _table(
        ("rank", f"by {code(ranks.metric)}", "value", f"{percent(found.confidence)} rank set", "best in"),
        (
            (
                f"{place.rank:g}",
                code(names[place.run], None),
                figure(place.value),
                f"{place.rank_set[0]} to {place.rank_set[1]}",
                best_in(place.chance_best).replace("<", "&lt;"),
            )
            for place in ranks.places
        ),
    )
    yield "\n".join(f"- {_prose(said)}" for said in about_ranks(ranks, names, found.confidence))


def _table(head: Cells, rows: Iterable[Cells]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _prose(text: str) -> str:
    """Text in which nothing is rendered: every sign that means something to Markdown is escaped."""
    return "".join(f"\\{c}" if c in "\\`*_[]|#!~" else {"<": "&lt;", "@": "&#64;"}.get(c, c) for c in clean(text, None))
