"""The plainer words of a page for reasons and methods that a digest covers."""

import ast
import re
from pathlib import Path

import pytest

import calipers
from calipers.analyses.compare import TESTS
from calipers.analyses.compare.document import settings
from calipers.cards import method_named
from calipers.reports import terminal
from calipers.reports.plain_words import METHOD, WHY, plain_method, plain_why
from calipers.reports.result import document

SOURCES = Path(calipers.__file__).parent
PLACES = [
    *(SOURCES / "stats").glob("*.py"),
    *(SOURCES / "metrics").glob("*.py"),
    *(SOURCES / "analyses").rglob("*.py"),
    SOURCES / "rollouts" / "record.py",
    SOURCES / "pipeline.py",
]
RIDDLES = re.compile(
    r"\b(whatever|whoever|nobody|somebody|says (nothing|no|how)|says its|stands|speaks|owed|asked of|"
    r"by what it showed|all that was seen|to draw (\w+ )*times|divide by no|count alike|law of|beta law|point one way|"
    r"no known range|does not hold then|do not hold then|take two or more|takes two or more|may be asked for)\b"
)


def literals(path):
    """The strings of a module that are not docstrings, with a number in place of each placeholder."""
    tree = ast.parse(path.read_text())
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    apart = bare | inside
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in apart:
            yield node.value if " " in node.value else ""
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "7" for part in node.values]
            yield "".join(map(str, parts))


@pytest.mark.parametrize("path", PLACES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_what_a_page_shows_has_plain_words(path):
    assert [text for text in literals(path) if RIDDLES.search(plain_why(text))] == []


def test_every_pattern_is_of_a_text_in_the_program():
    """Every pattern matches a text in the source."""
    texts = [text for path in PLACES for text in literals(path)]
    unused = [pattern for pattern, _ in WHY if not any(re.search(pattern, text) for text in texts)]
    assert unused == []


@pytest.mark.parametrize(
    ("why", "said"),
    [
        ("one cluster says nothing about others", "at least two clusters are needed"),
        ("all task values agree, and t has no width without spread", "all task values are equal, so t has no width"),
        ("no value on 'sums': one task says nothing about others", "no value on 'sums': at least two tasks are needed"),
        (
            "no interval at 95 % from 4 tasks, which may all point one way by chance",
            "no interval at 95 %: by chance 4 tasks may all point the same way",
        ),
        ("1 common tasks or clusters; ranks take two or more", "ranks need two common tasks or clusters, not 1"),
        ("3 rewards are NaN", "3 rewards are NaN"),  # plain already
    ],
)
def test_reasons(why, said):
    assert plain_why(why) == said


@pytest.mark.parametrize("test", [*TESTS.values(), "betting"])
def test_every_test_has_a_name_that_explain_knows(test):
    name = plain_method(test)
    assert " " in name
    assert method_named(test) == test
    assert test in name or method_named(name) == test or name.startswith(test)


def test_no_method_is_shown_that_is_unknown():
    assert [name for name in METHOD if method_named(name) is None] == []


def test_a_document_keeps_its_reason():
    found = calipers.score([[1, 0]], "mean_reward")
    assert found["mean_reward"].why == "one task says nothing about others"
    assert "at least two tasks are needed" in terminal.render(document(found, details=True))
    assert settings(calipers.compare([[1, 0], [1, 1]], [[0, 0], [1, 0]])).startswith("paired t test (floored_t); ")
