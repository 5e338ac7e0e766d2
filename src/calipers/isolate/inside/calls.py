"""One piece of Python, run once for each test, each time in a fork that holds no other test's channel."""

from __future__ import annotations

import os
import sys
import time
import types

from calipers.isolate.inside.first import send

TYPE_CHECKING = False  # typing takes long to load
if TYPE_CHECKING:
    from typing import Any

    from calipers.isolate.inside.first import Keeper

# What candidates import most.
WARM = (
    "bisect collections copy dataclasses datetime functools heapq itertools json math operator random re string typing"
)
ANSWER = 3  # the descriptor on which a call answers


def work(job: dict[str, Any], keeper: Keeper) -> None:
    """Run every test and report ``EXIT CUT SIZE\\n`` and what it answered, in their order.

    Nothing here knows what would be right: whatever a candidate reads or writes, it is only answering.
    """
    code, called = job["code"], job["entry_point"] is not None
    for name in WARM.split():
        if f"import {name}" in code or f"from {name}" in code or (called and name == "json"):
            __import__(name)  # once, here, and not in every fork
    nothing = os.open(os.devnull, os.O_RDWR)
    ends, room = time.monotonic() + job["total_seconds"], job["report_bytes"]
    for test in job["tests"]:
        until = min(ends, time.monotonic() + job["limits"]["seconds"])
        exit_code, cut, answer = ask(job, test, keeper, nothing, until, min(room, job["limits"]["output_bytes"]))
        room -= len(answer)
        ended = b"-" if exit_code is None else b"%d" % exit_code
        send(keeper.report, b"%s %d %d\n%s" % (ended, cut, len(answer), answer))


def ask(
    job: dict[str, Any], test: dict[str, Any], keeper: Keeper, nothing: int, until: float, most: int
) -> tuple[int | None, bool, bytes]:
    """One test in a fork: what it printed, or for a call the JSON of what it returned."""
    listen, answer = os.pipe()
    if job["entry_point"] is None:
        given, feed = os.pipe()
        pid = keeper.start(job["limits"], lambda: run_program(job["code"]), (given, answer, nothing))
        os.close(given)
    else:
        feed = -1
        streams = (nothing, nothing, nothing, answer)
        pid = keeper.start(job["limits"], lambda: run_call(job["code"], job["entry_point"], test), streams)
    os.close(answer)
    output = bytearray()
    exit_code, cut = keeper.attend(
        pid, until, {listen: output}, most, feed, test.get("input", "").encode(errors="replace")
    )
    os.close(listen)
    return exit_code, cut, bytes(output[:most])


def run_program(code: str) -> None:
    """Run the candidate as a script of its own, with the standard streams it was given."""
    module = _module("__main__")
    try:
        exec(compile(code, "<candidate>", "exec"), module.__dict__)
        exit_code = 0
    except SystemExit as error:
        exit_code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        exit_code = 1
    _finish(exit_code)


def run_call(code: str, entry_point: str, test: dict[str, Any]) -> None:
    """Load the candidate as a module, call ``function`` or ``Class.method`` of it, and answer in JSON."""
    import json

    module = _module("candidate")
    exec(compile(code, "<candidate>", "exec"), module.__dict__)
    first, *rest = entry_point.split(".")
    function = module.__dict__[first]
    for name in rest:
        function = getattr(function() if isinstance(function, type) else function, name)
    returned = json.dumps(function(*test.get("args", ()), **test.get("kwargs", {})))
    send(ANSWER, returned.encode())
    os._exit(0)


def _module(name: str) -> types.ModuleType:
    module = sys.modules[name] = types.ModuleType(name)
    sys.argv = ["candidate.py"]
    return module


def _finish(exit_code: int) -> None:
    """End as a script does: its threads are waited for, its exit functions called, its output written."""
    import atexit

    try:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
    except BaseException:
        exit_code = exit_code or 1
    os._exit(exit_code & 0xFF)
