"""One rollout, from what is owed to the line of the log."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from calipers.errors import RunError, VerifierError
from calipers.run.client import Completion, Request
from calipers.run.verifier import Verdict
from calipers.tasks.task import Task


class Owed(msgspec.Struct, frozen=True):
    """A rollout that the run still owes.

    Like `Made` a struct and no dataclass: one of each is made for every rollout, ten times faster.
    """

    position: int  # of its task, in the order of the run
    task: Task
    sample: int
    attempt: int = 1


class Made(msgspec.Struct, frozen=True):
    """What was made of a rollout that was owed."""

    owed: Owed
    request: Request
    started: datetime
    completion: Completion | None = None
    verdict: Verdict | None = None
    error: RunError | None = None
    retries: int = 0

    @property
    def outcome(self) -> str:
        """The ledger's word: what failed, else how the completion ended, else what its verifier says."""
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
        """The reward, where a verifier gave one."""
        return None if self.verdict is None else self.verdict.reward

    @property
    def cost(self) -> float | None:
        """What it cost, in dollars, where anybody said so; judging included."""
        asked = None if self.completion is None else self.completion.usage.get("cost_usd")
        judged = self._judging.get("cost_usd")
        return judged if asked is None else asked if judged is None else asked + judged

    @property
    def _judging(self) -> Mapping[str, float]:
        """What judging used, also where it came to no verdict."""
        if isinstance(self.error, VerifierError):
            return self.error.usage
        return {} if self.verdict is None else self.verdict.usage

    def record(self, outcome: str, dataset: str, model: str, finished: datetime) -> dict[str, Any]:
        """The record of the rollout (a line of the log); what is empty is left out."""
        owed, request, verdict, done = self.owed, self.request, self.verdict, self.completion
        record: dict[str, Any] = {"task": owed.task.id, "sample": owed.sample, "attempt": owed.attempt}
        record["outcome"] = outcome
        if verdict is not None:
            for name, value in verdict.fields.items():
                record.setdefault(name, value)
            if verdict.reward is not None:
                record["reward"] = verdict.reward
            if verdict.rewards:
                record["rewards"] = verdict.rewards
            if verdict.answer is not None and verdict.answer != "":
                record["answer"] = verdict.answer
        for name, value in self._judging.items():
            record[f"judge_{name}"] = value
        record["prompt"] = request.prompt if request.system is None else request.messages
        if done is not None:
            record["completion"] = done.text
            if done.finish_reason:
                record["finish_reason"] = done.finish_reason
            if done.usage:
                record["usage"] = done.usage
        if self.error is not None:
            record["error"] = {"kind": getattr(self.error, "kind", "verifier"), "message": str(self.error)}
        if self.retries:
            record["retries"] = self.retries
        if owed.task.metadata:
            record["metadata"] = owed.task.metadata
        record["dataset"], record["model"] = dataset, model
        record["started_at"], record["finished_at"] = self.started, finished
        return record


def checked(verdict: Verdict) -> Verdict:
    """The verdict, if its rewards are numbers; VerifierError if not, as then nothing is known of the answer."""
    if not verdict.rewards and (verdict.reward is None or math.isfinite(verdict.reward)):
        return verdict
    for name, value in {"reward": verdict.reward, **verdict.rewards}.items():
        if value is not None and not math.isfinite(value):
            raise VerifierError(f"{name} is {value}; expected a finite number")
    return verdict
