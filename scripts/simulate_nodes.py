"""Simulate a run on many machines that fail: its duration, and the number of wasted calls.

    python scripts/simulate_nodes.py                      1 to 1,000 nodes, a table for docs/scale.md
    python scripts/simulate_nodes.py --nodes 1000 --mtbf 24

Each node has a share of the calls in flight, and as many more that wait for their turn. A node fails after a random
time (exponential, with a mean of MTBF hours), and is back after some minutes. Its calls are given to other nodes; those
in flight are repeated, so that the first ones were wasted. The writer of the log has a maximum rate, and no more calls
are begun than it can write. bench/ray_run.py measured the constants.
"""

from __future__ import annotations

import argparse
import heapq
import random
from dataclasses import dataclass

NODES = (1, 10, 100, 300, 1000)
WRITER = 1000.0  # rollouts per second of one log writer in bench/ray_run.py, which shared two cores with its workers


@dataclass(frozen=True, slots=True)
class Study:
    """The parameters of a simulation."""

    rollouts: int = 10_000_000
    nodes: int = 1000
    in_flight: int = 64  # calls of one node
    seconds: float = 20.0  # mean duration of one call with its verdict
    mtbf: float = 24.0  # mean hours between two failures of a node
    back: float = 5.0  # minutes until a failed node is back
    head: float = 720.0  # mean hours between two failures of the head, after which the command is started again
    restart: float = 10.0  # minutes until that start
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a simulation."""

    hours: float
    ideal: float  # hours without failures
    wasted: int  # number of wasted calls
    failures: int  # number of failed nodes
    heads: int  # number of failures of the head


def simulate(study: Study) -> Outcome:
    """Simulate a run as a sequence of failures, between which every node works at a constant rate.

    Nodes are alike, so only the number of working nodes matters. Calls in flight at a failure are counted as wasted.
    The same seed gives the same run.
    """
    dice = random.Random(study.seed)
    rate_of_node = study.in_flight / study.seconds
    ideal = study.rollouts / min(study.nodes * rate_of_node, WRITER)
    events: list[tuple[float, str]] = []
    for _ in range(study.nodes):
        heapq.heappush(events, (dice.expovariate(1 / (study.mtbf * 3600)), "fails"))
    heapq.heappush(events, (dice.expovariate(1 / (study.head * 3600)), "head"))
    now = done = 0.0
    working, wasted, failures, heads, stopped_until = study.nodes, 0, 0, 0, 0.0
    while done < study.rollouts:
        rate = min(working * rate_of_node, WRITER) if now >= stopped_until else 0.0
        until, kind = events[0] if events[0][0] > now else (now, events[0][1])
        if now < stopped_until < until:
            now = stopped_until
            continue
        if rate and done + rate * (until - now) >= study.rollouts:
            now += (study.rollouts - done) / rate
            done = study.rollouts
            break
        done += rate * (until - now)
        now = until
        heapq.heappop(events)
        in_work = min(study.in_flight, round(rate / max(working, 1) * study.seconds)) if rate else 0
        if kind == "fails":
            working -= 1
            failures += 1
            wasted += in_work
            heapq.heappush(events, (now + study.back * 60, "is back"))
        elif kind == "is back":
            working += 1
            heapq.heappush(events, (now + dice.expovariate(1 / (study.mtbf * 3600)), "fails"))
        else:
            heads += 1
            wasted += in_work * working
            stopped_until = now + study.restart * 60
            heapq.heappush(events, (stopped_until + dice.expovariate(1 / (study.head * 3600)), "head"))
    return Outcome((now + study.seconds) / 3600, ideal / 3600, wasted, failures, heads)


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=list(NODES))
    for name in ("rollouts", "in_flight", "seed"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=getattr(Study(), name))
    for name in ("seconds", "mtbf", "back", "head", "restart"):
        parser.add_argument(f"--{name}", type=float, default=getattr(Study(), name))
    given = vars(parser.parse_args())
    counts = given.pop("nodes")
    print("| nodes | hours | without a failure | failed nodes | failed heads | calls made for nothing |")
    print("|---:|---:|---:|---:|---:|---:|")
    for nodes in counts:
        outcome = simulate(Study(nodes=nodes, **given))
        share = outcome.wasted / given["rollouts"]
        print(
            f"| {nodes:,} | {outcome.hours:,.2f} | {outcome.ideal:,.2f} | {outcome.failures:,} | {outcome.heads} | "
            f"{outcome.wasted:,} ({share:.3%}) |"
        )


if __name__ == "__main__":
    main()
