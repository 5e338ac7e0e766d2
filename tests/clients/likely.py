"""A completions server on loopback that returns log-likelihoods from a small model in Python.

The model has a real tokenizer of bytes and some words, and the probabilities of its next token depend on the two
tokens before it and add up to 1. So a client's results can be compared with the definition, which `Model` has, too.
In a test::

    async with Likely(Model()) as server:
        client = connect("openai/any", Connection(base_url=server.url, api="completions"))

or in a process of its own, which prints its port: ``python likely.py --ways echo --bos``.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from aiohttp import web
from clients.weather import serve

WORDS = ["the", " the", " cat", " dog", " sat", " ran", "then", " is", " not", "ing", " A", " B", "one", " two"]
BOS = "<s>"


@lru_cache(4096)
def table(before: tuple[str, ...]) -> dict[str, float]:
    """The log-probability of every token after these tokens."""
    lots = random.Random(repr(before))
    words = [*WORDS, *(f"b{byte}" for byte in range(256))]
    weights = [lots.gauss(0, 2) for _ in words]
    whole = math.log(math.fsum(map(math.exp, weights)))
    return {word: weight - whole for word, weight in zip(words, weights, strict=True)}


@dataclass(frozen=True)
class Model:
    """A tokenizer, a model, and its context length."""

    bos: bool = True  # it puts a token before every text
    longest: int = 4096

    def encode(self, text: str) -> list[str]:
        """The tokens of a text, the longest word first: bytes are ``b97``, words are themselves."""
        found = [BOS] if self.bos else []
        while text:
            word = max((one for one in WORDS if text.startswith(one)), key=len, default="")
            found += [word] if word else [f"b{byte}" for byte in text[0].encode()]
            text = text[len(word) or 1 :]
        return found

    def shown(self, token: str) -> str:
        """The text of a token; a token that is a part of a character has none."""
        if token in WORDS or token == BOS:
            return token
        byte = int(token[1:])
        return chr(byte) if byte < 128 else "\N{REPLACEMENT CHARACTER}"

    def read(self, tokens: list[str]) -> list[tuple[float, str, float] | None]:
        """For each token its log-probability, the most likely token and its log-probability; None for the first."""
        found: list[tuple[float, str, float] | None] = [None]
        for place in range(1, len(tokens)):
            chances = table(tuple(tokens[max(0, place - 2) : place]))
            best = max(chances, key=lambda one: chances[one])
            found.append((chances[tokens[place]], best, chances[best]))
        return found

    def likelihood(self, context: str, continuation: str) -> tuple[float, bool, int]:
        """lm-evaluation-harness' definition: encode the context alone, then skip as many tokens of the whole text."""
        whole, before = self.encode(context + continuation), self.encode(context.rstrip())
        held = [one for one in self.read([*before, *whole[len(before) :]])[len(before) :] if one]
        return math.fsum(one[0] for one in held), all(one[0] == one[2] for one in held), len(held)


@dataclass
class Likely:
    """The server: the ``ways`` that it supports, its ``calls``, and ``troubles``, the first calls with a 503."""

    model: Model = field(default_factory=Model)
    ways: tuple[str, ...] = ("echo", "listed")
    strict: bool = False  # what it does not understand is a 400, not passed by
    counts: object = True  # it says how many tokens it read; false: no usage; else: the usage that it returns
    troubles: int = 0
    port: int = 0

    def __post_init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def __aenter__(self) -> Likely:
        app = web.Application()
        app.router.add_post("/v1/completions", self._answer)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/weather", self._report)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _report(self, _: web.Request) -> web.Response:
        return web.json_response({"calls": len(self.calls), "prompts": [call["prompt"] for call in self.calls]})

    async def _chat(self, request: web.Request) -> web.Response:
        self.calls.append({"prompt": "a chat"})
        return web.json_response({"choices": [{"message": {"content": "A"}}]})

    async def _answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.calls.append(body)
        if len(self.calls) <= self.troubles:
            return web.json_response({"error": {"message": "later"}}, status=503, headers={"Retry-After": "0"})
        for way, key in (("echo", "echo"), ("listed", "prompt_logprobs")):
            if self.strict and way not in self.ways and key in body:
                return web.json_response({"error": {"message": f"unknown field {key}"}}, status=400)
        tokens = self.model.encode(body["prompt"])
        if len(tokens) > self.model.longest:
            said = f"This model's maximum context length is {self.model.longest} tokens, you asked for {len(tokens)}"
            return web.json_response({"error": {"message": said}}, status=400)
        choice = self._choice(body, tokens)
        usage = {"prompt_tokens": len(tokens), "completion_tokens": 1} if self.counts is True else self.counts or None
        return web.json_response({"object": "text_completion", "choices": [choice], "usage": usage})

    def _choice(self, body: dict[str, Any], tokens: list[str]) -> dict[str, Any]:
        chances = table(tuple(tokens[-2:]))
        more = max(chances, key=lambda one: chances[one])
        choice: dict[str, Any] = {"index": 0, "text": self.model.shown(more), "finish_reason": "length"}
        echo = bool(body.get("echo")) and "echo" in self.ways
        if echo:
            choice["text"] = body["prompt"] + choice["text"]
        if "logprobs" in body:
            said = [*tokens, more] if echo else [more]
            read = [*self.model.read(tokens), (chances[more],) * 3] if echo else [(chances[more], more, chances[more])]
            choice["logprobs"] = {
                "tokens": [self.model.shown(one) for one in said],
                "token_logprobs": [one and one[0] for one in read],
                "top_logprobs": [
                    one and {token: one[0], str(one[1]): one[2]} for token, one in zip(said, read, strict=True)
                ],
            }
        if "prompt_logprobs" in body and "listed" in self.ways:
            choice["prompt_logprobs"] = [
                one
                and {
                    token: {"logprob": one[0], "rank": _rank(tokens, at), "decoded_token": self.model.shown(token)},
                    **({} if one[1] == token else {one[1]: {"logprob": one[2], "rank": 1, "decoded_token": "?"}}),
                }
                for at, (token, one) in enumerate(zip(tokens, self.model.read(tokens), strict=True))
            ]
        return choice


def _rank(tokens: list[str], at: int) -> int:
    chances = table(tuple(tokens[max(0, at - 2) : at]))
    return 1 + sum(one > chances[tokens[at]] for one in chances.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ways", default="echo,listed")
    parser.add_argument("--bos", action="store_true")
    parser.add_argument("--longest", type=int, default=4096)
    parser.add_argument("--troubles", type=int, default=0)
    asked = parser.parse_args()
    asyncio.run(serve(Likely(Model(asked.bos, asked.longest), tuple(asked.ways.split(",")), troubles=asked.troubles)))


if __name__ == "__main__":
    main()
