from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from verifiers.judging import task

from calipers.clients import Price
from calipers.errors import InputError
from calipers.verifiers.judge import LabelScale, RangeScale, fill, settings, shown, spec_of

GOOD: dict[str, Any] = {"judge_model": "openai/x", "rubric": "Is {answer} right?"}
PAIR: dict[str, Any] = {"judge_model": "openai/x", "rubric": "{answer_a} or {answer_b}?", "pair": True}


def test_what_is_not_said_has_a_default() -> None:
    found = settings(task(None, "llm_judge", **GOOD))
    assert (found.judges, found.scale, found.aggregate, found.quorum) == (("openai/x",), RangeScale(0, 1), "mean", 1)
    assert (found.temperature, found.seconds, found.retries, found.base_url, found.price) == (0, 120, 8, None, None)
    nothing = settings(task(None, "llm_judge", **GOOD, retries=None, seconds=None, max_tokens=None, price=None))
    assert nothing == found


@pytest.mark.parametrize(
    ("params", "name", "value"),
    [
        ({"judge_model": None, "judges": ["a/b", "openai/c", "d"]}, "judges", ("litellm/a/b", "openai/c", "litellm/d")),
        ({"judge_model": None, "judges": ["a", "b", "c"]}, "quorum", 2),
        ({"judge_model": None, "judges": ["a", "b", "c", "d"]}, "quorum", 3),  # half is no majority
        ({"scale": {"Y": 1, "N": 0}}, "aggregate", "vote"),
        ({"scale": {"Y": 1, "N": 0}}, "scale", LabelScale({"Y": 1.0, "N": 0.0})),
        ({"temperature": None}, "temperature", None),  # for models that accept none
        ({"price": [1, 2.5]}, "price", Price(1.0, 2.5)),
        ({"base_url": "http://127.0.0.1:8000/v1"}, "base_url", "http://127.0.0.1:8000/v1"),
    ],
)
def test_what_is_said(params: Any, name: str, value: Any) -> None:
    given = {key: one for key, one in {**GOOD, **params}.items() if one is not None or key == "temperature"}
    assert getattr(settings(task(None, "llm_judge", **given)), name) == value


@pytest.mark.parametrize(
    ("params", "said"),
    [
        (
            {"rubric": "Is it good?"},
            r"has no placeholder, so the judge model would not see the answer; put \{answer\} in the rubric",
        ),
        ({"rubric": "Is {response} good?"}, r"has \{response\}, so the judge model would not"),
        ({"rubric": "Is {question} good?"}, r"has \{question\}, so the judge model would not"),
        ({"rubric": ""}, "rubric is missing"),
        ({"rubric": "{answer} is {target}?"}, r"rubric contains \{target\}, but there is none"),
        ({"judge_model": ""}, "judges are"),
        ({"judge_model": 3}, "no judge model is named"),
        ({"judges": ["openai/y"]}, "both judge_model and judges"),
        ({"judge_model": "python/evil.py:judge"}, "is not a model on a server"),  # a task file is data, not code
        ({"judge_model": "replay/answers.jsonl"}, "is not a model on a server"),
        ({"aggregate": "max"}, "aggregate is 'max'; expected one of vote, mean, median"),
        ({"quorum": 2}, "quorum is 2; expected how many of the 1 judges"),
        ({"quorum": 0}, "quorum is 0"),
        ({"quorum": True}, "quorum is True"),
        ({"scale": [1, 0]}, r"scale is \[1, 0\]"),
        ({"scale": [0, float("nan")]}, "scale is"),
        ({"scale": {"Y": 1}}, "scale is"),
        ({"scale": {"Y": 1, "y": 0}}, "scale is"),
        ({"scale": {"Y": 1, "N": "0"}}, "scale is"),
        ({"pair": "yes"}, "pair is 'yes'"),
        ({"pair": True}, r"put \{answer_a\} and \{answer_b\} in the rubric"),
        ({"seconds": 0}, "seconds is 0"),
        ({"retries": -1}, "retries is -1"),
        ({"seconds": 10**400}, "seconds is 1000"),
        ({"scale": [0, 10**400]}, r"scale is \[0, 1000"),
        ({"price": [0, 10**400]}, r"price is \[0, 1000"),
        ({"temperature": "hot"}, "temperature is 'hot'"),
        ({"price": [1]}, r"price is \[1\]"),
        ({"price": [1, -1]}, r"price is \[1, -1\]"),
        ({"base_url": 3}, "base_url is 3"),
        ({"rubrik": "x"}, "did you mean 'rubric'"),
    ],
)
def test_what_cannot_be_used(params: Any, said: str) -> None:
    with pytest.raises(InputError, match=said) as error:
        settings(task(None, "llm_judge", **{**GOOD, **params}))
    assert str(error.value).startswith("task 't1': ")


def test_a_pair_needs_something_to_compare_with() -> None:
    assert settings(task("theirs", "llm_judge", **PAIR)).aggregate == "vote"
    with pytest.raises(InputError, match="pair needs a target to compare with, but there is none"):
        settings(task(None, "llm_judge", **PAIR))


@pytest.mark.parametrize(
    ("url", "model", "environment", "good"),
    [
        ("http://127.0.0.1:1/v1", "openai/x", {"OPENAI_API_KEY": "k"}, True),
        ("http://localhost/v1", "litellm/x", {"OPENAI_API_KEY": "k"}, True),
        ("https://judges.example/v1", "openai/x", {}, True),  # there is no key to lose
        ("https://judges.example/v1", "openai/x", {"OPENAI_API_KEY": "k"}, False),
        ("https://judges.example/v1", "litellm/x", {}, False),  # which may know other keys
        (
            "https://judges.example/v1",
            "openai/x",
            {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "https://judges.example/v1"},
            True,
        ),
        ("http://[", "openai/x", {"OPENAI_API_KEY": "k"}, False),
    ],
)
def test_a_task_file_does_not_decide_who_gets_the_key(
    url: str, model: str, environment: dict[str, str], good: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    asked = task(None, "llm_judge", **{**GOOD, "judge_model": model, "base_url": url})
    if good:
        assert settings(asked).base_url == url
    else:
        with pytest.raises(InputError, match="is a parameter of the task and would receive your API key"):
            settings(asked)


def test_spec_of_keeps_what_names_a_kind() -> None:
    assert spec_of(" openai/a/b ") == "openai/a/b"
    assert spec_of("openai") == "litellm/openai"  # no kind without a name


@given(st.text(), st.text())
def test_a_value_is_never_filled_in_again_nor_closes_its_fence(question: str, answer: str) -> None:
    rubric = "{question}|{answer}"
    filled = fill(rubric, {"question": question, "answer": answer})
    mark = filled[len("[BEGIN question ") :][:32]
    parts = {"question": question, "answer": answer}
    assert filled == "|".join(f"[BEGIN {name} {mark}]\n{text}\n[END {name} {mark}]" for name, text in parts.items())
    assert mark not in question + answer


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("2 + 2?", "2 + 2?"),
        (
            [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}],
            "system: Be brief.\n\nuser: 2 + 2?",
        ),
        (
            [{"role": "user", "content": [{"type": "text", "text": "See:"}, {"type": "image_url"}]}],
            "user: See:\n(something that is no text)",
        ),
        ([{"role": "user", "content": None}], "user: null"),
    ],
)
def test_a_prompt_as_a_judge_reads_it(prompt: Any, text: str) -> None:
    assert shown(prompt) == text
