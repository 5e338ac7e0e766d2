import pytest

from calipers.errors import UnknownName
from calipers.verifiers import user_code
from calipers.verifiers.user_code import get, list_fns, register, register_fn, registered, unregister

FOUR = ["contains", "exact_match", "regex_match", "tool_calls_match"]


@pytest.fixture(autouse=True)
def _nothing_registered(monkeypatch):
    monkeypatch.setattr(user_code, "_registered", {})


def always(model_output, expected, params):
    return 1.0


def test_four_are_built_in():
    assert list_fns() == FOUR
    assert registered() == {}
    assert get("exact_match")("a", "a", {}) == 1.0


def test_a_name_is_given_and_taken_back():
    register("mine", always)
    assert get("mine") is always
    assert list_fns() == sorted([*FOUR, "mine"])
    unregister("mine")
    unregister("mine")
    assert list_fns() == FOUR


def test_a_decorator_leaves_the_function_as_it_is():
    assert register_fn("mine")(always) is always
    assert get("mine") is always


def test_the_last_one_has_the_name():
    """As in EvSys; a built-in comes back when its replacement is taken back."""
    register("exact_match", always)
    assert get("exact_match")("a", "b", {}) == 1.0
    assert list_fns() == FOUR
    unregister("exact_match")
    assert get("exact_match")("a", "b", {}) == 0.0


@pytest.mark.parametrize(
    ("name", "hint"),
    [("exact_mach", "; did you mean 'exact_match'?"), ("zzz", ""), ("", ""), (None, "")],
)
def test_an_unknown_name(name, hint):
    for kind in (ValueError, KeyError, UnknownName):
        with pytest.raises(kind) as caught:
            get(name)
        assert str(caught.value) == f"Unknown verifier fn {name!r}; registered: {FOUR}{hint}"
