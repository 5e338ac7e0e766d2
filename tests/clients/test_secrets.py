import asyncio
import json
import os
import traceback

import msgspec
import pytest
from aiohttp import web
from clients.asking import answer, request
from clients.weather import Forecast, Server

from calipers.clients import Connection, connect
from calipers.clients.secrets import Secrets
from calipers.errors import ClientError

KEY = 'sk-live-"4711"/\\0815'


@pytest.mark.parametrize(
    ("keys", "text", "scrubbed"),
    [
        (["sk-12345678"], "Bearer sk-12345678.", "Bearer [secret]."),
        (["sk-1234", "sk-12345678"], "sk-12345678 sk-1234", "[secret] [secret]"),  # the longer key is replaced first
        (["short"], "short", "short"),  # no key is that short, and replacing it would damage words
        ([None, ""], "None ", "None "),
        ([KEY], json.dumps({"said": KEY}), '{"said": "[secret]"}'),  # the form in a line of the log
        (["schlüssel"], json.dumps("schlüssel"), '"[secret]"'),
        (['schlüssel"4711'], msgspec.json.encode('schlüssel"4711').decode(), '"[secret]"'),
    ],
)
def test_a_text_without_keys(keys, text, scrubbed):
    secrets = Secrets()
    for key in keys:
        secrets.add(key)
    assert secrets.scrub(text) == scrubbed
    assert secrets.scrub_bytes(text.encode()) == scrubbed.encode()


def test_keys_in_the_environment(monkeypatch):
    """User code can use any key in the environment, and its errors may show it."""
    keys = {
        "OTHER_API_KEY": " key-of-another ",
        "AWS_SESSION_TOKEN": "passing",
        "HF_TOKEN": "hf_1234",
        "API_KEY": "plain-key",
        "AZURE_CLIENT_SECRET": "s3cr3t-1",
    }
    for name, value in {
        **keys,
        "MONKEY": "banana",
        "MAX_TOKENS": "1000000",
        "PRIMARY_KEY": "task_id",
        "DB_PASSWORD": "postgres",
    }.items():
        monkeypatch.setenv(name, value)
    secrets = Secrets()
    secrets.add_environment()
    assert secrets.scrub("key-of-another passing hf_1234 plain-key s3cr3t-1") == " ".join(["[secret]"] * 5)
    assert secrets.scrub("banana 1000000 task_id postgres") == "banana 1000000 task_id postgres"


def test_a_key_in_the_environment_that_is_not_text(monkeypatch):
    monkeypatch.setitem(os.environb, b"OTHER_API_KEY", b"key-\xff-of-another")
    secrets = Secrets()
    secrets.add_environment()
    assert secrets.scrub(os.environ["OTHER_API_KEY"]) == "[secret]"
    assert secrets.scrub_bytes(b'"key-of-another"') == b'"key-of-another"'


def test_keys_among_the_settings():
    """litellm accepts ``api_key=...`` in a call; the plan records every setting, but must not record the key."""
    secrets = Secrets()
    headers = {"Authorization": "Bearer sk-in-header", "x-api-key": "sk-of-another", "X-Auth-Token": "tok-1234"}
    headers |= {"User-Agent": "calipers"}
    secrets.add_named({"api_key": "sk-in-setting", "extra_headers": headers, "eos_token": "<|endoftext|>", "top_p": 1})
    assert secrets.scrub("sk-in-setting; sk-in-header; sk-of-another; tok-1234") == "; ".join(["[secret]"] * 4)
    assert secrets.scrub("calipers; <|endoftext|>") == "calipers; <|endoftext|>"


def test_bytes_that_are_no_text():
    secrets = Secrets()
    secrets.add("sk-12345678")
    assert secrets.scrub_bytes(b"\xffsk-12345678\xfe") == b"\xff[secret]\xfe"


def echo(status):
    return web.json_response({"error": {"message": f"the key {KEY} is wrong"}}, status=status)


@pytest.mark.parametrize(
    "reply",
    [
        echo(401),
        echo(429),
        echo(500),
        echo(200),
        web.Response(status=500, text=f"<p>{KEY}</p>"),
        web.Response(status=500, text="x" * 190 + KEY),  # the message is cut in the middle of the key
        web.Response(status=302, headers={"Location": f"https://x.example/?key={KEY}"}),
        web.json_response({"choices": [{"error": KEY}]}),
        None,  # the connection is closed without a response
    ],
)
def test_no_error_holds_the_key(monkeypatch, reply):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    async def main():
        kinds = ("dropped",) if reply is None else ()
        async with Server(Forecast(share=float(reply is None), kinds=kinds), [reply] if reply else []) as server:
            connection = Connection(base_url=server.url)
            client = connect("openai/any", connection)
            end = await answer(client, request())
            await client.close()
            return end, client, connection

    end, client, connection = asyncio.run(main())
    assert isinstance(end, ClientError)
    shown = [str(end), repr(end), *traceback.format_exception(end), repr(client), repr(client.notes), repr(connection)]
    assert [text for text in shown if KEY in text or "4711" in text or "sk-live" in text] == []
