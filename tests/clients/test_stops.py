"""A completion ends at its first stop string, whether the server or the client cuts it."""

import pytest

from calipers.clients import Completion
from calipers.clients.openai import cut, fewer


@pytest.mark.parametrize(
    ("text", "stops", "expected"),
    [
        ("5", ["\n"], "5"),
        ("5\n6", ["\n"], "5"),
        ("5 Q: 6\n", ["\n", "Q:"], "5 "),  # the first in the text, not the first in the list
        ("a</s>b<end>", ["</s>", "<end>", "x", "y", "<", ">"], "a"),
        ("\n5", ["\n"], ""),  # an answer that begins with a stop string is empty
        ("5", ["", "\n"], "5"),  # an empty stop string is ignored
        ("5", [], "5"),
    ],
)
def test_cut(text, stops, expected):
    assert cut(Completion(text, "stop"), stops).text == expected


def test_one_that_ended_before_it_ran_out_was_not_truncated():
    assert cut(Completion("5\n6", "length", "truncated"), ["\n"]) == Completion("5", "stop")
    assert cut(Completion("5 6", "length", "truncated"), ["\n"]) == Completion("5 6", "length", "truncated")
    assert cut(Completion("5\n6", "content_filter", "refused"), ["\n"]).ending == "refused"


def test_what_was_paid_for_stays_on_the_bill():
    usage = {"output_tokens": 3.0}
    assert cut(Completion("5\n6", "stop", "", usage), ["\n"]).usage == usage


@pytest.mark.parametrize(("sent", "next_time"), [(9, 4), (5, 4), (4, 0), (1, 0)])
def test_fewer_every_time(sent, next_time):
    assert fewer(sent)[0] == next_time
