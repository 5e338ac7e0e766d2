"""Log-likelihoods on the completions route, compared with the definition of the server's own model."""

import asyncio

import pytest
from clients.asking import request
from clients.likely import Likely, Model, table

from calipers.clients import Connection, Continuation, LikelihoodModel, Rolling, Scored, connect
from calipers.clients.openai import PROBE
from calipers.errors import ClientError

PAIRS = [
    ("the cat", " sat"),
    ("the cat ", "sat"),  # the space belongs to the continuation
    ("the cat \n", "sat on"),
    ("the", "n ran"),  # "then" is one token that crosses the border, so as many tokens are skipped as the context has
    ("the ca", "t sat ran is not"),
    ("caf\u00e9 \u4f60\u597d", " \u00fc is not"),  # tokens that are parts of characters do not show the border
    ("caf\u00e9 is", " not"),
    ("is it", " A"),
    ("is it", " B"),
    ("  ", "the dog"),  # a context of spaces is empty
    ("", " not the dog"),
]
WHOLE = ["the cat sat on the dog", "caf\u00e9", "x"]


def scored(server, *calls, **connection):
    """The results of calls, including errors, made one after the other."""

    async def whole():
        async with server:
            client = connect("openai/any", Connection(base_url=server.url, api="completions", **connection))
            ends = []
            for call in calls:
                try:
                    ends.append(await client.score(call))
                except ClientError as error:
                    ends.append(error)
            await client.close()
            return ends

    return asyncio.run(whole())


@pytest.mark.parametrize("ways", [("echo",), ("listed",), ("echo", "listed")])
@pytest.mark.parametrize("counts", [True, False])
def test_every_text_is_as_likely_as_the_model_says(ways, counts):
    server = Likely(ways=ways, counts=counts)
    (ours,) = scored(server, [*(Continuation(*pair) for pair in PAIRS), *map(Rolling, WHOLE)])
    wanted = [server.model.likelihood(*pair) for pair in [*PAIRS, *(("", text) for text in WHOLE)]]
    assert [one.logprob for one in ours] == pytest.approx([one[0] for one in wanted], rel=1e-12)
    assert [(one.greedy, one.tokens) for one in ours] == [one[1:] for one in wanted]
    assert all((one.read is not None) is counts for one in ours)


@pytest.mark.parametrize("ways", [("echo",), ("listed",)])
@pytest.mark.parametrize(
    ("counts", "read", "wrote"),
    [
        ({"prompt_tokens": -1, "completion_tokens": 1}, None, 1),
        ({"prompt_tokens": 10**30, "completion_tokens": "1"}, None, None),
        ({"prompt_tokens": True, "completion_tokens": None}, None, None),
        ([1], None, None),
        ("many", None, None),
    ],
)
def test_counts_that_are_none_are_unknown(ways, counts, read, wrote):
    """As for completions: a wrong count must not fail the request, and not be in the log."""
    ((one,),) = scored(Likely(ways=ways, counts=counts), [Continuation("the cat", " sat")])
    assert (one.tokens > 0, one.read, one.wrote) == (True, read, wrote)


@pytest.mark.parametrize("ways", [("echo",), ("listed",)])
def test_what_the_model_would_have_said_itself_is_greedy(ways):
    model = Model()
    tokens = next(
        found
        for found in (model.encode(f"{word} sat{letter}") for word in ("the", "dog") for letter in "abcdefghij")
        if model.shown(likeliest(found)).isascii()
    )
    context, said = "".join(map(model.shown, tokens[1:])), model.shown(likeliest(tokens))
    ((best, other),) = scored(Likely(ways=ways), [Continuation(context, said), Continuation(context, f"{said}q")])
    assert (best.greedy, best.tokens, other.greedy) == (True, 1, False)


def likeliest(tokens):
    chances = table(tuple(tokens[-2:]))
    return max(chances, key=chances.get)


@pytest.mark.parametrize("ways", [("echo",), ("listed",)])
def test_a_server_that_puts_nothing_before_a_text(ways):
    """Continuations are scored as usual; the first token of a text has no log-probability."""
    server = Likely(Model(bos=False), ways)
    fine, rolling, alone = scored(
        server, [Continuation("the cat", " sat")], [Rolling("the cat")], [Continuation("", "the cat")]
    )
    assert fine[0].logprob == pytest.approx(server.model.likelihood("the cat", " sat")[0], rel=1e-12)
    assert (rolling.kind, rolling.hopeless) == ("likelihood", True)  # no other whole text can be scored either
    assert (alone.kind, alone.hopeless) == ("prompt", False)
    for error in (rolling, alone):
        assert "the server adds no token before it" in str(error)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (Continuation("the", ""), "the continuation '' has no tokens of its own"),
        (Continuation("the", "n"), "the continuation 'n' has no tokens of its own"),  # "then" is one token
        (Continuation("the " * 50, "cat"), "HTTP 400: This model's maximum context length is 40 tokens"),
        (Rolling("not the " * 50), "HTTP 400: This model's maximum context length is 40 tokens"),
        (
            Continuation([{"role": "user", "content": "the"}], "cat"),
            "the context is a chat, but only text can be scored",
        ),
        (Continuation("a", "\ud800"), "the request cannot be encoded as JSON"),
    ],
)
def test_a_text_without_a_likelihood_fails_its_own_call_only(text, said):
    failed, fine = scored(Likely(Model(longest=40)), [Continuation("the", " cat"), text], [Continuation("the", " cat")])
    assert (failed.retry, failed.hopeless) == (False, False)
    assert said in str(failed)
    assert fine[0].tokens == 1


def test_no_text_is_certain():
    assert scored(Likely(), [Rolling("")]) == [[Scored(0.0, True, 0)]]


@pytest.mark.parametrize("strict", [True, False])
def test_a_server_without_logprobs_is_found_out_by_the_probe(strict):
    """It refuses an unknown request, or ignores its fields; no text of the task was sent."""
    server = Likely(ways=(), strict=strict)
    (end,) = scored(server, [Continuation("the cat", " sat")])
    assert (end.kind, end.hopeless) == ("likelihood", True)
    said = " (the server says: HTTP 400: unknown field prompt_logprobs)" if strict else ""
    wanted = "neither echo with logprobs nor prompt_logprobs returns them"
    assert str(end) == f"the server does not return log-likelihoods of a prompt: {wanted}{said}"
    assert [call["prompt"] for call in server.calls] == [PROBE, PROBE]


def test_a_server_whose_lists_do_not_match_gives_no_likelihoods():
    class Empty(Likely):
        def _choice(self, body, tokens):
            return {"text": "", "logprobs": {"tokens": [], "token_logprobs": [], "top_logprobs": [None, None]}}

    (end,) = scored(Empty(), [Continuation("the cat", " sat")])
    assert end.kind == "likelihood"


def test_the_probe_is_made_once_and_again_after_bad_weather():
    server = Likely(troubles=1)
    asked = [Continuation("the cat", " sat")]
    first, *rest = scored(server, asked, asked, asked)
    assert (first.kind, first.retry) == ("http_503", True)
    assert rest[0] == rest[1]
    assert [call["prompt"] for call in server.calls] == [PROBE, PROBE, "the cat sat", "the cat sat"]


def test_only_the_completions_route_has_likelihoods():
    kinds = {
        api: connect("openai/any", Connection(base_url="http://localhost:1/v1", api=api))
        for api in ("chat", "completions")
    }
    assert {api: isinstance(client, LikelihoodModel) for api, client in kinds.items()} == {
        "chat": False,
        "completions": True,
    }


def test_it_still_answers():
    async def whole():
        async with Likely() as server:
            client = connect("openai/any", Connection(base_url=server.url, api="completions"))
            try:
                return await client.complete(request("the cat", max_tokens=1)), client.notes
            finally:
                await client.close()

    completion, notes = asyncio.run(whole())
    assert completion.usage["input_tokens"] == 3
    assert notes == []
