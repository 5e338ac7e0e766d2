"""One rollout, from the outstanding entry to its line in the log."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from calipers.clients.client import Completion, Request
from calipers.errors import ClientError, RunError, VerifierError
from calipers.formats.source import LONGEST_LINE
from calipers.rollouts.record import ASKED_AGAIN, ROLES, TEXTS, USAGE
from calipers.tasks.task import Task
from calipers.verifiers.verifier import Verdict

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

    def record(
        self, outcome: str, dataset: str, model: str, finished: datetime, endpoint: str | None = None
    ) -> dict[str, Any]:
        """The record of the rollout (a line of the log); what is empty is left out."""
        planned, request, verdict, done = self.outstanding, self.request, self.verdict, self.completion
        record: dict[str, Any] = {"task": planned.task.id, "sample": planned.sample, "attempt": planned.attempt}
        record["outcome"] = outcome
        if verdict is not None:
            for name, value in verdict.fields.items():
                counted = done is not None and name in done.usage  # a column of that name, too
                record[f"verifier_{name}" if counted else column(name)] = value
            if verdict.reward is not None:
                record["reward"] = verdict.reward
            if verdict.rewards:
                record["rewards"] = verdict.rewards
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
    text = line(made.record(made.outcome, dataset, model, finished, endpoint))
    if len(text) <= LONGEST_LINE:
        return made, text
    wrong = (
        f"the answer would take {len(text) >> 20} MiB in the log (maximum "
        f"{LONGEST_LINE >> 20} MiB), so it is not logged"
    )
    record = made.record(made.outcome, dataset, model, finished, endpoint)
    rest = {key: value for key, value in record.items() if key not in ("completion", "answer")}
    made = _too_long(made, wrong, len(line(rest)) <= LONGEST_LINE)
    record = made.record(made.outcome, dataset, model, finished, endpoint)
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
