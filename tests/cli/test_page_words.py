"""``calipers explain`` knows every word of the pages: column heads, row labels, verdicts, outcomes, methods."""

import json
import re

import pytest
from cli.pages import documents, write_files
from cli.running import run

from calipers.reports import markdown, terminal
from calipers.reports.document import Name, Styled, Table

PAGES = (
    *(
        "score",
        "score details",
        "score datasets",
        "score datasets details",
        "compare",
        "compare details",
        "compare missing",
        "compare same",
        "compare latency",
    ),
    *(
        "leaderboard",
        "matrix",
        "matrix of three",
        "matrix of models",
        "curve",
        "items",
        "items of one run",
        "judge-check",
        "watch",
        "best step",
        "gate",
        "plan",
        "plan clusters",
        "rescore",
        "selftest",
        "verify",
        "audit",
    ),
)
DEFINITION = "what it is"  # the column of definitions, which explain themselves
LONGEST = 3  # words of a label; more are a sentence


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Every page by its name."""
    folder = tmp_path_factory.mktemp("pages")
    write_files(folder)
    return dict(documents(folder))


@pytest.fixture(scope="module")
def words(pages):
    """The words of each page, by the page."""
    return {name: set(words_of(page)) for name, page in pages.items()}


def words_of(page):
    """Our own words in the tables of a page: heads, and cells that are neither numbers nor names from the data."""
    for table in (block for block in page.blocks() if isinstance(block, Table)):
        heads = [own(column.head) for column in table.columns]
        yield from filter(None, [*heads, *(own(column.markdown) for column in table.columns)])
        for row in table.rows:
            for head, cell in zip(heads, row.cells, strict=True):
                label = own(cell)
                if head != DEFINITION and re.search(r"[^\W\d_]", label) and is_label(label):
                    yield label


def own(text):
    """A text without the names in it; "" if it has nothing else, or if it is a picture."""
    if isinstance(text, tuple):
        return "" if any(isinstance(piece, Name) for piece in text) else "".join(map(own, text))
    return text.text if isinstance(text, Styled) else text.strip() if isinstance(text, str) else ""


def is_label(text):
    """Whether a text is a label, and not a number with its unit or a sentence."""
    return not re.search(r"\d", text) and len(text.split()) <= LONGEST


@pytest.mark.parametrize("page", PAGES)
def test_every_word_of_a_page(capsys, words, page):
    assert words[page]
    unknown = [word for word in sorted(words[page]) if run(["explain", word])]
    assert unknown == [], capsys.readouterr().err


NEVER = re.compile(r"\bgaps?\b(?!\.jsonl)|\bleft out\b|\bundefined\b|\bwasted\b|at most 100 %|\bdialect\b|\b0\.00000")
"""Words and numbers that no page may have, because there is a plainer word, or a unit."""


@pytest.mark.parametrize("page", PAGES)
def test_words_that_no_page_has(pages, page):
    for text in (terminal.render(pages[page]), markdown.render(pages[page])):
        assert NEVER.findall(" ".join(text.split())) == []


def test_these_are_all_the_pages(words):
    assert tuple(words) == PAGES


@pytest.mark.parametrize(
    ("page", "some"),
    [
        ("score", {"metric", "value", "95 % interval", "if missing failed / passed", "economics", "unit"}),
        ("score details", {"metric", "value", "± stderr", "95 % interval", "economics"}),
        ("score datasets", {"group", "tasks", "missing"}),
        ("score datasets details", {"macro", "micro", "over datasets"}),
        ("compare", {"verdict", "difference", "p adjusted", "~ undecided"}),
        ("compare details", {"verdict", "B - A", "p (BH)", "undecided"}),
        ("compare same", {"equivalent"}),
        ("leaderboard", {"tied", "ties", "#", "may rank", "simultaneous", "cost", "missing", "baseline"}),
        ("matrix", {"benchmark", "tasks", "B − A", "verdict", "undecided", "macro mean", "missing", "cost", "not run"}),
        ("matrix of three", {"better than each"}),
        ("gate", {"tier", "critical", "PASS", "FAIL", "requirement"}),
        ("judge-check", {"accuracy", "PPI++", "sensitivity"}),
        ("selftest", {"gold", "wrong"}),
        ("verify", {"check", "state", "not known", "form", "tree"}),
        ("audit", {"finding", "expected", "last_is_pass", "token_rate", "list"}),
    ],
)
def test_words_that_are_found(words, page, some):
    """The extraction finds words in tables; if it found none, every other test here would pass."""
    assert some <= words[page]


OTHER_WORDS = (
    *(
        "gap",
        "missing",
        "excluded",
        "dialect",
        "digest",
        "ledger",
        "economics",
        "macro",
        "micro",
        "undefined",
        "bounds",
    ),
    *("planned", "not run", "stopped early", "seed", "effective", "tier", "accuracy", "confidence level", "reward"),
    *("better", "worse", "equivalent", "undecided", "passed", "failed", "no answer", "extrapolated", "cluster"),
    *(
        "latency_s",
        "cost_usd",
        "input_tokens",
        "output_tokens",
        "total",
        "in flight",
        "__missing__",
        "alpha",
        "(unnamed)",
    ),
    *("McNemar", "mid-p", "sign-flip", "permutation", "Tango", "score test", "paired t", "floored t", "strict"),
    *("wilson", "clopper-pearson", "exact", "bootstrap", "bca", "t", "jeffreys", "beta", "posterior", "sequence"),
    *("▲", "▼", "=", "~", "matrix", "suite", "not recorded", "satterthwaite_t", "mover"),
    *("holm", "bh", "sidak", "bonferroni", "tost", "non-inferiority", "tipping point", "PPI++", "Krippendorff's alpha"),
)


@pytest.mark.parametrize("word", OTHER_WORDS)
def test_words_of_sentences(capsys, word):
    assert run(["explain", word]) == 0, capsys.readouterr().err


def test_every_word_of_a_ledger(capsys):
    from calipers.rollouts.record import OUTCOMES

    assert [word for word in OUTCOMES if run(["explain", word]) or run(["explain", word.replace("_", " ")])] == []


def test_every_total(capsys):
    from calipers.rollouts.record import USAGE

    assert [word for word in USAGE if run(["explain", word])] == []


def test_every_key_of_a_result(capsys, tmp_path):
    """The keys that a reader of the JSON meets beside the numbers."""
    write_files(tmp_path)
    assert run(["score", str(tmp_path / "gaps.jsonl"), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    estimate = document["groups"][0]["metrics"]["mean_reward"]
    keys = [*document["groups"][0], *estimate, "digest", "dialect", "seed", "confidence", "missing"]
    unknown = [key for key in keys if run(["explain", key])]
    assert unknown == [], capsys.readouterr().err
