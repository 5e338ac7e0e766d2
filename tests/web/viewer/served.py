"""A viewer's server in the process of the test, and a client with its cookie."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
from yarl import URL

from calipers.web.viewer.labelling import Labelling
from calipers.web.viewer.library import Library
from calipers.web.viewer.server import Viewer, serving


@dataclass
class Client:
    """A client with the cookie of the server."""

    http: aiohttp.ClientSession
    base: URL
    token: str
    viewer: Viewer

    async def get(self, path: str, status: int = 200, **options: Any) -> Any:
        """The JSON of an answer with this status, or its text if it is not JSON."""
        async with self.http.get(self.base.join(URL(path, encoded=True)), allow_redirects=False, **options) as answer:
            text = await answer.text()
            assert answer.status == status, (path, answer.status, text[:300])
            return await answer.json() if answer.content_type == "application/json" else text

    async def post(self, path: str, body: Any, status: int = 200, origin: str | None = "") -> Any:
        """The answer to a POST request, by default from the page itself."""
        headers = {"Origin": str(self.base).rstrip("/") if origin == "" else origin} if origin is not None else {}
        async with self.http.post(self.base.join(URL(path)), json=body, headers=headers) as answer:
            assert answer.status == status, (path, answer.status, await answer.text())
            return await answer.json() if answer.content_type == "application/json" else await answer.text()

    async def run(self, name: str = "") -> str:
        """The id of the run whose path has this name."""
        runs = (await self.get("/api/runs"))["runs"]
        return next(row["id"] for row in runs if name in row["path"])


def served(paths: list[str], check: Callable[[Client], Awaitable[None]], labelling: Labelling | None = None) -> None:
    """Serve the paths while ``check`` runs."""

    async def both() -> None:
        async with serving(Library(paths), labelling=labelling) as (viewer, address):
            jar = aiohttp.CookieJar(unsafe=True)  # accept cookies for an IP address
            connector = aiohttp.TCPConnector(limit=0)  # as many connections as a test opens
            async with aiohttp.ClientSession(cookie_jar=jar, connector=connector) as http:
                url = URL(address)
                client = Client(http, url.origin(), url.query["token"], viewer)
                async with http.get(address, allow_redirects=False) as answer:
                    assert answer.status == 303
                await check(client)

    asyncio.run(both())
