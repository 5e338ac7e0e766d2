"""Agent servers over HTTP: requests, responses, and every way in which a call can fail."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest
from aiohttp import web
from waiting import PATIENCE

from calipers.clients.secrets import Secrets
from calipers.errors import ClientError, InputError
from calipers.systems.nemo_gym.collect import agents
from calipers.systems.nemo_gym.collect.agents import Reach, Server, checked

ROW = {"_ng_task_index": 0, "_ng_rollout_index": 0, "text": "x"}


def asked(handler, reach=None, call=lambda server: server.run(ROW)):
    """The answer to one call of a server, or its error."""

    async def scene():
        app = web.Application(client_max_size=2**28)
        app.router.add_post("/{route}", handler)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server = Server(f"http://127.0.0.1:{runner.addresses[0][1]}", reach or Reach())
        try:
            return await call(server)
        except ClientError as error:
            return error
        finally:
            await server.close()
            await runner.cleanup()

    return asyncio.run(scene())


def says(status=200, body=b"{}", **headers):
    async def handler(request):
        await request.read()
        return web.Response(status=status, body=body, headers=headers, content_type="application/json")

    return handler


@pytest.mark.parametrize("cookie", ["a=1", "a[b]=1", "path=1", 'a="b c"', "A___my-server=x%20y"])
def test_a_cookie_is_sent_back_as_the_server_wrote_it(cookie):
    """Python's own cookies refuse some of these names, which ended the collection with an internal error."""

    async def handler(request):
        return web.json_response({"sent": request.headers.get("Cookie")}, headers={"Set-Cookie": f"{cookie}; Path=/"})

    async def call(server):
        first = await server.post("/seed_session", ROW)
        return [
            json.loads(reply.raw)["sent"] for reply in (first, await server.post("/verify", ROW, cookies=first.cookies))
        ]

    assert asked(handler, call=call) == [None, cookie]


@pytest.mark.parametrize(
    ("handler", "text", "kind", "retry", "hopeless"),
    [
        (says(500, b'"ValueError(1)"'), 'HTTP 500: "ValueError(1)"', "http_500", True, False),
        (says(422, b'{"detail": "missing"}'), "HTTP 422: missing", "http_422", False, False),
        (says(404, b'{"detail": "Not Found"}'), "HTTP 404: Not Found", "http_404", False, True),
        (says(401), "HTTP 401: {}", "http_401", False, True),
        (says(429, b"", **{"Retry-After": "3"}), "HTTP 429", "http_429", True, False),
        (
            says(302, Location="http://elsewhere"),
            "HTTP 302: the server redirects to http://elsewhere; redirects",
            "http_302",
            False,
            True,
        ),
        (says(body=b"{"), "the response is not JSON", "malformed", True, False),
        (says(body=b"\xff"), "the response is not JSON", "malformed", True, False),
        (says(body=b"[" * 100_000), "the response is not JSON", "malformed", True, False),
        (says(body=b"[1]"), "the response is not a JSON object", "malformed", True, False),
        (says(body=b""), "the response is not JSON", "malformed", True, False),
    ],
)
def test_every_other_end_of_a_call(handler, text, kind, retry, hopeless):
    error = asked(handler)
    assert str(error).startswith(text)
    assert (error.kind, error.retry, error.hopeless) == (kind, retry, hopeless)
    assert error.wait == (3.0 if kind == "http_429" else None)


def test_nan_from_a_server_in_python_is_taken():
    found = asked(says(body=b'{"reward": 1.0, "loss": NaN, "gain": Infinity}'))
    assert found["reward"] == 1.0
    assert found["loss"] != found["loss"]


def test_a_row_is_sent_whole_as_json_also_when_it_is_large():
    seen = {}

    async def handler(request):
        seen["kind"], seen["token"] = request.content_type, request.headers.get("Authorization")
        seen["row"] = json.loads(await request.read())
        return web.json_response({"reward": 1})

    large = {**ROW, "text": "ä" * 2**20}
    asked(handler, Reach(token="of-the-house"), lambda server: server.run(large))
    assert seen == {"kind": "application/json", "token": "Bearer of-the-house", "row": large}


def test_an_answer_that_is_too_long_is_not_asked_for_again(monkeypatch):
    monkeypatch.setattr(agents, "LARGEST", 1000)

    async def call(server):
        return await server.post("/run", ROW, most=agents.LARGEST)

    error = asked(says(body=b'"' + b"x" * 5000 + b'"'), call=call)
    assert (str(error), error.retry) == ("the response is longer than 1000 bytes", False)


def test_a_server_that_never_answers():
    async def handler(request):
        await asyncio.sleep(30)

    error = asked(handler, Reach(timeout=0.05))
    assert (str(error), error.kind, error.retry, error.hopeless) == ("no answer within 0.05 s", "timeout", True, False)


def test_a_connection_that_is_closed():
    async def handler(request):
        request.transport.close()
        return web.StreamResponse()

    error = asked(handler)
    assert (str(error), error.retry) == ("the connection closed before the response", True)


def test_nobody_there():
    async def scene():
        server = Server("http://127.0.0.1:1", Reach())
        try:
            await server.run(ROW)
        finally:
            await server.close()

    with pytest.raises(ClientError, match=r"cannot connect to 127\.0\.0\.1:1: connection refused") as error:
        asyncio.run(scene())
    assert (error.value.retry, error.value.hopeless) == (True, True)


NO_MORE = """
import asyncio, os, resource
from calipers.errors import ClientError
from calipers.systems.nemo_gym.collect.agents import Reach, Server

async def main():
    for most in (2, 3000):
        server = Server("http://127.0.0.1:9", Reach(most=most))
        try:
            await server.run({})  # the first time nobody answers there; and all that is needed is imported
        except ClientError as error:
            print(error, error.slow_down, error.hopeless, sep="|")
        await server.close()
        few = len(os.listdir("/dev/fd")) - 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, few))

asyncio.run(main())
"""


def test_a_process_that_may_open_no_more_files_asks_for_less():
    """The agent is not at fault; if it were blamed, it would not be called any more."""
    done = subprocess.run(
        [sys.executable, "-c", NO_MORE], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    wrong = "this process cannot open more connections; lower --concurrency, or raise ulimit -n"
    assert done.stdout.splitlines()[1:] == [f"{wrong}|True|False"], done.stderr


def test_a_key_in_an_error_is_not_shown():
    secrets = Secrets()
    secrets.add("sk-verysecret")
    error = asked(says(500, b'"KeyError(sk-verysecret)"'), Reach(secrets=secrets))
    assert str(error) == 'HTTP 500: "KeyError([secret])"'
    assert "sk-" not in repr(Reach(token="sk-verysecret"))


@pytest.mark.parametrize(("status", "found"), [(404, None), (405, None), (501, None)])
def test_a_server_that_aggregates_nothing(status, found):
    assert asked(says(status), call=lambda server: server.aggregate([])) is found


def test_a_failed_aggregation_is_an_error():
    error = asked(says(500, b'"KeyError"'), call=lambda server: server.aggregate([]))
    assert str(error) == 'HTTP 500: "KeyError"'


@pytest.mark.parametrize(
    ("url", "address"),
    [("http://a:1", "http://a:1"), ("https://a.b/gym/", "https://a.b/gym"), ("http://[::1]:80", "http://[::1]:80")],
)
def test_an_address(url, address):
    assert checked(url, "--agent a") == address


@pytest.mark.parametrize(
    "url", ["", "a:1", "ftp://a", "http://", "http://a:0", "http://a:x", "http://u@a", "http://a b"]
)
def test_no_address(url):
    with pytest.raises(InputError, match=r"^--agent a: "):
        checked(url, "--agent a")
