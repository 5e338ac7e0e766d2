"""Every method that a page can name has a card, and the cards are what a reader can use."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import calipers
from calipers.analyses.compare import ADJUSTMENTS as ASKED_ADJUSTMENTS
from calipers.analyses.judge_check import METHODS as JUDGE_METHODS
from calipers.cards import EXPLAINED, INTERVALS, METHODS, STATISTIC_CARDS, IntervalCard, MethodCard, method_named
from calipers.cli.compare import TESTS as ASKED_TESTS
from calipers.stats.intervals import METHODS as NAMED_INTERVALS
from calipers.stats.paired import TESTS

SOURCE = Path(calipers.__file__).parent
ROOMS = ("stats", "analyses", "jobs", "reports", "metrics", "dialects")  # what can end in a result


class Methods(ast.NodeVisitor):
    """The names that a file gives as the ``method`` of a result: as constants, or by the names of constants.

    Arguments and defaults of a field whose name ends so, variables called so, and what functions called so return.
    """

    def __init__(self, classes, constants):
        self.classes, self.constants, self.found = classes, constants, set()

    def visit_Call(self, node):
        called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        place = self.classes.get(called)
        if place is not None and len(node.args) > place:
            self.found |= self.names(node.args[place])
        if called[:1].isupper() or called == "replace":  # a value is made, or made anew
            for keyword in node.keywords:
                if (keyword.arg or "").endswith("method"):
                    self.found |= self.names(keyword.value)
        self.generic_visit(node)

    def visit_Assign(self, node):
        if any(isinstance(target, ast.Name) and target.id == "method" for target in node.targets):
            self.found |= self.names(node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node):
        if getattr(node.target, "id", "").endswith("method") and node.value is not None:
            self.found |= self.names(node.value)

    def visit_FunctionDef(self, node):
        if node.name.endswith("method"):
            returned = [part.value for part in ast.walk(node) if isinstance(part, ast.Return)]
            self.found |= set().union(*map(self.names, returned))
        self.generic_visit(node)

    def names(self, value):
        if isinstance(value, ast.Constant):
            return {value.value} if isinstance(value.value, str) else set()
        if isinstance(value, ast.Name):
            return {self.constants[value.id]} if value.id in self.constants else set()
        if isinstance(value, ast.IfExp):
            return self.names(value.body) | self.names(value.orelse)
        if isinstance(value, ast.Dict):
            return set().union(*map(self.names, value.values))
        if isinstance(value, ast.Call) and getattr(value.func, "attr", "") == "get":
            return self.names(value.func.value) | set().union(*map(self.names, value.args[1:]))
        return set()


@cache
def given_methods():
    """Every method that the code gives to a result, read from the code itself."""
    trees = [ast.parse(path.read_text()) for room in ROOMS for path in sorted((SOURCE / room).rglob("*.py"))]
    classes = {
        node.name: place
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for place, field in enumerate(item for item in node.body if isinstance(item, ast.AnnAssign))
        if field.target.id == "method"  # by its place; others have a name
    }
    found, imported = set(), shared(trees)
    for tree in trees:
        visitor = Methods(classes, {**imported, **constants(tree)})
        visitor.visit(tree)
        found |= visitor.found
    return found


def constants(tree):
    """Module-level names of texts; those of a tuple, too."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            (target,) = node.targets[:1]
            pairs = zip(target.elts, getattr(node.value, "elts", ())) if isinstance(target, ast.Tuple) else []
            for name, value in [*pairs, (target, node.value)]:
                if isinstance(name, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                    found[name.id] = value.value
    return found


def shared(trees):
    """What files import from each other under these names; METHOD is each file's own."""
    return {name: text for tree in trees for name, text in constants(tree).items() if name != "METHOD"}


def test_the_code_is_read_as_meant():
    known = {"floored_t", "strict", "woodruff", "posterior", "mover", "t", "bootstrap", "paired_bootstrap"}
    assert known | {"ppi++", "ppi", "labels", "rogan_gladen", "tango", "margin_score"} <= given_methods()


def test_no_method_that_the_code_gives_lacks_a_card():
    assert {name for name in given_methods() if method_named(name) is None} == set()


@pytest.mark.parametrize("names", [ASKED_TESTS, TESTS, ASKED_ADJUSTMENTS, NAMED_INTERVALS, JUDGE_METHODS])
def test_no_name_that_can_be_asked_for_lacks_a_card(names):
    assert {name for name in names if method_named(name) is None} == set()


@pytest.mark.parametrize("name", METHODS)
def test_a_card_answers_what_a_reader_asks(name):
    card = METHODS[name]
    assert isinstance(card, MethodCard)
    assert [label for label, _ in card.parts()][:3] == ["question", "formula", "use"]
    assert {"limit", "source"} <= {label for label, _ in card.parts()}
    assert card.one_line.endswith((".", "?"))


def test_no_name_means_two_things():
    assert not set(INTERVALS) & set(METHODS)
    assert not set(EXPLAINED) & set(STATISTIC_CARDS)
    assert set(EXPLAINED.values()) <= set(STATISTIC_CARDS)
    plain = [name.lower().replace("-", "_") for name in (*STATISTIC_CARDS, *EXPLAINED)]
    assert len(plain) == len(set(plain))
    assert all(isinstance(card, IntervalCard) for card in INTERVALS.values())


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("mid-p", "mid_p"),
        ("mid_p", "mid_p"),
        ("sign-flip", "sign_flip"),
        ("floored-t", "floored_t"),
        ("Clopper-Pearson", "clopper-pearson"),
        ("clopper_pearson", "clopper-pearson"),
        ("PPI++", "ppi++"),
        ("Krippendorff's alpha", "krippendorff"),
        ("p_holm", "holm"),
        ("exact", "clopper-pearson"),
        ("mean_reward", None),
        ("", None),
    ],
)
def test_a_name_in_other_letters(name, card):
    assert method_named(name) == card


@pytest.mark.parametrize("name", ["wilson_t", "wilson", "beta_mixture", "floored_t", "strict", "mcnemar", "mid_p"])
def test_what_a_card_says_was_measured_stands_on_the_page(name):
    card = STATISTIC_CARDS[name]
    text = card.coverage if isinstance(card, IntervalCard) else card.measured
    page = (SOURCE.parents[1] / "docs" / "statistics.md").read_text()
    figures = set(re.findall(r"(?<![\d.])\d+\.\d(?!\d)", text))
    assert figures
    assert figures - set(re.findall(r"(?<![\d.])\d+\.\d(?!\d)", page)) == set()
