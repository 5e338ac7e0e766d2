"""Where the reasoning of a completion ends."""

from __future__ import annotations

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.text.reasoning import MARKERS, Split, has_marker, split

HARMONY = "<|channel|>analysis<|message|>could be 4<|end|><|start|>assistant<|channel|>final<|message|>"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>could be 4, no</think>It is 9", "It is 9"),
        ("  \n<think>\n\n</think>\n\n4", "4"),  # blanks before and after
        ("\ufeff\u200b<think>4</think>9", "9"),
        ("<thinking>x</thinking> 4", "4"),
        ("<thought>x</thought> 4", "4"),
        ("<reasoning>x</reasoning> 4", "4"),
        ("[THINK]x[/THINK]4", "4"),
        ("◁think▷x◁/think▷4", "4"),
        ("could be 4, no</think>It is 9", "It is 9"),  # the template opened it
        ("x◁/think▷4", "4"),
        ("<think>a<think>b</think>c</think>4", "4"),  # to the last closing marker
        ("<think>a</think>b</think>4", "4"),
        ("a</think>b <think>c</think>4", "4"),
        ("<think>a</think>", ""),
        ("</think>4", "4"),
        ("<think>[THINK]a[/THINK]</think>4", "4"),
        ("<think>a</think>[THINK]b[/THINK]4", "[THINK]b[/THINK]4"),  # one kind of reasoning
        (HARMONY + "It is 9", "It is 9"),
        (HARMONY + "It is 9<|return|>", "It is 9"),
        (HARMONY + HARMONY + "It is 9", "It is 9"),
        ("could be 4<|end|><|start|>assistant<|channel|>final<|message|>It is 9", "It is 9"),
    ],
)
def test_the_answer_comes_after_the_last_closing_marker(text, answer):
    found = split(text)
    assert (found.answer, found.closed) == (answer, True)
    assert text[: found.chars] + answer in (text, text.removesuffix("<|return|>"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "It is 9",
        "It is 9 <think>or 4</think>",  # only at the start
        "The tag <think>x</think> is ours. It is 9",
        "think> 9 </thinking",
        "<THINK>a</THINK>9",
        "< think>a< /think>9",
        "<thinks>a</thinks>9",
        "&lt;think&gt;a&lt;/think&gt;9",
        "<|channel|>commentary<|message|>x",
    ],
)
def test_a_text_that_does_not_start_with_reasoning_is_left_alone(text):
    assert split(text) is None


@pytest.mark.parametrize(("opening", "closing"), MARKERS)
def test_reasoning_that_never_ends_has_no_answer(opening, closing):
    for text in (opening, f" {opening}4", f"{opening}4 {closing[:-1]}", f"{opening}4{opening}"):
        assert split(text) == Split("", len(text), opening, closed=False)


@given(st.lists(st.sampled_from([mark for pair in MARKERS for mark in pair] + ["4", " ", "\n", "x"]), max_size=12))
def test_a_split_loses_nothing_of_the_answer(pieces):
    text = "".join(pieces)
    found = split(text)
    if found is None:
        assert not text.lstrip().startswith(tuple(opening for opening, _ in MARKERS))
    elif found.closed:
        assert text[found.chars :].startswith(found.answer)
        closing = dict(MARKERS)[found.marker]
        assert text[: found.chars].rstrip().endswith(closing)
        assert closing not in found.answer
    else:
        assert dict(MARKERS)[found.marker] not in text[len(found.marker) :]


@pytest.mark.parametrize(
    "text",
    [
        "<think>" + "x" * 10_000_000 + "</think>4",
        "<think>" + "</thin" * 1_500_000,
        "<" * 10_000_000,
        "<think>" * 1_000_000,
        "[/THINK" * 1_000_000,
        "\n" * 10_000_000 + "4",
        "◁" * 5_000_000,
    ],
)
def test_ten_million_characters_take_no_time(text):
    began = process_time()
    split(text)
    assert process_time() - began < 1.0  # seconds; a search that backtracks would take hours


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("</think>", True),
        (r"^<think>.*<\/think>\s*4$", True),
        (r"\[/THINK\]", True),
        ({"a": [{"b": "<reasoning>"}]}, True),
        ({"<thought>": 1}, True),
        ("think", False),
        (["4", 4, None, {"a": "b"}], False),
    ],
)
def test_whether_a_value_has_a_marker(value, expected):
    assert has_marker(value) is expected
