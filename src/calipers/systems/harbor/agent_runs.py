"""Runs of agents on Harbor's tasks from the datasets to their results: checked, run, scored, kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from calipers.errors import InputError
from calipers.pipeline import score_plan
from calipers.reports.result import Result
from calipers.reports.untrusted_text import safe_json
from calipers.request import make_plan
from calipers.systems.harbor.metric_script import asked_scripts, check_ready
from calipers.systems.harbor.trials.environment import AUTO
from calipers.systems.harbor.trials.run import CONCURRENT, AgentRequest, is_agents, perform

SAMPLING: Final = ("max_tokens", "temperature", "system_prompt")
SCORING: Final = ("metrics", "by", "cluster", "dialect", "missing", "reward", "confidence", "seed", "interval")
RUNNING: Final = ("agent", "model", "samples", "limit", "concurrency", "retries", "registry", "environment", "base_url")
OTHER: Final = ("out", "trust", *SAMPLING, *SCORING, *RUNNING)
ENVIRONMENTS: Final = "auto, room, or one of Harbor's"

Progress = Callable[[int, int], None]  # trials done, trials in all


@dataclass(frozen=True, slots=True)
class AgentReport:
    """What came of one dataset and one model."""

    result: Result
    folder: str
    environment: str  # a line: which the trials had, and why
    complete: bool  # everything planned has a number


class AgentRuns:
    """What `calipers run` asks of runs in which agents work on tasks."""

    @staticmethod
    def wanted(benchmarks: Sequence[str], given: Mapping[str, Any]) -> bool:
        """Whether a run is one of agents: it names one, or all it is to run are directories of Harbor's tasks."""
        if given.get("agent") is not None:
            return True
        return bool(benchmarks) and all(is_agents(name, given.get("registry")) for name in benchmarks)

    @staticmethod
    def run(
        benchmarks: Sequence[str],
        given: Mapping[str, Any],
        watched: Callable[[], AbstractContextManager[Progress]],
        tell: Callable[[str], None],
    ) -> Iterator[AgentReport]:
        """Run each dataset with each model, score what came of it, and keep the result in its folder."""
        models = given.get("model") or (None,)
        _check(benchmarks, models, given)
        scoring = {name: given[name] for name in SCORING if name in given}
        make_plan(**scoring)  # what is wrong with it is said before anything runs
        if given.get("trust"):
            check_ready(benchmarks)
        for benchmark in benchmarks:
            for model in models:
                request = AgentRequest(
                    benchmark,
                    given.get("agent", "oracle"),
                    model,
                    given.get("samples", 1),
                    given.get("limit"),
                    given.get("concurrency", CONCURRENT),
                    given.get("retries", 0),
                    given.get("registry"),
                    given.get("environment", AUTO),
                    given.get("base_url"),
                    {name: given[name] for name in SAMPLING if name in given},
                    given.get("out"),
                )
                with watched() as progress:
                    done = perform(request, progress, tell)
                for note in done.notes:  # before what the scoring has to say
                    tell(note)
                folder = str(done.folder)
                scripts = asked_scripts(folder, trust=bool(given.get("trust")), reward=given.get("reward"))
                result = score_plan(folder, make_plan(**scoring, afterwards=scripts))
                Path(folder, "result.json").write_text(safe_json(result.to_json()), encoding="utf-8")
                gaps = done.left_out > 0 or any(group.ledger.gaps or group.ledger.lacking for group in result.groups)
                yield AgentReport(result, folder, done.environment, not (gaps or result.failed))


def _check(benchmarks: Sequence[str], models: Sequence[str | None], given: Mapping[str, Any]) -> None:
    """InputError for options that no run of agents has, or that do not go together."""
    for name in given:
        if name not in OTHER:
            raise InputError.at(f"--{name.replace('_', '-')}", "is only for models without an agent", "remove it")
    for name, right in (("agent", "oracle, nop or command:LINE"), ("environment", ENVIRONMENTS)):
        if not given.get(name, right).strip():  # a variable that is not set must not mean the oracle
            raise InputError.at(f"--{name}", "is empty", f"expected {right}")
    if given.get("model") and not given.get("agent"):
        wrong = "has no effect: without --agent the oracle runs the task's own solution"
        raise InputError.at("--model", wrong, "expected --agent chat, or one of Harbor's agents")
    if given.get("out") and len(models) * len(benchmarks) > 1:
        raise InputError.at("--out", "is one folder, but there are several runs", "expected one dataset and one model")


AGENT_RUNS: Final = AgentRuns()
