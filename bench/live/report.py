"""The measurements of live runs as Markdown."""

from __future__ import annotations

from bench.live.run import WORKERS, Found, Memory, Pairs, Whole

LEAST_RATIO = 0.75  # of the bare client's rate
MOST_GROWTH = 50.0  # MB, from a run to one with ten times its rollouts
MOST_GROWTH_ALIKE = 5.0  # the same, if the tasks are the same


def live_section(found: Found) -> str:
    """The section on live runs; empty if none was measured."""
    parts = []
    if found.pairs:
        parts.append(_pairs(found.pairs))
    if found.wholes:
        parts.append(_wholes(found))
    if found.memory:
        parts.append(_memory(found))
    return "\n".join(parts)


def _pairs(found: Pairs) -> str:
    requests = found.requests * len(found.bare)
    ratio, of_processor = found.ratio(0), found.ratio(1)
    lines = [
        f"## A live run of {requests:,} tasks, compared with a bare HTTP client",
        "",
        "| | requests/s | ratio | ratio of CPU time |",
        "|---|---|---|---|",
        f"| bare aiohttp loop | {found.rate(found.bare):,.0f} | | |",
        f"| the loop of `calipers run` | {found.rate(found.calipers):,.0f} | {ratio:.2f} | {of_processor:.2f} |",
        "",
        f"{WORKERS} concurrent requests, to a local server that answers at once. Both loops run in one process and "
        f"alternate, over {len(found.bare)} segments of {found.requests:,} requests in several processes. The ratios "
        "are medians over the pairs. The bare loop posts the same body each time and reads the answer. Calipers builds "
        "each request, decodes the answer, verifies it with `exact_match`, updates the running estimate, and writes "
        "and syncs every record to disk before a segment counts as done.",
        "",
        f"Target: >= {LEAST_RATIO:g} of the bare loop ({_verdict(ratio >= LEAST_RATIO)}).",
    ]
    return "\n".join(lines) + "\n"


def _wholes(found: Found) -> str:
    lines = [
        f"## Whole evaluations, {WORKERS} concurrent requests",
        "",
        "| | samples | call s | process s | samples/s, call | samples/s, process | peak MB |",
        "|---|---|---|---|---|---|---|",
        *(_whole(one) for one in found.wholes),
        "",
        "All use the same questions and the same server; the best of all repeats counts. The bare loop shows what is "
        "possible; it evaluates nothing. `calipers run` is the whole command, including imports, scoring, intervals "
        "and the table. "
        + " ".join(f"{one.title}: {one.note}." for one in found.wholes if one.note)
        + " They have fewer samples so that they finish in reasonable time, and `call` excludes their imports. All "
        "find the same share of correct answers.",
        *found.left_out,
    ]
    return "\n".join(lines) + "\n"


def _whole(one: Whole) -> str:
    best = one.best
    memory = f"{best.own_mb:.0f}"
    rates = (one.samples / seconds for seconds in (best.seconds, best.process))
    times = " | ".join(f"{seconds:.2f}" for seconds in (best.seconds, best.process))
    return f"| {one.title} | {one.samples:,} | {times} | {' | '.join(f'{rate:,.0f}' for rate in rates)} | {memory} |"


def _memory(found: Found) -> str:
    alike = found.memory[0].growth("run")
    most = max(one.growth("run") for one in found.memory)
    lines = [
        "## Memory of a run",
        "",
        "| | before the first request, MB | after the last, MB | growth MB | after scoring, MB | growth MB |",
        "|---|---|---|---|---|---|",
        *(_peaks(one) for one in found.memory),
        "",
        "Peaks of fresh processes: a run, and a run with ten times its rollouts. A run keeps its tasks in memory but "
        "not its rollouts; scoring reads the log back as columns.",
        "",
        f"Targets, up to the last rollout: <= {MOST_GROWTH_ALIKE:g} MB with the same tasks "
        f"({_verdict(alike <= MOST_GROWTH_ALIKE)}), < {MOST_GROWTH:g} MB in any case ({_verdict(most < MOST_GROWTH)}).",
    ]
    return "\n".join(lines) + "\n"


def _peaks(one: Memory) -> str:
    cells = [one.title]
    for when in ("loaded", "run", "scored"):
        cells.append(f"{one.few[when]:.1f} and {one.many[when]:.1f}")
        if when != "loaded":
            cells.append(f"{one.growth(when):.1f}")
    return f"| {' | '.join(cells)} |"


def _verdict(reached: bool) -> str:
    return "met" if reached else "**missed**"
