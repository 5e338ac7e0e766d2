"""The built-in agent: its requests to the model and to the judge, and the attribution of errors."""

from __future__ import annotations

import asyncio
import json

import pytest
from aiohttp import web
from clients.scripted import Scripted
from clients.weather import REFUSED_CHAT, Forecast, Server, reply_of

from calipers.clients import Completion, Connection, connect
from calipers.clients.secrets import Secrets
from calipers.errors import ClientError, InputError
from calipers.systems.nemo_gym.collect.agents import Reach, SimpleAgent, request_of, response_of, task_of
from calipers.systems.nemo_gym.collect.agents import Server as Judge
from calipers.verifiers import Verdict
from calipers.verifiers.user_code import find_verifier


def row(params=None, **more):
    """A planned row."""
    asked = {"input": "What is 1 + 1?"} if params is None else params
    return {
        "_ng_task_index": 3,
        "_ng_rollout_index": 1,
        "agent_ref": {"name": "a"},
        "responses_create_params": asked,
    } | more


USER = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("params", "messages", "settings"),
    [
        ({"input": "hi"}, USER, {}),
        ({"input": [{"role": "user", "content": "hi", "type": "message"}]}, USER, {}),
        (
            {
                "input": [
                    {
                        "role": "user",
                        "content": [{"type": "input_text", "text": "h"}, {"type": "input_text", "text": "i"}],
                    }
                ]
            },
            USER,
            {},
        ),
        ({"input": "hi", "instructions": "be brief"}, [{"role": "system", "content": "be brief"}, *USER], {}),
        ({"input": "hi", "temperature": 0.5, "max_output_tokens": 9}, USER, {"temperature": 0.5, "max_tokens": 9}),
        ({"input": "hi", "temperature": None, "tools": [], "top_p": None}, USER, {}),  # NeMo Gym writes every key
        (
            {"input": "hi", "top_p": 0.9, "reasoning": {"effort": "low"}},
            USER,
            {"extra": {"top_p": 0.9, "reasoning_effort": "low"}},
        ),
        (
            {"input": "hi", "metadata": {"extra_body": '{"seed": 4, "min_p": 0.1}'}},
            USER,
            {"seed": 4, "extra": {"min_p": 0.1}},
        ),
        ({"input": "hi", "model": "another"}, USER, {}),  # the row's model is ignored
    ],
)
def test_a_row_becomes_a_request(params, messages, settings):
    request = request_of(row(params))
    assert request.messages == messages
    empty = {"temperature": None, "max_tokens": None, "seed": None, "extra": {}}
    assert {name: getattr(request, name) for name in empty} == {**empty, **settings}
    assert (request.task, request.sample) == ("3", 1)


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({}, "input is neither text nor a list of messages"),
        ({"input": []}, "input is neither text"),
        ({"input": "hi", "tools": [{"type": "function"}]}, "tools is set, but the built-in agent gives one answer"),
        ({"input": [{"type": "function_call", "name": "f"}]}, "input contains an item that is not a message"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input contains a part that is not text"),
        (
            {"input": [{"role": "user", "content": [{"type": "text", "text": None}]}]},
            "contains a part that is not text",
        ),
        ({"input": [{"role": "user", "content": None}]}, "a message of the input has no content"),
        ({"input": "hi", "reasoning": "high"}, "reasoning is not an object"),
        ({"input": "hi", "metadata": {"extra_body": "[" * 100_000}}, "metadata.extra_body is not JSON"),
        ({"input": "hi", "metadata": {"extra_body": "{"}}, "metadata.extra_body is not JSON"),
        ({"input": "hi", "metadata": {"extra_body": "[]"}}, "metadata.extra_body is not a JSON object"),
    ],
)
def test_a_row_that_takes_more_is_refused_before_anything_is_sent(params, said):
    agent = SimpleAgent("m", Scripted({}), find_verifier("exact_match"), Secrets())
    with pytest.raises(InputError, match=r"tasks\.jsonl: task 3: ") as error:
        agent.check(row(params), "tasks.jsonl")
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("held", "target"),
    [({"target": 1, "expected_answer": 2}, 1), ({"expected_answer": "2"}, "2"), ({"expected": None}, None), ({}, None)],
)
def test_where_the_target_stands(held, target):
    assert task_of(row(**held), "exact_match").target == target


@pytest.mark.parametrize(
    ("completion", "status", "content", "usage"),
    [
        (Completion("42"), "completed", {"type": "output_text", "text": "42", "annotations": []}, None),
        (
            Completion("4", ending="truncated"),
            "incomplete",
            {"type": "output_text", "text": "4", "annotations": []},
            None,
        ),
        (Completion("no", ending="refused"), "completed", {"type": "refusal", "refusal": "no"}, None),
        (
            Completion("x", usage={"input_tokens": 5.0, "output_tokens": 2.0, "cached_tokens": 1.0, "latency_s": 0.1}),
            "completed",
            {"type": "output_text", "text": "x", "annotations": []},
            {
                "input_tokens": 5,
                "input_tokens_details": {"cached_tokens": 1},
                "output_tokens": 2,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 7,
            },
        ),
        (
            Completion("x", usage={"output_tokens": 2.0}),
            "completed",
            {"type": "output_text", "text": "x", "annotations": []},
            None,
        ),
    ],
)
def test_a_completion_becomes_a_response(completion, status, content, usage):
    response = response_of(row(), "openai/m", completion)
    assert (response["status"], response["output"][0]["content"], response["usage"]) == (status, [content], usage)


class ResourcesServer:
    """A resources server on loopback that requires its session cookie; ``troubles`` are its first HTTP statuses."""

    def __init__(self, troubles=(), sessions=True):
        self.troubles, self.sessions = list(troubles), sessions
        self.seeds, self.verified = [], []

    async def __aenter__(self):
        app = web.Application()
        if self.sessions:
            app.router.add_post("/seed_session", self._seed)
        app.router.add_post("/verify", self._verify)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_):
        await self._runner.cleanup()

    async def _seed(self, request):
        self.seeds.append(await request.json())
        answer = web.json_response({})
        answer.set_cookie("MathServer___math", f"session-{len(self.seeds)}")
        return answer

    async def _verify(self, request):
        body = await request.json()
        if self.sessions and request.cookies.get("MathServer___math") != f"session-{len(self.seeds)}":
            return web.json_response({"detail": "no session"}, status=400)
        if self.troubles:
            return web.json_response({"detail": "not now"}, status=self.troubles.pop(0))
        self.verified.append(body)
        text = body["response"]["output"][0]["content"][0]["text"]
        return web.json_response({"response": body["response"], "reward": float(text == body["expected_answer"])})


def ask(troubles=(), tries=1, sessions=True, replies=(), **more):
    """The agent's answers to several tries, the calls of the model, and the judge."""

    async def scene():
        model, judge = Server(Forecast(), list(replies)), ResourcesServer(troubles, sessions)
        async with model, judge:
            client = connect("openai/any", Connection(base_url=model.url))
            agent = SimpleAgent("openai/any", client, Judge(judge.url, Reach()), Secrets())
            found = []
            for _ in range(tries):
                try:
                    found.append(await agent.run(row(expected_answer="2", **more)))
                except ClientError as error:
                    found.append(error)
            assert await agent.aggregate([]) is None  # the server has no such route
            await agent.close()
            await agent.close()  # as the collector does after the aggregation
        return found, model.calls, judge

    return asyncio.run(scene())


def test_an_answer_goes_to_verify_with_the_row_and_the_session():
    (answer,), calls, judge = ask(replies=[reply_of("2")])
    assert answer["reward"] == 1.0
    assert calls[0].prompt == "What is 1 + 1?"
    (seed,) = judge.seeds
    (sent,) = judge.verified
    assert seed == row(expected_answer="2")  # the whole row
    assert {key: value for key, value in sent.items() if key != "response"} == seed
    assert sent["response"]["usage"]["input_tokens"] == 7


def test_a_server_without_sessions_is_asked_for_the_verdict_alone():
    (answer,), _, judge = ask(sessions=False, replies=[reply_of("3")])
    assert answer["reward"] == 0.0
    assert len(judge.verified) == 1


def test_the_model_is_not_asked_again_when_only_the_verdict_failed():
    (first, second), calls, judge = ask(troubles=[503], tries=2, replies=[reply_of("2")])
    assert (str(first), first.kind, first.retry) == ("verifier: HTTP 503: not now", "verifier_http_503", True)
    assert second["reward"] == 1.0
    assert len(calls) == len(judge.seeds) == 1


def test_a_refusal_is_an_answer():
    async def scene():
        async with Server(Forecast(), [REFUSED_CHAT]) as model:
            client = connect("openai/any", Connection(base_url=model.url))
            agent = SimpleAgent("openai/any", client, find_verifier("exact_match"), Secrets())
            answer = await agent.run(row(expected_answer="2"))
            await agent.close()
            return answer

    answer = asyncio.run(scene())
    assert answer["reward"] == 0.0
    assert answer["response"]["output"][0]["content"] == [{"type": "refusal", "refusal": "I would rather not."}]


@pytest.mark.parametrize(
    ("name", "text", "target", "expected"),
    [
        ("exact_match", "2", "2", {"reward": 1.0}),
        ("numeric_match", "no number here", 2, {"reward": 0.0}),  # the model's failure, not the verifier's
        ("numeric_match", "it is 2", 2, {"reward": 1.0, "extracted_answer": 2.0}),
        ("regex_match", "aaaa", "(", {"_ng_failure_class": "verifier_failed"}),
    ],
)
def test_a_verifier_of_ours_judges_in_process(name, text, target, expected):
    async def scene():
        agent = SimpleAgent("m", Scripted(lambda _: Completion(text)), find_verifier(name), Secrets())
        return await agent.run(row(target=target))

    answer = asyncio.run(scene())
    assert {key: answer.get(key) for key in expected} == expected
    json.dumps(answer)


class Sitting:
    """A judge that holds a connection, as a model judge does, is opened once and closed once."""

    name, rerunnable = "sitting", True

    def __init__(self):
        self.seated = self.closed = 0
        self.notes = ["judged with care"]

    def check(self, task):
        pass

    def use(self, secrets):
        self.seated += 1
        return self

    async def verify(self, task, completion):
        return Verdict(None, {"style": 0.5})

    async def close(self):
        self.closed += 1


def test_a_judge_with_connections_is_seated_once_and_dismissed():
    judge = Sitting()

    async def scene():
        agent = SimpleAgent("m", Scripted(lambda _: "x"), judge, Secrets())
        found = [await agent.run(row()) for _ in range(3)]
        await agent.close()
        await agent.close()
        return found, agent.notes

    found, notes = asyncio.run(scene())
    assert (judge.seated, judge.closed, notes) == (1, 1, ("judged with care",))
    # the only component is the reward
    assert (found[0]["reward"], found[0]["reward_components"]) == (0.5, {"style": 0.5})


@pytest.mark.parametrize(
    ("verdict", "reward", "failure"),
    [
        (Verdict(None, outcome="unparsed"), 0.0, None),
        (Verdict(1.0, outcome="tampered"), 0.0, None),
        (Verdict(None, outcome="judge_failed"), None, "judge_failed"),  # missing data, not a wrong answer
        (Verdict(1.0, outcome="judge_failed"), None, "judge_failed"),
        (Verdict(0.5, fields={"reward": 3.0}), 0.5, None),
    ],
)
def test_a_verdict_is_worth_what_it_is_in_a_run(verdict, reward, failure):
    class Gives(Sitting):
        async def verify(self, task, completion):
            return verdict

    async def scene():
        return await SimpleAgent("m", Scripted(lambda _: "x"), Gives(), Secrets()).run(row())

    answer = asyncio.run(scene())
    assert (answer.get("reward"), answer.get("_ng_failure_class")) == (reward, failure)


@pytest.mark.parametrize("rewards", [{}, {"a": 1.0, "b": 0.0}])
def test_a_verdict_without_one_reward_is_the_verifiers_failure(rewards):
    class Unsure(Sitting):
        async def verify(self, task, completion):
            return Verdict(None, rewards)

    async def scene():
        return await SimpleAgent("m", Scripted(lambda _: "x"), Unsure(), Secrets()).run(row())

    answer = asyncio.run(scene())
    assert (answer["_ng_failure_class"], answer.get("reward")) == ("verifier_failed", None)
