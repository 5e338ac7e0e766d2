"""A Ray cluster on the loopback, a model server, and the command as a user starts it: for the tests of engines."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from aiohttp import web
from waiting import PATIENCE, until

TASKS = 60


class LocalCluster:
    """Several node processes, below a process of its own (`serve`); a test may end any of them."""

    def __init__(self, nodes: int) -> None:
        command = [sys.executable, __file__, str(nodes)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._hear()

    def _hear(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self.state: dict[str, Any] = json.loads(line)
                return
        raise AssertionError("the cluster did not start")

    @property
    def address(self) -> str:
        return str(self.state["address"])

    def add(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("add\n")
        self._process.stdin.flush()
        self._hear()

    def kill_node(self, chosen: Callable[[int], bool]) -> None:
        """End the node with a worker that was chosen, and its workers at once, as a power failure does."""
        for node in self.state["nodes"]:
            [pid] = node["raylet"]
            workers = children(pid)
            if any(map(chosen, workers)):
                self.state["nodes"].remove(node)
                for each in (pid, *workers):
                    os.kill(each, signal.SIGKILL)
                return
        raise AssertionError("no node has such a worker")

    def workers(self) -> list[int]:
        """The processes of the workers on all nodes."""
        return [worker for node in self.state["nodes"] for pid in node["raylet"] for worker in children(pid)]

    def kill_head(self) -> None:
        for kind in ("gcs_server", "raylet"):
            for pid in self.state["head"][kind]:
                os.kill(pid, signal.SIGKILL)

    def end(self) -> None:
        """End every process of it, whatever state it is in."""
        for node in (self.state["head"], *self.state["nodes"]):
            for pid in (pid for group in node.values() for pid in group):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._process.kill()
        self._process.communicate()


def children(parent: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(path.parent.name))
    return found


def talks_to(pid: int, port: int) -> bool:
    """Whether a process has a connection to a port of the loopback."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    sockets = {f"socket:[{row[9]}]" for row in rows if int(row[2].rpartition(":")[2], 16) == port and row[3] == "01"}
    found = set()
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        with suppress(OSError):
            found.add(os.readlink(link))
    return bool(sockets & found)


class ModelServer:
    """OpenAI's chat route: the answer to ``N + 1`` is the sum; it counts what it was asked, and can hold answers."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.delay = 0.02
        self._loop = asyncio.new_event_loop()
        self.open = asyncio.Event()  # answers come while it is set
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()

    @property
    def total(self) -> int:
        return self.asked.total()

    def hold(self) -> None:
        self._loop.call_soon_threadsafe(self.open.clear)

    def go_on(self) -> None:
        self._loop.call_soon_threadsafe(self.open.set)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> int:
        self.open.set()
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return int(site._server.sockets[0].getsockname()[1])

    async def _answer(self, request: web.Request) -> web.Response:
        prompt = (await request.json())["messages"][-1]["content"]
        self.asked[prompt] += 1
        await asyncio.sleep(self.delay)
        await self.open.wait()
        number = int(prompt.split()[0])
        text = str(number + 1 if number % 3 else number)  # every third is wrong
        message = {"role": "assistant", "content": text}
        usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
        return web.json_response({"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage})


def questions_in(folder: Path) -> Path:
    path = folder / "questions.jsonl"
    path.write_text(
        "".join(json.dumps({"id": f"t{n}", "question": f"{n} + 1", "answer": str(n + 1)}) + "\n" for n in range(TASKS))
    )
    return path


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "OPENAI_API_KEY": "sk-test-123456789", "CALIPERS_RAY_PATIENCE": "8", **more}


def begun(*arguments: object, **more: str) -> subprocess.Popen[str]:
    """The command, started as a user starts it."""
    command = [sys.executable, "-m", "calipers", *map(str, arguments)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, env=environment(**more), **pipes)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


def run_of(questions: Path, server: ModelServer, out: Path, *more: object) -> list[object]:
    """The arguments of a run over the questions."""
    asked = ["run", questions, "--model", "openai/adder", "--base-url", f"http://127.0.0.1:{server.port}/v1"]
    return [*asked, "--prompt", "question", "--target", "answer", "--id", "id", "--out", out, *more]


def lines(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "rollouts.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def digest(folder: Path) -> str:
    return str(json.loads((folder / "result.json").read_text())["digest"])


def until_logged(folder: Path, count: int) -> None:
    """Wait until a run's log has so many lines."""
    log = folder / "rollouts.jsonl"
    until(lambda: log.exists() and log.read_bytes().count(b"\n") >= count, f"line {count} of the log")


def serve(count: int) -> None:
    """A cluster on the loopback; each line of standard input adds a node. Its state is printed as a line of JSON."""
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # 127.0.0.1 means 127.0.0.1
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    checks = {"period_ms": "500", "failure_threshold": "3", "initial_delay_ms": "0"}  # a dead node is known soon
    os.environ.update({f"RAY_health_check_{name}": value for name, value in checks.items()})
    from ray.cluster_utils import Cluster

    here = {"node_ip_address": "127.0.0.1", "object_store_memory": 80 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={**here, "num_cpus": 0, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=1, wait=False, **here) for _ in range(count)]
    cluster.wait_for_nodes()
    print(json.dumps(_state(cluster, nodes)), flush=True)
    for _ in sys.stdin:
        nodes.append(cluster.add_node(num_cpus=1, wait=False, **here))
        print(json.dumps(_state(cluster, nodes)), flush=True)


def _state(cluster: Any, nodes: list[Any]) -> dict[str, Any]:
    def pids(node: Any) -> dict[str, list[int]]:
        return {kind: [info.process.pid for info in infos] for kind, infos in node.all_processes.items()}

    return {"address": cluster.address, "head": pids(cluster.head_node), "nodes": [*map(pids, nodes)]}


if __name__ == "__main__":
    serve(int(sys.argv[1]))
