"""Models that judge: one client each for as long as a run lasts, asked again while that could help."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from calipers.errors import ClientError
from calipers.run.client import Client, Completion, Connection, Price, Request
from calipers.run.loop import FIRST_WAIT, LONGEST_WAIT
from calipers.run.models import connect
from calipers.run.pace import Pace
from calipers.run.secrets import Secrets
from calipers.run.verifiers.judge_reply import Scale, Unreadable, read_score

AT_ONCE = 32  # calls to one judge

Seat = tuple[str, str | None, Price | None]
"""A judge as it is reached: its spec, base URL and price."""


@dataclass(frozen=True, slots=True)
class Said:
    """What one judge said: a reward, or why there is none."""

    reward: float | None
    why: str = ""
    usage: Mapping[str, float] = field(default_factory=dict)
    spared: bool = False  # there is none because of the server, whatever it was asked


class Jury:
    """The judges of one run. Clients are opened inside its event loop, when first needed."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._seated: dict[Seat, tuple[Client, Pace]] = {}
        self._random = random.Random()

    @property
    def notes(self) -> list[str]:
        """What the clients have to say, such as that a server accepts no seed."""
        return [f"{seat[0]}: {note}" for seat, (client, _) in self._seated.items() for note in _notes(client)]

    async def ask(self, seat: Seat, request: Request, scale: Scale, retries: int) -> Said:
        """One judge's opinion; a call that fails, a refusal, half a reply and an unreadable one are all none."""
        try:
            completion = await self._complete(seat, request, retries)
        except ClientError as error:
            return Said(None, f"{seat[0]}: {error}", spared=error.retry or error.hopeless)
        if completion.ending:  # the last line of half a reply may be half a number
            return Said(None, f"{seat[0]}: the reply was {completion.ending}", completion.usage)
        try:
            return Said(read_score(completion.text, scale), usage=completion.usage)
        except Unreadable as error:
            return Said(None, f"{seat[0]}: {error}", completion.usage)

    async def close(self) -> None:
        """Give back all connections."""
        seated, self._seated = list(self._seated.values()), {}
        for client, _ in seated:
            await client.close()

    async def _complete(self, seat: Seat, request: Request, retries: int) -> Completion:
        """The reply, tried for by the rule of the loop.

        Between tries it waits as long as the server asks, else a random while that grows.
        """
        client, pace = self._seat(seat)
        tried = 0
        while True:
            await pace.enter()
            try:
                completion = await client.complete(request)
            except ClientError as error:
                if error.slow_down:
                    pace.too_many(error.wait)
                if not error.retry or tried >= retries:
                    raise
                longest = min(LONGEST_WAIT, FIRST_WAIT * 2**tried)
                wait = self._random.uniform(0, longest) if error.wait is None else error.wait
            else:
                pace.succeeded()
                return completion
            finally:
                pace.leave()
            tried += 1
            await asyncio.sleep(wait)

    def _seat(self, seat: Seat) -> tuple[Client, Pace]:
        if seat not in self._seated:
            spec, base_url, price = seat
            connection = Connection(base_url, most=AT_ONCE, price=price, secrets=self._secrets)
            self._seated[seat] = connect(spec, connection), Pace(AT_ONCE)
        return self._seated[seat]


def _notes(client: Client) -> list[str]:
    return list(getattr(client, "notes", ()))
