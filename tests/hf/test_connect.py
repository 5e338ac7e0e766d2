"""The checks before the first call, which need neither torch nor a model."""

import asyncio
import importlib.util
import sys

import pytest
from clients.scripted import Scripted
from hf.asking import ask, request

from calipers.clients import Connection, Continuation, likelihoods
from calipers.clients.huggingface.client import connect
from calipers.errors import ClientError, InputError


@pytest.mark.parametrize("package", ["torch", "transformers"])
def test_without_the_packages_it_says_what_to_install(monkeypatch, tmp_path, package):
    there = importlib.util.find_spec
    monkeypatch.setattr(
        "calipers.clients.huggingface.client.find_spec", lambda name: None if name == package else there("json")
    )
    with pytest.raises(InputError) as raised:
        connect(str(tmp_path), Connection())
    assert str(raised.value) == f"model 'hf/{tmp_path}' needs {package}; pip install 'calipers[hf]'"


def test_connecting_loads_nothing(checkpoints, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # to import it now would fail

    async def briefly():
        await connect(checkpoints["gpt2"], Connection()).close()

    monkeypatch.setattr("calipers.clients.huggingface.client.find_spec", lambda name: name)
    asyncio.run(briefly())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no/such", "hf/no/such: no such directory; expected a directory with a config.json"),
        ("../up", "hf/../up: no such directory; expected a directory with a config.json"),  # not a hub id, either
        (".", "hf/.: it has no config.json; expected a directory with a checkpoint"),
    ],
)
@pytest.mark.usefixtures("packages")
def test_a_checkpoint_that_is_not_there(monkeypatch, tmp_path, name, said):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as raised:
        connect(name, Connection())
    assert str(raised.value) == said


def test_an_id_that_the_hubs_cache_holds(checkpoints, monkeypatch, tmp_path):
    """The cache's own layout; the hub is not contacted."""
    from pathlib import Path

    import huggingface_hub.constants

    home = tmp_path / "models--some--tiny"
    (home / "refs").mkdir(parents=True)
    (home / "refs" / "main").write_text("0" * 40)
    (home / "snapshots").mkdir()
    (home / "snapshots" / ("0" * 40)).symlink_to(Path(checkpoints["gpt2"]), target_is_directory=True)
    for module in ("huggingface_hub.constants", "transformers.utils.hub"):
        for name in ("HF_HUB_CACHE", "TRANSFORMERS_CACHE"):
            if hasattr(sys.modules.get(module, huggingface_hub.constants), name):
                monkeypatch.setattr(f"{module}.{name}", str(tmp_path))
    assert ask("some/tiny", request())[0].text == ask(checkpoints["gpt2"], request())[0].text


def test_a_model_that_only_writes_has_no_likelihoods():
    with pytest.raises(InputError) as raised:
        likelihoods(Scripted({}), "openai/any")
    assert str(raised.value).startswith("model 'openai/any' does not return log-likelihoods; expected hf/PATH")


def test_a_checkpoint_has_them(checkpoints):
    async def once():
        model = connect(checkpoints["gpt2"], Connection())
        try:
            assert likelihoods(model, "hf/it") is model
            with pytest.raises(ClientError):
                await model.score([Continuation("the", "")])
        finally:
            await model.close()

    asyncio.run(once())
