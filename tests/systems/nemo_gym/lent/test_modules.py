"""Stand-ins other than the server itself: OpenAI's objects, references, judges, prompts, requests to other servers."""

import asyncio
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from pydantic import BaseModel, ValidationError
from systems.nemo_gym.serve.asking import spoken

from calipers.systems.nemo_gym.lent import base_resources_server as judge
from calipers.systems.nemo_gym.lent import models, server_utils
from calipers.systems.nemo_gym.lent.base_resources_server import normalize_tool_name
from calipers.systems.nemo_gym.lent.models import BaseVerifyRequest


def response(*items):
    return models.NeMoGymResponse.model_validate({"output": list(items)})


@pytest.mark.parametrize(
    ("item", "kind"),
    [
        ({"type": "message", "id": "m", "content": [{"type": "output_text", "text": "x"}]}, "ResponseOutputMessage"),
        ({"type": "function_call", "arguments": "{}", "call_id": "c", "name": "f"}, "ResponseFunctionToolCall"),
        ({"type": "function_call_output", "call_id": "c", "output": "1"}, "FunctionCallOutput"),
        ({"type": "reasoning", "id": "r", "summary": [{"text": "hm"}]}, "ResponseReasoningItem"),
    ],
)
def test_items_have_their_classes(item, kind):
    (made,) = response(item).output
    assert type(made) is getattr(models, f"NeMoGym{kind}")
    assert made.model_dump(exclude_unset=True) == item


def test_an_input_message_has_plain_parts():
    params = models.NeMoGymResponseCreateParamsNonStreaming(
        input=[models.NeMoGymEasyInputMessage(role="user", content=[{"type": "input_text", "text": "?"}])]
    )
    assert params.input[0].content[0]["text"] == "?"
    sent = [{"content": [{"type": "input_text", "text": "?"}], "role": "user"}]
    assert params.model_dump(exclude_unset=True) == {"input": sent}


def test_a_chat():
    chat = models.NeMoGymChatCompletion.model_validate({"choices": [{"message": {"content": "42"}}], "x": 1})
    assert (chat.choices[0].message.content, chat.choices[0].finish_reason) == ("42", None)


def test_references():
    ref = {"type": "responses_api_models", "name": "judge"}
    assert models.is_server_ref(ref) == models.ModelServerRef(**ref)
    assert models.is_server_ref({"type": "x", "name": "judge"}) is None
    with pytest.raises(ValidationError):
        models.ResourcesServerRef(**ref)


def test_the_configuration_is_that_of_the_environment(monkeypatch):
    monkeypatch.delenv("NEMO_GYM_CONFIG_DICT", raising=False)
    assert models.get_global_config_dict() == {}
    monkeypatch.setenv("NEMO_GYM_CONFIG_DICT", "judge: {responses_api_models: {m: {host: h, port: 5}}}")
    config = models.get_global_config_dict()
    assert models.get_first_server_config_dict(config, "judge").port == 5
    assert config.judge.responses_api_models["m"].host == "h"
    assert config.get("nope", 3) == 3
    with pytest.raises(AttributeError):
        config.nope  # noqa: B018
    assert server_utils.get_server_url("judge") == "http://h:5"
    with pytest.raises(ValueError, match="no server named 'jugde'; expected judge"):
        server_utils.get_server_url("jugde")


def test_prompts(tmp_path):
    (tmp_path / "p.yaml").write_text("system: You add.\nuser: '{a} + {b}?'\n")
    config = models.load_prompt_config(str(tmp_path / "p.yaml"))
    filled = models.apply_prompt_to_row({"a": 1, "b": 2, "responses_create_params": {"top_p": 1}}, config)
    messages = [{"role": "system", "content": "You add."}, {"role": "user", "content": "1 + 2?"}]
    assert filled["responses_create_params"] == {"top_p": 1, "input": messages}
    with pytest.raises(KeyError, match="the prompt needs 'b', but the row only has a"):
        models.fill_prompt(config, {"a": 1})


def test_names_of_tools():
    assert normalize_tool_name("mcp__mail__send__now") == "send__now"
    assert normalize_tool_name("mcp__mail__send", "mail") == "send"


class Verdict(BaseModel):
    verdict: str


@asynccontextmanager
async def model(answer):
    """A server on loopback, and a client that knows it by the name ``judge``."""
    app = web.Application()
    app.router.add_post("/v1/responses", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    config = {"judge": {"responses_api_models": {"m": {"host": "127.0.0.1", "port": port}}}, "later": {"x": {"y": {}}}}
    try:
        yield server_utils.ServerClient(global_config_dict=config)
    finally:
        await server_utils.hang_up()
        await runner.cleanup()


def called(answer, server="judge", **kinds):
    async def call():
        async with model(answer) as client:
            body = models.NeMoGymEasyInputMessage(role="user", content="?")
            return await judge.call_judge(
                client, server_name=server, url_path="/v1/responses", json=body, response_model=Verdict
            )

    return asyncio.run(call())


def test_a_judge_is_called():
    async def answer(request):
        return web.json_response({"verdict": str(await request.json())})

    assert called(answer).verdict == "{'content': '?', 'role': 'user'}"  # only the fields that were set


async def refused(request):
    return web.json_response({"error": "no key"}, status=401)


async def another(request):
    return web.json_response({})


@pytest.mark.parametrize(
    ("answer", "server", "said"),
    [
        (refused, "judge", "401.*no key"),
        (another, "judge", "ValidationError"),
        (another, "jugde", "no server named 'jugde'"),
        (another, "later", "not running: its settings have no port"),
    ],
)
def test_a_call_that_fails_is_a_judge_error(answer, server, said):
    with pytest.raises(judge.JudgeError, match=said):
        called(answer, server)


def test_the_body_of_a_refusal_is_kept():
    async def call():
        async with model(refused) as client:
            response = await client.post("judge", "/v1/responses", json={"a": 1})
            with pytest.raises(aiohttp.ClientResponseError) as caught:
                await server_utils.raise_for_status(response)
            return caught.value.response_content

    assert b"no key" in asyncio.run(call())


def test_a_verdict_that_could_not_be_reached_is_marked():
    body = BaseVerifyRequest.model_validate(spoken("42"))

    @judge.judge_failsafe
    async def verify(body):
        raise judge.JudgeError("nobody there")

    marked = asyncio.run(verify(body=body))
    assert b'"_ng_failure_class":"judge_failed"' in marked.body
    assert b'"reward":0.0' in marked.body


def test_an_openai_client_tries_again(monkeypatch):
    monkeypatch.setattr(models, "PAUSE", 0.0)
    answers = [500, 429, 200]

    async def answer(request):
        assert request.headers["Authorization"] == "Bearer k"
        return web.json_response({"n": len(answers)}, status=answers.pop(0))

    async def call():
        async with model(answer) as client:
            url = f"http://127.0.0.1:{client.global_config_dict['judge']['responses_api_models']['m']['port']}/v1"
            return await models.NeMoGymAsyncOpenAI(base_url=url, api_key="k").create_response(input="?")

    assert asyncio.run(call()) == {"n": 1}
