"""Functions for tests of clients: calls of one client in one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from clients.weather import Forecast, Server

from calipers.clients import Completion, Connection, Request, connect
from calipers.errors import ClientError


def request(prompt: Any = "2 + 3", **settings: Any) -> Request:
    return Request(settings.pop("task", "t"), settings.pop("sample", 0), prompt, **settings)


async def answer(client: Any, asked: Request) -> Completion | ClientError:
    """The completion of a call, or its error."""
    try:
        return await client.complete(asked)
    except ClientError as error:
        return error


def ask(spec: str, *requests: Request, connection: Connection | None = None) -> list[Completion | ClientError]:
    """The results of calls of one client, one after the other."""

    async def all_of_them() -> list[Completion | ClientError]:
        client = connect(spec, connection or Connection())
        try:
            return [await answer(client, one) for one in requests]
        finally:
            await client.close()

    return asyncio.run(all_of_them())


def talk(
    requests: Sequence[Request],
    *replies: Any,
    spec: str = "openai/any",
    forecast: Forecast | None = None,
    **connection: Any,
) -> tuple[list[Any], Server, Any]:
    """The results of calls to a server with these replies; also the server and the client."""

    async def conversation() -> tuple[list[Any], Server, Any]:
        async with Server(forecast or Forecast(), list(replies)) as server:
            client = connect(spec, Connection(base_url=server.url, **connection))
            try:
                return [await answer(client, one) for one in requests], server, client
            finally:
                await client.close()

    return asyncio.run(conversation())


def said(*replies: Any, asked: Request | None = None, **connection: Any) -> Any:
    """The result of a call to a server with these replies."""
    ends, _, _ = talk([asked or request()], *replies, **connection)
    return ends[0]
