"""Measure the response time of ``GET /health`` on a busy server: one request after the other, until told to stop.

``serve_probe.py PORT`` prints a line after its first response. When its standard input ends, it prints the longest and
the median seconds of all later responses as JSON. It is its own process, so that only the server's work is measured.
"""

from __future__ import annotations

import http.client
import json
import select
import statistics
import sys
import time

PAUSE = 0.002  # seconds between two requests


def main(port: int) -> None:
    """Send requests until standard input ends."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    _ask(connection)
    print("ready", flush=True)
    takes = []
    while not select.select([sys.stdin], [], [], PAUSE)[0]:
        takes.append(_ask(connection))
    print(json.dumps({"worst": max(takes), "median": statistics.median(takes), "asked": len(takes)}), flush=True)


def _ask(connection: http.client.HTTPConnection) -> float:
    start = time.perf_counter()
    connection.request("GET", "/health")
    answer = connection.getresponse()
    answer.read()
    if answer.status != 200:
        raise RuntimeError(f"/health answers {answer.status}")
    return time.perf_counter() - start


if __name__ == "__main__":
    main(int(sys.argv[1]))
