import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.running.folder import differences, fingerprint, folder_name

IDENTITY = {"model": "openai/m", "tasks": "ab" * 32, "sampling": {"temperature": 0, "stop": ["\n"]}}


def test_an_identity_is_what_it_says_not_how():
    other = {"sampling": {"stop": ("\n",), "temperature": 0}, "tasks": "ab" * 32, "model": "openai/m"}
    assert fingerprint(other) == fingerprint(IDENTITY)
    assert list(differences(IDENTITY, other)) == []
    assert fingerprint({**IDENTITY, "model": "openai/n"}) != fingerprint(IDENTITY)


@pytest.mark.parametrize(
    ("benchmark", "model", "expected"),
    [
        ("arith", "openai/gpt-4.1", "arith-openai_gpt-4.1"),
        ("../../etc", "..", "____etc-_"),
        (".hidden", "-rf", "_hidden-_rf"),
        ("", "m", "_-m"),
        ("a b\n\0c", "模型", "a_b__c-__"),
        ("x" * 500, "y" * 500, "x" * 60 + "-" + "y" * 60),
    ],
)
def test_the_name_of_a_directory(benchmark, model, expected):
    assert folder_name(benchmark, model, IDENTITY) == f"{expected}-{fingerprint(IDENTITY)[:8]}"


@given(st.text(), st.text())
def test_any_name_is_a_plain_one(benchmark, model):
    name = folder_name(benchmark, model, {})
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,140}", name)
    assert ".." not in name
