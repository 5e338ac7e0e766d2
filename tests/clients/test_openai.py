import asyncio
import gzip
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from aiohttp import web
from clients.asking import answer, ask, request, said, talk
from clients.weather import Forecast, Server, reply_of
from waiting import PATIENCE

from calipers.clients import Completion, Connection, Price, connect
from calipers.clients.openai import LARGEST
from calipers.errors import ClientError


def failed(status, body=b"", **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return web.Response(status=status, body=body, headers=named)


def message(content, **more):
    return {"choices": [{"message": {"content": content, **more}, "finish_reason": more.pop("finish_reason", "stop")}]}


@pytest.mark.parametrize(
    ("reply", "text", "finish", "ending"),
    [
        (reply_of("5"), "5", "stop", ""),
        (reply_of("5", finish="length"), "5", "length", "truncated"),
        (reply_of("5", finish="content_filter"), "5", "content_filter", "refused"),
        (reply_of(None, refusal="No."), "No.", "stop", "refused"),
        (reply_of("Well,", refusal="No."), "Well,", "stop", "refused"),  # the text is kept
        (reply_of("", refusal=""), "", "stop", ""),  # an empty refusal is not a refusal
        (reply_of(None), "", "stop", ""),  # an answer without content is a valid answer
        (message(None, tool_calls=[{"id": "1", "function": {"name": "f", "arguments": "{}"}}]), "", "stop", ""),
        (message("5", reasoning_content="2 and 3 make"), "5", "stop", ""),  # reasoning is not part of the answer
        (message([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), "ab", "stop", ""),
        (message([{"type": "thinking", "text": "hm"}, {"type": "output_text", "text": "b"}, 1]), "b", "stop", ""),
        (message([{"type": "refusal", "refusal": "No."}]), "No.", "stop", "refused"),
        (message([{"type": None, "text": "a"}, {"type": 5, "text": "b"}]), "a", "stop", ""),  # no valid type
        ({"choices": [{"message": {"content": "5"}}], "error": None, "more": {"deep": [1]}}, "5", None, ""),
    ],
)
def test_an_answer_and_how_it_ended(reply, text, finish, ending):
    assert (end := said(reply)).text == text
    assert (end.finish_reason, end.ending) == (finish, ending)


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (web.Response(body=b'{"choices": [{"mess'), "the response body is not a JSON completion"),
        (web.Response(body=b""), "the response body is not a JSON completion"),
        (web.Response(body=b"\xff\xfe"), "the response body is not a JSON completion"),
        (web.Response(body=b'{"x":' + b"[" * 100_000), "the response body is not a JSON completion"),
        (web.Response(body=b"data: {}\n\n", content_type="text/event-stream"), "the server streams its response"),
        (
            web.Response(body=b"\n<!doctype html><p>Sign in"),
            ("the response body is an HTML or XML page, not a completion; does the"),
        ),
        ([1], "the response body is not a JSON completion"),
        ({"choices": [{"message": {"content": 5}}]}, "the response body is not a JSON completion"),
        ({"choices": []}, "the response has no choices"),
        ({"choices": None}, "the response has no choices"),
        ({}, "the response has no choices"),
        ({"choices": [{}]}, "the first choice has neither a message nor text"),
        ({"error": {"message": "busy\x1b[31m"}}, "the server returned a success status with an error: busy\ufffd[31m"),
        ({"error": "busy"}, "the server returned a success status with an error: busy"),
        ({"choices": [{"error": {"message": "gone"}, "message": {"content": "4"}}]}, "an error instead of an answer"),
    ],
)
def test_what_is_no_answer_can_be_asked_again(reply, told):
    end = said(reply)
    assert isinstance(end, ClientError)
    assert str(end).startswith(told)
    assert (end.kind, end.retry, end.hopeless) == ("malformed", True, False)


@pytest.mark.parametrize(("given", "known"), [("chatcmpl-7", "chatcmpl-7"), (7, None), (None, None), ("", None)])
def test_the_id_of_the_request_and_the_seed_are_known(given, known):
    choices = [{"message": {"content": "5"}}]
    done = said({"id": given, "choices": choices}, asked=request(seed=3))
    assert (done.request_id, done.seed) == (known, 3)
    assert said({"choices": choices}, asked=request()).seed is None
    assert said({"choices": choices}, asked=request(seed=3, extra={"seed": 4})).seed == 4  # the seed that was sent


def test_half_a_body_is_no_answer():
    ends, _, _ = talk([request(), request()], forecast=Forecast(share=1, kinds=("half",)))
    assert (ends[0].kind, ends[0].retry) == ("malformed", True)
    assert str(ends[0]) == "the connection closed in the middle of the response"
    assert isinstance(ends[1], Completion)  # the client still works


COUNTED = {"prompt_tokens": 10, "completion_tokens": 4}


@pytest.mark.parametrize(
    ("usage", "price", "expected"),
    [
        (COUNTED, None, {"input_tokens": 10, "output_tokens": 4}),
        (COUNTED, Price(1.0, 2.0), {"input_tokens": 10, "output_tokens": 4, "cost_usd": 18e-6}),
        ({**COUNTED, "cost": 0.5}, Price(1.0, 2.0), {"input_tokens": 10, "output_tokens": 4, "cost_usd": 0.5}),
        (
            {"prompt_tokens_details": {"cached_tokens": 3}, "completion_tokens_details": {"reasoning_tokens": 2}},
            Price(1.0, 2.0),
            {"cached_tokens": 3, "reasoning_tokens": 2},  # without both counts there is no price
        ),
        ({"prompt_tokens": None, "completion_tokens": "4", "cost": -1}, None, {}),  # invalid counts are unknown
        ({"prompt_tokens": True, "prompt_tokens_details": None}, None, {}),
        ({"prompt_tokens": 10**400, "completion_tokens": 1e300}, None, {}),  # the first could not be logged
        ([1], None, {}),
    ],
)
def test_usage_is_what_the_server_counted(usage, price, expected):
    found = dict(said(reply_of("5", usage=usage), price=price).usage)
    assert found.pop("latency_s") > 0
    assert found == expected


def test_usage_may_be_absent():
    assert said(message("5")).usage.keys() == {"latency_s"}


@pytest.mark.parametrize(
    ("status", "retry", "slow_down", "hopeless"),
    [
        (408, True, False, False),
        (409, True, False, False),
        (429, True, True, False),
        (500, True, False, False),
        (529, True, False, False),
        (400, False, False, False),  # the cause may be this prompt, so other calls may succeed
        (413, False, False, False),
        (401, False, False, True),
        (403, False, False, True),
        (404, False, False, True),
    ],
)
def test_statuses(status, retry, slow_down, hopeless):
    end = said(failed(status, b'{"error": {"message": "no such\\n luck"}}'))
    assert (end.retry, end.slow_down, end.hopeless) == (retry, slow_down, hopeless)
    assert (end.kind, str(end), end.wait) == (f"http_{status}", f"HTTP {status}: no such luck", None)
    assert end.before_answer == (status == 429)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "HTTP 500"),
        (b"<html>Bad  gateway</html>\n", "HTTP 500: <html>Bad gateway</html>"),
        (b"x" * 300_000, "HTTP 500: " + "x" * 199 + "…"),
        (b"\xff\x1b[2J", "HTTP 500: \ufffd\ufffd[2J"),
        (b'{"error": "busy"}', "HTTP 500: busy"),
        (b'{"object": "error", "message": "too long"}', "HTTP 500: too long"),  # vLLM
        (b'{"detail": [{"loc": ["body"]}]}', "HTTP 500: [{'loc': ['body']}]"),  # FastAPI
        (b'{"error": {"code": 7}}', 'HTTP 500: {"error": {"code": 7}}'),
        (b'{"error": null}', 'HTTP 500: {"error": null}'),
        (b"[1]", "HTTP 500: [1]"),
    ],
)
def test_what_a_server_says_about_it(body, told):
    assert str(said(failed(500, body))) == told


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"Retry_After": "2"}, 2),
        ({"Retry_After": "0.25"}, 0.25),
        ({"retry_after_ms": "250", "Retry_After": "1"}, 0.25),
        ({"Retry_After": "-3"}, 0),
        ({"Retry_After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),  # in the past
        ({"Retry_After": "soon"}, None),
        ({"Retry_After": "nan"}, None),
        ({"Retry_After": "inf"}, None),
        ({"Retry_After": "1e9"}, None),
        ({"Retry_After": "86400"}, 86_400),
        ({"Retry_After": "999999999"}, None),  # 32 years, which is too long to wait
        ({"Retry_After": "Fri, 31 Dec 9999 23:59:59 GMT"}, None),
        ({"retry_after_ms": "999999999999"}, None),
        ({"Retry_After": "Wed, 21 Oct 99999999999999 07:28:00 GMT"}, None),
        ({"Retry_After": "Wed, 21 Oct 2026 07:28:00 -99999999999999"}, None),
        ({}, None),
    ],
)
def test_how_long_to_wait(headers, wait):
    assert said(failed(429, **headers)).wait == wait


def test_a_date_to_wait_for():
    later = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    assert said(failed(503, Retry_After=later)).wait == pytest.approx(3600, abs=60)


def test_an_account_without_money_is_hopeless():
    end = said(failed(429, b'{"error": {"message": "no credit", "code": "insufficient_quota"}}'))
    assert (end.retry, end.slow_down, end.hopeless) == (False, False, True)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_not_followed(status):
    ends, server, _ = talk([request()], failed(status, Location="http://127.0.0.1:9/elsewhere"))
    assert (ends[0].hopeless, ends[0].retry, ends[0].kind) == (True, False, f"http_{status}")
    assert "redirects to http://127.0.0.1:9/elsewhere; redirects are not followed, so give the final URL" in str(
        ends[0]
    )
    assert len(server.calls) == 1


def test_the_connection_is_refused():
    with closing(socket.socket()) as held:  # bound, but not listening, so that no other process can listen there
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        (end,) = ask("openai/any", request(), connection=Connection(base_url=f"http://127.0.0.1:{port}/v1"))
    assert (end.kind, end.retry, end.hopeless) == ("connection", True, True)
    assert str(end).startswith(f"cannot connect to 127.0.0.1:{port}: ")
    assert "refused" in str(end)
    assert end.before_answer


UNKNOWN_HOST = """
import asyncio, sys
from calipers.clients import Connection, Request
from calipers.clients import connect
from calipers.errors import ClientError
async def main():
    client = connect("openai/any", Connection(base_url=sys.argv[1]))
    try:
        await client.complete(Request("t", 0, "hello"))
    except ClientError as error:
        print(error.kind, error.retry, error.hopeless, str(error).rpartition(": ")[2])
    await client.close()
asyncio.run(main())
"""


NO_MORE = """
import asyncio, os, resource
from calipers.errors import ClientError
from calipers.clients import Connection, Request
from calipers.clients import connect

async def main():
    client = connect("openai/any", Connection(base_url="http://127.0.0.1:9/v1"))
    await client.complete(Request("t", 0, "hi"))

async def without_files():
    for _ in range(2):
        try:
            await main()  # the first time nobody answers there; and all that is needed is imported
        except ClientError as error:
            print(error, error.kind, error.retry, error.slow_down, error.hopeless, sep="|")
        few = len(os.listdir("/dev/fd")) - 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, few))

asyncio.run(without_files())
"""


def test_a_process_that_may_open_no_more_files_asks_for_less():
    """It is not the server's fault, and fewer concurrent calls help, so it is treated like "too many requests"."""
    done = subprocess.run(
        [sys.executable, "-c", NO_MORE], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    wrong = "this process cannot open more connections; lower --concurrency, or raise ulimit -n"
    assert done.stdout.splitlines()[1:] == [f"{wrong}|connection|True|True|False"], done.stderr


MANY = """
import asyncio, resource
from calipers.errors import ClientError
from calipers.clients import Connection, Request
from calipers.clients import connect

async def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    for most in (200, 2):
        client = connect("openai/any", Connection(base_url="http://127.0.0.1:9/v1", most=most))
        try:
            await client.complete(Request("t", 0, "hi"))
        except ClientError:
            print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        await client.close()

asyncio.run(main())
"""


def test_there_is_room_for_as_many_connections_as_calls():
    """Shells allow 1,024 open files or fewer, and users who want more concurrent calls need not know that."""
    done = subprocess.run([sys.executable, "-c", MANY], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.stdout.split() == ["328", "328"], done.stderr  # and the limit is never lowered


def test_there_is_no_such_host():
    """In a process of its own, because this one may not look up names; the name is too long to be looked up."""
    url = f"http://{'.'.join(['a' * 60] * 5)}.invalid/v1"
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    command = [sys.executable, "-c", UNKNOWN_HOST, url]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=PATIENCE, check=True)
    assert done.stdout == "connection True True no such host\n", done.stderr


def test_a_dropped_connection_can_be_tried_again():
    ends, _, _ = talk([request(), request()], forecast=Forecast(share=1, kinds=("dropped",)))
    assert (ends[0].kind, ends[0].retry, ends[0].hopeless) == ("connection", True, False)
    assert not ends[0].before_answer  # the server may have closed it because of the answer
    assert ends[1].text in {"5", "6"}


def test_patience_ends():
    ends, _, _ = talk([request(), request()], forecast=Forecast(share=1, kinds=("slow",)), timeout=0.7)
    assert (ends[0].kind, ends[0].retry, str(ends[0])) == ("timeout", True, "no answer within 0.7 s")
    assert not ends[0].before_answer
    assert isinstance(ends[1], Completion)


def raw(greeting, scheme="http", **listening):
    """The result of a call to a server with this response."""

    async def main():
        async def greet(reader, writer):
            await reader.read(1)
            writer.write(greeting)
            writer.close()

        server = await asyncio.start_server(greet, "127.0.0.1", 0, **listening)
        port = server.sockets[0].getsockname()[1]
        client = connect("openai/any", Connection(base_url=f"{scheme}://127.0.0.1:{port}/v1"))
        try:
            return await answer(client, request())
        finally:
            await client.close()
            server.close()

    return asyncio.run(main())


def test_half_a_refusal_is_a_refusal():
    end = raw(b'HTTP/1.1 401 No\r\nContent-Length: 99\r\n\r\n{"error": "wro')
    assert (end.kind, end.retry, end.hopeless) == ("http_401", False, True)


def test_what_does_not_speak_http():
    end = raw(b"220 mail.example ESMTP\r\n")
    assert (end.kind, str(end)) == ("malformed", "the response is not HTTP")


def test_what_does_not_speak_tls():
    end = raw(b"HTTP/1.1 400 Bad Request\r\n\r\n", "https")
    assert (end.kind, end.retry, end.hopeless, end.before_answer) == ("connection", True, True, True)
    assert re.search(r"^cannot connect to 127\.0\.0\.1:\d+: TLS failed \([A-Z_]+\)$", str(end))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate, and is not here")
def test_a_certificate_nobody_vouches_for(tmp_path):
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "certificate.pem")
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1", "-days", "1"]
    subprocess.run([*make, "-keyout", key, "-out", certificate], capture_output=True, timeout=PATIENCE, check=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    end = raw(b"", "https", ssl=context)
    assert (end.kind, end.retry, end.hopeless) == ("connection", True, True)
    assert str(end).endswith(": its certificate is not trusted")


def test_a_reply_without_end_is_cut_off():
    bomb = gzip.compress(b" " * (LARGEST + 1), 1)  # small when compressed
    end = said(web.Response(body=bomb, headers={"Content-Encoding": "gzip"}))
    assert (end.kind, end.retry, str(end)) == ("malformed", False, f"the response is longer than {LARGEST} bytes")


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
def test_a_reply_that_is_not_compressed_as_it_says(encoding):
    """Also if the response could not have been read anyway."""
    end = said(web.Response(body=b"no such thing", headers={"Content-Encoding": encoding}))
    assert (str(end), end.kind, end.retry) == (
        "the response uses a compression that cannot be read",
        "malformed",
        True,
    )


def test_a_compressed_reply():
    packed = gzip.compress(json.dumps(reply_of("5")).encode())
    assert said(web.Response(body=packed, headers={"Content-Encoding": "gzip"})).text == "5"


SETTINGS = {"max_tokens": 9, "temperature": 0.5, "stop": ["\n"], "seed": 1, "extra": {"top_p": 0.9}}


def test_what_is_sent():
    asked = [request("hi"), request("hi", system="Be brief.", **SETTINGS)]
    asked.append(request([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], temperature=0.0))
    _, server, _ = talk(asked)
    assert [call.body for call in server.calls] == [
        {"model": "any", "messages": [{"role": "user", "content": "hi"}]},
        {
            "model": "any",
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
            **{name: SETTINGS[name] for name in ("max_tokens", "temperature", "stop", "seed")},
            "top_p": 0.9,
        },
        {"model": "any", "messages": list(asked[2].prompt), "temperature": 0.0},
    ]
    assert {call.path for call in server.calls} == {"/v1/chat/completions"}
    assert server.calls[0].headers["Content-Type"] == "application/json"
    assert "Authorization" not in server.calls[0].headers


def test_the_completions_route():
    asked = [request("2 + 3"), request("2 + 3", system="Add."), request([{"role": "user", "content": "a"}])]
    ends, server, _ = talk(asked, api="completions")
    assert [call.body for call in server.calls] == [
        {"model": "any", "prompt": "2 + 3"},
        {"model": "any", "prompt": "Add.\n\n2 + 3"},
    ]
    assert {call.path for call in server.calls} == {"/v1/completions"}
    assert ends[0].text in {"5", "6"}
    assert str(ends[2]) == "the prompt is a chat, but only text can be sent; use the chat route"
    assert (ends[2].kind, ends[2].retry) == ("prompt", False)


@pytest.mark.parametrize(
    "prompt",
    ["half a character: \ud800", [{"role": "user", "content": object()}]],
)
def test_what_cannot_be_sent(prompt):
    ends, server, _ = talk([request(prompt)])
    assert str(ends[0]).startswith("the request cannot be encoded as JSON: ")
    assert (ends[0].kind, ends[0].retry) == ("prompt", False)
    assert server.calls == []


def test_a_prompt_of_megabytes():
    ends, server, _ = talk([request("2 + 3" + " " * 3 * 2**20)])
    assert ends[0].text in {"5", "6"}
    assert len(server.calls[0].prompt) > 3 * 2**20


NO_SEED = {"error": {"message": "Unrecognized request argument supplied: seed"}}
OTHER_NAME = {"error": {"message": "Unsupported: 'max_tokens'. Use 'max_completion_tokens'.", "param": "max_tokens"}}


def refusal(document, status=400):
    return web.json_response(document, status=status)


def test_a_server_without_seeds():
    asked = [request(seed=1, max_tokens=5), request(seed=2, max_tokens=5)]
    ends, server, client = talk(asked, refusal(NO_SEED), reply_of("a"), reply_of("b"))
    assert [end.text for end in ends] == ["a", "b"]
    assert [call.seed for call in server.calls] == [1, None, None]
    assert client.notes == ["the server does not accept a seed; none is sent, so answers may differ between runs"]


def test_a_server_with_another_name_for_the_limit():
    asked = [request(seed=1, max_tokens=5), request(seed=2, max_tokens=6)]
    replies = [refusal(OTHER_NAME), refusal(NO_SEED, 422), reply_of("a"), reply_of("b")]
    ends, server, client = talk(asked, *replies)
    assert [end.text for end in ends] == ["a", "b"]
    assert [call.body.get("max_completion_tokens") for call in server.calls] == [None, 5, 5, 6]
    assert [call.body.get("max_tokens") for call in server.calls] == [5, None, None, None]
    assert len(client.notes) == 2


@pytest.mark.parametrize(
    ("settings", "document"),
    [
        ({"seed": 1}, {"error": {"message": "bad seed phrase in the prompt", "param": "messages"}}),  # not the seed
        ({"seed": 1}, {"error": {"message": "reseeding failed"}}),
        ({}, NO_SEED),  # none was sent
        ({"extra": {"seed": 1}}, NO_SEED),  # it was requested by its name, so it is always sent
        ({}, OTHER_NAME),
    ],
)
def test_other_refusals_stay_refusals(settings, document):
    ends, server, client = talk([request(**settings)], refusal(document))
    assert (ends[0].kind, ends[0].retry) == ("http_400", False)
    assert len(server.calls) == 1
    assert client.notes == []


def test_a_refusal_that_does_not_end():
    ends, server, _ = talk([request(seed=1, max_tokens=2)], *(refusal(NO_SEED) for _ in range(5)))
    assert ends[0].kind == "http_400"
    assert len(server.calls) == 2


def test_many_at_once_learn_it_once():
    async def main():
        async with Server(replies=[refusal(NO_SEED) for _ in range(4)]) as server:
            client = connect("openai/any", Connection(base_url=server.url))
            ends = await asyncio.gather(*(client.complete(request(seed=seed)) for seed in range(4)))
            await client.close()
            return ends, client.notes

    ends, notes = asyncio.run(main())
    assert len({end.text for end in ends}) == 1  # without a seed all answers are the same
    assert len(notes) == 1


def test_no_more_calls_at_once_than_allowed():
    async def main():
        async with Server(Forecast(delay=0.01)) as server:
            client = connect("openai/any", Connection(base_url=server.url, most=3))
            await asyncio.gather(*(client.complete(request(seed=seed)) for seed in range(12)))
            await client.close()
            return server.most

    assert asyncio.run(main()) == 3


def test_a_client_that_was_never_used_can_be_closed():
    assert ask("openai/any", connection=Connection(base_url="http://localhost:1/v1")) == []
