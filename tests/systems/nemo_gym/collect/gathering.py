"""Helpers for tests of collections: input files, agent servers in processes of their own, and readers of the output."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from forks import FORKS
from systems.nemo_gym.agents import AgentServer
from waiting import PATIENCE


def tasks(folder: Path, count: int = 6, agent: str | None = "math", name: str = "tasks.jsonl", **more: Any) -> str:
    """Write a file of inputs into a folder and return its path."""
    named = {} if agent is None else {"agent_ref": {"type": "responses_api_agents", "name": agent}}
    rows = [
        {
            "responses_create_params": {"input": [{"role": "user", "content": f"What is {n} + {n * 7}?"}]},
            "expected_answer": str(n * 8),
            "level": "easy" if n % 2 else "hard",
            **named,
            **more,
        }
        for n in range(count)
    ]
    return put(folder / name, *rows)


def put(path: Path, *rows: Any) -> str:
    """Write a file of rows and return its path; a string is written as a line."""
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return str(path)


@contextmanager
def here(server: Any) -> Iterator[Any]:
    """A server that is an asynchronous context, running in a thread of this process."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(30)
        yield server
        asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result(30)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def agents(**servers: AgentServer) -> Iterator[dict[str, str]]:
    """The addresses of agent servers by name; they run while the context is open."""
    with ExitStack() as stack:
        for server in servers.values():
            stack.enter_context(here(server))
        yield {name: server.url for name, server in servers.items()}


@contextmanager
def agent(*arguments: str) -> Iterator[str]:
    """The address of an agent server, which runs while the context is open."""
    with FORKS.server("systems.nemo_gym.agents", *arguments) as port:
        yield f"http://127.0.0.1:{int(port)}"


def report(url: str, go: str = "") -> Any:
    """An agent server's report on its calls; "/go" also releases the calls that wait."""
    with urllib.request.urlopen(f"{url}/report{go}", timeout=PATIENCE) as answer:
        return json.load(answer)


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, by task and rollout."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return sorted(found, key=lambda row: (row["_ng_task_index"], row["_ng_rollout_index"]))


def keys(path: Path) -> list[tuple[Any, int]]:
    """Task and rollout of each row of a file, sorted."""
    return [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows(path)]
