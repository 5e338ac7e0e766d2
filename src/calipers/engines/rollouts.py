"""Rollouts on a Ray cluster: workers call the model and verify, and the loop of the run stays in this process.

::

    loop (pace, retries, budget, --until, log) ──► RemoteModel.complete ──► a worker: client call, then verdict
                                          ◄── completion ◄── both at once ──┘
                                          ──► RemoteVerifier.verify: returns the verdict that came with it

The loop is that of a local run, so there is one writer of the log, one rate limit, one budget and one stopping rule.

Stored completions can be verified on a cluster, too: `RemoteBench` is the bench of a rescore with remote verifiers.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import msgspec

from calipers.clients import Client, Completion, Request, connect, is_local
from calipers.clients.secrets import Secrets
from calipers.engines import AHEAD, TRIES, Lost, RemoteWorkers, connected
from calipers.errors import ClientError, InputError, VerifierError
from calipers.running import Job
from calipers.running.library import JobBenchmark
from calipers.running.rollout import Bench, Blame, Case, close_all, notes_of
from calipers.tasks import Task
from calipers.verifiers import NamedVerifier, Verdict, Verifier, judged, ready
from calipers.verifiers.text import EXACT_MATCH, ExactMatchOfRun
from calipers.verifiers.user_code import find_verifier, judge_of, named_verifier, opened

HANDLER: Final = "calipers.engines.rollouts:RolloutHandler"
VERDICT_HANDLER: Final = "calipers.engines.rollouts:VerdictHandler"


class Replied(msgspec.Struct, frozen=True):
    """A worker's reply to a request. ``verdict`` is None for a task without a verifier."""

    completion: Completion
    verdict: Verdict | VerifierError | None = None


class RolloutHandler:
    """The handler of a run's workers, which calls the model and then verifies, or only verifies."""

    def __init__(self, job: Job) -> None:
        self._job, self._secrets = job, Secrets()
        self._benchmark = JobBenchmark.of(job, None)
        self._client = self._benchmark.client(connect(job.model, self._benchmark.connection(self._secrets)))
        self._judges: dict[str, Verifier] = {}
        verified = [task for task in self._benchmark.suite.tasks if task.verifier is not None and not job.predict_only]
        ready({task.verifier: self._judge(task) for task in verified}.values())

    @property
    def notes(self) -> list[str]:
        """The notes of the client and the verifiers."""
        return notes_of([self._client, *self._judges.values()])

    async def handle(self, item: tuple[Request | Completion, Task]) -> Replied | Verdict | ClientError | VerifierError:
        """The completion and its verdict, or the error; for a given completion, only the verdict."""
        request, task = item
        if isinstance(request, Completion):
            return await self._verified(task, request)
        try:
            completion = await self._client.complete(request)
        except ClientError as error:
            return error
        return Replied(completion, None if task.verifier is None else await self._verified(task, completion))

    async def close(self) -> None:
        """Close connections."""
        await self._client.close()
        await close_all(self._judges.values())

    async def _verified(self, task: Task, completion: Completion) -> Verdict | VerifierError:
        try:
            return await judged(self._judge(task), task, completion)
        except VerifierError as error:
            return error

    def _judge(self, task: Task) -> Verifier:
        name = str(task.verifier)
        if name not in self._judges:
            verifier = self._benchmark.verifiers.get(name) or judge_of(task)
            self._judges[name] = ExactMatchOfRun() if verifier is EXACT_MATCH else opened(verifier, self._secrets)
        return self._judges[name]


class RemoteModel:
    """The client of a run's loop, whose calls are made by workers, which also verify the completions."""

    def __init__(self, ray: Any, job: Job, tasks: Sequence[Task], local: Client) -> None:
        self._local = local  # only to be closed; no call is made with it
        self._tasks = {task.id: task for task in tasks}
        self._verdicts: dict[int, tuple[Completion, Verdict | VerifierError]] = {}
        self._workers = RemoteWorkers(ray, HANDLER, job, places=job.in_flight, environment=keys_in(os.environ))

    @property
    def notes(self) -> list[str]:
        """The notes of the workers' clients and verifiers, and on repeated rollouts."""
        return self._workers.notes

    async def complete(self, request: Request) -> Completion:
        """The completion that a worker got; its verdict, which comes with it, is kept for `verdict`."""
        task = self._tasks[request.task]
        answer, lost = await self._call((request, task))
        if isinstance(answer, ClientError):
            raise answer
        completion: Completion = answer.completion
        if lost:
            completion = msgspec.structs.replace(completion, asked_again=lost)
        if answer.verdict is not None:
            self._verdicts[id(completion)] = completion, answer.verdict
        return completion

    async def verdict(self, task: Task, completion: Completion) -> Verdict:
        """The verdict on a completion: at first the one that came with it, later a worker's new verdict."""
        _, verdict = self._verdicts.pop(id(completion), (None, None))
        if verdict is None:
            try:
                verdict, _ = await self._call((completion, task))
            except ClientError as error:
                raise VerifierError(str(error), outcome="verifier_failed", kind=error.kind) from None
        if isinstance(verdict, VerifierError):
            raise verdict
        return verdict

    async def close(self) -> None:
        """End the workers."""
        await self._local.close()
        await self._workers.close()

    async def _call(self, item: tuple[Request | Completion, Task]) -> tuple[Any, int]:
        try:
            return await self._workers.call(item)
        except Lost as error:
            problem = f"task {item[1].id!r}: {TRIES} workers were lost while they had this rollout ({error})"
            raise ClientError(problem, kind="worker_lost") from None


class RemoteVerifier:
    """A verifier for a run's loop, whose verdicts come from workers."""

    def __init__(self, model: RemoteModel, judge: Verifier) -> None:
        self._model, self.judge = model, judge

    @property
    def name(self) -> str:
        """Its name in tasks."""
        return str(getattr(self.judge, "name", type(self.judge).__name__))

    async def verify(self, task: Task, completion: Completion) -> Verdict:
        """A worker's verdict."""
        return await self._model.verdict(task, completion)


@contextmanager
def remote(
    job: Job, address: str, tasks: Sequence[Task], client: Client, verifiers: Mapping[str, Verifier]
) -> Iterator[tuple[Client, Mapping[str, Verifier], int]]:
    """A client and verifiers whose work is done on a cluster, and the number of rollouts to have in flight at once."""
    if is_local(job.model):
        problem = f"{job.model} is loaded into one process"
        raise InputError.at("--engine", problem, "serve the model, and use openai/NAME with --base-url")
    with connected(address) as ray:
        model = RemoteModel(ray, replace(job, out=None), tasks, client)
        ahead = job.in_flight * (1 + (AHEAD if job.until is None and job.max_cost is None else 0))
        yield model, {name: RemoteVerifier(model, judge) for name, judge in verifiers.items()}, ahead


def keys_in(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that clients and verifiers read. They are sent in memory, and are in no plan or log."""
    suffixes = ("_API_KEY", "_BASE_URL", "_TOKEN", "_API_BASE")
    return {name: value for name, value in environment.items() if name.endswith(suffixes)}


class VerdictHandler:
    """The handler of a rescore's workers, which verifies completions; `Blame` decides who caused a failure."""

    def __init__(self, instead: str | None) -> None:
        self._instead = instead  # the verifier of all tasks; None for each task's own verifier
        self._secrets, self._blame = Secrets(), Blame()
        self._judges: dict[str, Verifier] = {}

    @property
    def notes(self) -> list[str]:
        """The notes of the verifiers."""
        return notes_of(self._judges.values())

    async def handle(self, item: tuple[Task, Completion]) -> Verdict | VerifierError:
        """The verdict, or the error."""
        task, completion = item
        name = self._instead or str(task.verifier)
        if name not in self._judges:
            verifier: NamedVerifier = named_verifier(name) if self._instead else find_verifier(name)
            self._judges[name] = opened(verifier, self._secrets)
        try:
            return await self._blame.judged(self._judges[name], task, completion)
        except VerifierError as error:
            return error

    async def close(self) -> None:
        """Close connections."""
        await close_all(self._judges.values())


class RemoteBench(Bench):
    """A bench whose cases are verified by workers."""

    def __init__(self, ray: Any, most: int, instead: str | None) -> None:
        super().__init__(most)
        environment = keys_in(os.environ)
        self._workers = RemoteWorkers(ray, VERDICT_HANDLER, instead, places=most, environment=environment)

    @property
    def notes(self) -> list[str]:
        """The notes of the verifiers, and on cases that were repeated on another worker."""
        return self._workers.notes

    async def _close(self) -> None:
        await self._workers.close()

    async def _judged(self, cases: Sequence[Case]) -> list[Verdict | VerifierError]:
        async def verdict(task: Task, completion: Completion) -> Verdict | VerifierError:
            answer: Verdict | VerifierError
            try:
                answer, _ = await self._workers.call((task, completion))
            except Lost as error:
                problem = f"task {task.id!r}: {TRIES} workers were lost while they had this completion ({error})"
                answer = VerifierError(problem, kind="worker_lost")
            return answer

        return list(await asyncio.gather(*(verdict(task, completion) for _, task, completion in cases)))


@contextmanager
def remote_bench(address: str, most: int, instead: str | None) -> Iterator[Bench]:
    """A bench on the cluster at an address."""
    with connected(address) as ray, RemoteBench(ray, most, instead) as bench:
        yield bench
