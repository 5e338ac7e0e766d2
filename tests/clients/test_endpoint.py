"""The endpoint of a model: an address, or the hash of the file that answers here."""

import os
import sys

import pytest

from calipers.clients.address import checkpoint_sha256, endpoint, file_sha256, source_file
from calipers.errors import InputError


@pytest.fixture(autouse=True)
def _no_url(monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def test_a_served_model_is_where_its_server_is(monkeypatch):
    assert endpoint("openai/m", "http://127.0.0.1:1/v1/") == "http://127.0.0.1:1/v1"
    assert endpoint("openai/m", None) == "https://api.openai.com/v1"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:2/v1")
    assert endpoint("openai/m", None) == "http://127.0.0.1:2/v1"
    assert endpoint("litellm/openai/m", "http://me:secret@host/v1") == "http://host/v1"


def test_a_plugins_model_is_where_it_was_said_to_be():
    assert endpoint("theirs/m", "http://host/v1") == "http://host/v1"
    assert endpoint("theirs/m", None) is None


def test_a_file_is_its_content(tmp_path):
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    one.write_text("a")
    two.write_text("a")
    before = endpoint(f"replay/{one}", None)
    assert before == endpoint(f"replay/{two}", "http://nobody/asks/it") == f"sha256:{file_sha256(one)}"
    state = one.stat()
    one.write_text("b")  # with the same length and modification time as before
    os.utime(one, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert endpoint(f"replay/{one}", None) != before


def test_code_is_the_file_it_stands_in(tmp_path, monkeypatch):
    file = tmp_path / "mine_for_endpoints.py"
    file.write_text("def answer(prompt): return '1'\n")
    monkeypatch.syspath_prepend(tmp_path)
    import mine_for_endpoints

    assert source_file("mine_for_endpoints:answer") == file
    before = endpoint("python/mine_for_endpoints:answer", None)
    assert before == endpoint(f"python/{file}:answer", None)
    file.write_text("def answer(prompt): return '2'\n")
    assert endpoint("python/mine_for_endpoints:answer", None) != before
    assert mine_for_endpoints.answer("") == "1"
    sys.modules.pop("mine_for_endpoints")


def test_code_without_a_file_has_no_content():
    assert endpoint("python/sys:intern", None) is None


def test_a_file_that_is_gone_is_said(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        endpoint(f"replay/{tmp_path}/gone.jsonl", None)


def checkpoint(folder, **files):
    folder.mkdir(parents=True)
    for name, content in {"config.json": "{}", "model.safetensors": "weights", **files}.items():
        (folder / name).write_text(content)
    return endpoint(f"hf/{folder}", None)


def test_a_checkpoint_is_what_it_is_loaded_from(tmp_path):
    one = checkpoint(tmp_path / "one")
    assert checkpoint(tmp_path / "copy") == one
    beside = {"README.md": "new", "optimizer.pt": "2", "rng_state_0.pth": "3", "trainer_state.json": "4", ".lock": "5"}
    assert checkpoint(tmp_path / "beside", **beside) == one  # files that are not loaded for inference
    changed = [
        checkpoint(tmp_path / "later", **{"model.safetensors": "weighty"}),  # of the same length
        checkpoint(tmp_path / "template", **{"chat_template.jinja": "{{ messages }}"}),
        checkpoint(tmp_path / "config", **{"config.json": "[]"}),
        checkpoint(tmp_path / "renamed", **{"model.safetensors": "", "pytorch_model.bin": "weights"}),
    ]
    assert len({one, *changed}) == 5


def test_the_hubs_cache_names_its_files_by_their_hash(tmp_path):
    """The hash is the name of the file, so that weights need not be read."""
    plain = checkpoint(tmp_path / "plain")
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for file in (tmp_path / "plain").iterdir():
        blob = blobs / file_sha256(file)
        blob.write_bytes(file.read_bytes())
        (snapshot / file.name).symlink_to(blob)
    assert f"sha256:{checkpoint_sha256(snapshot)}" == plain
    for blob in blobs.iterdir():
        if blob.read_bytes() == b"weights":
            blob.write_bytes(b"wights!")  # it is not read
    assert f"sha256:{checkpoint_sha256(snapshot)}" == plain
