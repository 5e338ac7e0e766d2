"""``POST /verify`` by a verifier of ours: a task and a model's answer in, the rollout row out."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict

from calipers.compat.nemo_gym.models import output_text
from calipers.errors import InputError, VerifierError
from calipers.readers.nemo_gym_rows import TASK
from calipers.readers.nemo_gym_schema import FAILURE, KILLED
from calipers.run.client import Completion
from calipers.run.judged import given
from calipers.run.verifiers.find import NamedVerifier
from calipers.server.documents import StrictJSON, respond
from calipers.server.refusal import Refusal
from calipers.tasks.task import Prompt, Task

TARGETS: Final = ("target", "expected_answer", "expected")
"""Where a row may hold what the answer is compared with; the first that is there counts."""

REASON: Final = "failure_reason"
MARKS: Final = frozenset({FAILURE, "_ng_failure_terminal", KILLED, REASON})
"""What an earlier verdict may have left in a row; with a mark in it the new verdict would not count."""


class Output(BaseModel):
    """What a model answered, in the shape of OpenAI's Responses API."""

    model_config = ConfigDict(extra="allow")

    output: list[dict[str, Any]]


class VerifyRequest(BaseModel):
    """One row of a dataset with what a model answered. Every other key comes back as it is, but marks of failure."""

    model_config = ConfigDict(extra="allow")

    responses_create_params: dict[str, Any]
    response: Output
    params: dict[str, Any] | None = None  # of the verifier


class VerifyResponse(VerifyRequest):
    """The same row with its reward."""

    reward: float


def route(verifier: NamedVerifier) -> Callable[[VerifyRequest], Awaitable[Response]]:
    """The route, over this verifier."""

    async def verify(body: VerifyRequest) -> Response:
        """Judge an answer. Where no verdict can be reached the row says so, and is no rollout that counts."""
        row = {key: value for key, value in body.model_dump(exclude_unset=True).items() if key not in MARKS}
        try:
            task = task_of(verifier.name, row)
            verifier.check(task)
        except InputError as error:
            return respond(Refusal(422, "bad_task", str(error)))
        text = output_text(row["response"]["output"])
        try:
            return StrictJSON({**row, **await _judged(verifier, task, Completion(text))})
        except VerifierError as error:
            return StrictJSON({**row, "reward": 0.0, FAILURE: error.outcome, REASON: str(error)})

    return verify


async def _judged(verifier: NamedVerifier, task: Task, completion: Completion) -> dict[str, Any]:
    verdict = await given(verifier, task, completion)
    if verdict.reward is None or not math.isfinite(verdict.reward):
        raise VerifierError(f"verifier {verifier.name!r} gave the reward {verdict.reward}; expected a finite number")
    found: dict[str, Any] = {**verdict.fields, "reward": verdict.reward}
    if verdict.rewards:
        found["reward_components"] = dict(verdict.rewards)
    if verdict.answer is not None:
        found["extracted_answer"] = verdict.answer
    return found


def task_of(verifier: str, row: Mapping[str, Any]) -> Task:
    """The task that a row of a dataset states. InputError for one that holds no prompt.

    >>> task_of("exact_match", {"responses_create_params": {"input": "1 + 1?"}, "expected_answer": "2"}).target
    '2'
    """
    prompt = row["responses_create_params"].get("input")
    if not isinstance(prompt, str) and not (isinstance(prompt, list) and all(isinstance(one, dict) for one in prompt)):
        raise InputError.at("responses_create_params.input", "it is no prompt", "expected text or a list of messages")
    given: Prompt = prompt
    target = next((row[key] for key in TARGETS if key in row), None)
    return Task(str(row.get(TASK, "")), given, verifier, target, row.get("params") or {})
