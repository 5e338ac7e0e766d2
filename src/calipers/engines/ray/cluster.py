"""A Ray cluster: how to connect to it, which machines it has, and whether it is still there."""

from __future__ import annotations

import atexit
import logging
import os
import queue
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any, Final

from calipers.errors import EngineError, InputError

LOOPBACK: Final = ("127.0.0.1", "localhost")
CONNECTING: Final = 10.0  # seconds
LEAVING: Final = 5.0  # seconds
GONE: Final = 10  # seconds for which nobody listens at the address of the head node: it may be started again meanwhile
SILENCE: Final = 60.0  # seconds in which the head node says nothing: it may be busy
RESUME: Final = "what was finished is kept: run the same command again to resume"


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Ray, connected to the cluster at an address; "" is that of RAY_ADDRESS, else a new one on this machine.

    InputError when there is no such cluster, or Ray is not installed.
    """
    # a driver that is cut off from its cluster would be ended by Ray itself; we end it, with an exit code of ours
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "600")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    place = address or os.environ.get("RAY_ADDRESS", "")
    if place.rpartition(":")[0] in LOOPBACK:
        # Ray takes 127.0.0.1 for another address of this machine, where such a cluster does not listen
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    try:
        import ray
    except ImportError as error:
        raise InputError.at("--engine", f"ray is not installed ({error.name})", "install calipers[ray]") from None
    settings: dict[str, Any] = {"address": place or "local", "log_to_driver": False, "logging_level": logging.CRITICAL}
    if not place:
        settings["include_dashboard"] = False
    if ray.is_initialized():  # by who called us
        yield ray
        return
    try:
        if (head := re.fullmatch(r"([^/:]+):(\d+)", place)) is not None:  # Ray itself would try for minutes
            socket.create_connection((head[1], int(head[2])), CONNECTING).close()
        ray.init(**settings)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        wrong = f"there is no Ray cluster at {place}" if place else "no Ray cluster can be started"
        raise InputError.at("--engine", f"{wrong} ({reason})", "expected the address of a head node") from None
    with suppress(Exception):  # what Ray prints of its own logs, unless it has changed how
        from ray._private import ray_logging

        ray_logging.global_worker_stdstream_dispatcher.emit = lambda data: None
    try:
        yield ray
    except EngineError:
        atexit.unregister(ray.shutdown)  # a cluster that is gone cannot be left
        raise
    except BaseException:
        _leave(ray)
        raise
    _leave(ray)


def nodes(ray: Any) -> dict[str, int]:
    """The machines that take work, and how many processors each lends; EngineError when the cluster does not answer.

    Without a head node Ray itself would wait, and wait. So it is asked in a thread that nobody waits for in the end.
    """
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(ray.nodes())
        except Exception as error:
            answers.put(error)

    threading.Thread(target=ask, name="ray-nodes", daemon=True).start()
    refused, began = 0, monotonic()
    while True:
        try:
            listed = answers.get(timeout=1.0)
            break
        except queue.Empty:
            refused = refused + 1 if _refuses(ray) else 0
        if refused >= GONE or monotonic() - began >= SILENCE:
            raise lost("its head node does not answer")
    if isinstance(listed, Exception):
        raise lost(listed) from None
    alive = {node["NodeID"]: node["Resources"] for node in listed if node["Alive"]}
    return {name: int(lent["CPU"]) for name, lent in alive.items() if lent.get("CPU", 0) >= 1}


def _refuses(ray: Any) -> bool:
    """Whether nobody listens at the address of the head node."""
    try:
        host, _, port = str(ray.get_runtime_context().gcs_address).rpartition(":")
        socket.create_connection((host, int(port)), CONNECTING).close()
    except ConnectionRefusedError:
        return True
    except Exception:  # of Ray, which has many; or no answer, which says nothing
        return False
    return False


def _leave(ray: Any) -> None:
    """Leave a cluster; one that is gone cannot be left, and nobody waits for that."""

    def leave() -> None:
        with suppress(Exception):
            ray.shutdown()

    leaving = threading.Thread(target=leave, name="ray-shutdown", daemon=True)
    leaving.start()
    leaving.join(LEAVING)
    if leaving.is_alive():
        atexit.unregister(ray.shutdown)  # it would wait for the same answer at the end of the process


def lost(error: BaseException | str) -> EngineError:
    """The error for a cluster that is gone."""
    return EngineError(f"--engine: the Ray cluster was lost ({' '.join(str(error).split())[:200]}); {RESUME}")
