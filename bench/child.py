"""One measured call, in a process of its own: ``child.py PEER '{"path": ...}'``. Prints one line of JSON.

Runs inside the peer's environment, so it needs nothing but the standard library.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import platform
import resource
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))  # last: a peer's own packages come first


def main(name: str, asked: str) -> None:
    """Prepare, time one call, and print its report; all output of the peer goes to standard error."""
    report = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    contestant = importlib.import_module(f"bench.peers.{name}")
    work = contestant.prepare(**json.loads(asked))
    start, cpu = time.perf_counter(), _cpu()
    answer = work()
    seconds, cpu = time.perf_counter() - start, _cpu() - cpu
    found = {
        "seconds": seconds,
        "cpu": cpu,
        "own_mb": own_peak() / 1e3,
        "child_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1.024 / 1e3,
        "numbers": dict(contestant.numbers(answer)),
        "python": platform.python_version(),
        "versions": {package: importlib.metadata.version(package) for package in contestant.PEER.packages},
    }
    print(json.dumps(found), file=report, flush=True)


def _cpu() -> float:
    """CPU seconds of this process so far, including children that have ended."""
    return sum(os.times()[:4])


def own_peak() -> float:
    """Peak memory of this process in kB (1,000 bytes).

    ``ru_maxrss`` also includes the peak of the parent process before the fork; Linux' own count does not.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1.024
    return int(status.partition("VmHWM:")[2].split()[0]) * 1.024


if __name__ == "__main__":
    main(*sys.argv[1:])
