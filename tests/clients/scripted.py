"""A client for tests, whose answers are given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from calipers.clients import Completion, Request
from calipers.errors import ClientError

Answer = str | Completion | ClientError
Answers = Mapping[tuple[str, int], Answer | Sequence[Answer]] | Callable[[Request], Answer]


class Scripted:
    """A model with given answers: by (task, sample), or by a function of the request. Errors are raised.

    A list has the answers to successive calls; its last answer is repeated. ``calls`` has every request in the order of
    arrival. ``before`` is awaited ahead of each answer, so that a test can make calls overlap or wait for one another.

    >>> import asyncio
    >>> model = Scripted({("a", 0): [ClientError("busy", retry=True), "4"]})
    >>> asyncio.run(model.complete(Request("a", 0, "2 + 2?")))
    Traceback (most recent call last):
    calipers.errors.ClientError: busy
    >>> asyncio.run(model.complete(Request("a", 0, "2 + 2?"))).text
    '4'
    """

    def __init__(self, answers: Answers, before: Callable[[Request], Awaitable[None]] | None = None) -> None:
        self.calls: list[Request] = []
        self.closed = False
        self._answers, self._before = answers, before
        self._used: dict[tuple[str, int], int] = {}  # number of answers of each list that were used

    async def complete(self, request: Request) -> Completion:
        """The next answer in the script."""
        self.calls.append(request)
        if self._before is not None:
            await self._before(request)
        answer = self._next(request)
        if isinstance(answer, ClientError):
            raise answer
        return Completion(answer) if isinstance(answer, str) else answer

    async def close(self) -> None:
        """Record that the client was closed."""
        self.closed = True

    def _next(self, request: Request) -> Answer:
        if callable(self._answers):
            return self._answers(request)
        key = request.task, request.sample
        if key not in self._answers:
            return ClientError(f"no answer to task {request.task!r}, sample {request.sample}", kind="absent")
        answers = self._answers[key]
        if isinstance(answers, (str, Completion, ClientError)):
            return answers
        used = self._used.get(key, 0)
        self._used[key] = used + 1
        return answers[min(used, len(answers) - 1)]
