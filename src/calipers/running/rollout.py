"""One rollout, from the outstanding entry to its line in the log; and the cause of a failed verification.

If the verifier fails, the answer may be the cause::

    failure ──► certainly not the answer (a server that accepts nothing) ──► missing
       ├──► a server breaks off, or a pattern of the user runs out of time
       │       └──► verify a neutral answer and this answer in turn, three times each
       │               ├──► the neutral one always works, this one never ──► `broke_verifier`
       │               └──► anything else ──► missing
       └──► verify a neutral answer, once for each task ──► fails, too ──► missing
                └──► succeeds: verify this answer once more ──► a verdict, or `broke_verifier`, which counts 0

Without this check, an answer that makes its verifier fail would count as missing, which is better than a wrong answer.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import product
from types import TracebackType
from typing import Any, Final, NoReturn, TypeVar

import msgspec

from calipers.clients import Completion, Request
from calipers.clients.secrets import Secrets
from calipers.errors import ClientError, RunError, VerifierError
from calipers.formats.source import LONGEST_LINE
from calipers.rollouts.record import ASKED_AGAIN, BEFORE_ANSWER, OUTCOMES, REASONING_TEXT, ROLES, TEXTS, USAGE
from calipers.tasks import Task
from calipers.text.reasoning import Split
from calipers.verifiers import Verdict, Verifier, judged

REASONING_CHARS: Final = "reasoning_chars"
REASONING_MARKER: Final = "reasoning_marker"
TAKEN: Final = frozenset(
    (
        *(*ROLES, *USAGE, "finish_reason", "retries", ASKED_AGAIN, "endpoint", "request", "started_at", "finished_at"),
        *(REASONING_TEXT, REASONING_CHARS, REASONING_MARKER),
    )
)
"""Keys of a line that a verifier's field may not set, because its value would make the log unreadable or wrong."""

WITHOUT_VERDICT: Final = tuple(outcome for outcome in OUTCOMES if outcome != "scored")
"""Outcomes that the error of a verifier may set; with any other, which user code may give, no log could be read."""

_encode = msgspec.json.Encoder().encode


class Outstanding(msgspec.Struct, frozen=True):
    """An outstanding rollout.

    This and `Finished` are structs because one of each is made for every rollout: a dataclass takes ten times as long.
    """

    position: int  # of its task in the order of the run
    task: Task
    sample: int
    attempt: int = 1


class Finished(msgspec.Struct, frozen=True):
    """A finished rollout."""

    outstanding: Outstanding
    request: Request
    started: datetime
    completion: Completion | None = None
    verdict: Verdict | None = None
    error: RunError | None = None
    retries: int = 0
    before_answer: bool = False  # every request ended before it was accepted
    split: Split | None = None  # the completion without its reasoning; None if that is verified, too

    @property
    def outcome(self) -> str:
        """The outcome: what failed, else how the completion ended, else the verifier's outcome."""
        if isinstance(self.error, VerifierError):
            return self.error.outcome if self.error.outcome in WITHOUT_VERDICT else "verifier_failed"
        if self.completion is None:
            return "client_failed"
        if self.completion.ending:
            return self.completion.ending
        if self.split is not None and not self.split.closed:
            return "truncated"
        answer = self.completion.text if self.split is None else self.split.answer
        if not answer.strip():
            return "empty"
        if self.verdict is None or (self.verdict.reward is None and not self.verdict.rewards):
            return (self.verdict and self.verdict.outcome) or "missing"
        return self.verdict.outcome or "scored"

    @property
    def reward(self) -> float | None:
        """The reward, if a verifier gave one."""
        return None if self.verdict is None else self.verdict.reward

    @property
    def cost(self) -> float | None:
        """The cost in dollars, if known; verification included."""
        usage, judging = {} if self.completion is None else self.completion.usage, self.judging
        if "cost_usd" not in usage and "cost_usd" not in judging:
            return None
        return usage.get("cost_usd", 0.0) + judging.get("cost_usd", 0.0)

    @property
    def judging(self) -> Mapping[str, float]:
        """The usage of the verification, also if it failed."""
        if isinstance(self.error, VerifierError):
            return self.error.usage
        return {} if self.verdict is None else self.verdict.usage

    def record(self, dataset: str, model: str, finished_at: datetime, endpoint: str | None = None) -> dict[str, Any]:
        """The record of the rollout, which is a line of the log; empty values are left out."""
        planned, request, verdict, completion = self.outstanding, self.request, self.verdict, self.completion
        record: dict[str, Any] = {"task": planned.task.id, "sample": planned.sample, "attempt": planned.attempt}
        record["outcome"] = self.outcome
        if verdict is not None:
            for name, value in verdict.fields.items():
                is_usage = completion is not None and name in completion.usage  # usage is a column of that name
                record[f"verifier_{name}" if is_usage else column(name)] = value
            if verdict.reward is not None:
                record["reward"] = verdict.reward
            # column names are unique, so `reward` is left out of the rewards if there is a single reward, too
            single = verdict.reward is not None
            rewards = {key: value for key, value in verdict.rewards.items() if not (single and key == "reward")}
            if rewards:
                record["rewards"] = rewards
            if verdict.answer is not None and verdict.answer != "":
                record["answer"] = verdict.answer
        for name, value in self.judging.items():
            record[f"judge_{name}"] = value
        record["prompt"] = request.prompt if request.system is None else request.messages
        if completion is not None:
            record["completion"] = completion.text
            if completion.reasoning:
                record[REASONING_TEXT] = completion.reasoning
            if self.split is not None:
                record[REASONING_CHARS] = self.split.chars
                record[REASONING_MARKER] = self.split.marker
            if completion.finish_reason:
                record["finish_reason"] = completion.finish_reason
            if completion.usage:
                record["usage"] = completion.usage
            if completion.asked_again:
                record[ASKED_AGAIN] = completion.asked_again
            request_id, seed = completion.request_id, completion.seed
            if request_id is not None:
                record["request"] = {"id": request_id} if seed is None else {"id": request_id, "seed": seed}
            elif seed is not None:
                record["request"] = {"seed": seed}
        if self.error is not None:
            kind, tried = getattr(self.error, "kind", "verifier"), getattr(self.error, "tried", {})
            record["error"] = {"kind": kind, "message": str(self.error), **tried}
            if self.before_answer:
                record["error"][BEFORE_ANSWER] = True
        if self.retries:
            record["retries"] = self.retries
        if planned.task.metadata:
            record["metadata"] = planned.task.metadata
        record["dataset"], record["model"] = dataset, model
        if endpoint:
            record["endpoint"] = endpoint
        record["started_at"], record["finished_at"] = self.started, finished_at
        return record


def column(field: str) -> str:
    """The key of a verifier's field in a record: its name, with a prefix if the record has a key of that name.

    >>> column("length"), column("error")
    ('length', 'verifier_error')
    """
    return f"verifier_{field}" if field in TAKEN else field


def as_logged(
    finished: Finished, dataset: str, model: str, finished_at: datetime, endpoint: str | None = None
) -> tuple[Finished, bytes]:
    """The finished rollout, and its line of the log.

    An answer that is too long for a line is not logged, because a line that is too long makes the log unreadable; the
    rollout then counts 0.
    """
    record = finished.record(dataset, model, finished_at, endpoint)
    text = line(record)
    if len(text) <= LONGEST_LINE:
        return finished, text
    problem = (
        f"the answer would take {len(text) >> 20} MiB in the log (maximum "
        f"{LONGEST_LINE >> 20} MiB), so it is not logged"
    )
    of_answer = ("completion", "answer", REASONING_TEXT)
    without_answer = {key: value for key, value in record.items() if key not in of_answer}
    finished = _too_long(finished, problem, len(line(without_answer)) <= LONGEST_LINE)
    record = finished.record(dataset, model, finished_at, endpoint)
    return finished, line({key: value for key, value in record.items() if key not in (*TEXTS, REASONING_TEXT)})


def _too_long(finished: Finished, message: str, by_answer: bool) -> Finished:
    """The rollout without its answer: 0 if only the answer was too long (``by_answer``), else it is missing."""
    if not by_answer or finished.completion is None:
        unlogged = ClientError(message, kind="too_long")
        return msgspec.structs.replace(finished, completion=None, verdict=None, error=unlogged)
    failed = VerifierError(message, outcome="broke_verifier", usage=finished.judging, kind="too_long")
    empty = msgspec.structs.replace(finished.completion, text="", reasoning=None)
    return msgspec.structs.replace(finished, completion=empty, verdict=None, error=failed, split=None)


def line(record: Mapping[str, Any]) -> bytes:
    """A record as a line of the log; a lone surrogate, which cannot be encoded, becomes a replacement character.

    >>> line({"completion": "half \\ud83d, whole 4"}).decode()
    '{"completion":"half �, whole 4"}'
    """
    try:
        return _encode(record)
    except UnicodeEncodeError:  # only a model or a verifier in user code can return one; a server cannot
        return _encode(whole_characters(record))


def whole_characters(value: Any) -> Any:
    """A JSON value with a replacement character for each lone surrogate."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Mapping):
        return {whole_characters(name): whole_characters(part) for name, part in value.items()}
    return [whole_characters(part) for part in value] if isinstance(value, (list, tuple)) else value


NEUTRAL: Final = "# no answer\n"
"""A neutral answer: as a text it says nothing, and as a program in many languages it does nothing."""

BROKE: Final = "broke_verifier"
STOPPED: Final = "filter_timeout"  # the time limit of a user's expression
TURNS: Final = 3
"""How often a neutral answer and the answer are verified in turn.

A server that fails at random with chance f then blames an answer with chance f^4 (1 - f)^3: 0.3 % at f = 0.3.
"""


class Blame:
    """Verifies answers, and determines the cause if a verification fails. It is used for a whole run.

    After a failure there are at most two further verifications: of a neutral answer, once for each task, and of the
    same answer once more. If a server broke off, or a pattern ran out of time, there are at most six (`TURNS` of each).
    """

    def __init__(self) -> None:
        # (id of the verifier, id of the task) -> whether the verification of a neutral answer succeeds
        self._works: dict[tuple[int, str], bool] = {}
        self._locks: dict[tuple[int, str], asyncio.Lock] = {}

    async def judged(self, verifier: Verifier, task: Task, completion: Completion) -> Verdict:
        """The verdict; VerifierError if there is none, with the outcome `broke_verifier` if the answer is the cause.

        The usage of the further verifications is included in the usage of the verdict or of the error.
        """
        try:
            return await judged(verifier, task, completion)
        except VerifierError as error:
            if error.suspect:
                await self._try_in_turn(verifier, task, completion, error, error.usage)
            if spared(error):
                raise
            first = error
        works, probed, probe_usage = await self._probed(verifier, task)
        tried: dict[str, Any] = {"neutral": "judged" if works else "failed", "neutral_calls": int(probed)}
        usage = added(first.usage, probe_usage)
        if not works:
            raise VerifierError(str(first), outcome=first.outcome, usage=usage, tried={"tries": 1, **tried}) from first
        try:
            verdict = await judged(verifier, task, completion)
        except VerifierError as second:
            if second.suspect:
                await self._try_in_turn(verifier, task, completion, second, added(usage, second.usage))
            outcome = second.outcome if spared(second) else BROKE
            usage, tried = added(usage, second.usage), {"tries": 2, **tried, "failed_as": first.outcome}
            raise VerifierError(str(second), outcome=outcome, usage=usage, tried=tried) from first
        fields = {**verdict.fields, "verifier_tries": 2.0}
        return msgspec.structs.replace(verdict, fields=fields, usage=added(usage, verdict.usage))

    async def _try_in_turn(
        self, verifier: Verifier, task: Task, completion: Completion, first: VerifierError, usage: Mapping[str, float]
    ) -> NoReturn:
        """Raise the first failure again, as `broke_verifier` if only this answer fails, each time.

        ``error.blame`` has the six results in the order of the tries: true for a verdict, false for none, and null for
        a try that says nothing, or that was not needed any more.
        """
        results: dict[str, list[bool | None]] = {"neutral": [None] * TURNS, "answer": [None] * TURNS}
        texts = {"neutral": Completion(neutral(verifier, task)), "answer": completion}
        outcome = BROKE
        for turn, name in product(range(TURNS), texts):
            works: bool | None = True
            try:
                usage = added(usage, (await judged(verifier, task, texts[name])).usage)
            except VerifierError as error:
                usage = added(usage, error.usage)
                works = False if error.suspect or not spared(error) else None
            results[name][turn] = works
            if works is not (name == "neutral"):
                outcome = first.outcome
                break
        tried = {**first.tried, "blame": results}
        raise VerifierError(str(first), outcome=outcome, usage=usage, tried=tried, kind=first.kind) from first

    async def _probed(self, verifier: Verifier, task: Task) -> tuple[bool, bool, Mapping[str, float]]:
        """Whether the task's verifier works on a neutral answer; whether this call has tried that, and its usage."""
        key = (id(verifier), task.id)
        async with self._locks.setdefault(key, asyncio.Lock()):
            if key in self._works:
                return self._works[key], False, {}
            try:
                usage = (await judged(verifier, task, Completion(neutral(verifier, task)))).usage
                self._works[key] = True
            except VerifierError as error:
                usage = error.usage
                self._works[key] = False
            return self._works[key], True, usage


def spared(error: VerifierError) -> bool:
    """Whether a failure looks like that of a server or of the user's own code, and not of the answer."""
    return error.blameless or error.outcome == STOPPED


def neutral(verifier: Any, task: Task) -> str:
    """An answer on which no verifier should fail: a correct answer if one is known, else one that says nothing."""
    try:
        return gold(verifier, task) or NEUTRAL
    except Exception:  # from user code, or from an expression that takes too long
        return NEUTRAL


def gold(judge: Any, task: Task) -> str | None:
    """A correct answer: from the verifier if it knows one, else the target if it is a text or a number; or None."""
    known = getattr(judge, "gold", None) or getattr(getattr(judge, "judge", None), "gold", None)
    if known is not None:
        answer: str | None = known(task)
        return answer
    plain = isinstance(task.target, (str, int, float)) and not isinstance(task.target, bool)
    return str(task.target) if plain else None


def added(*used: Mapping[str, float]) -> dict[str, float]:
    """The sum of several usages."""
    total: Counter[str] = Counter()
    for usage in used:
        total.update(usage)
    return dict(total)


def notes_of(speakers: Iterable[object]) -> list[str]:
    """The notes of clients and verifiers, such as that a server accepts no seed."""
    return [note for speaker in speakers for note in getattr(speaker, "notes", ())]


async def close_all(verifiers: Iterable[Verifier]) -> None:
    """Close the connections of those verifiers that have any."""
    for verifier in verifiers:
        if close := getattr(verifier, "close", None):
            await close()


T = TypeVar("T")

Case = tuple[Verifier, Task, Completion]
"""An answer to verify, with its verifier and task."""


class Bench:
    """Verifies answers from synchronous code, ``most`` at a time.

    It keeps one event loop, because the connections of verifiers belong to a loop.
    """

    def __init__(self, most: int, blame: Blame | None = None) -> None:
        self.secrets = Secrets()  # the keys that verifiers use
        self._most, self._blame = most, blame  # without ``blame``, the causes of failures are not determined
        self._opened: dict[int, Any] = {}  # id of a verifier -> the opened verifier, if it has to be opened
        self._runner = asyncio.Runner()
        self._thread: ThreadPoolExecutor | None = None

    def __enter__(self) -> Bench:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="bench")  # this thread runs a loop, as in a notebook
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            self._run(self._close())
        finally:
            if self._thread is None:
                self._runner.close()
            else:
                self._thread.submit(self._runner.close).result()
                self._thread.shutdown()

    @property
    def notes(self) -> list[str]:
        """The notes of the verifiers."""
        return notes_of(self._opened.values())

    def judge(self, cases: Sequence[Case]) -> list[Verdict | VerifierError]:
        """The verdict of each case, in order, or the error if there is none."""
        return self._run(self._judged(cases))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return (
                self._runner.run(work) if self._thread is None else self._thread.submit(self._runner.run, work).result()
            )
        except BaseExceptionGroup as errors:  # the first error is the cause of the others
            raise errors.exceptions[0] from None

    def _open(self, verifier: Verifier) -> Verifier:
        use = getattr(verifier, "use", None)
        if use is None:
            return verifier
        if id(verifier) not in self._opened:
            self._opened[id(verifier)] = use(self.secrets)
        opened: Verifier = self._opened[id(verifier)]
        return opened

    async def _close(self) -> None:
        for opened in self._opened.values():
            await opened.close()

    async def _judged(self, cases: Sequence[Case]) -> list[Verdict | VerifierError]:
        results: dict[int, Verdict | VerifierError] = {}
        waiting = iter(enumerate(cases))

        async def worker() -> None:
            for index, (verifier, task, completion) in waiting:
                try:
                    judge = self._blame.judged if self._blame else judged
                    results[index] = await judge(self._open(verifier), task, completion)
                except VerifierError as error:
                    results[index] = error

        async with asyncio.TaskGroup() as workers:
            for _ in range(min(self._most, len(cases))):
                workers.create_task(worker())
        return [results[index] for index in range(len(cases))]
