import asyncio
import json
import os
import signal

import pytest
from gym import row
from systems.nemo_gym.serve.asking import server_file
from waiting import PATIENCE

from calipers.systems.nemo_gym import serve
from calipers.systems.nemo_gym.serve import LIMITS, Workers, WorkerSettings

BODY = json.dumps({"verify_responses": [row(0, 0)]}).encode()
HANGS = """def compute_metrics(self, tasks):
        import time
        print("hangs", flush=True)
        time.sleep(600)
"""
READS = """def compute_metrics(self, tasks):
        import subprocess, sys
        heard = subprocess.run([sys.executable, "-c", "import sys; print(sys.stdin.read())"], capture_output=True)
        return {"heard": len(sys.stdin.read()) + len(heard.stdout.strip())}
"""
LOADS = """def compute_metrics(self, tasks):
        import sys
        found = sorted({"aiohttp", "fastapi", "polars", "starlette"} & {*sys.modules})
        assert not found, found
        return {}
"""
KILLED = """def compute_metrics(self, tasks):
        import os
        os.kill(os.getpid(), 15)
"""
DIES = """def compute_metrics(self, tasks):
        import os
        os._exit(9)
"""


async def aggregated(pool, body=BODY):
    into, answer = pool.paths()
    into.write_bytes(body)
    refusal = await pool.aggregate(into, answer)
    return refusal or json.loads(answer.read_bytes())["agent_metrics"]["mean/reward"]


def settings(spec=None):
    return WorkerSettings(LIMITS, spec, "127.0.0.1", 0)


def test_many_at_once_share_a_few_processes():
    async def work():
        async with Workers(settings(), most=2) as pool:
            found = await asyncio.gather(*(aggregated(pool) for _ in range(20)))
            return found, {process.pid for process in pool._all}

    found, pids = asyncio.run(work())
    assert found == [1.0] * 20
    assert len(pids) == 2
    assert not any(alive(pid) for pid in pids)  # all processes of the pool have ended


def test_nothing_is_left_on_the_disk():
    async def work():
        async with Workers(settings()) as pool:
            return pool.paths()[0].parent

    assert not asyncio.run(work()).exists()


def test_a_worker_that_was_killed_is_replaced():
    async def work():
        async with Workers(settings(), most=1) as pool:
            await aggregated(pool)
            (process,) = pool._all
            process.send_signal(signal.SIGKILL)
            await process.wait()
            return await aggregated(pool)

    assert asyncio.run(work()) == 1.0


@pytest.mark.parametrize(
    ("hook", "said"),
    [
        (DIES, "the worker ended with 9 while"),
        (KILLED, "the worker was ended by SIGTERM while"),  # the worker's own signal is reported, not the later SIGKILL
    ],
)
def test_a_worker_that_dies_at_work_is_said_to_have(tmp_path, hook, said):
    async def work():
        async with Workers(settings(server_file(tmp_path, hook)), most=1) as pool:
            return [await aggregated(pool) for _ in range(4)]

    for refusal in asyncio.run(work()):
        assert (refusal.status, refusal.code) == (503, "no_worker")
        assert said in refusal.message


@pytest.mark.parametrize(
    ("hook", "task", "status", "said"),
    [
        (None, "x" * 70_000, 422, "verify_responses: rows 1 and 2: both are _ng_task_index xxx"),
        ("def compute_metrics(self, tasks):\n        raise ValueError('y' * 70_000)\n", "a", 500, "ValueError: yyy"),
        ("def compute_metrics(self, tasks):\n        raise ValueError('\\ud800')\n", "a", 500, "ValueError: \ufffd"),
    ],
)
def test_a_refusal_is_short_and_can_be_written(tmp_path, hook, task, status, said):
    """A long one was an internal error, and its worker was never used again, nor ended."""
    rows = [row(task, 0)] * (1 if hook else 2)

    async def work():
        async with Workers(settings(hook and server_file(tmp_path, hook)), most=1) as pool:
            refusal = await aggregated(pool, json.dumps({"verify_responses": rows}).encode())
            return refusal, len(pool._all), len(pool._idle)

    refusal, *workers = asyncio.run(work())
    assert (refusal.status, workers) == (status, [1, 1])
    assert said in refusal.message
    assert len(refusal.message) <= serve.LONGEST_MESSAGE


def test_a_hook_that_reads_standard_input_finds_nothing_there(tmp_path):
    """Otherwise it would wait endlessly, and consume the next request."""

    async def work():
        async with Workers(settings(server_file(tmp_path, READS)), most=1) as pool:
            return [await asyncio.wait_for(aggregated(pool), PATIENCE) for _ in range(2)]

    assert asyncio.run(work()) == [1.0, 1.0]


def test_a_worker_loads_no_web_framework(tmp_path):
    """Loading it would take longer than everything else, at every start."""

    async def work():
        async with Workers(settings(server_file(tmp_path, LOADS)), most=1) as pool:
            return await aggregated(pool)

    assert asyncio.run(work()) == 1.0


def test_whoever_stops_waiting_stops_the_work(tmp_path, capfd):
    async def work():
        async with Workers(settings(server_file(tmp_path, HANGS)), most=1) as pool:
            waiting = asyncio.ensure_future(aggregated(pool))
            (process,) = pool._all
            while "hangs" not in capfd.readouterr().err:  # a hook's output goes to standard error
                await asyncio.sleep(0.01)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            return process.returncode

    assert asyncio.run(work()) == -signal.SIGKILL


def test_a_worker_ends_with_whoever_asked_it(tmp_path, capfd):
    """A killed server cannot stop its workers: they end when their input is closed, even while a hook runs."""

    async def work():
        async with Workers(settings(server_file(tmp_path, HANGS)), most=1) as pool:
            waiting = asyncio.ensure_future(aggregated(pool))
            (process,) = pool._all
            while "hangs" not in capfd.readouterr().err:
                await asyncio.sleep(0.01)
            process.stdin.close()
            return await asyncio.wait_for(process.wait(), PATIENCE), (await waiting).code

    assert asyncio.run(work()) == (0, "no_worker")


def test_a_worker_that_has_grown_is_replaced(monkeypatch):
    monkeypatch.setattr(serve, "LARGE", 10)

    async def work():
        async with Workers(settings(), most=1) as pool:
            first = {process.pid for process in pool._all}
            return await aggregated(pool), await aggregated(pool), first & {process.pid for process in pool._all}

    assert asyncio.run(work()) == (1.0, 1.0, set())


def test_a_server_that_a_worker_cannot_load_is_said(tmp_path):
    async def work():
        async with Workers(settings(f"{tmp_path}/no.py:Server"), most=1) as pool:
            return await aggregated(pool)

    refusal = asyncio.run(work())
    assert (refusal.status, "No such file" in refusal.message) == (503, True)


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
