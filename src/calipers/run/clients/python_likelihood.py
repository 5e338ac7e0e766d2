"""The user's own code as a model that says how likely texts are: an object with ``score(requests)``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from calipers.errors import ClientError
from calipers.run.client import Client, Completion, Request
from calipers.run.clients.aside import Aside
from calipers.run.clients.failure import cleaned
from calipers.run.likelihood import Scored, Text
from calipers.run.secrets import Secrets


class OwnScorer:
    """A client of the user's that also scores. What does not wait runs in one thread, never twice at once.

    ``score`` is handed `Continuation` and `Rolling` values and returns a `Scored` for each. Whatever it raises
    fails that one call, and is not tried again; a `ClientError` of its own passes as it is.
    """

    def __init__(self, client: Client, score: Callable[..., Any], secrets: Secrets) -> None:
        self._client, self._score, self._secrets = client, score, secrets
        self.notes: Sequence[str] = getattr(client, "notes", ())
        waits = inspect.iscoroutinefunction(score)
        self._aside = None if waits else Aside("calipers-scores")

    async def complete(self, request: Request) -> Completion:
        """What the code answers."""
        return await self._client.complete(request)

    async def close(self) -> None:
        """Let the thread go, and close the user's object if it can be closed."""
        if self._aside is not None:
            self._aside.close()
        await self._client.close()

    async def score(self, requests: Sequence[Text]) -> list[Scored]:
        """What the code says of some texts; `ClientError` when that is no likelihood of each."""
        found: Any
        try:
            if self._aside is None:
                found = await self._score(requests)
            elif isinstance(found := await self._aside.call(lambda: self._score(requests)), BaseException):
                raise found
        except ClientError:
            raise
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            said = cleaned(f"{type(error).__name__}: {error}", self._secrets)
            raise ClientError(said, kind="python") from error
        held = list(found) if isinstance(found, (list, tuple)) else []
        if len(held) != len(requests) or not all(isinstance(one, Scored) for one in held):
            said = f"score() returned {type(found).__name__} for {len(requests)} texts; expected a Scored for each"
            raise ClientError(said, kind="python", hopeless=True)
        return held
