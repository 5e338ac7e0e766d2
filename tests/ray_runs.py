"""A Ray cluster on the loopback, a model server, and the command as a user starts it: for the tests of engines."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from aiohttp import web
from waiting import until

TASKS = 60
PATIENCE = 200.0  # seconds; each of these waits takes some seconds, on a machine with nothing else to do
STARTS = 3  # of a cluster
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)


class LocalCluster:
    """Several node processes, below a process of its own (`serve`); a test may end any of them."""

    def __init__(self, nodes: int) -> None:
        for tries_left in reversed(
            range(STARTS)
        ):  # Ray gives a node half a minute to come up, and a machine may be busy
            self._folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # a short path: it is part of names of sockets
            self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(nodes), self._folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
            )
            try:
                self._hear()
                return
            except AssertionError:
                self.end()
                if not tries_left:
                    raise

    def _hear(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self.state: dict[str, Any] = json.loads(line)
                return
        self._errors.seek(0)
        raise AssertionError(f"the cluster did not start: {self._errors.read()[-2000:]}")

    @property
    def address(self) -> str:
        return str(self.state["address"])

    def add(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("add\n")
        self._process.stdin.flush()
        self._hear()

    def workers(self) -> list[int]:
        """The worker processes of all nodes."""
        return [pid for node in self.state["nodes"] for raylet in node["raylet"] for pid in children(raylet)]

    def kill_node(self, worker: int) -> None:
        """End the node of a worker, and its workers at once, as a power failure does."""
        for node in self.state["nodes"]:
            [pid] = node["raylet"]
            workers = children(pid)
            if worker in workers:
                self.state["nodes"].remove(node)
                for each in (pid, *workers):
                    with suppress(ProcessLookupError):
                        os.kill(each, signal.SIGKILL)
                return
        raise AssertionError(f"no node has the worker {worker}")

    def kill_head(self) -> None:
        for kind in ("gcs_server", "raylet"):
            for pid in self.state["head"][kind]:
                os.kill(pid, signal.SIGKILL)

    def end(self) -> None:
        """End every process of it, whatever state it is in."""
        while below := descendants(self._process.pid):
            for pid in below:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._process.kill()
        self._process.communicate()
        self._errors.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def parents() -> dict[int, int]:
    """Every living process and the process above it."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent, *_ = path.read_text().rpartition(")")[2].split()
            if state not in "ZX":
                found[int(path.parent.name)] = int(parent)
    return found


def children(parent: int) -> list[int]:
    """The processes that a process has started."""
    return [pid for pid, above in parents().items() if above == parent]


def descendants(ancestor: int) -> list[int]:
    """All processes below a process."""
    above = parents()
    found, level = list[int](), [ancestor]
    while level:
        level = [pid for pid, parent in above.items() if parent in level]
        found += level
    return found


def owner(port: int, pids: Iterable[int]) -> int:
    """Which of some processes has the connection of the loopback that begins at a port; 0 if none has."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    sockets = {f"socket:[{row[9]}]" for row in rows if int(row[1].rpartition(":")[2], 16) == port}
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            with suppress(OSError):
                if os.readlink(link) in sockets:
                    return pid
    return 0


class ModelServer:
    """OpenAI's chat route: the answer to ``N + 1`` is the sum; it counts what it was asked, and can hold answers."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.delay = 0.02
        self.free = sys.maxsize  # requests that are answered; later ones are held until `go_on`
        self.held: Counter[int] = Counter()  # port of a connection -> requests of it that are held
        self.most = 0  # requests at a time
        self._at_once = 0
        self._loop = asyncio.new_event_loop()
        self.open = asyncio.Event()  # what is held is answered once it is set
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()

    def holders(self, pids: Iterable[int]) -> list[int]:
        """Which of some processes have made requests that are held."""
        candidates = [*pids]
        return sorted({owner(port, candidates) for port, count in [*self.held.items()] if count} - {0})

    @property
    def total(self) -> int:
        return self.asked.total()

    def hold_after(self, count: int) -> None:
        """Answer so many more requests, and hold those that follow."""
        self.free = self.total + count
        self._loop.call_soon_threadsafe(self.open.clear)

    def go_on(self) -> None:
        self.free = sys.maxsize
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
        self._at_once += 1
        self.most = max(self.most, self._at_once)
        try:
            await asyncio.sleep(self.delay)
            if self.total > self.free:
                assert request.transport is not None
                port = request.transport.get_extra_info("peername")[1]
                self.held[port] += 1
                try:
                    await self.open.wait()
                finally:
                    self.held[port] -= 1
        finally:
            self._at_once -= 1
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


class Command:
    """The command, started as a user starts it."""

    def __init__(self, *arguments: object, **more: str) -> None:
        environment = {**os.environ, "OPENAI_API_KEY": "sk-test-123456789", **more}
        self._arguments = [*map(str, arguments)]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        command = [sys.executable, "-m", "calipers", *self._arguments]
        self._process = subprocess.Popen(command, text=True, env=environment, **pipes)

    def until(self, holds: Callable[[], Any], what: str) -> Any:
        """Wait until something holds while the command works; it fails when the command has ended before."""

        def look() -> tuple[Any] | None:
            over = self._process.poll() is not None
            found = holds()
            return (found,) if found or over else None

        [found] = until(look, f"{what}, of {self}", PATIENCE)
        if not found:
            code, out, err = self.ended()
            raise AssertionError(f"{self} ended with {code} before there was {what}: {out}{err}")
        return found

    def until_logged(self, folder: Path, count: int) -> None:
        """Wait until the log of its run has so many lines."""
        log = folder / "rollouts.jsonl"
        self.until(lambda: log.exists() and log.read_bytes().count(b"\n") >= count, f"line {count} of the log")

    def ended(self) -> tuple[int, str, str]:
        """Wait for its end: its exit code and what it printed."""
        try:
            out, err = self._process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self} did not end: {''.join(self.kill())}") from None
        return self._process.returncode, out, err

    def kill(self) -> tuple[str, str]:
        """End it at once, if nobody has waited for its end; what it printed."""
        if self._process.returncode is not None:
            return "", ""
        self._process.kill()
        return self._process.communicate()

    def __str__(self) -> str:
        return f"calipers {' '.join(self._arguments)}"


class Commands:
    """The commands of a test; those that it leaves behind are ended, and what they have printed is shown."""

    def __init__(self) -> None:
        self._all: list[Command] = []

    def begun(self, *arguments: object, **more: str) -> Command:
        self._all.append(Command(*arguments, **more))
        return self._all[-1]

    def done(self, *arguments: object, **more: str) -> tuple[int, str, str]:
        """Start a command and wait for its end."""
        return self.begun(*arguments, **more).ended()

    def end(self) -> None:
        for command in self._all:
            if any(printed := command.kill()):
                print(f"{command} was ended by the test; it had printed: {''.join(printed)}")


def run_of(questions: Path, server: ModelServer, out: Path, *more: object) -> list[object]:
    """The arguments of a run over the questions."""
    asked = ["run", questions, "--model", "openai/adder", "--base-url", f"http://127.0.0.1:{server.port}/v1"]
    return [*asked, "--prompt", "question", "--target", "answer", "--id", "id", "--out", out, *more]


def lines(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "rollouts.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def digest(folder: Path) -> str:
    return str(json.loads((folder / "result.json").read_text())["digest"])


def serve(count: int, folder: str) -> None:
    """A cluster on the loopback; each line of standard input adds a node. Its state is printed as a line of JSON."""
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)  # whoever loses its parent is below this process, and can be found
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # 127.0.0.1 means 127.0.0.1
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_TMPDIR"] = folder  # for the note of the newest cluster, whose folder Ray does not make
    (Path(folder) / "ray").mkdir()
    checks = {"period_ms": "500", "failure_threshold": "3", "initial_delay_ms": "0"}  # a dead node is known soon
    os.environ.update({f"RAY_health_check_{name}": value for name, value in checks.items()})
    from ray.cluster_utils import Cluster

    here = {"node_ip_address": "127.0.0.1", "object_store_memory": 80 << 20}
    head = {**here, "num_cpus": 0, "include_dashboard": False, "temp_dir": folder}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes = [cluster.add_node(num_cpus=1, wait=False, **here) for _ in range(count)]
    cluster.wait_for_nodes(timeout=PATIENCE)
    print(json.dumps(_state(cluster, nodes)), flush=True)
    for _ in sys.stdin:
        nodes.append(cluster.add_node(num_cpus=1, wait=False, **here))
        print(json.dumps(_state(cluster, nodes)), flush=True)


def _state(cluster: Any, nodes: list[Any]) -> dict[str, Any]:
    def pids(node: Any) -> dict[str, list[int]]:
        return {kind: [info.process.pid for info in infos] for kind, infos in node.all_processes.items()}

    return {"address": cluster.address, "head": pids(cluster.head_node), "nodes": [*map(pids, nodes)]}


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2])
