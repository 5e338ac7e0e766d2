"""One rollout, from the outstanding entry to its line in the log; and who caused a verifier failure.

::

    verdict ──► none ──► plainly the machine's (a server, an expression of the user's) ──► missing
                 └────► a neutral answer, once for each task ──► none either ──► missing
                              └────► this answer once more ──► a verdict, or `broke_verifier`, which counts 0

An answer that could make its own rollout missing would be better off than one that is wrong.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from types import TracebackType
from typing import Any, Final, TypeVar

import msgspec

from calipers.clients import Completion, Request
from calipers.clients.secrets import Secrets
from calipers.errors import ClientError, RunError, VerifierError
from calipers.formats.source import LONGEST_LINE
from calipers.rollouts.record import ASKED_AGAIN, ROLES, TEXTS, USAGE
from calipers.tasks import Task
from calipers.verifiers import Verdict, Verifier, judged

TAKEN: Final = frozenset(
    (*ROLES, *USAGE, "finish_reason", "retries", ASKED_AGAIN, "endpoint", "request", "started_at", "finished_at")
)
"""Keys of a line that a verifier may not set: its value would make the log unreadable or wrong."""

_encode = msgspec.json.Encoder().encode


class Outstanding(msgspec.Struct, frozen=True):
    """An outstanding rollout.

    Like `Made` a struct and no dataclass: one of each is made for every rollout, ten times faster.
    """

    position: int  # of its task, in the order of the run
    task: Task
    sample: int
    attempt: int = 1


class Made(msgspec.Struct, frozen=True):
    """A finished rollout."""

    outstanding: Outstanding
    request: Request
    started: datetime
    completion: Completion | None = None
    verdict: Verdict | None = None
    error: RunError | None = None
    retries: int = 0

    @property
    def outcome(self) -> str:
        """The outcome: what failed, else how the completion ended, else the verifier's outcome."""
        if isinstance(self.error, VerifierError):
            return self.error.outcome
        if self.completion is None:
            return "client_failed"
        if self.completion.ending:
            return self.completion.ending
        if not self.completion.text.strip():
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
        answering = None if self.completion is None else self.completion.usage.get("cost_usd")
        judged = self.judging.get("cost_usd")
        return judged if answering is None else answering if judged is None else answering + judged

    @property
    def judging(self) -> Mapping[str, float]:
        """The usage of the verification, also without a verdict."""
        if isinstance(self.error, VerifierError):
            return self.error.usage
        return {} if self.verdict is None else self.verdict.usage

    def record(self, dataset: str, model: str, finished: datetime, endpoint: str | None = None) -> dict[str, Any]:
        """The record of the rollout (a line of the log); what is empty is left out."""
        planned, request, verdict, done = self.outstanding, self.request, self.verdict, self.completion
        record: dict[str, Any] = {"task": planned.task.id, "sample": planned.sample, "attempt": planned.attempt}
        record["outcome"] = self.outcome
        if verdict is not None:
            for name, value in verdict.fields.items():
                counted = done is not None and name in done.usage  # a column of that name, too
                record[f"verifier_{name}" if counted else column(name)] = value
            if verdict.reward is not None:
                record["reward"] = verdict.reward
            # a column has its name once: `reward` may be one of the rewards
            single = verdict.reward is not None
            rewards = {key: value for key, value in verdict.rewards.items() if not (single and key == "reward")}
            if rewards:
                record["rewards"] = rewards
            if verdict.answer is not None and verdict.answer != "":
                record["answer"] = verdict.answer
        for name, value in self.judging.items():
            record[f"judge_{name}"] = value
        record["prompt"] = request.prompt if request.system is None else request.messages
        if done is not None:
            record["completion"] = done.text
            if done.finish_reason:
                record["finish_reason"] = done.finish_reason
            if done.usage:
                record["usage"] = done.usage
            if done.asked_again:
                record[ASKED_AGAIN] = done.asked_again
            call = {"id": done.request_id, "seed": done.seed}
            if sent := {name: value for name, value in call.items() if value is not None}:
                record["request"] = sent
        if self.error is not None:
            kind, tried = getattr(self.error, "kind", "verifier"), getattr(self.error, "tried", {})
            record["error"] = {"kind": kind, "message": str(self.error), **tried}
        if self.retries:
            record["retries"] = self.retries
        if planned.task.metadata:
            record["metadata"] = planned.task.metadata
        record["dataset"], record["model"] = dataset, model
        if endpoint:
            record["endpoint"] = endpoint
        record["started_at"], record["finished_at"] = self.started, finished
        return record


def column(field: str) -> str:
    """The key of a verifier's field in a record: its name, unless that has a meaning of its own there.

    >>> column("length"), column("error")
    ('length', 'verifier_error')
    """
    return f"verifier_{field}" if field in TAKEN else field


def kept(made: Made, dataset: str, model: str, finished: datetime, endpoint: str | None = None) -> tuple[Made, bytes]:
    """The finished rollout, and its line of the log.

    An answer that is too long for a line is not logged, and counts as 0: a single line that is too long makes the log
    unreadable.
    """
    record = made.record(dataset, model, finished, endpoint)
    text = line(record)
    if len(text) <= LONGEST_LINE:
        return made, text
    wrong = (
        f"the answer would take {len(text) >> 20} MiB in the log (maximum "
        f"{LONGEST_LINE >> 20} MiB), so it is not logged"
    )
    rest = {key: value for key, value in record.items() if key not in ("completion", "answer")}
    made = _too_long(made, wrong, len(line(rest)) <= LONGEST_LINE)
    record = made.record(dataset, model, finished, endpoint)
    return made, line({key: value for key, value in record.items() if key not in TEXTS})


def _too_long(made: Made, wrong: str, alone: bool) -> Made:
    """The rollout without its answer: ``alone``, that was too long, and the model's own doing; else the log failed."""
    error: RunError = ClientError(wrong, kind="too_long")
    if not alone or made.completion is None:
        return Made(made.outstanding, made.request, made.started, error=error, retries=made.retries)
    error = VerifierError(wrong, outcome="broke_verifier", usage=made.judging, kind="too_long")
    nothing = msgspec.structs.replace(made.completion, text="")
    return Made(made.outstanding, made.request, made.started, nothing, error=error, retries=made.retries)


def line(record: Mapping[str, Any]) -> bytes:
    """A record as a line of the log. Half a character, which no JSON holds, becomes a replacement character.

    >>> line({"completion": "half \\ud83d, whole 4"}).decode()
    '{"completion":"half �, whole 4"}'
    """
    try:
        return _encode(record)
    except UnicodeEncodeError:  # from a model or a verifier in the user's own code; a server cannot send one
        return _encode(whole_characters(record))


def whole_characters(value: Any) -> Any:
    """A value of JSON with a replacement character for every half of one, which only a program's texts can hold."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Mapping):
        return {whole_characters(name): whole_characters(part) for name, part in value.items()}
    return [whole_characters(part) for part in value] if isinstance(value, (list, tuple)) else value


NEUTRAL: Final = "# no answer\n"
"""An answer that says nothing: a text, and in many languages a program, that does nothing."""

BROKE: Final = "broke_verifier"
STOPPED: Final = "filter_timeout"  # an expression of the user's, which an answer does not choose


class Blame:
    """Judges answers, and finds out whose failure it is when that fails. It lasts as long as a run.

    Of each task it remembers whether its verifier came to a verdict on a neutral answer. At most two more judgements
    follow on a failure: that of the neutral answer, once for a task, and that of the same answer once more.
    """

    def __init__(self) -> None:
        self._works: dict[tuple[int, str], bool] = {}
        self._asking: dict[tuple[int, str], asyncio.Lock] = {}

    async def judged(self, verifier: Verifier, task: Task, completion: Completion) -> Verdict:
        """The verdict; VerifierError with `broke_verifier` where none can be reached, and the answer is why.

        What the further judgements used is part of the verdict's usage, or of the error's.
        """
        try:
            return await judged(verifier, task, completion)
        except VerifierError as error:
            if spared(error):
                raise
            first = error
        works, probed, spent = await self._known(verifier, task)
        tried: dict[str, Any] = {"neutral": "judged" if works else "failed", "neutral_calls": int(probed)}
        used = added(first.usage, spent)
        if not works:
            raise VerifierError(str(first), outcome=first.outcome, usage=used, tried={"tries": 1, **tried}) from first
        try:
            verdict = await judged(verifier, task, completion)
        except VerifierError as second:
            word = second.outcome if spared(second) else BROKE
            used, tried = added(used, second.usage), {"tries": 2, **tried, "failed_as": first.outcome}
            raise VerifierError(str(second), outcome=word, usage=used, tried=tried) from first
        fields = {**verdict.fields, "verifier_tries": 2.0}
        return msgspec.structs.replace(verdict, fields=fields, usage=added(used, verdict.usage))

    async def _known(self, verifier: Verifier, task: Task) -> tuple[bool, bool, Mapping[str, float]]:
        """Whether the task's verifier judges a neutral answer; whether it was asked just now, and what that used."""
        key = (id(verifier), task.id)
        async with self._asking.setdefault(key, asyncio.Lock()):
            if key in self._works:
                return self._works[key], False, {}
            try:
                used = (await judged(verifier, task, Completion(neutral(verifier, task)))).usage
                self._works[key] = True
            except VerifierError as error:
                used = error.usage
                self._works[key] = False
            return self._works[key], True, used


def spared(error: VerifierError) -> bool:
    """Whether a failure is plainly not the answer's."""
    return error.blameless or error.outcome == STOPPED


def neutral(verifier: Any, task: Task) -> str:
    """An answer that no verifier should fail on: one that must pass where one is known, else one that says nothing."""
    try:
        return gold(verifier, task) or NEUTRAL
    except Exception:  # of somebody else's code, or of an expression that takes too long
        return NEUTRAL


def gold(judge: Any, task: Task) -> str | None:
    """An answer that must pass: the verifier's own, else the target, if it is a text or a number."""
    known = getattr(judge, "gold", None) or getattr(getattr(judge, "judge", None), "gold", None)
    if known is not None:
        answer: str | None = known(task)
        return answer
    plain = isinstance(task.target, (str, int, float)) and not isinstance(task.target, bool)
    return str(task.target) if plain else None


def added(*used: Mapping[str, float]) -> dict[str, float]:
    """The sum of what several judgements used."""
    total: Counter[str] = Counter()
    for usage in used:
        total.update(usage)
    return dict(total)


def notes_of(speakers: Iterable[object]) -> list[str]:
    """What clients and verifiers have to say, such as that a server accepts no seed."""
    return [note for speaker in speakers for note in getattr(speaker, "notes", ())]


async def close_all(verifiers: Iterable[Verifier]) -> None:
    """Close the connections of those verifiers that have any."""
    for verifier in verifiers:
        if close := getattr(verifier, "close", None):
            await close()


T = TypeVar("T")

Case = tuple[Verifier, Task, Completion]
"""What is to be judged, and by whom."""


class Bench:
    """Judges at work, at most so many at once. Their event loop stays, as connections they hold belong to it."""

    def __init__(self, most: int, blame: Blame | None = None) -> None:
        self.secrets = Secrets()  # the keys that judges use
        self._most, self._blame = most, blame  # who finds out whose failure it is; None: nobody
        self._opened: dict[int, Any] = {}  # verifier -> itself for the length of the job, where it asks for that
        self._runner = asyncio.Runner()
        self._thread: ThreadPoolExecutor | None = None

    def __enter__(self) -> Bench:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="bench")  # a notebook runs a loop in this one
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            self._run(self._dismissed())
        finally:
            if self._thread is None:
                self._runner.close()
            else:
                self._thread.submit(self._runner.close).result()
                self._thread.shutdown()

    @property
    def notes(self) -> list[str]:
        """What the judges have to say."""
        return notes_of(self._opened.values())

    def judge(self, cases: Sequence[Case]) -> list[Verdict | VerifierError]:
        """A verdict on each case, in their order, or why there is none."""
        return self._run(self._judged(cases))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return (
                self._runner.run(work) if self._thread is None else self._thread.submit(self._runner.run, work).result()
            )
        except BaseExceptionGroup as errors:  # one was stopped; the errors of the others only follow from it
            raise errors.exceptions[0] from None

    def _open(self, verifier: Verifier) -> Verifier:
        use = getattr(verifier, "use", None)
        if use is None:
            return verifier
        if id(verifier) not in self._opened:
            self._opened[id(verifier)] = use(self.secrets)
        opened: Verifier = self._opened[id(verifier)]
        return opened

    async def _dismissed(self) -> None:
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
