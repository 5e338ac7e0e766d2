"""Commands on objects of a web server with TLS, of a Google Cloud Storage emulator, and of the routes of the hub.

All on the loopback. The emulator is a package; the hub's server is ours (`servers`), and what asks it is the hub's own
library.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from object_stores.servers import TOKEN, Serving, hub, web_server
from object_stores.test_s3 import ARITH, NEXT, command
from waiting import until

import calipers


@dataclass(frozen=True)
class Store:
    """A store with files in it."""

    base: str  # address, with a slash at the end
    environment: dict[str, str]
    put: Callable[[str, bytes], None]
    get: Callable[[str], bytes]
    serving: Serving | None = None

    def run(self, *arguments: object) -> tuple[int, str, str]:
        code, out, err = command(*arguments, **self.environment)
        assert TOKEN not in out + err
        return code, out, err


@pytest.fixture
def https(tmp_path: Path) -> Iterator[Store]:
    if importlib.util.find_spec("fsspec") is None:
        pytest.skip("fsspec is not installed; make test-stores brings it")
    serving = web_server(tmp_path)
    trusted = {"SSL_CERT_FILE": str(tmp_path / "authority.pem")}
    yield Store(
        f"https://127.0.0.1:{serving.port}/", trusted, serving.files.__setitem__, serving.files.__getitem__, serving
    )
    serving.close()


@pytest.fixture
def hf() -> Iterator[Store]:
    if importlib.util.find_spec("huggingface_hub") is None:
        pytest.skip("huggingface_hub is not installed; make test-stores brings it")
    serving = hub()
    asked = {"HF_ENDPOINT": f"http://127.0.0.1:{serving.port}", "HF_TOKEN": TOKEN, "HF_HUB_OFFLINE": "0"}
    yield Store("hf://datasets/org/data/", asked, serving.files.__setitem__, serving.files.__getitem__, serving)
    serving.close()


@pytest.fixture(scope="module")
def _emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    for package in ("gcsfs", "gcp_storage_emulator"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed; make test-stores brings it")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    program = Path(sys.executable).with_name("gcp-storage-emulator")
    asked = [
        str(program),
        "-d",
        str(tmp_path_factory.mktemp("gs")),
        "start",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    server = subprocess.Popen(asked, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def listens() -> bool:
        assert server.poll() is None, "the emulator has ended"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    until(listens, "the emulator")
    yield port
    server.kill()
    server.wait()


@pytest.fixture
def gs(_emulator: int, request: pytest.FixtureRequest) -> Store:
    import urllib.request

    host, bucket = f"http://127.0.0.1:{_emulator}", f"bucket-{abs(hash(request.node.name)) % 10**9}"

    def post(path: str, data: bytes, kind: str) -> None:
        asked = urllib.request.Request(host + path, data, {"Content-Type": kind}, method="POST")
        with urllib.request.urlopen(asked) as answer:
            assert answer.status == 200

    post("/storage/v1/b?project=test", json.dumps({"name": bucket}).encode(), "application/json")

    def put(name: str, data: bytes) -> None:
        post(f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}", data, "application/octet-stream")

    def get(name: str) -> bytes:
        with urllib.request.urlopen(f"{host}/download/storage/v1/b/{bucket}/o/{name}?alt=media") as answer:
            return bytes(answer.read())

    return Store(f"gs://{bucket}/", {"STORAGE_EMULATOR_HOST": host}, put, get)


STORES = ["https", "gs", "hf"]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Store:
    found: Store = request.getfixturevalue(request.param)
    return found


def test_objects_are_scored_as_their_files_are(store, tmp_path):
    calipers.convert(ARITH, tmp_path / "a.parquet")
    store.put("in/a.jsonl", ARITH.read_bytes())
    store.put("in/a.parquet", (tmp_path / "a.parquet").read_bytes())
    for name in ("in/a.jsonl", "in/a.parquet"):
        code, out, err = store.run("score", store.base + name, "--format", "json")
        assert (code, err) == (0, command("score", ARITH, "--format", "json")[2])
        document = json.loads(out)
        assert document["digest"] == calipers.score(ARITH).digest
        [read] = document["inputs"]
        assert read["path"] == store.base + name
        assert read["sha256"].startswith("etag:") is name.endswith(".parquet")  # of which not every byte was read


@pytest.mark.parametrize("store", ["https", "hf"], indirect=True)  # of the emulator nobody counts the bytes
def test_of_parquet_only_the_columns_that_count_are_read(store, tmp_path):
    rows = [{"task": f"t{n}", "reward": n % 2, "completion": os.urandom(20_000).hex()} for n in range(200)]
    lines = tmp_path / "long.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    calipers.convert(lines, tmp_path / "long.parquet")
    data = (tmp_path / "long.parquet").read_bytes()
    store.put("long.parquet", data)
    code, out, err = store.run("score", f"{store.base}long.parquet", "--format", "json")
    assert (code, err) == (0, "")
    assert json.loads(out)["digest"] == calipers.score(lines).digest
    assert 0 < store.serving.sent < len(data) / 10


@pytest.mark.parametrize("store", ["gs", "hf"], indirect=True)
def test_documents_and_rollouts_are_written_and_folders_are_read(store, tmp_path):
    for path in (ARITH, NEXT):
        code, out, err = store.run("convert", path, f"{store.base}runs/{path.name}")
        assert (code, err) == (0, "")
        assert out == f"{store.base}runs/{path.name}: 320 rollouts, converted from native\n"
        (tmp_path / path.name).write_bytes(path.read_bytes())
    code, _, err = store.run("convert", ARITH, f"{store.base}runs/{ARITH.name}")
    assert (code, err) == (2, f"{store.base}runs/{ARITH.name}: already exists; --force replaces it\n")
    code, out, err = store.run("score", f"{store.base}runs/")
    _, out_here, err_here = command("score", tmp_path)
    assert (code, err) == (0, err_here)
    assert out.replace(f"{store.base}runs", str(tmp_path)) == out_here
    for _ in range(2):  # a document is replaced
        assert store.run("score", ARITH, "--out", f"{store.base}out.json")[0] == 0
    assert json.loads(store.get("out.json"))["digest"] == calipers.score(ARITH).digest


def test_an_object_that_is_not_there_is_an_error_in_one_line(store):
    store.put("in/a.jsonl", ARITH.read_bytes())
    code, out, err = store.run("score", f"{store.base}in/none.jsonl")
    assert (code, out) == (2, "")
    assert err == f"{store.base}in/none.jsonl: no such object; expected the address of a file\n"


@pytest.mark.parametrize("store", ["https", "hf"], indirect=True)
def test_answers_that_fail_are_tried_again(store):
    store.put("in/a.jsonl", ARITH.read_bytes())
    store.serving.breaks = 2
    code, out, _ = store.run("score", f"{store.base}in/a.jsonl", "--format", "json")
    assert code == 0
    assert json.loads(out)["digest"] == calipers.score(ARITH).digest
    assert store.serving.breaks == 0


def test_a_certificate_that_nobody_trusts_is_an_error_in_one_line(https):
    https.put("a.jsonl", ARITH.read_bytes())
    code, out, err = command("score", f"{https.base}a.jsonl")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "CERTIFICATE_VERIFY_FAILED" in err
    assert https.serving.sent == 0


def test_nothing_is_written_to_a_web_server(https):
    code, out, err = https.run("score", ARITH, "--out", f"{https.base}out.json")
    assert (code, out) == (2, "")
    assert "https:// can only be read" in err


def test_a_private_dataset_without_its_token_is_an_error_in_one_line(hf):
    hf.put("a.jsonl", ARITH.read_bytes())
    code, out, err = command("score", f"{hf.base}a.jsonl", **{**hf.environment, "HF_TOKEN": ""})
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"{hf.base}a.jsonl: ")
