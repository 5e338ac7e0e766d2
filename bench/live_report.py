"""What the bench found of live runs, as Markdown."""

from __future__ import annotations

from bench.live import WORKERS, Found, Memory, Pairs, Whole

LEAST_RATIO = 0.75  # of the bare client's rate
MOST_GROWTH = 50.0  # MB, from few rollouts to ten times as many
MOST_GROWTH_ALIKE = 5.0  # MB, likewise, while the tasks stay the same


def live_section(found: Found) -> str:
    """Everything that was measured of live runs; nothing when nothing was."""
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
        f"## A live run of {requests:,} tasks, beside the bare HTTP client",
        "",
        "| | requests/s | ratio | ratio, processor time |",
        "|---|---|---|---|",
        f"| bare aiohttp loop | {found.rate(found.bare):,.0f} | | |",
        f"| the loop of `calipers run` | {found.rate(found.calipers):,.0f} | {ratio:.2f} | {of_processor:.2f} |",
        "",
        f"{WORKERS} at once, against a server on the loopback that answers at once. Both loops run in one process and "
        f"take turns, over {len(found.bare)} segments of {found.requests:,} requests in several processes; the ratios "
        "are medians over the pairs. The bare loop posts one and the same body and reads the answer. Calipers makes "
        "each request, decodes the answer, judges it with `exact_match`, keeps the running estimate, and has every "
        "record written and synced to disk before a segment counts as done.",
        "",
        f"Target: >= {LEAST_RATIO:g} of the bare loop ({_verdict(ratio >= LEAST_RATIO)}).",
    ]
    return "\n".join(lines) + "\n"


def _wholes(found: Found) -> str:
    lines = [
        f"## Whole evaluations, {WORKERS} at once",
        "",
        "| | samples | call s | process s | samples/s, call | samples/s, process | peak MB |",
        "|---|---|---|---|---|---|---|",
        *(_whole(one) for one in found.wholes),
        "",
        "The same questions, the same server, the best of all turns. The bare loop is shown for what is possible; it "
        "evaluates nothing. `calipers run` is the command as a user types it, imports, scoring, intervals and the "
        "table included. "
        + " ".join(f"{one.title}: {one.note}." for one in found.wholes if one.note)
        + " Their samples are fewer so that they end in reasonable time, and their imports stand outside the call. "
        "All find the same share of answers right.",
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
        "| | before the first call, MB | after the last, MB | growth MB | scored, MB | growth MB |",
        "|---|---|---|---|---|---|",
        *(_peaks(one) for one in found.memory),
        "",
        "Peaks of fresh processes: a run, and one with ten times its rollouts. The tasks themselves are held in "
        "memory, rollouts are not; scoring reads the log back as columns.",
        "",
        f"Targets, until the last rollout: <= {MOST_GROWTH_ALIKE:g} MB with the same tasks "
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
