import asyncio
import logging
from pathlib import Path

import pytest
from gym import row
from systems.nemo_gym.serve.asking import asking, server_file, spoken

from calipers.systems.nemo_gym.serve.app import Door, Offer, make_app

PAGE = Path(__file__).parent / "fixtures" / "math_server.py"
ROWS = [row(task, n, float(task == 0 or (task == 2 and n < 2))) for task in range(3) for n in range(4)]


@pytest.fixture(scope="module")
def bare():
    with asking() as ask:
        yield ask


@pytest.fixture(scope="module")
def page():
    with asking(f"{PAGE}:MathServer") as ask:
        yield ask


def test_the_server_of_the_page(page):
    """Rows of 3 tasks with 4 rollouts each: all right, all wrong, half right."""
    found = page.post("/aggregate_metrics", {"verify_responses": ROWS}).json
    rounded = {name: round(value, 3) for name, value in found["agent_metrics"].items()}
    assert rounded == {
        "mean/reward": 0.5,
        "max/reward": 1.0,
        "min/reward": 0.0,
        "median/reward": 0.5,
        "std/reward": 0.522,
        "pass@k": 0.667,
        "pass@1": 0.5,
    }
    assert {name: round(value, 3) for name, value in found["key_metrics"].items()} == {"pass@k": 0.667, "pass@1": 0.5}
    groups = [
        {name: round(group[f"{name}/reward"], 3) for name in ("mean", "std")} for group in found["group_level_metrics"]
    ]
    assert groups == [{"mean": 1.0, "std": 0.0}, {"mean": 0.0, "std": 0.0}, {"mean": 0.5, "std": 0.577}]


def test_the_page_judges_what_the_model_said(page):
    right, wrong = page.post("/verify", spoken("42")), page.post("/verify", spoken("41", lost="extras are dropped"))
    assert (right.json["reward"], wrong.json["reward"]) == (1.0, 0.0)
    assert right.json["response"]["output"] == spoken("42")["response"]["output"]
    # every parameter is returned, null if it was not given
    assert right.json["responses_create_params"]["temperature"] is None
    assert "lost" not in wrong.json
    assert page.post("/seed_session", {"anything": 1}).json == {}


def test_no_rows_call_no_hook(page):
    """The hook from the documentation would divide by zero."""
    found = page.post("/aggregate_metrics", {"verify_responses": []})
    assert found.json == {"group_level_metrics": [], "agent_metrics": {}, "key_metrics": {}}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "body.responses_create_params: Field required (and 1 more)"),
        (spoken("x", response={}), "body.response.output: Field required"),
        (spoken("x", responses_create_params={"input": "?", "topp": 1}), "Extra inputs are not permitted"),
    ],
)
def test_what_verify_refuses(page, body, said):
    found = page.post("/verify", body)
    assert (found.status, found.code) == (422, "bad_input")
    assert said in found.message
    assert {"type", "loc", "msg"} == {*found.json["detail"][0]}


def test_the_same_request_gets_the_same_bytes(page):
    first, second = (page.post("/aggregate_metrics", {"verify_responses": ROWS}) for _ in range(2))
    assert first.body == second.body
    assert first.headers["x-request-id"] != second.headers["x-request-id"]
    assert first.headers["content-length"] == str(len(first.body))


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("POST", "/verify", 404, "this server has no verifier: start it with FILE.py:CLASS or --verifier NAME"),
        ("GET", "/nowhere", 404, "no route /nowhere; expected one of /, /aggregate_metrics, /health"),
        ("GET", "/aggregate_metrics", 405, "/aggregate_metrics does not accept GET"),
        ("PUT", "/", 405, "/ does not accept PUT"),
        ("POST", "/aggregate_metrics", 400, "body: it is not JSON"),  # no body at all
        ("POST", "/seed_session", 422, "body: Field required"),
    ],
)
def test_what_is_not_there(bare, method, path, status, said):
    found = bare(method, path)
    assert found.status == status
    assert said in found.message


def test_it_says_that_it_is_there(bare):
    assert bare("GET", "/").body == b'{"status":"ok"}'
    assert bare("GET", "/health").json["status"] == "ok"
    assert bare.post("/seed_session", {"any": "row"}).json == {}


def test_bad_rows_over_the_wire(bare):
    found = bare.post("/aggregate_metrics", {"verify_responses": [row(0, 0), row(0, 0)]})
    assert (found.status, found.code) == (422, "duplicate")
    assert "rows 1 and 2" in found.message


MORE = """def setup_webserver(self):
        app = super().setup_webserver()
        app.post("/step")(self.step)
        app.get("/{rest:path}")(self.rest)
        return app

    async def step(self, body: dict) -> dict:
        return {"x": float("nan"), **body}

    async def rest(self, rest: str) -> dict:
        from fastapi import HTTPException
        raise HTTPException(418, f"no {rest}", {"x-tea": "pot"})
"""


def test_routes_of_its_own(tmp_path):
    with asking(server_file(tmp_path, MORE)) as ask:
        assert ask.post("/step", {"a": 1}).json == {"x": None, "a": 1}
        assert ask.post("/aggregate_metrics", {"verify_responses": [row(0, 0)]}).status == 200
        found = ask("GET", "/health")  # the user's catch-all route answers
        assert (found.status, found.code, found.message) == (418, "refused", "no health")
        assert found.headers["x-tea"] == "pot"


def test_a_route_for_metrics_of_its_own(tmp_path):
    own = "async def aggregate_metrics(self, body: AggregateMetricsRequest) -> AggregateMetrics:\n"
    own += "        return AggregateMetrics(agent_metrics={'rows': len(body.verify_responses)})"
    with asking(server_file(tmp_path, own)) as ask:
        found = ask.post("/aggregate_metrics", {"verify_responses": [{}, {}]})
        assert found.json == {"group_level_metrics": [], "agent_metrics": {"rows": 2}, "key_metrics": {}}
        assert ask.post("/aggregate_metrics", b"{").code == "bad_json"


OWN = """def setup_webserver(self):
        from fastapi.responses import PlainTextResponse
        app = super().setup_webserver()
        async def handler(request, error):
            return PlainTextResponse("mine", 400)
        app.add_exception_handler(ZeroDivisionError, handler)
        from fastapi.exceptions import RequestValidationError
        app.add_exception_handler(RequestValidationError, handler)
        return app
"""


def test_a_server_may_see_to_failures_itself(tmp_path):
    with asking(server_file(tmp_path, OWN)) as ask:
        assert ask.post("/verify", {}).body == b"mine"
        assert ask("GET", "/nowhere").code == "not_found"


FAILING = "async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:\n        "


@pytest.mark.parametrize(
    ("code", "word", "said"),
    [
        ("1 / 0", "server_failed", "my_server.py:11: /verify failed: ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "server_failed", "/verify ended itself: SystemExit: 3"),
        # this message is in the documentation
        ("pass", "bad_answer", "the answer of /verify does not match its annotation"),
        ("return {'reward': 'high'}", "bad_answer", "the answer of /verify does not match its annotation"),
        ("self.server_client.post", "server_failed", "calipers serve runs one server, which cannot call another"),
    ],
)
def test_a_server_that_fails(tmp_path, caplog, code, word, said):
    with asking(server_file(tmp_path, FAILING + code)) as ask, caplog.at_level(logging.CRITICAL):
        found = ask.post("/verify", spoken("x"))
        assert (found.status, found.code) == (500, word)
        assert said in found.message
        assert "Traceback" not in found.message
        assert ask("GET", "/").status == 200  # the server continues


def test_a_hook_that_fails(tmp_path):
    with asking(server_file(tmp_path, "def compute_metrics(self, tasks):\n        return tasks[0][0]['nope']")) as ask:
        found = ask.post("/aggregate_metrics", {"verify_responses": [row(0, 0)]})
        assert (found.status, found.code) == (500, "hook_failed")
        assert found.message.endswith("my_server.py:11: compute_metrics failed: KeyError: 'nope'")


def test_hooks_see_their_server(tmp_path):
    hook = (
        "def get_key_metrics(self, agent_metrics):\n        return {'name': self.config.name, 'n': len(agent_metrics)}"
    )
    with asking(server_file(tmp_path, hook)) as ask:
        found = ask.post("/aggregate_metrics", {"verify_responses": [row(0, 0)]}).json
        assert found["key_metrics"] == {"name": "Server", "n": 5}


def test_a_client_that_hangs_up_is_not_waited_for(tmp_path):
    hangs = "def compute_metrics(self, tasks):\n        import time\n        time.sleep(600)"
    with asking(server_file(tmp_path, hangs)) as ask:
        found = ask("POST", "/aggregate_metrics", {"verify_responses": [row(0, 0)]}, hang_up=True)
        assert found.status == 499
        assert ask("GET", "/").status == 200


def test_bodies_leave_nothing_behind(bare):
    folder = bare.workers.paths()[0].parent
    bare.post("/aggregate_metrics", {"verify_responses": [row(0, 0)]})
    bare.post("/aggregate_metrics", b"{")
    assert list(folder.iterdir()) == []


def test_a_full_disk_is_said(tmp_path):
    """A full disk, simulated by /dev/full."""
    (tmp_path / "body").symlink_to("/dev/full")  # a link, because the server removes the file at the end
    with asking() as ask:
        ask.workers.paths = lambda: (tmp_path / "body", tmp_path / "answer")
        found = ask.post("/aggregate_metrics", {"verify_responses": []})
        assert (found.status, found.code) == (503, "no_room")
        assert "No space left on device" in found.message


def test_an_oversize_body_is_not_kept():
    from calipers.systems.nemo_gym.serve import BodyLimits

    with asking(limits=BodyLimits(body=100)) as ask:
        found = ask.run(_in_pieces(ask.app, [b"x" * 60, b"x" * 60]))
        assert (found.status, found.code, found.headers["connection"]) == (413, "too_large", "close")


async def _in_pieces(app, pieces):
    from systems.nemo_gym.serve.asking import HEADERS, asked

    return await asked(app, "POST", "/aggregate_metrics", pieces, {**HEADERS, "transfer-encoding": "chunked"})


def test_a_bug_of_ours_is_called_one(caplog):
    class Broken:
        def paths(self):
            raise RuntimeError("no folder")

    from systems.nemo_gym.serve.asking import HEADERS, asked

    app = make_app(Broken(), Offer(), Door())
    with caplog.at_level(logging.CRITICAL):
        found = asyncio.run(asked(app, "POST", "/aggregate_metrics", [b"{}"], {**HEADERS, "content-length": "2"}))
    assert (found.status, found.message) == (500, "this is a bug in Calipers: RuntimeError: no folder")
