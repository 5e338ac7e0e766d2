import numpy as np
import pytest

from calipers.errors import InputError, PluginError
from calipers.systems.lm_eval.tasks.prompts import choices_of, target_of, text_of
from calipers.systems.lm_eval.tasks.task_file import Function

DOC = {"q": "Why?", "n": 1, "digits": "3", "l": ["x", "y"], "none": None, "t": ("a", "b")}


@pytest.mark.parametrize(
    ("value", "choices", "expected"),
    [
        ("q", False, "Why?"),
        ("n", True, 1),  # a column keeps its type
        ("digits", True, "3"),  # and is not read as a number
        ("{{digits}}", True, 3),  # a template is, where there are choices
        ("{{digits}}", False, "3"),
        (2, False, 2),
        (lambda doc: doc["q"] + "!", False, "Why?!"),
    ],
)
def test_text(value, choices, expected):
    assert text_of(value, DOC, list(DOC), "here", choices=choices) == expected


@pytest.mark.parametrize(
    ("value", "choices", "expected"),
    [
        ("[1, 2]", False, [1, 2]),
        ("[1, 2", False, "[1, 2"),
        ("[{{q}}]", False, "[Why?]"),  # no literal: the text itself
        ("[" * 5000 + "]" * 5000, False, "[" * 5000 + "]" * 5000),  # too deep for a literal
        ([1, "a"], False, [1, "a"]),
        ("none", False, None),
        ("{{ -1 }}", True, "-1"),
        (lambda doc: np.round(doc["n"] > 0, 0).astype(np.int32), True, 1),  # as ToxiGen's does
        (lambda doc: [np.int64(2), "a"], True, [2, "a"]),
    ],
)
def test_target(value, choices, expected):
    assert target_of(value, DOC, list(DOC), "here", choices=choices) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["{{q}}", "b"], ["{{q}}", "b"]),
        ({0: "no", 1: "yes"}, ["no", "yes"]),
        ("l", ["x", "y"]),
        ("t", ["a", "b"]),
        ("{{[q, n]}}", ["Why?", 1]),
        (lambda doc: doc["l"], ["x", "y"]),
    ],
)
def test_choices(value, expected):
    assert choices_of(value, DOC, list(DOC), "here") == expected


@pytest.mark.parametrize(
    ("resolve", "value", "said"),
    [
        (choices_of, "{{q}}", "here: renders to 'Why?'; expected a list, such as ['yes', 'no']"),
        (choices_of, "q", "here: is 'Why?'; expected a list of choices"),
        (choices_of, lambda doc: "xy", "here: is 'xy'; expected a list of choices"),
        (text_of, "gone", "here: the document has no column 'gone'; it has q, n, digits, l, none, t"),
        (text_of, None, "here: is None; expected a column, a template or a function"),
        (text_of, Function("utils", "f", None), "here: is !function utils.f, code that came with the task"),
    ],
)
def test_what_cannot_be_resolved_is_refused(resolve, value, said):
    with pytest.raises(InputError) as caught:
        resolve(value, DOC, [*DOC, "gone"], "here")
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize("digits", ["²", "007", "9" * 5000])
def test_digits_that_are_no_index_are_refused(digits):
    with pytest.raises(InputError, match="expected the index of a choice"):
        target_of("{{d}}", {"d": digits}, ["d"], "here", choices=True)


def test_a_function_that_fails_is_named():
    def broken(doc):
        return doc["gone"]

    with pytest.raises(PluginError, match=r"here: broken failed: KeyError: 'gone'"):
        text_of(broken, DOC, list(DOC), "here")


def test_a_number_of_numpys_becomes_pythons():
    found = target_of(lambda doc: np.int32(1), DOC, list(DOC), "here", choices=True)
    assert type(found) is int
