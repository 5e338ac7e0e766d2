"""aiohttp asked for answers and nothing more: the least that any run on top of it costs."""

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
    """Post the same question so many times, a number of workers at once; the answers are read and dropped."""
    import aiohttp  # noqa: F401  outside the clock

    async def work() -> int:
        async with session(workers) as http:
            return await ask(http, url, requests, workers)

    return lambda: asyncio.run(work())


def numbers(answer: Any) -> Numbers:
    """It came to nothing that others come to as well."""
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
    """Workers that take the next request from one iterator until there is none; the bytes that came back."""
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
