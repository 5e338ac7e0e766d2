"""A bare aiohttp client, which is the least cost of any run that uses it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bench.peer import Numbers, Peer, Work

if TYPE_CHECKING:
    import aiohttp

PEER = Peer("bare_aiohttp", "bare aiohttp loop", packages=("aiohttp",))

HEADERS = {"Content-Type": "application/json", "Accept": "application/json"}


def prepare(url: str, requests: int, workers: int) -> Work:
    """Post the same request many times, with a number of concurrent workers; answers are read and dropped."""
    import aiohttp  # noqa: F401  imported before the time is measured

    async def work() -> int:
        async with session(workers) as http:
            return await ask(http, url, requests, workers)

    return lambda: asyncio.run(work())


def numbers(answer: Any) -> Numbers:
    """No numbers, as it has none in common with the others."""
    return {}


def session(workers: int) -> aiohttp.ClientSession:
    """A session with the settings of Calipers' own."""
    import aiohttp

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=workers),
        timeout=aiohttp.ClientTimeout(total=600.0, sock_connect=30.0),
        cookie_jar=aiohttp.DummyCookieJar(),
    )


async def ask(http: aiohttp.ClientSession, url: str, requests: int, workers: int) -> int:
    """Run workers that take requests from one iterator until it ends; returns the number of bytes received."""
    from yarl import URL

    body = json.dumps({"model": "fixed", "messages": [{"role": "user", "content": "What is 6 * 7?"}]}).encode()
    where, left = URL(f"{url}/chat/completions"), iter(range(requests))

    async def worker(left: Iterator[int]) -> int:
        size = 0
        for _ in left:
            async with http.post(where, data=body, headers=HEADERS, allow_redirects=False) as response:
                size += len(await response.read())
        return size

    return sum(await asyncio.gather(*(worker(left) for _ in range(workers))))
