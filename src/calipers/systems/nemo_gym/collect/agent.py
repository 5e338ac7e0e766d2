"""The built-in agent: one answer of any model, judged by a resources server's ``/verify`` or by a verifier of ours.

::

    row ──► /seed_session ──► model ──► /verify ──► rollout
              └── its cookies go along to /verify

What NeMo Gym's simple agent does with a model that calls no tools, without a server of its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from calipers.clients.client import Client, Completion, Request
from calipers.clients.secrets import Secrets
from calipers.errors import ClientError, InputError, VerifierError
from calipers.systems.nemo_gym.collect.http import ABSENT, Server
from calipers.systems.nemo_gym.collect.row import Key, Row, decoded, key_of
from calipers.systems.nemo_gym.words import FAILURE, PARAMS, REWARD, ROLLOUT, TASK
from calipers.tasks.task import Message, Task
from calipers.verifiers.find import NamedVerifier
from calipers.verifiers.verifier import Verifier
from calipers.verifiers.verify import judged, ready

TARGETS: Final = ("target", "expected_answer", "expected")
"""Where a row may hold what a verifier compares with, as for `calipers serve`; the first that is there counts."""

_TEXTS: Final = ("input_text", "output_text", "text")
_UNABLE: Final = ("tools", "previous_response_id", "conversation", "prompt", "stream", "background")
_SENT: Final = ("top_p", "user", "service_tier", "parallel_tool_calls", "top_logprobs")


class SimpleAgent:
    """Rollouts of one turn: a model, and a judge that is a server or a verifier.

    An answer whose verdict failed is kept for the next try: the model is not asked twice for it.
    """

    def __init__(self, model: str, client: Client, judge: Server | NamedVerifier, secrets: Secrets) -> None:
        self._model, self._client, self._judge, self._secrets = model, client, judge, secrets
        self._seated: Any = None  # the verifier for the length of the collection, where it asks for that
        self._answers: dict[Key, tuple[Completion, Mapping[str, str]]] = {}
        self._closed = False

    @property
    def notes(self) -> Sequence[str]:
        """What the model's client and the judge have to say."""
        return *getattr(self._client, "notes", ()), *getattr(self._seated, "notes", ())

    def check(self, row: Row, path: str) -> None:
        """Nothing for a row that can be asked and judged; an InputError for one that never can."""
        try:
            request_of(row)
            if not isinstance(self._judge, Server):
                self._judge.check(task_of(row, self._judge.name))
        except ClientError as error:
            raise InputError.at(path, f"task {row[TASK]}: {error}", "choose an agent server for it") from None

    def ready(self) -> None:
        """SandboxError where its verifier needs what this machine does not have."""
        if not isinstance(self._judge, Server):
            ready([self._judge])

    async def run(self, row: Row) -> dict[str, Any]:
        """The rollout of a row."""
        key = key_of(row)
        answer = self._answers.pop(key, None)
        if answer is None:
            cookies = await self._seeded(row)
            answer = await self._client.complete(request_of(row)), cookies
        try:
            return await self._judged(row, *answer)
        except ClientError:
            self._answers[key] = answer
            raise

    async def aggregate(self, rows: list[dict[str, Any]]) -> dict[str, Any] | None:
        """The resources server's metrics, as NeMo Gym's simple agent forwards the question; None without a server."""
        return await self._judge.aggregate(rows) if isinstance(self._judge, Server) else None

    async def close(self) -> None:
        """Give back the connections."""
        if not self._closed:  # a client is closed once
            self._closed = True
            await self._client.close()
            if self._seated is not None:
                await self._seated.close()
        if isinstance(self._judge, Server):
            await self._judge.close()

    async def _seeded(self, row: Row) -> Mapping[str, str]:
        """The cookies of a session for this rollout, where the server keeps sessions."""
        if not isinstance(self._judge, Server):
            return {}
        try:
            return (await self._judge.post("/seed_session", row)).cookies
        except ClientError as error:
            if error.kind in {f"http_{status}" for status in ABSENT}:
                return {}
            raise _of_judge(error) from None

    async def _judged(self, row: Row, completion: Completion, cookies: Mapping[str, str]) -> dict[str, Any]:
        whole = {**row, "response": response_of(row, self._model, completion)}
        if isinstance(self._judge, Server):
            try:
                return decoded((await self._judge.post("/verify", whole, cookies=cookies)).raw)
            except ClientError as error:
                raise _of_judge(error) from None
        try:
            verdict = await judged(self._seat(self._judge), task_of(row, self._judge.name), completion)
        except VerifierError as error:
            problem = {"kind": "verifier", "message": str(error)}
            return {**whole, FAILURE: error.outcome, "error": problem}
        reward = verdict.reward
        if reward is None and len(verdict.rewards) == 1:
            (reward,) = verdict.rewards.values()
        if reward is None and verdict.outcome and not verdict.rewards:
            reward = 0.0  # no answer was found in the text: the model's own doing
        if reward is None:
            problem = {"kind": "verifier", "message": "the verdict has no one reward"}
            return {**whole, FAILURE: "verifier_failed", "error": problem}
        rollout = {**whole, REWARD: reward, **verdict.fields}
        rollout |= {"reward_components": dict(verdict.rewards)} if verdict.rewards else {}
        return rollout | ({} if verdict.answer is None else {"extracted_answer": verdict.answer})

    def _seat(self, judge: NamedVerifier) -> Verifier:
        """The verifier, seated once if it holds connections of its own, as a judge that is a model does."""
        use = getattr(judge, "use", None)
        if use is None:
            return judge
        self._seated = self._seated or use(self._secrets)
        seated: Verifier = self._seated
        return seated


def request_of(row: Row) -> Request:
    """The call that a row's ``responses_create_params`` ask for; ClientError for what takes more than one answer."""
    params: Mapping[str, Any] = {name: value for name, value in row[PARAMS].items() if value is not None}
    for name in _UNABLE:
        if params.get(name):
            raise _unable(f"{name} is set, and the built-in agent gives one answer and calls no tools")
    extra = {name: params[name] for name in _SENT if name in params}
    if effort := (params.get("reasoning") or {}).get("effort"):
        extra["reasoning_effort"] = effort
    extra |= _extra_body(params)
    seed = extra.pop("seed", None)
    system = params.get("instructions")
    turns = params.get("input")
    return Request(
        task=str(row[TASK]),
        sample=row[ROLLOUT],
        prompt=turns if isinstance(turns, str) else _turns(turns),
        system=system if isinstance(system, str) else None,
        max_tokens=params.get("max_output_tokens"),
        temperature=params.get("temperature"),
        seed=seed,
        extra=extra,
    )


def _extra_body(params: Mapping[str, Any]) -> dict[str, Any]:
    """What ``metadata.extra_body`` adds: JSON inside a string, where the collector puts seeds."""
    try:
        body = json.loads((params.get("metadata") or {}).get("extra_body") or "{}")
    except (ValueError, TypeError, AttributeError):
        raise _unable("metadata.extra_body is no JSON") from None
    if not isinstance(body, dict):
        raise _unable("metadata.extra_body is no JSON object")
    return body


def _turns(items: Any) -> list[Message]:
    """The items of a request as the turns of a chat."""
    if not isinstance(items, list) or not items:
        raise _unable("input is neither text nor a list of messages")
    messages: list[Message] = []
    for item in items:
        if not isinstance(item, Mapping) or item.get("type", "message") != "message" or "role" not in item:
            raise _unable("input holds an item that is no message")
        content = item.get("content")
        if isinstance(content, list):
            if any(not isinstance(part, Mapping) or part.get("type") not in _TEXTS for part in content):
                raise _unable("input holds a part that is no text")
            content = "".join(str(part.get("text", "")) for part in content)
        if not isinstance(content, str):
            raise _unable("a message of the input has no content")
        messages.append({"role": item["role"], "content": content})
    return messages


def task_of(row: Row, verifier: str) -> Task:
    """A row as a task of ours; the verifier's own params stand under ``params``."""
    target = next((row[name] for name in TARGETS if name in row), None)
    params = row.get("params") or {}
    prompt = request_of(row).prompt
    return Task(str(row[TASK]), prompt, verifier, target, params if isinstance(params, Mapping) else {})


def response_of(row: Row, model: str, completion: Completion) -> dict[str, Any]:
    """A completion as the Responses object that ``/verify`` expects."""
    name = f"{row[TASK]}_{row[ROLLOUT]}"
    refused = completion.ending == "refused"
    refusal = {"type": "refusal", "refusal": completion.text}
    text = {"type": "output_text", "text": completion.text, "annotations": []}
    message = {"id": f"msg_{name}", "type": "message", "role": "assistant", "status": "completed"}
    cut = completion.ending == "truncated"
    return {
        "id": f"resp_{name}",
        "object": "response",
        "created_at": float(int(time.time())),
        "model": model,
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": [{**message, "content": [refusal if refused else text]}],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": _usage(completion.usage),
    }


def _usage(counted: Mapping[str, float]) -> dict[str, Any] | None:
    """What the server counted, as a Responses object has it; None unless both counts are known."""
    if "input_tokens" not in counted or "output_tokens" not in counted:
        return None
    given, made = int(counted["input_tokens"]), int(counted["output_tokens"])
    return {
        "input_tokens": given,
        "input_tokens_details": {"cached_tokens": int(counted.get("cached_tokens", 0))},
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": int(counted.get("reasoning_tokens", 0))},
        "total_tokens": given + made,
    }


def _unable(what: str) -> ClientError:
    return ClientError(what, kind="prompt")


def _of_judge(error: ClientError) -> ClientError:
    """The same error, said to be the verifier's."""
    return ClientError(
        f"verifier: {error}",
        kind=f"verifier_{error.kind}",
        retry=error.retry,
        wait=error.wait,
        slow_down=error.slow_down,
        hopeless=error.hopeless,
    )
