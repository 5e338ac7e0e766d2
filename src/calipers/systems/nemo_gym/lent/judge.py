"""Judges: models that another server asks for a verdict. Lent as ``nemo_gym.judge``.

A call that fails is no wrong answer: the row comes back marked, and NeMo Gym's collector keeps it apart.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from pydantic import BaseModel

from calipers.systems.nemo_gym.words import FAILURE

__all__ = ["JudgeError", "call_judge", "judge_failsafe", "reraise_judge_errors"]

Reply = TypeVar("Reply", bound=BaseModel)


class JudgeError(Exception):
    """A judge could not be asked."""


async def reraise_judge_errors(coro: Awaitable[Any]) -> Any:
    """What a call gives; any failure of it is a `JudgeError`."""
    try:
        return await coro
    except JudgeError:
        raise
    except Exception as error:
        raise JudgeError(f"{type(error).__name__}: {error}") from error


async def call_judge(
    server_client: Any, *, server_name: str, url_path: str, json: Any, response_model: type[Reply]
) -> Reply:
    """Ask a model server, and read its reply in the class of the route. JudgeError when that fails."""
    # Loads a web client, which a server without a judge does not need.
    from calipers.systems.nemo_gym.lent.server_utils import get_response_json, raise_for_status

    async def reply() -> Reply:
        response = await server_client.post(server_name=server_name, url_path=url_path, json=json)
        await raise_for_status(response)
        return response_model.model_validate(await get_response_json(response))

    made: Reply = await reraise_judge_errors(reply())
    return made


def judge_failsafe(verify_fn: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """``verify`` that answers with a marked row, its reward 0, where a judge could not be asked."""

    @functools.wraps(verify_fn)
    async def verify(*given: Any, **named: Any) -> Any:
        try:
            return await verify_fn(*given, **named)
        except JudgeError as error:
            bodies = [value for value in (*named.values(), *given) if hasattr(value, "response")]
            body = named.get("body", bodies[0] if bodies else None)
            if not isinstance(body, BaseModel):
                raise
            from calipers.systems.nemo_gym.serve.guard import StrictJSON

            marks = {"reward": 0.0, FAILURE: "judge_failed", "_ng_failure_judge_error": str(error)}
            return StrictJSON({**body.model_dump(mode="json"), **marks})

    return verify
