import asyncio
import logging

import pytest
from systems.nemo_gym.serve.asking import HEADERS, HERE, asked

from calipers.systems.nemo_gym.serve import LIMITS, BodyLimits
from calipers.systems.nemo_gym.serve.app import QUICK, Door, Guard


async def echo(scope, receive, send):
    """The application behind the guard receives the body that was sent."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    if body == b'"fail"':
        raise RuntimeError("on purpose")
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


def ask(body=b"", method="POST", path="/", *, door=HERE, limits=LIMITS, pieces=None, streamed=(), **headers):
    data = [body] if pieces is None else pieces
    length = {"content-length": str(len(body))} if pieces is None else {"transfer-encoding": "chunked"}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    given = {name: value for name, value in {**HEADERS, **length, **named}.items() if value}
    return asyncio.run(asked(Guard(echo, door, limits, streamed), method, path, data, given))


def test_a_body_passes_unchanged():
    assert ask(b'{"a": NaN}').body == b'{"a": NaN}'
    assert ask(pieces=[b'{"a"', b": 1}"]).body == b'{"a": 1}'
    large = b'"' + b"x" * QUICK + b'"'
    assert ask(large).body == large
    assert ask().status == 200  # a user's route may not need a body
    assert ask(b"what a GET carries is nobody's business", "GET", content_type="").status == 200


@pytest.mark.parametrize(
    ("asked", "status", "code"),
    [
        ({"body": b"{}", "host": "evil.example"}, 421, "wrong_host"),
        ({"body": b"{}", "host": ""}, 421, "wrong_host"),
        ({"body": b"{}", "content_type": "text/plain"}, 415, "wrong_type"),
        ({"body": b"{}", "content_type": ""}, 415, "wrong_type"),
        ({"body": b"a=b", "content_type": "application/x-www-form-urlencoded"}, 415, "wrong_type"),
        ({"body": b"{"}, 400, "bad_json"),
        ({"body": b"[" * 65 + b"]" * 65}, 400, "too_deep"),
        ({"body": b'"' + b"x" * 20 + b'"', "limits": BodyLimits(body=21)}, 413, "too_large"),
        # without a declared length
        ({"pieces": [b'"', b"x" * 20, b'"'], "limits": BodyLimits(body=21)}, 413, "too_large"),
        ({"body": b"{}", "content_length": "9" * 30}, 413, "too_large"),
        ({"body": b"{}", "door": Door(token="t")}, 401, "unauthorized"),
        ({"body": b"{}", "door": Door(token="t"), "authorization": "Bearer u"}, 401, "unauthorized"),
        ({"body": b"{}", "door": Door(token="t"), "authorization": "t"}, 401, "unauthorized"),
        ({"method": "GET", "door": Door(token="t")}, 401, "unauthorized"),
    ],
)
def test_what_is_refused(asked, status, code):
    found = ask(**asked)
    assert (found.status, found.code, found.headers["content-type"]) == (status, code, "application/json")
    assert found.headers["x-request-id"]
    assert ";" in found.message  # the part that says what is expected


@pytest.mark.parametrize(
    "asked",
    [
        {"content_type": "application/json; charset=utf-8"},
        {"content_type": "Application/JSON"},
        {"door": Door(token="t"), "authorization": "Bearer t"},
        {"limits": BodyLimits(body=2, depth=1)},
    ],
)
def test_what_is_let_in(asked):
    assert ask(b"{}", **asked).body == b"{}"


def test_a_body_that_is_left_to_its_route_is_not_looked_at():
    assert ask(b"{", path="/big", streamed={"/big"}).body == b"{"
    assert ask(b"{", path="/other", streamed={"/big"}).status == 400


@pytest.mark.parametrize(
    ("given", "kept"), [("a-1.B_2", True), ("x" * 129, False), ("a b", False), ("<script>", False), ("", False)]
)
def test_a_request_has_a_name(given, kept):
    found = ask(b"{}", x_request_id=given).headers["x-request-id"]
    assert (found == given) is kept
    assert kept or len(found) == 32


def test_what_fails_is_said_without_a_traceback(caplog):
    with caplog.at_level(logging.ERROR):
        found = ask(b'"fail"')
    assert (found.status, found.json) == (
        500,
        {"error": {"code": "failed", "message": "this is a bug in Calipers: RuntimeError: on purpose"}},
    )
    assert caplog.records[0].exc_info  # the log has the traceback


def test_other_protocols_are_turned_away():
    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(Guard(echo, Door())({"type": "websocket"}, None, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_a_request_whose_time_is_over_gets_an_answer_too():
    """This happens when the server is stopped, and a hook still runs after the grace period."""
    begun = asyncio.Event()

    async def endless(scope, receive, send):
        begun.set()
        await asyncio.Event().wait()

    async def work():
        request = asyncio.ensure_future(asked(Guard(endless, HERE), "GET", "/", [], HEADERS))
        await begun.wait()
        request.cancel()
        return await request

    found = asyncio.run(work())
    assert (found.status, found.code) == (503, "stopping")
