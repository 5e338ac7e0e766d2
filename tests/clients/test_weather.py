"""Tests of the unreliable test server itself."""

import asyncio
import json
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from pathlib import Path

from clients.asking import answer, request
from clients.weather import FINAL, TRANSIENT, Forecast, Server

from calipers.clients import Connection, connect
from calipers.errors import ClientError

STORM = Forecast(share=0.5, slow=60)
ASKED = [request(f"{number} + 1", task=str(number), seed=seed) for number in range(40) for seed in (1, 2)]


async def patiently(client, asked):
    """Retry as the loop does, as long as the error says that it may help."""
    for _ in range(3):
        end = await answer(client, asked)
        if not (isinstance(end, ClientError) and end.retry):
            return end
    return end


def test_every_patient_client_gets_the_truth():
    async def main():
        async with Server(STORM) as server:
            client = connect(
                "openai/any", Connection(base_url=server.url, timeout=5.0)
            )  # for the slow one alone, on any machine
            ends = await asyncio.gather(*(patiently(client, one) for one in ASKED))
            await client.close()
            return ends, server

    ends, server = asyncio.run(main())
    assert [(end.text, end.ending) for end in ends] == [STORM.truth(one.prompt, one.seed) for one in ASKED]
    expected = Counter(filter(None, (STORM.trouble(one.prompt, one.seed) for one in ASKED)))
    assert server.troubles == expected
    assert set(expected) == {*TRANSIENT, *FINAL}  # every kind had its turn
    assert len(server.calls) == len(ASKED) + sum(expected[kind] for kind in TRANSIENT)


def test_a_share_is_a_share():
    pairs = [(str(number), seed) for number in range(500) for seed in (0, 1)]
    troubled = sum(bool(Forecast(share=0.3).trouble(*pair)) for pair in pairs)
    assert 250 < troubled < 350
    assert not any(Forecast().trouble(*pair) for pair in pairs)


def test_a_server_in_a_process_of_its_own():
    command = [sys.executable, str(Path(__file__).with_name("weather.py")), "--key", "sk-12345678", "--share", "1"]
    with subprocess.Popen([*command, "--kinds", "null"], stdout=subprocess.PIPE, text=True) as process:
        try:
            port = int(process.stdout.readline())
            base = f"http://127.0.0.1:{port}"

            async def main():
                client = connect("openai/any", Connection(base_url=f"{base}/v1"))
                end = await answer(client, request())
                await client.close()
                return end

            end = asyncio.run(main())
            assert (end.kind, end.hopeless) == ("http_401", True)
            with urllib.request.urlopen(f"{base}/weather", timeout=30) as report:
                assert json.load(report) == {"calls": 1, "pairs": 1, "most": 1, "troubles": {}}
        finally:
            process.send_signal(signal.SIGTERM)
    assert process.returncode == 0
