"""One rollout, from what is owed to the line of the log."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from calipers.errors import RunError, VerifierError
from calipers.run.client import Completion, Request
from calipers.run.verifier import Verdict
from calipers.tasks.task import Task


@dataclass(frozen=True, slots=True)
class Owed:
    """A rollout that the run still owes."""

    position: int  # of its task, in the order of the run
    task: Task
    sample: int
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Made:
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
        parts = [part.usage.get("cost_usd") for part in (self.completion, self.verdict) if part is not None]
        known = [part for part in parts if part is not None]
        return sum(known) if known else None

    def record(self, dataset: str, model: str, finished: datetime) -> dict[str, Any]:
        """The record of the rollout (a line of the log); what is empty is left out."""
        owed, request = self.owed, self.request
        record: dict[str, Any] = {"task": owed.task.id, "sample": owed.sample, "attempt": owed.attempt}
        record["outcome"] = self.outcome
        if self.verdict is not None:
            verdict = self.verdict
            record |= {name: value for name, value in verdict.fields.items() if name not in record}
            record |= _given(reward=verdict.reward, rewards=verdict.rewards, answer=verdict.answer)
            record |= {f"judge_{name}": value for name, value in verdict.usage.items()}
        record["prompt"] = request.prompt if request.system is None else request.messages
        if self.completion is not None:
            done = self.completion
            record |= {"completion": done.text} | _given(finish_reason=done.finish_reason, usage=done.usage)
        if self.error is not None:
            record["error"] = {"kind": getattr(self.error, "kind", "verifier"), "message": str(self.error)}
        record |= _given(retries=self.retries, metadata=owed.task.metadata)
        return record | {"dataset": dataset, "model": model, "started_at": self.started, "finished_at": finished}


def checked(verdict: Verdict) -> Verdict:
    """The verdict, if its rewards are numbers; VerifierError if not, as then nothing is known of the answer."""
    for name, value in {"reward": verdict.reward, **verdict.rewards}.items():
        if value is not None and not math.isfinite(value):
            raise VerifierError(f"{name} is {value}; expected a finite number")
    return verdict


def _given(**values: Any) -> dict[str, Any]:
    """The values that say something: not None, no empty object, no count of nothing."""
    return {name: value for name, value in values.items() if value is not None and (value or name == "reward")}
