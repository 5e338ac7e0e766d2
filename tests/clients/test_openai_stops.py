"""Servers that accept few stop strings, or none: the answer is the same as if the server had accepted them all."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from clients.asking import answer, request, talk
from clients.weather import Server, reply_of

from calipers.clients import Connection, connect
from calipers.errors import ClientError

SIX = ["<1>", "<2>", "<3>", "<4>", "<5>", "<6>"]
TOO_MANY = {
    "error": {
        "message": "Invalid 'stop': array too long. Expected an array with maximum length 4, but got 6 instead.",
        "param": "stop",
    }
}
NONE = {"error": {"message": "Unsupported parameter: 'stop' is not supported with this model.", "param": "stop"}}
FIRST_FOUR = (
    "the server does not accept 6 stop strings; the first 4 are sent, and Calipers truncates answers at the others"
)
NO_STOPS = "the server does not accept stop strings; Calipers truncates the answers itself, after you paid for them"


def refusal(document):
    return web.json_response(document, status=400)


def test_a_server_that_takes_them_all_gets_them_all():
    (end,), server, client = talk([request(stop=SIX)], reply_of("a"))
    assert (end.text, [call.body["stop"] for call in server.calls], client.notes) == ("a", [SIX], [])


def test_a_server_that_takes_four():
    asked = [request(stop=SIX), request("3 + 4", stop=SIX)]
    replies = [refusal(TOO_MANY), reply_of("a<6>b<5>c", finish="length"), reply_of("d")]
    ends, server, client = talk(asked, *replies)
    assert [call.body["stop"] for call in server.calls] == [SIX, SIX[:4], SIX[:4]]  # learned once
    assert [(end.text, end.finish_reason, end.ending) for end in ends] == [("a", "stop", ""), ("d", "stop", "")]
    assert client.notes == [FIRST_FOUR]


def test_a_server_that_takes_none():
    (end,), server, client = talk([request(stop=SIX)], refusal(TOO_MANY), refusal(NONE), reply_of("a<2>b"))
    assert [call.body.get("stop") for call in server.calls] == [SIX, SIX[:4], None]
    assert (end.text, client.notes) == ("a", [FIRST_FOUR, NO_STOPS])


def test_a_server_that_stops_at_nothing_it_was_sent():
    (end,), _, _ = talk([request(stop=["\n"])], reply_of("a\nb"))
    assert end.text == "a"
    kept = request(stop=["\n"], extra={"include_stop_str_in_output": True})  # the user wants them in the output
    assert talk([kept], reply_of("a\n"))[0][0].text == "a\n"


def test_calls_that_were_on_their_way_do_not_learn_it_twice():
    async def both():
        async with Server(replies=[refusal(TOO_MANY), refusal(TOO_MANY), reply_of("a"), reply_of("b")]) as server:
            client = connect("openai/any", Connection(base_url=server.url))
            ends = await asyncio.gather(*(answer(client, request(f"{n} + 1", stop=SIX)) for n in range(2)))
            await client.close()
            return ends, server, client

    ends, server, client = asyncio.run(both())
    assert {end.text for end in ends} == {"a", "b"}
    assert [call.body["stop"] for call in server.calls[2:]] == [SIX[:4]] * 2
    assert client.notes == [FIRST_FOUR]


@pytest.mark.parametrize(
    ("asked", "document"),
    [
        (request(), NONE),  # no stop strings were sent
        (request(stop=SIX), {"error": {"message": "stop sequences are fine", "param": "messages"}}),
        (request(stop=SIX), {"error": {"message": "unstoppable"}}),
    ],
)
def test_other_refusals_are_not_about_them(asked, document):
    (end,), server, _ = talk([asked], refusal(document))
    assert isinstance(end, ClientError)
    assert len(server.calls) == 1
