"""Stored completions verified on a Ray cluster: the bench of a rescore whose judges sit on other machines."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from calipers.clients.client import Completion
from calipers.clients.secrets import Secrets
from calipers.engines.ray.cluster import connected
from calipers.engines.ray.rollouts import keys_in
from calipers.engines.ray.workers import TRIES, Lost, RemoteWorkers
from calipers.errors import VerifierError
from calipers.running.rollout import Bench, Blame, Case
from calipers.tasks.task import Task
from calipers.verifiers.find import NamedVerifier, named_verifier, verifier
from calipers.verifiers.user_code import opened
from calipers.verifiers.verifier import Verdict, Verifier

HANDLER: Final = "calipers.engines.ray.judging:VerdictHandler"


class VerdictHandler:
    """What a worker does in a rescore: verify a completion, and find out whose failure it is when that fails."""

    def __init__(self, instead: str | None) -> None:
        self._instead = instead  # the verifier of all tasks; None: each task's own
        self._secrets, self._blame = Secrets(), Blame()
        self._judges: dict[str, Verifier] = {}

    @property
    def notes(self) -> list[str]:
        """What the verifiers have to say."""
        return [note for judge in self._judges.values() for note in getattr(judge, "notes", ())]

    async def handle(self, item: tuple[Task, Completion]) -> Verdict | VerifierError:
        """The verdict, or why there is none."""
        task, completion = item
        name = self._instead or str(task.verifier)
        if name not in self._judges:
            found: NamedVerifier = named_verifier(name) if self._instead else verifier(name)
            self._judges[name] = opened(found, self._secrets)
        try:
            return await self._blame.judged(self._judges[name], task, completion)
        except VerifierError as error:
            return error

    async def close(self) -> None:
        """Close connections."""
        for judge in self._judges.values():
            if (close := getattr(judge, "close", None)) is not None:
                await close()


class RemoteBench(Bench):
    """A bench that hands every case to a worker."""

    def __init__(self, ray: Any, most: int, instead: str | None) -> None:
        super().__init__(most)
        self._ray, self._instead = ray, instead
        self._workers: RemoteWorkers | None = None

    @property
    def notes(self) -> list[str]:
        """What the judges have to say, and how many cases were given to another worker."""
        return self._workers.notes if self._workers is not None else []

    async def _dismissed(self) -> None:
        if self._workers is not None:
            await self._workers.close()

    async def _judged(self, cases: Sequence[Case]) -> list[Verdict | VerifierError]:
        if self._workers is None:
            self._workers = RemoteWorkers(
                self._ray, HANDLER, self._instead, places=self._most, environment=keys_in(os.environ)
            )
        workers = self._workers

        async def verdict(task: Task, completion: Completion) -> Verdict | VerifierError:
            try:
                found, _ = await workers.call((task, completion))
            except Lost as error:
                wrong = f"task {task.id!r}: {TRIES} workers were lost while they had this completion ({error})"
                return VerifierError(wrong, kind="worker_lost")
            answer: Verdict | VerifierError = found
            return answer

        return list(await asyncio.gather(*(verdict(task, completion) for _, task, completion in cases)))


@contextmanager
def remote_bench(address: str, most: int, instead: str | None) -> Iterator[Bench]:
    """A bench on the cluster at an address."""
    with connected(address) as ray, RemoteBench(ray, most, instead) as bench:
        yield bench
