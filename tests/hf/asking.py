"""Concurrent calls to a checkpoint, and their results."""

from __future__ import annotations

import asyncio
from typing import Any

from calipers.clients import Completion, Connection, Request
from calipers.clients.huggingface.client import HfModel, connect
from calipers.errors import ClientError


def request(prompt: Any = "the cat", **settings: Any) -> Request:
    return Request("t", settings.pop("sample", 0), prompt, **{"max_tokens": 12, **settings})


def batch_plan(**sizes: int) -> dict[str, Any]:
    """A batch plan for the CPU, as in the plan of a run."""
    plan = {"device": "cpu", "name": "", "devices": 1, "memory": None}
    return plan | {"tokens": 2**11, "cached": 2**20, "places": 2**20} | sizes


def connected(path: str, batch: Any = None, **connection: Any) -> HfModel:
    """The client of a checkpoint, with the batch plan of a run."""
    model = connect(path, Connection(**connection))
    if batch is not None:
        model.batch_plan(batch)
    return model


def ask(path: str, *requests: Request, **connection: Any) -> list[Any]:
    """The results of calls, including errors."""
    return asked(path, *requests, **connection)[0]


def asked(path: str, *requests: Request, **connection: Any) -> tuple[list[Any], HfModel]:
    async def together() -> tuple[list[Any], HfModel]:
        model = connected(path, **connection)
        try:
            return await asyncio.gather(*[_end(model.complete(one)) for one in requests]), model
        finally:
            await model.close()

    return asyncio.run(together())


def score(path: str, *calls: Any, **connection: Any) -> list[Any]:
    """The results of calls for likelihoods, each with a list of texts."""

    async def together() -> list[Any]:
        model = connected(path, **connection)
        try:
            return await asyncio.gather(*[_end(model.score(call)) for call in calls])
        finally:
            await model.close()

    return asyncio.run(together())


def in_turn(path: str, calls: Any, **connection: Any) -> list[Any]:
    """The results of calls for likelihoods, one after the other, with one model."""

    async def one_by_one() -> list[Any]:
        model = connected(path, **connection)
        try:
            return [await _end(model.score(call)) for call in calls]
        finally:
            await model.close()

    return asyncio.run(one_by_one())


async def _end(waiting: Any) -> Completion | ClientError | list[Any]:
    try:
        return await waiting
    except ClientError as error:
        return error
