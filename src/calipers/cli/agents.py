"""``calipers run DATASET --agent NAME``: Harbor's tasks, through Harbor or in rooms of our own."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final

import click

from calipers.cli.output import notes, result_json, show_result, tell
from calipers.cli.progress import Progress
from calipers.errors import InputError
from calipers.reports.untrusted_text import clean

INCOMPLETE: Final = 3
SAMPLING: Final = ("max_tokens", "temperature", "system_prompt")
SCORING: Final = ("metrics", "by", "cluster", "dialect", "missing", "reward", "confidence", "seed", "interval")
RUNNING: Final = ("agent", "model", "samples", "limit", "concurrency", "retries", "registry", "environment", "base_url")
OTHER: Final = ("out", "trust", *SAMPLING, *SCORING, *RUNNING)


def wants_agents(benchmarks: Sequence[str], given: Mapping[str, Any]) -> bool:
    """Whether a run is one of agents: it names one, or all it is to run are directories of Harbor's tasks."""
    if given.get("agent") is not None:
        return True
    from calipers.systems.harbor.trials.run import is_agents

    return bool(benchmarks) and all(is_agents(one, given.get("registry")) for one in benchmarks)


def run_agents(ctx: click.Context, benchmarks: Sequence[str], given: dict[str, Any], shape: str) -> None:
    """Run each dataset, score what came of it, show it; exit 3 where something planned has no number."""
    from calipers.pipeline import score_plan
    from calipers.request import make_plan
    from calipers.systems.harbor.metric_script import asked_scripts, check_ready
    from calipers.systems.harbor.trials.run import CONCURRENT, AgentRequest, perform

    for name in given:
        if name not in OTHER:
            raise InputError.at(f"--{name.replace('_', '-')}", "is for models that answer", "an agent takes none")
    for name, right in (("agent", "oracle, nop or command:LINE"), ("environment", "room, or one of Harbor's")):
        if not given.get(name, right).strip():  # a variable that is not set must not mean the oracle
            raise InputError.at(f"--{name}", "is empty", f"expected {right}")
    if given.get("model") and not given.get("agent"):
        wrong = "nobody would ask it: without --agent the oracle works, a task's own solution"
        raise InputError.at("--model", wrong, "expected --agent chat, or one of Harbor's agents")
    models = given.get("model") or (None,)
    if given.get("out") and len(models) * len(benchmarks) > 1:
        raise InputError.at("--out", "is one folder for several runs", "expected one dataset and one model")
    scoring = {name: given[name] for name in SCORING if name in given}
    make_plan(**scoring)  # what is wrong with it is said before anything runs
    if given.get("trust"):
        check_ready(benchmarks)
    gaps = False
    for benchmark in benchmarks:
        for model in models:
            asked = AgentRequest(
                benchmark,
                given.get("agent", "oracle"),
                model,
                given.get("samples", 1),
                given.get("limit"),
                given.get("concurrency", CONCURRENT),
                given.get("retries", 0),
                given.get("registry"),
                given.get("environment", "room"),
                given.get("base_url"),
                {name: given[name] for name in SAMPLING if name in given},
                given.get("out"),
            )
            with redirect_stdout(sys.stderr), Progress(unit="trials") as progress:
                done = perform(asked, progress, lambda note: tell(f"note: {clean(note, None)}"))
            for note in done.notes:
                tell(f"note: {clean(note, None)}")
            folder = str(done.folder)
            scripts = asked_scripts(folder, trust=bool(given.get("trust")), reward=given.get("reward"))
            result = score_plan(folder, make_plan(**scoring, afterwards=scripts))
            show_result(result, shape)
            notes(result)
            Path(folder, "result.json").write_text(result_json(result), encoding="utf-8")
            tell(f"{folder}/result.json")
            gaps |= (
                done.left_out > 0
                or any(group.ledger.gaps for group in result.groups)
                or bool(scripts and scripts.failed)
            )
    if gaps:
        ctx.exit(INCOMPLETE)
