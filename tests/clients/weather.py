"""An OpenAI-compatible server on loopback that is unreliable: some first calls fail, in known ways.

Every answer is a function of the prompt and the seed, so that a run against the server has one correct result, whatever
fails. In a test::

    async with Server(Forecast(share=0.3)) as server:
        client = connect("openai/any", Connection(base_url=server.url))

or in a process of its own, which prints its port: ``python weather.py --port 0 --share 0.3``.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import re
import signal
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

TRANSIENT = ("429", "500", "503", "malformed", "half", "no_choices", "slow", "dropped")
"""Failures that do not occur again when the same call is repeated."""

FINAL = ("null", "refusal")
"""Endings by the model, which are the same for every call."""


@dataclass(frozen=True)
class Forecast:
    """The rate of failures, and how the server treats its callers."""

    share: float = 0.0  # of the (prompt, seed) pairs that have trouble
    seed: int = 0
    kinds: tuple[str, ...] = TRANSIENT + FINAL
    delay: float = 0.0  # seconds before every answer
    slow: float = 30.0  # seconds of a slow one: more than the client's patience
    wait: str = "0"  # what Retry-After says
    key: str = ""  # demanded when set
    hold: int | None = None  # calls after so many wait until somebody says go

    def chance(self, what: str, prompt: str, seed: Any) -> float:
        """A number in [0, 1) that depends only on these arguments."""
        text = json.dumps([self.seed, what, prompt, seed], sort_keys=True)
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big") / 2**56

    def trouble(self, prompt: str, seed: Any) -> str:
        """The failure of the first call with a prompt and a seed; "" for none."""
        if self.chance("trouble", prompt, seed) >= self.share:
            return ""
        return self.kinds[int(self.chance("kind", prompt, seed) * len(self.kinds))]

    def answer(self, prompt: str, seed: Any) -> str:
        """The model's answer without failures: a sum that is right seven times in ten, else a word."""
        luck = self.chance("answer", prompt, seed)
        if terms := re.search(r"(-?\d+) \+ (-?\d+)", prompt):
            return str(int(terms[1]) + int(terms[2]) + (luck >= 0.7))
        return f"word-{int(luck * 1000):03d}"

    def truth(self, prompt: str, seed: Any) -> tuple[str, str]:
        """The text and the ending that a client gets after retries."""
        trouble = self.trouble(prompt, seed)
        if trouble == "null":
            return "", ""
        if trouble == "refusal":
            return "I would rather not.", "refused"
        return self.answer(prompt, seed), ""


@dataclass
class Call:
    """A received request."""

    path: str
    body: dict[str, Any]
    headers: dict[str, str]
    prompt: str
    seed: Any
    trouble: str = ""


@dataclass
class Server:
    """The server: its ``url``, the received ``calls``, and the ``forecast`` of failures.

    ``replies`` are bodies or whole responses to return instead, one per call, for tests of single cases.
    """

    forecast: Forecast = field(default_factory=Forecast)
    replies: list[Any] = field(default_factory=list)
    port: int = 0

    def __post_init__(self) -> None:
        self.calls: list[Call] = []
        self.served: Counter[str] = Counter()  # (prompt, seed) as JSON -> calls
        self.troubles: Counter[str] = Counter()
        self.now, self.most = 0, 0  # calls in progress, and the most there ever were
        self._closing = asyncio.Event()
        self._go = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def __aenter__(self) -> Server:
        app = web.Application(client_max_size=2**28)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/completions", self._chat)
        app.router.add_get("/weather", self._report)
        app.router.add_get("/weather/go", self._let_go)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing.set()
        self._go.set()
        await self._runner.cleanup()

    async def _report(self, _: web.Request) -> web.Response:
        return web.json_response(
            {
                "calls": sum(self.served.values()),
                "pairs": len(self.served),
                "most": self.most,
                "troubles": self.troubles,
            }
        )

    async def _let_go(self, request: web.Request) -> web.Response:
        self._go.set()
        return await self._report(request)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            return await self._answer(request)
        finally:
            self.now -= 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        chat = request.path.endswith("/chat/completions")
        prompt = body["messages"][-1]["content"] if chat else body["prompt"]
        call = Call(request.path, body, dict(request.headers), prompt, body.get("seed"))
        pair = json.dumps([prompt, call.seed])
        self.calls.append(call)
        self.served[pair] += 1
        if self.forecast.hold is not None and len(self.calls) > self.forecast.hold:
            await self._go.wait()
        if self.forecast.delay:
            await asyncio.sleep(self.forecast.delay)
        if self.replies:
            reply = self.replies.pop(0)
            return reply if isinstance(reply, web.Response) else web.json_response(reply)
        if self.forecast.key and request.headers.get("Authorization") != f"Bearer {self.forecast.key}":
            got = request.headers.get("Authorization", "none")
            return web.json_response({"error": {"message": f"wrong key: {got}"}}, status=401)
        trouble = self.forecast.trouble(prompt, call.seed)
        if trouble and (self.served[pair] == 1 or trouble in FINAL):
            call.trouble = trouble
            self.troubles[trouble] += 1
            return await self._trouble(request, trouble, chat)
        return web.json_response(reply_of(self.forecast.answer(prompt, call.seed), chat=chat))

    async def _trouble(self, request: web.Request, trouble: str, chat: bool) -> web.StreamResponse:
        if trouble in ("429", "500", "503"):
            headers = {"Retry-After": self.forecast.wait} if trouble == "429" else {}
            return web.json_response({"error": {"message": "try later"}}, status=int(trouble), headers=headers)
        if trouble == "malformed":
            return web.Response(body=b'{"choices": [{"mess', content_type="application/json")
        if trouble == "no_choices":
            return web.json_response({"choices": [], "usage": None})
        if trouble == "null":
            return web.json_response(reply_of(None, chat=True) if chat else reply_of("", chat=False))
        if trouble == "refusal":
            return web.json_response(REFUSED_CHAT if chat else REFUSED)
        if trouble == "slow":
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), self.forecast.slow)
            return web.json_response(reply_of("too late"))
        if trouble == "half":
            response = web.StreamResponse(headers={"Content-Length": "1000", "Content-Type": "application/json"})
            await response.prepare(request)
            await response.write(b'{"choices": [')
        else:
            response = web.StreamResponse()
        assert request.transport is not None
        request.transport.close()
        return response


def reply_of(
    text: Any, *, chat: bool = True, finish: str = "stop", usage: Any = None, refusal: str | None = None
) -> dict[str, Any]:
    """A reply as a server sends it; the usage counts words unless it is given."""
    message = {"role": "assistant", "content": text, "refusal": refusal}
    choice = {"index": 0, "finish_reason": finish, **({"message": message} if chat else {"text": text})}
    counted = usage or {"prompt_tokens": 7, "completion_tokens": len(str(text or "").split()), "total_tokens": 8}
    return {"id": "x", "object": "chat.completion", "model": "any", "choices": [choice], "usage": counted}


REFUSED_CHAT = reply_of(None, refusal="I would rather not.")
REFUSED = reply_of("I would rather not.", chat=False, finish="content_filter")


async def serve(server: Any) -> None:
    """Run a server on a port until the process is told to end."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with server:
        print(server.port, flush=True)
        await ended.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--share", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default=",".join(TRANSIENT + FINAL))
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--slow", type=float, default=30.0)
    parser.add_argument("--wait", default="0")
    parser.add_argument("--key", default="")
    parser.add_argument("--hold", type=int)
    asked = vars(parser.parse_args())
    port, kinds = asked.pop("port"), tuple(asked.pop("kinds").split(","))
    asyncio.run(serve(Server(Forecast(kinds=kinds, **asked), port=port)))


if __name__ == "__main__":
    main()
