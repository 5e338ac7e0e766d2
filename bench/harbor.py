"""Score a generated Harbor job with thousands of trials: the time, and whether memory grows with the trials.

``python bench/harbor.py [--quick]``; it is also part of the whole commands of ``make bench``.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent))

from bench.commands import Took, commands_section

TRIALS = 20_000
ATTEMPTS = 5
MOST_SECONDS = 10.0
MOST_GROWTH = 40.0  # MB, from a tenth of the trials to all: enough for columns of numbers, but not for the files
EXCEPTIONS = ("AgentTimeoutError", "EnvironmentStartTimeoutError", "NonZeroAgentExitCodeError", "VerifierTimeoutError")


def measure_harbor(quick: bool = False) -> list[Took]:
    """Score a job of 20,000 trials, and one with a tenth of them; with ``quick``, a tenth of both."""
    trials = TRIALS // 10 if quick else TRIALS
    with tempfile.TemporaryDirectory(prefix="calipers-bench-") as folder:
        for count in (trials // 10, trials):  # in another process: a child's peak is at least its parent's
            subprocess.run([sys.executable, __file__, f"{folder}/{count}", str(count)], check=True)
        _scored(f"{folder}/{trials}")  # so that the files are in the page cache
        _, _, before = _scored(f"{folder}/{trials // 10}")
        seconds, cpu, megabytes = _scored(f"{folder}/{trials}")
    growth = megabytes - before
    what = f"a Harbor job of {trials:,} trials ({growth:+.0f} MB compared with {trials // 10:,} trials)"
    met = None if quick else seconds < MOST_SECONDS and growth <= MOST_GROWTH
    return [Took(what, seconds, cpu, megabytes, trials, f"< {MOST_SECONDS:g} s, <= {MOST_GROWTH:g} MB more", met)]


def _scored(job: str) -> tuple[float, float, float]:
    """(clock seconds, processor seconds, peak megabytes) of ``calipers score``."""
    metrics = [f"--metric={name}" for name in ("mean_reward", "pass@1", "pass@5")]
    start = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, "-m", "calipers", "score", job, *metrics], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"calipers score {job} failed with {child.returncode}")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3


def make_job(folder: Path, trials: int) -> Path:
    """Make a job directory like Harbor's: every fifth trial of a task has an exception, some of these also a reward."""
    folder.mkdir()
    rng = random.Random(trials)
    tasks = [f"task-{number:05d}" for number in range(trials // ATTEMPTS)]
    locks = []
    for attempt in range(ATTEMPTS):
        for number, task in enumerate(tasks):
            name = f"{task}__{attempt}{number:06d}"
            place = folder / name
            place.mkdir()
            where = {"path": f"datasets/bench/{task}", "source": "bench"}
            asked = {"task": where, "trial_name": name}
            agent = {"name": "terminus-2", "model_name": "openai/coder-1"}
            (place / "config.json").write_text(json.dumps({**asked, "agent": agent}, indent=4))
            (place / "result.json").write_text(json.dumps(_result(rng, name, task, asked), indent=4))
            lock = {"name": task, "type": "local", "digest": f"sha256:{number:064x}", **where}
            locks.append({"schema_version": 2, "task": lock, "agent": agent, **_defaults()})
    (folder / "config.json").write_text(json.dumps({"n_attempts": ATTEMPTS, "agents": [agent]}, indent=4))
    (folder / "lock.json").write_text(json.dumps({"schema_version": 3, "trials": locks}, indent=4))
    stats = {"n_completed_trials": trials, "n_retries": 0, "evals": {}}
    job = {"started_at": _time(0), "finished_at": _time(3600), "n_total_trials": trials, "stats": stats}
    (folder / "result.json").write_text(json.dumps(job, indent=4))
    return folder


def _result(rng: random.Random, name: str, task: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a trial, with the size of Harbor's own."""
    start = rng.uniform(0, 3000)
    exception = rng.choice(EXCEPTIONS) if rng.random() < 1 / ATTEMPTS else None
    graded = exception in (None, "AgentTimeoutError", "NonZeroAgentExitCodeError")
    spent = {"n_input_tokens": rng.randrange(10_000), "n_cache_tokens": 100, "n_output_tokens": 500, "cost_usd": 0.02}
    raised = {
        "exception_type": exception,
        "exception_message": "it was raised",
        "exception_traceback": "Traceback (most recent call last):\n" + '  File "trial.py", line 1, in run\n' * 8,
        "occurred_at": _time(start + 40),
    }
    phases = ("environment_setup", "agent_setup", "agent_execution", "verifier")
    return {
        "id": f"{rng.getrandbits(128):032x}",
        "task_name": task,
        "trial_name": name,
        "trial_uri": f"file:///jobs/bench/{name}",
        "task_id": {"path": f"datasets/bench/{task}"},
        "source": "bench",
        "task_checksum": f"{int(task[-5:]):064x}",
        "config": {**asked, "agent": {"name": "terminus-2", "model_name": "openai/coder-1"}, **_defaults()},
        "agent_info": {"name": "terminus-2", "version": "2", "model_info": {"name": "coder-1", "provider": "openai"}},
        "agent_result": {**spent, "model_usage": {"coder-1": spent}, "rollout_details": None, "metadata": None},
        "verifier_result": {"rewards": {"reward": float(rng.random() < 0.5)}} if graded else None,
        "verifier_environment_mode": "shared",
        "exception_info": raised if exception else None,
        "started_at": _time(start),
        "finished_at": _time(start + 60),
        **{
            phase: {"started_at": _time(start + 10 * n), "finished_at": _time(start + 10 * n + rng.uniform(1, 9))}
            for n, phase in enumerate(phases)
        },
        "step_results": None,
    }


def _defaults() -> dict[str, Any]:
    """Settings that are not used, which make up most of a file."""
    return {
        "environment": {"type": "docker", **{f"setting_{number}": None for number in range(30)}},
        "verifier": {"disable": False, "override_timeout_sec": None},
        "timeout_multiplier": 1.0,
    }


def _time(second: float) -> str:
    minutes, rest = divmod(second, 60)
    return f"2026-04-02T{9 + int(minutes) // 60:02d}:{int(minutes) % 60:02d}:{rest:09.6f}Z"


def main(arguments: Sequence[str]) -> None:
    """``[--quick]`` measures; ``FOLDER TRIALS`` makes a job."""
    if len(arguments) == 2:
        make_job(Path(arguments[0]), int(arguments[1]))
    else:
        print(commands_section(measure_harbor("--quick" in arguments)))


if __name__ == "__main__":
    main(sys.argv[1:])
