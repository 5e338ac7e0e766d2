"""The results of the benchmarks as Markdown: on the terminal and in docs/benchmarks.md."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Mapping, Sequence

from bench.data import SAMPLES, WINDOW
from bench.live.report import live_section
from bench.live.run import Found
from bench.measure import Outcome, Timing, title
from bench.startup import BARE, TARGETS, StartUp

INTRO = """# Benchmarks

This page shows how much time and memory Calipers needs, compared with the tools you would use instead. `make bench`
measures everything and writes this page; all times come from one run of it. A peer that needs its own packages or
Python gets an environment under `.bench/envs`. If that cannot be created, the peer is skipped, and a line says so.

- Every call runs in a fresh process. The contestants alternate, so that a machine that slows down slows all of them.
  The best of {repeat} repeats counts.
- `call` is the call alone, in wall-clock and in CPU time. `process` also counts the start of the interpreter and all
  imports.
- Peak memory is that of the process, plus that of the largest process it started.
- Files are in the page cache. `bench/data.py` makes them: {samples} rollouts per task, in the order in which {window}
  workers would finish them.
- If two contestants compute the same number, the run fails unless they agree to nine digits.
- Times depend on the machine and its load; ratios depend on them less.
"""


def page(
    outcomes: Sequence[Outcome],
    live: Found | None,
    more: Sequence[str],
    start_up: StartUp | None,
    repeat: int,
    cores: int,
    load: float,
) -> str:
    """The whole of docs/benchmarks.md."""
    timings = {name: found for outcome in outcomes for name, found in outcome.best.items()}
    timings |= {one.title: one.best for one in live.wholes} if live else {}
    parts = [INTRO.format(repeat=repeat, samples=SAMPLES, window=WINDOW), _where(timings, cores, load)]
    parts += [section(outcome) for outcome in outcomes]
    parts += [live_section(live)] if live else []
    parts += more
    parts += [start_up_section(start_up)] if start_up else []
    return "\n".join(parts)


def section(outcome: Outcome) -> str:
    """The section of a job: its table, its note, and whether its targets were met."""
    job = outcome.job
    rival = outcome.best.get(title(job.rival))
    lines = [
        f"## {job.title}",
        "",
        "| | call s | call, CPU s | process s | peak MB | call, ratio | process, ratio |",
    ]
    lines.append("|---|---|---|---|---|---|---|")
    lines += [_line(name, found, None if found is rival else rival) for name, found in outcome.best.items()]
    lines += ["", job.note]
    if outcome.compared:
        lines.append(f"Numbers compared and found equal: {outcome.compared}.")
    lines += outcome.left_out
    lines += _verdicts(outcome)
    return "\n".join(lines) + "\n"


def start_up_section(found: StartUp) -> str:
    """The table of start-up times."""
    lines = ["## Start-up", "", "| | seconds | beyond the bare interpreter | target |", "|---|---|---|---|"]
    lines.append(f'| `python -c "pass"` | {found.seconds[BARE]:.3f} | | |')
    for name, most in TARGETS.items():
        verdict = _verdict(found.beyond(name) <= most)
        lines.append(f"| {name} | {found.seconds[name]:.3f} | {found.beyond(name):.3f} | <= {most} s: {verdict} |")
    lines += ["", f"Median of {found.repeat} repeats."]
    return "\n".join(lines) + "\n"


def _where(timings: Mapping[str, Timing], cores: int, load: float) -> str:
    versions = {"Python": platform.python_version()}
    for found in timings.values():
        versions |= {name: version for name, version in found.versions.items() if name != "Python"}
    listed = ", ".join(f"{name} {version}" for name, version in versions.items())
    theirs = {
        f"{name} on Python {found.versions['Python']}"
        for name, found in timings.items()
        if found.versions["Python"] != versions["Python"]
    }
    today = datetime.date.today().isoformat()
    machine = (
        f"{platform.system()} {platform.machine()}, {cores} core{'s' * (cores != 1)}, load {load:.1f} before the run"
    )
    return f"Measured on {today}, {machine}: {'; '.join([listed, *sorted(theirs)])}.\n"


def _line(name: str, found: Timing, rival: Timing | None) -> str:
    memory = f"{found.own_mb:.0f} + {found.child_mb:.0f}" if found.child_mb >= 1 else f"{found.own_mb:.0f}"
    ratios = ("", "")
    if rival:
        ratios = (_ratio(found.seconds / rival.seconds), _ratio(found.process / rival.process))
    times = map(_seconds, (found.seconds, found.cpu, found.process))
    return f"| {name} | {' | '.join((*times, memory, *ratios))} |"


def _verdicts(outcome: Outcome) -> list[str]:
    job, lines = outcome.job, []
    rival = outcome.best.get(title(job.rival))
    for entry in job.ours:
        found = outcome.best.get(title(entry))
        if not found:
            continue
        pairs = [
            (job.target.ratio, found.seconds / rival.seconds if rival else None, "<= {}x the rival's call"),
            (job.target.seconds, found.seconds, "<= {} s"),
            (job.target.megabytes, found.megabytes, "<= {} MB"),
        ]
        said = [
            f"{text.format(f'{most:g}')} ({_verdict(value <= most)})"
            for most, value, text in pairs
            if most is not None and value is not None
        ]
        if said:
            lines += ["", f"Targets: {', '.join(said)}."]
    return lines


def _verdict(reached: bool) -> str:
    return "met" if reached else "**missed**"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f}" if seconds >= 0.1 else f"{seconds:.3f}"


def _ratio(ratio: float) -> str:
    return f"{ratio:.3g}x"
