"""A checkpoint is loaded once for models that are used one after the other, and never shared by two at once."""

import asyncio
import shutil

import pytest
from hf.asking import ask, request

from calipers.clients import Connection
from calipers.clients.huggingface import client
from calipers.clients.huggingface.client import connect


@pytest.fixture
def loads(monkeypatch):
    """The paths from which checkpoints are loaded."""
    found = []
    plain = client.load
    monkeypatch.setattr(client, "_loaded", [])
    monkeypatch.setattr(client, "load", lambda path, options: found.append(path) or plain(path, options))
    return found


def test_one_after_the_other(checkpoints, loads):
    texts = {ask(checkpoints["gpt2"], request())[0].text for _ in range(3)}
    assert (len(texts), loads) == (1, [checkpoints["gpt2"]])


def test_another_takes_its_place(checkpoints, loads):
    order = ["gpt2", "llama", "gpt2"]
    for kind in order:
        ask(checkpoints[kind], request())
    assert loads == [checkpoints[kind] for kind in order]
    assert len(client._loaded) == 1


def test_one_that_was_changed_is_loaded_again(checkpoints, loads, tmp_path):
    home = shutil.copytree(checkpoints["gpt2"], tmp_path / "copy")
    ask(str(home), request())
    (home / "generation_config.json").write_text("{}")
    ask(str(home), request())
    assert loads == [str(home)] * 2


def test_two_at_once_have_one_each(checkpoints, loads):
    async def both():
        models = [connect(checkpoints["gpt2"], Connection()) for _ in range(2)]
        ends = await asyncio.gather(*[model.complete(request()) for model in models])
        for model in models:
            await model.close()
        return ends

    first, second = asyncio.run(both())
    assert first.text == second.text
    assert len(loads) == 2


def test_a_closed_model_does_not_take_it_back(checkpoints, loads):
    async def late():
        model = connect(checkpoints["gpt2"], Connection())
        await model.complete(request())
        await model.close()
        return model._complete([request()])  # what a call that is already on its way would do

    (end,) = asyncio.run(late())
    assert (end.kind, len(loads), len(client._loaded)) == ("closed", 1, 1)
