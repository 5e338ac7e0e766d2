"""``calipers serve --config``: a NeMo Gym server whose judge is a model on loopback."""

import asyncio
import json
import threading
import urllib.request
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from systems.nemo_gym.serve.asking import spoken
from systems.nemo_gym.serve.running import running

from calipers.errors import InputError
from calipers.systems.nemo_gym.serve.configuration import ConfiguredServer
from calipers.systems.nemo_gym.serve.serving import ModelServer, as_chat, as_response, as_sent, model_app, model_server

APP = """
from pathlib import Path
from nemo_gym.base_resources_server import *
from nemo_gym.config_types import ModelServerRef
from nemo_gym.judge import call_judge
from nemo_gym.openai_utils import *
from words_of_mine import QUESTION

class Config(BaseResourcesServerConfig):
    judge: ModelServerRef
    params: NeMoGymResponseCreateParamsNonStreaming
    template: str

class Reply(BaseVerifyResponse):
    said: str

class Judged(SimpleResourcesServer):
    config: Config

    async def verify(self, body: BaseVerifyRequest) -> Reply:
        text = Path(self.config.template).read_text() + QUESTION + body.response.output_text
        params = self.config.params.model_copy(deep=True)
        params.input = [NeMoGymEasyInputMessage(role="user", content=text)]
        name = self.config.judge.name
        judged = await call_judge(
            self.server_client, server_name=name, url_path="/v1/responses", json=params, response_model=NeMoGymResponse
        )
        said = judged.output_text
        return Reply(**body.model_dump(), reward=float("yes" in said), said=said)

    def compute_metrics(self, tasks):
        return {"limit": self.config.params.max_output_tokens}

if __name__ == "__main__":
    Judged.run_webserver()
"""
CONFIG = """
mine:
  resources_servers:
    judged:
      entrypoint: app.py
      domain: math
      template: template.txt
      judge: {type: responses_api_models, name: policy_model}
      params: {input: [], max_output_tokens: 5}
"""
MODELS = {
    "chats": "policy_model: {responses_api_models: {vllm_model: {base_url: '${url}', api_key: sk-9, model: j}}}",
    "responses": "policy_model: {responses_api_models: {openai_model: "
    "{openai_base_url: '${url}', openai_api_key: sk-9, openai_model: j}}}",
}


class Model(BaseHTTPRequestHandler):
    """A model that answers chats and response requests, and records its requests."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.calls.append((self.path, self.headers["authorization"], body))
        chat = {"choices": [{"message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}]}
        text = {"type": "output_text", "text": "yes", "annotations": []}
        item = {"id": "m", "type": "message", "role": "assistant", "content": [text]}
        answer = json.dumps(chat if self.path.endswith("completions") else {"output": [item]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


@contextmanager
def model():
    with ThreadingHTTPServer(("127.0.0.1", 0), Model) as server:
        server.calls = []
        thread = threading.Thread(target=server.serve_forever, args=[0.02])
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def posted(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request) as response:
        return json.load(response)


@pytest.fixture
def tree(tmp_path):
    folder = tmp_path / "resources_servers" / "judged"
    (folder / "configs").mkdir(parents=True)
    (folder / "app.py").write_text(APP)
    (folder / "template.txt").write_text("Is it right? ")
    (folder / "words_of_mine.py").write_text("QUESTION = 'The answer is '\n")
    (folder / "configs" / "judged.yaml").write_text(CONFIG)
    return tmp_path


@pytest.mark.parametrize(("kind", "path"), [("chats", "/v1/chat/completions"), ("responses", "/v1/responses")])
def test_a_judge_runs(tree, kind, path):
    (tree / "model.yaml").write_text(MODELS[kind])
    with model() as judge:
        (tree / "env.yaml").write_text(f"url: http://127.0.0.1:{judge.server_port}/v1\n")
        files = ("--config", "resources_servers/judged/configs/judged.yaml", "--config", "model.yaml")
        with running(*files, cwd=tree) as server:
            verdict = posted(f"{server.url}/verify", spoken("42"))
            rows = [{"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0}]
            metrics = posted(f"{server.url}/aggregate_metrics", {"verify_responses": rows})
            with urllib.request.urlopen(f"{server.url}/reverify_mode") as response:
                assert json.load(response) == "unknown"
    assert (verdict["reward"], verdict["said"]) == (1.0, "yes")
    assert metrics["agent_metrics"]["limit"] == 5  # a hook in a worker sees the same settings
    ((asked_path, key, body),) = judge.calls
    assert (asked_path, key, body["model"]) == (path, "Bearer sk-9", "j")
    assert "Is it right? The answer is 42" in json.dumps(body)
    assert 5 in body.values()


def test_a_judge_that_is_not_there_marks_the_row(tree):
    (tree / "model.yaml").write_text(MODELS["chats"] + "\nurl: http://127.0.0.1:9/v1\n")
    files = ("--config", "resources_servers/judged/configs/judged.yaml", "--config", "model.yaml")
    with running(*files, cwd=tree) as server:
        verdict = posted(f"{server.url}/verify", spoken("42"))
    assert (verdict["reward"], verdict["_ng_failure_class"]) == (0.0, "judge_failed")
    assert "502" in verdict["_ng_failure_judge_error"]
    assert "sk-9" not in json.dumps(verdict)


@pytest.mark.parametrize(
    ("sent", "answered", "status", "said"),
    [
        (b"{", b"", 400, "the request is not a JSON object"),
        (b"[1]", b"", 400, "the request is not a JSON object"),
        (b"\xff", b"", 400, "the request is not a JSON object"),
        (b"{}", b"[" * 100_000, 502, "m: the response is not a chat completion"),
        (b"{}", b'{"choices": [{"message": null}]}', 502, "m: the response is not a chat completion"),
        (b"{}", b'{"choices": [{"message": {}}], "usage": [1]}', 502, "m: the response is not a chat completion"),
        (b"{}", b'{"choices": [{"message": {}}], "created": "x"}', 502, "m: the response is not a chat completion"),
    ],
)
def test_what_a_model_server_cannot_pass_on_is_told_without_a_traceback(caplog, sent, answered, status, said):
    async def upstream(_):
        return web.Response(body=answered)

    async def ask():
        app = web.Application()
        app.router.add_post("/chat/completions", upstream)
        async with aiohttp.ClientSession() as client, TestServer(app) as far:
            server = ModelServer("m", str(far.make_url("")).rstrip("/"), "x", "", {}, {}, chats_only=True)
            async with (
                TestServer(model_app(server, client)) as near,
                client.post(near.make_url("/v1/responses"), data=sent) as reply,
            ):
                return reply.status, (await reply.json())["error"]["message"]

    got, message = asyncio.run(ask())
    assert (got, message.startswith(said), caplog.text) == (status, True, "")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"input": "?", "tools": [{"type": "function"}]}, "tools: this model server only forwards chats"),
        ({"input": [{"type": "function_call_output"}]}, "input.0: it is not a message"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input.0: it contains more than text"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input.0: it contains more than text"),
        ({"input": 1}, "input: it is neither text nor a list; expected text or a list of messages"),
    ],
)
def test_what_a_chat_has_no_words_for(body, said):
    with pytest.raises(InputError, match=said):
        as_chat(body)


def test_what_a_vllm_models_settings_and_a_requests_metadata_add():
    settings = {"base_url": "http://h/v1", "model": "j", "extra_body": {"top_k": 1, "min_p": 0}}
    settings |= {"chat_template_kwargs": {"enable_thinking": True, "x": 1}, "replace_developer_role_with_system": True}
    server = model_server(ConfiguredServer("judge", "responses_api_models", "vllm_model", settings), "here")
    metadata = {"chat_template_kwargs": '{"enable_thinking": false}', "extra_body": '{"top_k": 2}'}
    body = {"input": [{"role": "developer", "content": "Be brief."}], "metadata": metadata}
    sent = as_sent(server, body, in_chat=True)
    assert sent["messages"] == [{"role": "system", "content": "Be brief."}]
    assert sent["chat_template_kwargs"] == {"enable_thinking": False, "x": 1}
    assert (sent["top_k"], sent["min_p"], sent["model"]) == (2, 0, "j")
    with pytest.raises(InputError, match=r"metadata.extra_body: is not a JSON object"):
        as_sent(server, {"input": "?", "metadata": {"extra_body": "[1"}}, in_chat=True)
    native = replace(server, chats_only=False, system_only=False)
    assert as_sent(native, body, in_chat=False)["input"] == body["input"]


def test_a_vllm_model_that_has_responses_is_asked_there():
    settings = {"base_url": "http://h/v1", "model": "j", "is_responses_native": True}
    server = ConfiguredServer("judge", "responses_api_models", "vllm_model", settings)
    assert not model_server(server, "here").chats_only


def test_a_header_may_be_a_number():
    """It was an invalid header, and the error blamed the model's response."""
    settings = {"base_url": "http://h/v1", "model": "j", "default_headers": {"X-Version": 1}}
    server = ConfiguredServer("judge", "responses_api_models", "vllm_model", settings)
    assert model_server(server, "here").headers == {"X-Version": "1"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"extra_body": [1]}, "here: judge: extra_body is not an object; expected keys with values"),
        ({"default_headers": ["a"]}, "here: judge: default_headers is not an object"),
        ({"chat_template_kwargs": "x"}, "here: judge: chat_template_kwargs is not an object"),
        ({"api_key": "hush\nhush"}, "here: judge: its key or a header contains control characters; expected text"),
        ({"default_headers": {"X": "hush\n"}}, "here: judge: its key or a header contains control characters"),
    ],
)
def test_settings_of_a_model_that_cannot_be_sent_are_refused(settings, said):
    server = ConfiguredServer("judge", "responses_api_models", "m", {"base_url": "http://h", "model": "j", **settings})
    with pytest.raises(InputError, match=said) as caught:
        model_server(server, "here")
    assert "hush" not in str(caught.value)


def test_a_model_that_is_asked_for_completions_is_refused():
    settings = {"base_url": "http://h/v1", "model": "j", "use_completions_api": True}
    with pytest.raises(InputError, match="here: judge: use_completions_api is not supported"):
        model_server(ConfiguredServer("judge", "responses_api_models", "vllm_model", settings), "here")


@pytest.mark.parametrize(("parses", "text"), [(True, " yes"), (False, "<think>no</think> yes")])
def test_thoughts_are_no_answer(parses, text):
    chat = {"choices": [{"message": {"content": "<think>no</think> yes"}}]}
    *before, message = as_response(chat, {}, parses)["output"]
    assert message["content"][0]["text"] == text
    assert [item["summary"][0]["text"] for item in before] == ["no"] * parses


def test_an_answer_that_was_cut():
    choice = {"message": {"content": None, "reasoning_content": "hm"}, "finish_reason": "length"}
    response = as_response({"choices": [choice], "usage": {"prompt_tokens": 2}}, {"model": "m"})
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert [item["type"] for item in response["output"]] == ["reasoning", "message"]
    assert (response["usage"]["input_tokens"], response["model"]) == (2, "m")
