"""Tests with the real package and our own server if litellm is installed; tests of its absence everywhere."""

import importlib.util
import sys

import pytest
from aiohttp import web
from clients.asking import request, talk
from clients.weather import Forecast, reply_of

from calipers.clients import Connection, Price, connect
from calipers.errors import InputError

installed = pytest.mark.skipif(importlib.util.find_spec("litellm") is None, reason="litellm is not installed")
noisy = pytest.mark.filterwarnings("ignore")  # warnings of litellm itself, which we cannot fix

KEY = "sk-test-0123456789"


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "litellm", None)  # this is how Python marks a module that cannot be imported
    with pytest.raises(InputError) as raised:
        connect("litellm/openai/any", Connection())
    assert str(raised.value) == "model 'litellm/openai/any' needs litellm; pip install 'calipers[litellm]'"


def through(asked, *replies, **more):
    return talk(asked, *replies, spec=f"litellm/openai/{more.pop('model', 'any')}", **more)


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@installed
@noisy
def test_an_answer_with_its_usage():
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 4,
        "total_tokens": 14,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    settings = {"max_tokens": 9, "temperature": 0.5, "stop": ["\n"], "seed": 1, "extra": {"top_p": 0.9}}
    (end,), server, _ = through([request("hi", system="Add.", **settings)], reply_of("5", finish="length", usage=usage))
    found = dict(end.usage)
    assert found.pop("latency_s") > 0
    assert (end.text, end.finish_reason, end.ending) == ("5", "length", "truncated")
    assert found == {"input_tokens": 10, "output_tokens": 4, "cached_tokens": 3, "reasoning_tokens": 2}
    body = server.calls[0].body
    assert body["messages"] == [{"role": "system", "content": "Add."}, {"role": "user", "content": "hi"}]
    assert {"max_tokens": 9, "temperature": 0.5, "stop": ["\n"], "seed": 1, "top_p": 0.9}.items() <= body.items()
    assert server.calls[0].headers["Authorization"] == f"Bearer {KEY}"


@installed
@noisy
def test_the_price_is_ours_else_litellms():
    reply = reply_of("5", usage={"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14})
    reply["model"] = "gpt-4o-mini"
    (known,), _, _ = through([request()], dict(reply), model="gpt-4o-mini")
    assert known.usage["cost_usd"] > 0
    (priced,), _, _ = through([request()], dict(reply), model="gpt-4o-mini", price=Price(1.0, 2.0))
    assert priced.usage["cost_usd"] == pytest.approx(18e-6)


@installed
@noisy
@pytest.mark.parametrize(
    ("trouble", "kind", "retry"),
    [("429", "http_429", True), ("500", "http_500", True), ("503", "http_503", True), ("slow", "timeout", True)],
)
def test_errors(trouble, kind, retry):
    forecast = Forecast(share=1, kinds=(trouble,), wait="2")
    ends, server, _ = through([request(), request()], forecast=forecast, timeout=1.0)
    assert (ends[0].kind, ends[0].retry, ends[0].slow_down) == (kind, retry, trouble == "429")
    assert ends[0].wait == (2 if trouble == "429" else None)
    assert ends[1].text in {"5", "6"}
    assert len(server.calls) == 2  # litellm made no retries itself


@installed
@noisy
def test_a_wrong_key_is_hopeless_and_not_shown():
    (end,), _, _ = through([request()], forecast=Forecast(key="sk-another-one"))
    assert (end.kind, end.hopeless) == ("http_401", True)
    assert KEY not in str(end)
    assert KEY not in repr(end)


@installed
@noisy
def test_a_provider_nobody_knows():
    with pytest.raises(InputError) as raised:
        connect("litellm/no-such-provider/x", Connection())
    assert str(raised.value).startswith("litellm knows no provider for 'no-such-provider/x'; expected PROVIDER/NAME")


@installed
@noisy
def test_the_completions_route():
    asked = [request(), request([{"role": "user", "content": "hi"}])]
    ends, server, _ = through(asked, reply_of("5", chat=False), api="completions")
    assert (ends[0].text, [call.path for call in server.calls]) == ("5", ["/v1/completions"])
    assert ends[1].kind == "prompt"


@installed
@noisy
def test_a_provider_without_seeds():
    refused = web.json_response({"error": {"message": "unknown argument: seed"}}, status=400)
    ends, server, client = through([request(seed=1), request(seed=2)], refused, reply_of("a"), reply_of("b"))
    assert [end.text for end in ends] == ["a", "b"]
    assert [call.seed for call in server.calls] == [1, None, None]
    assert len(client.notes) == 1
