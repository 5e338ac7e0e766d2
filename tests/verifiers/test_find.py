import sys

import pytest
from compat.packages import put
from verifiers.judging import judge

from calipers.errors import InputError, PluginError, UnknownName
from calipers.names import VERIFIERS
from calipers.verifiers import user_code
from calipers.verifiers.text import EXACT_MATCH
from calipers.verifiers.user_code import find_verifier, named_verifier, register, unregister, verifier_names

BUILT_IN = sorted(VERIFIERS.entries)
OF_TEXT = ["contains", "exact_match", "format_only", "numeric_match", "regex_match", "tool_calls_match"]

PLUGINS = """
from calipers.verifiers import Verdict
def function(model_output, expected, params):
    return 0.25
class Object:
    async def verify(self, task, completion):
        return Verdict(0.5)
number = 42
"""


@pytest.fixture(autouse=True)
def site(tmp_path, monkeypatch):
    """A folder for installed packages; what they bring is forgotten afterwards."""
    monkeypatch.setattr(VERIFIERS, "added", {})
    monkeypatch.setattr(VERIFIERS, "_broken", {})
    monkeypatch.setattr(user_code, "_registered", {})
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("brings_some", None)


def always(model_output, expected, params):
    return 0.75


def test_every_built_in_knows_its_name():
    assert verifier_names() == BUILT_IN
    assert [find_verifier(name).name for name in BUILT_IN] == BUILT_IN
    assert all(find_verifier(name).rerunnable for name in OF_TEXT)
    assert find_verifier("exact_match") is EXACT_MATCH


def test_a_registered_function_comes_first():
    register("mine", always)
    register("exact_match", always)
    assert verifier_names() == sorted([*BUILT_IN, "mine"])
    assert judge(find_verifier("mine"), "a").reward == judge(find_verifier("exact_match"), "a").reward == 0.75
    unregister("exact_match")
    assert find_verifier("exact_match") is EXACT_MATCH


def test_what_packages_bring(site):
    brought = {"f": "brings_some:function", "o": "brings_some:Object", "n": "brings_some:number"}
    put(site, "brings-some", PLUGINS, {"calipers.verifiers": brought})
    assert verifier_names() == sorted([*BUILT_IN, *brought])
    assert judge(find_verifier("f"), "a").reward == 0.25
    assert judge(find_verifier("o"), "a").reward == 0.5
    with pytest.raises(PluginError, match="verifier 'n' is 42; expected grade"):
        find_verifier("n")


def test_a_package_does_not_replace_what_is_built_in(site):
    put(site, "brings-some", PLUGINS, {"calipers.verifiers": {"exact_match": "brings_some:function"}})
    assert find_verifier("exact_match") is EXACT_MATCH


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("containz", "no verifier named 'containz'; did you mean 'contains'?"),
        ("min", "no verifier named 'min'; did you mean 'mine'?"),
        ("zzz", f"no verifier named 'zzz'; known: {', '.join(sorted([*BUILT_IN, 'mine']))}"),
    ],
)
def test_an_unknown_name(name, said):
    register("mine", always)
    with pytest.raises(UnknownName) as caught:
        find_verifier(name)
    assert str(caught.value) == said


def test_a_file_without_a_function_is_told_how_to_name_one():
    with pytest.raises(InputError, match=r"^my\.py: no verifier is named; expected my\.py:FUNCTION$"):
        named_verifier("my.py")
