"""The viewer's answers: runs, filters, a rollout, two runs, events; access control, and what is never sent."""

import asyncio
import json
import os
import shutil
import socket
from contextlib import suppress
from importlib.resources import files

import pytest
from web.hostile import HALVES, TEXTS
from web.viewer.served import served
from yarl import URL

from calipers.web.viewer import guard as guarding
from calipers.web.viewer.library import Library
from calipers.web.viewer.server import serving

EXAMPLES = files("calipers") / "examples"


@pytest.fixture
def folder(tmp_path):
    for name in ("arith.jsonl", "arith_next.jsonl"):
        shutil.copy(str(EXAMPLES / name), tmp_path / name)
    return tmp_path


def line(**row):
    return json.dumps(row) + "\n"


# access control


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "calipers.invalid"}, 403),  # DNS rebinding
        ({"Host": "127.0.0.1"}, 403),  # another port
        ({"Host": "127.0.0.1:1@calipers.invalid"}, 403),
        ({"Origin": "http://calipers.invalid"}, 403),
        ({"Origin": "null"}, 403),  # a sandboxed frame, a file
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),  # another port of this machine
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Cookie": ""}, 403),
        ({"Cookie": "calipers-1=x"}, 403),
    ],
)
def test_only_the_browser_that_was_let_in_gets_an_answer(folder, headers, status):
    async def check(client):
        options = {"headers": headers}
        if "Cookie" in headers:
            client.http.cookie_jar.clear()
        await client.get("/api/runs", status, **options)

    served([str(folder)], check)


def test_localhost_is_this_machine_too(folder):
    async def check(client):
        host = f"localhost:{client.base.port}"
        await client.get("/api/runs", headers={"Host": host, "Origin": f"http://{host}"})

    served([str(folder)], check)


def test_the_token_is_exchanged_for_a_cookie_and_leaves_the_address(folder, caplog, capfd):
    async def check(client):
        client.http.cookie_jar.clear()
        for path, goes_to in (("/", "/"), ("/run/0123456789ab?task=a&sample=1", "/run/0123456789ab?task=a&sample=1")):
            url = client.base.join(URL(path)).update_query(token=client.token)
            async with client.http.get(url, allow_redirects=False) as answer:
                assert (answer.status, answer.headers["Location"]) == (303, goes_to)
                cookie = answer.headers["Set-Cookie"]
                assert "HttpOnly" in cookie
                assert "SameSite=Strict" in cookie
                assert client.token not in cookie
                assert answer.headers["Referrer-Policy"] == "no-referrer"
        async with client.http.get(client.base.with_query(token="x"), allow_redirects=False) as answer:
            assert answer.status == 403
        assert client.token not in repr(client.viewer.guard)
        for path in ("/", "/api/runs", f"/run/{await client.run('arith.jsonl')}"):
            assert client.token not in str(await client.get(path, 200))

        logged = caplog.text + "".join(capfd.readouterr())
        assert client.token not in logged

    served([str(folder)], check)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: HERE\r\nCookie: NAME=\xff\xfe\r\n\r\n", 403),
        (b"GET /?token=\xff HTTP/1.1\r\nHost: HERE\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: HERE\r\nCookie: other=" + b"a" * 20_000 + b"\r\n\r\n", 400),  # of another port
        (b"GET / HTTP/1.1\r\nHost: HERE\r\nHost: calipers.invalid\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\r\n\r\n", 400),  # TLS
    ],
)
def test_a_request_that_is_odd_is_refused_without_a_traceback(folder, caplog, capfd, head, status):
    async def check(client):
        host = f"127.0.0.1:{client.base.port}".encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", client.base.port)
        writer.write(head.replace(b"HERE", host).replace(b"NAME", client.viewer.guard.cookie.encode()))
        assert (await reader.readline()).split()[1] == str(status).encode()
        writer.close()

    served([str(folder)], check)
    assert caplog.text + "".join(capfd.readouterr()) == ""


def test_every_answer_has_a_strict_policy(folder):
    async def check(client):
        run = await client.run("arith.jsonl")
        for path in ("/?all", f"/run/{run}", "/api/runs", "/nowhere", "/asset/viewer.js", f"/report/{run}"):
            async with client.http.get(client.base.join(URL(path))) as answer:
                policy = answer.headers["Content-Security-Policy"]
                assert policy.startswith("default-src 'none'")
                assert "frame-ancestors 'none'" in policy
                assert "unsafe" not in policy
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert answer.headers["Referrer-Policy"] == "no-referrer"
                assert "Server" not in answer.headers

    served([str(folder)], check)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_written(folder, method):
    before = {name: os.stat(folder / name).st_mtime_ns for name in os.listdir(folder)}

    async def check(client):
        headers = {"Origin": str(client.base).rstrip("/")}
        for path in ("/", "/api/runs", f"/run/{await client.run()}", "/api/label", "/asset/viewer.js"):
            async with client.http.request(method, client.base.join(URL(path)), headers=headers, json={}) as answer:
                assert answer.status in (404, 405)

    served([str(folder)], check)
    assert {name: os.stat(folder / name).st_mtime_ns for name in os.listdir(folder)} == before


# which files can be read


TRAVERSALS = [
    "/asset/../../../etc/passwd", "/asset/..%2f..%2fpage.py", "/asset/%2e%2e/%2e%2e/page.py", "/asset/%2fetc%2fpasswd",
    "/run/../../secret.jsonl", "/run/%2e%2e%2fsecret", "/report/..%2fsecret.jsonl",
    "/api/run/..%2f..%2fsecret/rollouts", "/api/run/000000000000/rollouts",
    "/..%2f..%2fetc/passwd", "/asset/viewer.js%00.css", "//etc/passwd",
]  # fmt: skip


@pytest.mark.parametrize("path", TRAVERSALS)
def test_no_path_leads_out(folder, path):
    (folder.parent / "secret.jsonl").write_text(line(task="SECRET", reward=1))

    async def check(client):
        reader, writer = await asyncio.open_connection("127.0.0.1", client.base.port)
        cookie = "; ".join(f"{each.key}={each.value}" for each in client.http.cookie_jar)
        head = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{client.base.port}", f"Cookie: {cookie}", "Connection: close"]
        writer.write("\r\n".join([*head, "", ""]).encode())
        answer = await reader.read()
        writer.close()
        assert answer.split()[1] in (b"400", b"404"), answer[:200]
        assert b"SECRET" not in answer
        assert b"root:" not in answer

    served([str(folder)], check)


def test_a_link_that_leads_out_is_not_followed(folder):
    secret = folder.parent / "outside"
    (secret / "run").mkdir(parents=True)
    (secret / "secret.jsonl").write_text(line(task="SECRET", reward=1))
    os.symlink(secret / "secret.jsonl", folder / "link.jsonl")
    os.symlink(folder / "arith.jsonl", folder / "inside.jsonl")
    run = folder / "run"
    run.mkdir()
    (run / "plan.json").write_text(json.dumps({"schema": "calipers.plan/1", "samples": 1, "tasks": [{"task": "a"}]}))
    os.symlink(secret / "secret.jsonl", run / "rollouts.jsonl")

    async def check(client):
        answer = await client.get("/api/runs")
        assert "SECRET" not in json.dumps(answer)
        assert {os.path.basename(row["path"]) for row in answer["runs"]} <= {
            "arith.jsonl",
            "arith_next.jsonl",
            "inside.jsonl",
        }
        assert sum("leads out of the paths given" in note for note in answer["notes"]) == 2

    served([str(folder)], check)


def test_a_log_that_becomes_a_link_is_read_no_more(folder):
    (folder.parent / "secret.jsonl").write_text(line(task="SECRET", reward=1) * 400)

    async def check(client):
        run = await client.run("arith.jsonl")
        await client.get(f"/api/run/{run}/rollout/3")
        os.unlink(folder / "arith.jsonl")
        os.symlink(folder.parent / "secret.jsonl", folder / "arith.jsonl")
        for path in (f"/api/run/{run}/rollout/3", f"/api/run/{run}/rollouts?q=SECRET"):
            answer = await client.get(path, 400)
            assert "SECRET" not in answer["error"]
        opened = client.viewer.library.runs[run]
        await client.viewer.library.refresh(opened)
        assert "leads out" in opened.error

    served([str(folder)], check)


# the data of the pages


def test_runs_filters_and_a_rollout(folder):
    rows = [json.loads(words) for words in (folder / "arith.jsonl").read_text().splitlines()]
    passed_hard = sum(row["metadata"]["difficulty"] == "hard" and row.get("reward") == 1 for row in rows)

    async def check(client):
        run, other = await client.run("arith.jsonl"), await client.run("arith_next")
        shown = await client.get(f"/api/run/{run}")
        sentence = "tiny-calculator passes 44\xa0% of its samples on arith; with the 17 missing rollouts, "
        assert shown["sentence"] == f"{sentence}anything from 33 to 57\xa0%."
        counts = {}
        for part in shown["parts"]:
            counts[part["state"]] = counts.get(part["state"], 0) + part["count"]
        assert counts == {"passed": 135, "wrong": 146, "zero": 22, "missing": 17}
        for query, total in [
            ("", 320), ("state=wrong", 146), ("state=wrong,missing", 163), ("outcome=refused", 8), ("least=1", 135),
            ("most=0", 168), ("slice=difficulty=hard", 160), ("slice=difficulty=hard&state=passed", passed_hard),
            ("q=66330", 1),
            (f"against={other}&flip=worse&state=passed", 0), ("only=mul-00", 8), ("only=none", 0),
        ]:  # fmt: skip
            answer = await client.get(f"/api/run/{run}/rollouts?{query}&count=2")
            assert answer["total"] == total, query
            assert len(answer["rows"]) == min(total, 2)
        flips = [
            (await client.get(f"/api/run/{run}/rollouts?against={other}&flip={way}"))["total"]
            for way in ("worse", "better", "flipped")
        ]
        assert flips[0] + flips[1] == flips[2] > 0
        first = (await client.get(f"/api/run/{run}/rollouts?sort=-tokens&count=5"))["rows"]
        assert [row["tokens"] for row in first] == sorted((row["tokens"] for row in first), reverse=True)
        rollout = await client.get(f"/api/run/{run}/rollout/165")
        assert (rollout["task"], rollout["sample"], rollout["outcome"], rollout["reward"]) == (
            "mul-00",
            5,
            "verifier failed",
            None,
        )
        assert {block["name"] for block in rollout["blocks"]} == {"Prompt", "Completion", "Error"}
        assert [each["sample"] for each in rollout["siblings"]] == [*range(8)]
        place = await client.get(f"/api/run/{run}/rollouts?task=mul-00&sample=5&state=missing")
        assert place["at"] == [
            row["row"] for row in (await client.get(f"/api/run/{run}/rollouts?state=missing&count=50"))["rows"]
        ].index(165)
        after = await client.get(f"/api/run/{run}/rollouts?fail=165&count=1")
        assert after["at"] == 166
        last = [await client.get(f"/api/run/{run}/rollouts?fail={at}&way=back&count=1") for at in (320, 99_999)]
        assert last[0]["at"] == last[1]["at"] < 320

    served([str(folder)], check)


@pytest.mark.parametrize(
    "query",
    [
        "state=good",
        "outcome=nice",
        "sort=size",
        "from=-1",
        "count=x",
        "least=nan",
        "slice=difficulty=none",
        "from=99999999999999999999",
    ],
)
def test_what_there_is_not_is_said(folder, query):
    async def check(client):
        answer = await client.get(f"/api/run/{await client.run('arith.jsonl')}/rollouts?{query}", 400)
        assert "Traceback" not in answer["error"]

    served([str(folder)], check)


def test_two_runs_beside_each_other(folder):
    async def check(client):
        run, other = await client.run("arith.jsonl"), await client.run("arith_next")
        both = await client.get(f"/api/compare/{run}/{other}?count=3")
        assert both["counts"] == {"all": 40, "worse": 9, "better": 25, "same": 6}
        assert both["verdict"]["sentence"] == "Not decided: the missing rollouts decide (22 of 320 of B, 17 of A)."
        assert [row["task"] for row in both["rows"]][:2] == ["mul-02", "add-18"]
        task = await client.get(f"/api/compare/{run}/{other}/task?task=add-18&sample=1")
        assert [side["rollout"]["state"] for side in task["sides"]] == ["passed", "wrong"]
        assert "Both runs" in await client.get(f"/report/{run}/{other}")

    served([str(folder)], check)


def usual(name):
    """The most frequent answer of each task (the first of several), counted in a simple way."""
    answers = {}
    for row in map(json.loads, (EXAMPLES / name).read_text().splitlines()):
        if said := row.get("answer") or row.get("completion"):
            answers.setdefault(row["task"], []).append(said)
    return {task: max(said, key=said.count) for task, said in answers.items()}


def test_tasks_of_two_runs_by_answer_slice_and_words(folder):
    first, second = usual("arith.jsonl"), usual("arith_next.jsonl")
    other = {task for task in first.keys() & second.keys() if first[task] != second[task]}
    assert 0 < len(other) < 40

    async def check(client):
        runs = f"{await client.run('arith.jsonl')}/{await client.run('arith_next')}"

        async def found(query):
            answer = await client.get(f"/api/compare/{runs}?verdict=no&count=100&{query}")
            assert answer["complete"]
            return answer, {row["task"] for row in answer["rows"]}

        answer, tasks = await found("way=answer")
        assert tasks == other
        assert answer["counts"]["all"] == 40
        answer, tasks = await found("slice=difficulty=hard")
        assert tasks == {f"mul-{number:02d}" for number in range(20)}
        assert answer["counts"]["all"] == 20
        assert answer["slices"] == {"difficulty": ["easy", "hard"]}
        assert (await found("q=93+%2B+46"))[1] == {"add-18"}  # its prompt
        assert (await found("q=93+%2B+46&slice=difficulty=hard"))[1] == set()
        assert (await found("way=answer&slice=difficulty=hard"))[1] == {task for task in other if task[0] == "m"}

    served([str(folder)], check)


def test_attempts_steps_and_the_words_of_a_judge(tmp_path):
    steps = [
        {"role": "assistant", "content": "I look.", "tool_calls": [{"function": {"name": "ls", "arguments": "{}"}}]},
        {"role": "tool", "content": "a b"},
        {"role": "assistant", "content": "done"},
    ]
    rows = [
        {"task": "a", "sample": 0, "attempt": 1, "outcome": "client_failed", "error": {"kind": "timeout"}},
        {"task": "a", "sample": 0, "attempt": 2, "reward": 1, "prompt": "p", "completion": steps,
         "judge_reply": "SCORE: 1", "judge_1": 1, "metadata": {"target": "42"}},
    ]  # fmt: skip
    (tmp_path / "log.jsonl").write_text("".join(line(**row) for row in rows))

    async def check(client):
        run = await client.run()
        answer = await client.get(f"/api/run/{run}/rollouts")
        assert answer["total"] == 1
        rollout = await client.get(f"/api/run/{run}/rollout/{answer['rows'][0]['row']}")
        assert [(each["attempt"], each["outcome"], each["current"]) for each in rollout["attempts"]] == [
            (1, "client failed", False),
            (2, "scored", True),
        ]
        assert [(step["who"], len(step["calls"])) for step in rollout["steps"]] == [
            ("assistant", 1),
            ("tool", 0),
            ("assistant", 0),
        ]
        blocks = {block["name"]: block["head"] for block in rollout["blocks"]}
        assert blocks["Judge: judge_reply"] == "SCORE: 1"
        assert blocks["Expected"] == "42"
        assert rollout["numbers"] == {"judge_1": 1}
        assert '"judge_reply"' in rollout["raw"]["head"]

    served([str(tmp_path)], check)


def test_tokens_that_overflow_together_are_not_shown(tmp_path):
    usage = {"input_tokens": 1e308, "output_tokens": 1e308}
    (tmp_path / "r.jsonl").write_text(line(task="a", reward=1, usage=usage) + line(task="b", reward=0))

    async def check(client):
        rows = (await client.get(f"/api/run/{await client.run()}/rollouts?sort=-tokens"))["rows"]
        assert [(row["task"], row["tokens"]) for row in rows] == [("a", None), ("b", None)]

    served([str(tmp_path)], check)


def test_a_long_text_is_cut_and_its_pieces_are_the_whole(tmp_path):
    text = "".join(f"{number} Zeile ü\n" for number in range(60_000))
    (tmp_path / "log.jsonl").write_text(
        line(task="a", reward=1, completion=text) + line(task="b", reward=0, completion="x")
    )

    async def check(client):
        run = await client.run()
        rollout = await client.get(f"/api/run/{run}/rollout/0")
        [block] = [block for block in rollout["blocks"] if block["key"] == "completion"]
        assert (block["lines"], block["size"]) == (60_001, len(text))
        assert len(json.dumps(rollout)) < 60_000
        pieces, start = "", 0
        while start is not None:
            piece = await client.get(f"/api/run/{run}/text/0?block=completion&from={start}")
            pieces, start = pieces + piece["text"], piece["next"]
        assert pieces == text
        await client.get(f"/api/run/{run}/text/0?block=nothing", 400)
        listed = await client.get(f"/api/run/{run}/rollouts")
        assert listed["rows"][0]["text"].endswith("MB)")

    served([str(tmp_path)], check)


def test_hostile_texts_stay_texts(tmp_path):
    rows = [
        {"task": f"t{at} {text}", "sample": 0, "model": TEXTS[0], "dataset": TEXTS[1], "reward": at % 2,
         "prompt": text, "completion": text, "answer": text, "error": text, "metadata": {"kind": TEXTS[at % 7]},
         "judge_words": text}
        for at, text in enumerate([*TEXTS, *HALVES])
    ]  # fmt: skip
    (tmp_path / "log.jsonl").write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in rows if not _half(row)))

    async def check(client):
        run = await client.run()
        pages = [await client.get(f"/run/{run}"), await client.get("/?all"), await client.get(f"/report/{run}")]
        summary = await client.get(f"/api/run/{run}")
        markup = [*pages, summary["bar"], summary["strip"]]
        assert not [text for text in TEXTS[:3] for page in markup if text in page]
        answer = await client.get(f"/api/run/{run}/rollouts?count=200")
        async with client.http.get(client.base.join(URL(f"/api/run/{run}/rollouts"))) as raw:
            assert raw.content_type == "application/json"
        assert answer["total"] == len([row for row in rows if not _half(row)])
        shown = json.dumps(answer["rows"], ensure_ascii=False)
        assert not set(shown) & set("\x1b\u202e\u2066\u200b")  # characters that hide or reorder text are made visible

    served([str(tmp_path)], check)


def _half(row):
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


# runs in progress


async def events(client, until):
    """The events of a stream, up to the first that meets a condition."""
    seen = []
    async with client.http.get(client.base.join(URL("/events"))) as answer:
        async for words in answer.content:
            if words.startswith(b"data: "):
                seen.append(json.loads(words[6:]))
                if until(seen[-1]):
                    return seen
    return seen


def test_what_is_appended_is_told_and_a_torn_line_is_not_shown(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(line(task="a", reward=1))

    async def check(client):
        run = await client.run()
        listening = asyncio.ensure_future(events(client, lambda event: event.get("run") == run))
        while not client.viewer.library.listeners:
            await asyncio.sleep(0)
        with open(path, "a") as file:
            file.write(line(task="b", reward=0) + '{"task": "c", "rew')
        await listening
        answer = await client.get(f"/api/run/{run}/rollouts")
        assert [row["task"] for row in answer["rows"]] == ["a", "b"]
        listening = asyncio.ensure_future(events(client, lambda event: event.get("run") == run))
        while not client.viewer.library.listeners:
            await asyncio.sleep(0)
        with open(path, "a") as file:
            file.write('ard": 1}\n')
        await listening
        answer = await client.get(f"/api/run/{run}/rollouts")
        assert [row["task"] for row in answer["rows"]] == ["a", "b", "c"]

    served([str(path)], check)


# many clients, slow clients, and shutdown


def test_two_hundred_clients_are_answered_and_too_many_are_not_kept(folder, monkeypatch):
    monkeypatch.setattr(guarding, "MOST_CLIENTS", 220)

    async def check(client):
        streams = [await client.http.get(client.base.join(URL("/events"))) for _ in range(100)]
        run = await client.run("arith.jsonl")
        answers = await asyncio.gather(
            *(client.get(f"/api/run/{run}/rollouts?count=50&from={at}") for at in range(100))
        )
        assert {answer["total"] for answer in answers} == {320}
        silent = [await asyncio.open_connection("127.0.0.1", client.base.port) for _ in range(300)]
        while len(client.viewer.guard.connections) < 220:
            await asyncio.sleep(0.01)
        assert len(client.viewer.guard.connections) == 220
        for _, writer in silent:
            writer.close()
        for stream in streams:
            stream.close()

    served([str(folder)], check)


def test_a_client_that_sends_no_request_is_cut(folder, monkeypatch):
    monkeypatch.setattr(guarding, "FIRST_REQUEST", 0.0)
    monkeypatch.setattr(guarding, "SWEEP", 0.01)

    async def check(client):
        reader, writer = await asyncio.open_connection("127.0.0.1", client.base.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: 127")  # and nothing more
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()

    served([str(folder)], check)


def test_a_client_that_takes_nothing_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(guarding, "STALLED", 0.0)
    monkeypatch.setattr(guarding, "SWEEP", 0.01)
    (tmp_path / "log.jsonl").write_text(line(task="a", reward=1, completion="x" * 200_000))

    async def check(client):
        cookie = "; ".join(f"{each.key}={each.value}" for each in client.http.cookie_jar)
        run = next(iter(client.viewer.library.runs))
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", client.base.port))
        line = f"GET /api/run/{run}/text/0?block=completion&from=0 HTTP/1.1"
        ask = "\r\n".join([line, f"Host: 127.0.0.1:{client.base.port}", f"Cookie: {cookie}", "", ""])
        slow.setblocking(False)
        rest = questions = ask.encode() * 60
        while not client.viewer.guard.cut:  # the client sends requests without reading, until all buffers are full
            with suppress(BlockingIOError, ConnectionError):
                rest = rest[slow.send(rest) :] or questions
            await asyncio.sleep(0.01)
        slow.close()

    served([str(tmp_path)], check)


def test_a_closed_browser_leaves_nothing_running(folder):
    async def check(client):
        stream = await client.http.get(client.base.join(URL("/events")))
        while client.viewer.pages != 1:
            await asyncio.sleep(0)
        stream.close()
        client.viewer.library.send({"wake": 1})
        while client.viewer.pages:
            client.viewer.library.send({"wake": 1})
            await asyncio.sleep(0)
        assert not client.viewer.library.listeners

    served([str(folder)], check)


def test_a_port_that_is_taken_is_named(folder):
    async def check():
        from calipers.errors import InputError

        with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(InputError, match="cannot be used"):
            async with serving(Library([str(folder)]), port=taken.getsockname()[1]):
                pass

    asyncio.run(check())


def test_every_system_is_shown(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    golden = os.path.join(os.path.dirname(__file__), "..", "..", "golden", "formats")

    async def check(client):
        runs = (await client.get("/api/runs"))["runs"]
        shown = [row for row in runs if row.get("rollouts")]
        assert len({row["path"].split("formats/")[1].split("/")[0] for row in shown}) >= 12
        for row in shown:
            rows = (await client.get(f"/api/run/{row['id']}/rollouts?count=1"))["rows"]
            rollout = await client.get(f"/api/run/{row['id']}/rollout/{rows[0]['row']}")
            assert rollout["blocks"] or rollout["raw"]["head"], row["path"]

    served([golden], check)


# training runs that are watched


def test_a_watched_folder_is_shown_by_step_and_live(tmp_path):
    from watch_steps import write_run

    from calipers.analyses.watch import alarms_of
    from calipers.analyses.watch.watch import RunWatch

    write_run(tmp_path / "runs" / "grpo", 12, drop=0.3, at=8)
    watching = RunWatch(str(tmp_path / "runs" / "grpo"), {"alarms": alarms_of(["drop(reward) > 0.02"])})
    watching.look()

    async def check(client):
        (watch,) = (await client.get("/api/runs"))["watches"]
        assert watch["path"].endswith("runs/grpo")
        url = client.base.join(URL(f"/watch/{watch['id']}"))
        async with client.http.get(url) as answer:
            page = await answer.text()
            assert "alarm in 12 steps." in page
            assert "script-src 'sha256-" in answer.headers["Content-Security-Policy"]
            assert answer.headers["Refresh"] == "10"  # a process watches the folder
        write_run(tmp_path / "runs" / "grpo", 1, first=12)
        watching.look()
        assert "in 13 steps." in await client.get(f"/watch/{watch['id']}")
        watching.close()
        async with client.http.get(url) as answer:
            assert "Refresh" not in answer.headers
        await client.get("/watch/" + "0" * 12, 400)

    served([str(tmp_path / "runs")], check)


def test_a_watch_outside_the_paths_is_not_shown(tmp_path):
    from watch_steps import watch, write_run

    write_run(tmp_path / "elsewhere", 2, tasks=5)
    watch(tmp_path / "elsewhere")
    write_run(tmp_path / "given" / "run", 2, tasks=5)
    (tmp_path / "given" / "run" / ".calipers-watch").symlink_to(tmp_path / "elsewhere" / ".calipers-watch")
    (tmp_path / "given" / "linked").symlink_to(tmp_path / "elsewhere")

    async def check(client):
        assert (await client.get("/api/runs"))["watches"] == []

    served([str(tmp_path / "given")], check)
