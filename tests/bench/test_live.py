"""The bench of live runs: its server, its tasks, and what it says of the figures."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

sys.path.append(str(Path(__file__).parents[2]))

from bench.live.pairs import paired
from bench.live.report import live_section
from bench.live.run import Found, Memory, Pairs, Whole
from bench.live.server import ANSWER, serving
from bench.live.tasks import row, target
from bench.measure import Timing


def asked(connection, method, path, body=None):
    """Status and decoded body of one request."""
    connection.request(method, path, body)
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def test_the_server_answers_its_routes_over_one_connection_and_ends_with_its_block():
    with serving(seconds=30) as url:
        place = urlsplit(url).netloc
        connection = http.client.HTTPConnection(place, timeout=10)
        status, chat = asked(connection, "POST", "/v1/chat/completions", b'{"messages": []}')
        assert (status, chat["choices"][0]["message"]["content"]) == (200, ANSWER)
        assert set(chat["usage"]) == {"prompt_tokens", "completion_tokens", "total_tokens"}
        status, text = asked(connection, "POST", "/v1/completions", b"{}")
        assert (status, text["choices"][0]["text"]) == (200, ANSWER)
        assert asked(connection, "GET", "/v1/models")[1]["data"][0]["id"] == "fixed"
        assert asked(connection, "POST", "/v1/responses", b"{}")[0] == 404
        connection.close()
    with pytest.raises(OSError, match="refused"):
        http.client.HTTPConnection(place, timeout=10).connect()


def test_a_request_may_come_in_pieces_and_two_may_come_at_once():
    whole = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n{  }"
    with serving(seconds=30) as url:
        parts = urlsplit(url)
        with socket.create_connection((parts.hostname, parts.port), timeout=10) as line:
            line.sendall(whole[:70])
            line.sendall(whole[70:] + whole)
            got = b""
            while got.count(b"HTTP/1.1 200 OK") < 2:
                more = line.recv(65536)
                assert more, "the server closed the connection"
                got += more


def test_the_server_ends_by_itself_after_its_last_request():
    with serving(seconds=30, most=1) as url:
        parts = urlsplit(url)
        with socket.create_connection((parts.hostname, parts.port), timeout=10) as line:
            line.sendall(b"GET /v1/models HTTP/1.1\r\n\r\n")
            got = list(iter(lambda: line.recv(65536), b""))  # until the other side closes
    assert b"".join(got).startswith(b"HTTP/1.1 200 OK")


def test_every_other_task_is_answered_rightly():
    assert [target(number) == ANSWER for number in range(4)] == [True, False, True, False]
    assert row(3)["verifier"]["expected"] == target(3)


def test_both_loops_are_measured_in_pairs(tmp_path):
    with serving(seconds=60) as url:
        taken = asyncio.run(paired(url, segments=2, requests=12, workers=4, folder=str(tmp_path)))
    assert {name: len(found) for name, found in taken.items()} == {"bare": 2, "calipers": 2}
    records = [json.loads(line) for line in (tmp_path / "rollouts.jsonl").read_text().splitlines()]
    assert len(records) == 36  # the segment that warms up is a real one, too
    assert sum(record["reward"] for record in records) == 18


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        ([(2.0, 9.0), (2.0, 9.0), (9.0, 9.0)], "(met)"),  # the median: one bad pair does not count
        ([(2.1, 1.0), (2.1, 1.0), (1.0, 1.0)], "(**missed**)"),  # by the clock, whatever the processor says
    ],
)
def test_the_ratio_is_the_median_over_pairs(ours, verdict):
    pairs = Pairs(100, [(1.5, 1.0)] * 3, ours)
    assert f"Target: >= 0.75 of the bare loop {verdict}." in live_section(Found(pairs, [], [], []))


def test_a_rate_is_of_the_samples_a_tool_was_given_and_who_is_missing_is_named():
    best = Timing(2.0, 1.0, 4.0, 50.0, 0.0, {"mean_reward": 0.5}, {"Python": "3.11.7"})
    text = live_section(Found(None, [Whole("a tool", 1000, best, "its command")], [], ["another was skipped: no."]))
    assert "| a tool | 1,000 | 2.00 | 4.00 | 500 | 250 | 50 |" in text
    assert "a tool: its command." in text
    assert "another was skipped: no." in text


@pytest.mark.parametrize(
    ("alike", "more", "verdicts"),
    [(5.0, 49.9, ("met", "met")), (5.1, 50.0, ("**missed**", "**missed**")), (60.0, 0.0, ("**missed**", "**missed**"))],
)
def test_growth_is_judged_before_scoring(alike, more, verdicts):
    def memory(growth):
        return Memory(
            "a run", {"loaded": 1, "run": 40.0, "scored": 50}, {"loaded": 1, "run": 40 + growth, "scored": 500}
        )

    text = live_section(Found(None, [], [memory(alike), memory(more)], []))
    assert f"<= 5 MB with the same tasks ({verdicts[0]}), < 50 MB in any case ({verdicts[1]})." in text
