import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
from cli.running import calipers, refused
from gym import row
from systems.nemo_gym.serve.asking import server_file, spoken
from systems.nemo_gym.serve.running import running
from waiting import PATIENCE, until

from calipers.systems.nemo_gym.lent import base_resources_server

PAGE = Path(__file__).parents[1] / "systems" / "nemo_gym" / "serve" / "fixtures" / "math_server.py"
ROWS = [row(task, n, float(n > task)) for task in range(3) for n in range(4)]
CLIENTS = 200


def post(url, body, **headers):
    """Status and JSON of one answer."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def first(folder):
    """A search path that begins with a folder."""
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


def test_the_server_of_the_page(tmp_path):
    (tmp_path / "my_server.py").write_text(PAGE.read_text())
    with running("my_server.py:MathServer", cwd=tmp_path) as server:
        status, found = post(f"{server.url}/aggregate_metrics", {"verify_responses": ROWS})
        assert (status, found["key_metrics"]["pass@k"]) == (200, 1.0)
        assert post(f"{server.url}/verify", spoken("42"))[1]["reward"] == 1.0
        assert post(f"{server.url}/verify", {})[0] == 422
        assert post(f"{server.url}/seed_session", {}) == (200, {})
        assert server.ended(signal.SIGTERM) == (0, "")


def test_a_verifier_by_name(tmp_path):
    (tmp_path / "plugin.py").write_text(
        "from evsys_sdk.verifiers.fns import register_fn\n"
        "@register_fn('length')\n"
        "def length(output, expected, params):\n    return len(output)\n"
    )
    with running("--plugin", "plugin.py", "--verifier", "length", cwd=tmp_path) as server:
        assert post(f"{server.url}/verify", spoken("12345"))[1]["reward"] == 5.0
        assert server.ended(signal.SIGINT) == (0, "")


def test_a_token(tmp_path):
    with running("--token-env", "MY_TOKEN", cwd=tmp_path, MY_TOKEN="s3cret") as server:
        status, found = post(f"{server.url}/aggregate_metrics", {"verify_responses": ROWS})
        assert (status, found["error"]["code"]) == (401, "unauthorized")
        assert post(f"{server.url}/seed_session", {}, authorization="Bearer s3cret") == (200, {})


def test_requests_under_way_are_answered_before_the_end(tmp_path):
    slow = "def compute_metrics(self, tasks):\n        import pathlib, time\n        pathlib.Path('began').touch()\n"
    slow += "        while not pathlib.Path('go').exists():\n            time.sleep(0.01)\n        return {'done': 1}"
    server_file(tmp_path, slow)
    with running("my_server.py:Server", cwd=tmp_path) as server:
        found = []
        ask = threading.Thread(
            target=lambda: found.append(post(f"{server.url}/aggregate_metrics", {"verify_responses": ROWS}))
        )
        ask.start()
        while not (tmp_path / "began").exists():
            time.sleep(0.01)
        with urllib.request.urlopen(f"{server.url}/health", timeout=PATIENCE) as answer:  # meanwhile
            assert answer.status == 200
        server.process.send_signal(signal.SIGTERM)
        (tmp_path / "go").touch()
        ask.join()
        assert found[0][0] == 200
        assert found[0][1]["agent_metrics"]["done"] == 1
        assert server.process.wait(PATIENCE) == 0


def test_a_second_signal_ends_it_at_once_and_quietly(tmp_path):
    waits = "def compute_metrics(self, tasks):\n        import pathlib, time\n        pathlib.Path('began').touch()\n"
    server_file(tmp_path, f"{waits}        time.sleep({PATIENCE})")
    with running("my_server.py:Server", cwd=tmp_path) as server:
        body = json.dumps({"verify_responses": ROWS}).encode()
        with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as client:
            head = "POST /aggregate_metrics HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            until((tmp_path / "began").exists)
            server.process.send_signal(signal.SIGTERM)
            with suppress(OSError):
                while True:  # it listens until it has seen the first signal
                    urllib.request.urlopen(f"{server.url}/health", timeout=PATIENCE).close()
            assert server.ended(signal.SIGINT) == (0, "")


def test_a_crowd(tmp_path):
    """Each client checks its answer: no client may get the answer of another."""

    async def client(session, url, number):
        for turn in range(3):
            rows = [row(0, n, float(number + turn)) for n in range(3)]
            async with session.post(f"{url}/aggregate_metrics", json={"verify_responses": rows}) as answer:
                found = await answer.json()
                assert (answer.status, found["agent_metrics"]["mean/reward"]) == (200, float(number + turn))
            async with session.get(f"{url}/health") as answer:
                assert answer.status == 200

    async def crowd(url):
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CLIENTS)) as session:
            await asyncio.gather(*(client(session, url, number) for number in range(CLIENTS)))

    with running(cwd=tmp_path) as server:
        asyncio.run(crowd(server.url))
        assert server.ended(signal.SIGTERM) == (0, "")


def test_a_raw_request_with_a_wrong_host(tmp_path):
    with running(cwd=tmp_path) as server:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as raw:
            raw.sendall(b"GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
            said = b""
            while piece := raw.recv(4096):
                said += piece
    assert said.startswith(b"HTTP/1.1 421")
    assert b"wrong_host" in said


def test_a_body_beyond_the_limit_is_refused_before_it_comes(tmp_path):
    with running(cwd=tmp_path) as server:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as raw:
            head = b"POST /aggregate_metrics HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            raw.sendall(head + b"Content-Length: %d\r\n\r\n" % (1 << 40))
            assert raw.recv(4096).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no.py:Server"], "no.py: No such file or directory; expected FILE:CLASS"),
        (["my_server.py"], "calipers serve: 'my_server.py' cannot be read; expected FILE:CLASS"),
        (["my_server.py:Serve"], "no class in my_server.py named 'Serve'; did you mean 'Server'"),
        (["my_server.py:BaseVerifyRequest"], "my_server.py: BaseVerifyRequest is not a resources server; expected"),
        (["broken.py:Server"], "broken.py:1: ZeroDivisionError: division by zero"),
        (["abstract.py:Server"], "abstract.py: Server cannot be created: TypeError: Can't instantiate abstract class"),
        (["demanding.py:Server"], "demanding.py: Config needs judge; calipers serve knows name, host"),
        (["--verifier", "exact_macth"], "no verifier named 'exact_macth'; did you mean 'exact_match'"),
        (["my_server.py:Server", "--verifier", "contains"], "--verifier: my_server.py:Server verifies answers itself"),
        (["--token-env", "NOT_SET_AT_ALL"], "--token-env: NOT_SET_AT_ALL is not set; expected"),
        (["--host", "203.0.113.7"], "203.0.113.7:0: cannot listen there (Cannot assign requested address)"),
        (["--port", "65536"], "invalid value for '--port': 65536 is not in the range"),
    ],
)
def test_what_cannot_be_served(tmp_path, arguments, said):
    server_file(tmp_path)
    (tmp_path / "broken.py").write_text("1 / 0")
    top = "from nemo_gym.base_resources_server import *\n"
    (tmp_path / "abstract.py").write_text(top + "class Server(SimpleResourcesServer):\n    pass\n")
    demanding = "class Config(BaseResourcesServerConfig):\n    judge: str\nclass Server(SimpleResourcesServer):\n"
    demanding += "    config: Config\n    async def verify(self, body): ...\n"
    (tmp_path / "demanding.py").write_text(top + demanding)
    port = [] if "--port" in arguments else ["--port", "0"]
    assert refused("serve", *arguments, *port, cwd=tmp_path).startswith(said)


def test_a_port_in_use(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused("serve", "--port", str(port), cwd=tmp_path)
    assert said == f"127.0.0.1:{port}: the port is in use; --port 0 picks a free port"


def test_whoever_can_call_it_is_told(tmp_path):
    with running("--host", "0.0.0.0", cwd=tmp_path) as server:
        assert "other machines can call this server; --token-env VAR requires a token" in server.said


def test_without_the_extra(tmp_path):
    """Without fastapi, as in a core install, the command names the extra to install."""
    (tmp_path / "hidden" / "fastapi").mkdir(parents=True)
    (tmp_path / "hidden" / "fastapi" / "__init__.py").write_text(
        "raise ModuleNotFoundError('No module named fastapi', name='fastapi')"
    )
    hidden = {"PYTHONPATH": first(tmp_path / "hidden"), "PYTHONDONTWRITEBYTECODE": "1"}  # nothing beside it either
    said = refused("serve", cwd=tmp_path, **hidden)
    assert said == "calipers serve: fastapi is not installed; install it with pip install 'calipers[serve]'"


def test_the_help_needs_no_web_framework():
    program = "import sys\nfrom calipers.cli import main\ntry:\n    main(['serve', '--help'])\nfinally:\n"
    program += "    assert not {'fastapi', 'uvicorn', 'pydantic', 'numpy'} & {*sys.modules}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "--token-env" in done.stdout


def test_the_real_package_wins(tmp_path):
    """Where NeMo Gym is installed its classes are used; here something stands in for it that is not ours."""
    package = tmp_path / "site" / "nemo_gym"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    ours = Path(base_resources_server.__file__).read_text()
    real = ours.replace(
        "class SimpleResourcesServer(", "class Client(BaseModel):\n    head: str\n\n\nclass SimpleResourcesServer("
    )
    real = real.replace("server_client: Any", "server_client: Client").replace("new_app(self", 'new_app("real " + self')
    (package / "base_resources_server.py").write_text(real)
    server_file(tmp_path)
    with running("my_server.py:Server", cwd=tmp_path, PYTHONPATH=first(tmp_path / "site")) as server:
        with urllib.request.urlopen(f"{server.url}/openapi.json", timeout=PATIENCE) as answer:
            assert json.load(answer)["info"]["title"] == "real Server"
        assert post(f"{server.url}/verify", spoken("42"))[1]["reward"] == 1.0
        assert post(f"{server.url}/aggregate_metrics", {"verify_responses": ROWS})[0] == 200


def test_the_command_is_listed(tmp_path):
    assert "serve" in calipers("--help", cwd=tmp_path).stdout


def test_a_verifier_that_needs_a_sandbox_is_served_only_with_one(tmp_path):
    said = refused("serve", "--verifier", "python_tests", "--port", "0", cwd=tmp_path, PATH=str(tmp_path))
    assert said.startswith("no sandbox works on this machine (bwrap is not installed; unshare is not installed)")


def test_a_client_that_hangs_up_amid_its_body_leaves_no_line(tmp_path):
    with running("--verifier", "exact_match", cwd=tmp_path) as server:
        host, port = server.url.removeprefix("http://").split(":")
        for path in ("/aggregate_metrics", "/verify", "/seed_session"):
            head = (
                f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n"
            )
            with socket.create_connection((host, int(port))) as connection:
                connection.sendall(head.encode() + b'{"verify')
        assert post(f"{server.url}/seed_session", {}) == (200, {})  # the others were seen by then
        assert server.ended(signal.SIGTERM) == (0, "")
