"""Measure the time to the first request in lm-evaluation-harness and in Calipers, on lm-evaluation-harness' own tasks.

Run it with the interpreter of ``make parity-lm-eval``, which has both installed. The documents are made up, the model
takes no time, and each repeat is a fresh process; the two systems alternate. Calipers is measured without and with the
index that an earlier command has cached. A name that ends in ``.yaml`` is a file below lm-evaluation-harness' tasks.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

TASKS = ("mmlu", "afrobench", "mmlu/default/mmlu_anatomy.yaml")
SIDES = ("lm-eval", "Calipers, index not cached", "Calipers")
FIRST = "CALIPERS_BENCH_FIRST_CALL"  # variable with the file for the time of the first call
WHOLE = "CALIPERS_BENCH_WHOLE_RUN"  # variable that says whether the run continues after it
DOCUMENTS = 4  # of each split, plus the number of few-shot examples


@dataclass(frozen=True, slots=True)
class Taken:
    """Wall-clock and CPU seconds from the start of a process to the first call, and to the end of the process."""

    first: tuple[float, float]
    whole: tuple[float, float]

    def better(self, other: Taken) -> Taken:
        """The smaller of each time, because noise only adds to them."""
        first = min(self.first[0], other.first[0]), min(self.first[1], other.first[1])
        return Taken(first, (min(self.whole[0], other.whole[0]), min(self.whole[1], other.whole[1])))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a table; a side that fails has no times, and its error is printed."""
    options = _parse(arguments)
    if options.side:
        return _alone(options.side, options.tasks[0], Path(options.rows), Path(options.out))
    best: dict[tuple[str, str], Taken] = {}
    with tempfile.TemporaryDirectory(prefix="calipers-loading-") as scratch:
        home = Path(scratch)
        rows = home / "rows.pickle"
        names = [_full(name) for name in options.tasks or TASKS]
        _make(names, rows)
        for turn in range(options.repeat):
            for name in names:
                for side in SIDES if turn % 2 else SIDES[::-1]:
                    try:
                        taken = _measured(side, name, rows, home, turn, whole=options.whole)
                    except RuntimeError as error:
                        print(error, file=sys.stderr, flush=True)
                        continue
                    best[name, side] = taken.better(best.get((name, side), taken))
                    print(f"  {name}: {side} {taken.first[0]:.2f} s", file=sys.stderr, flush=True)
    print(_table(names, best, whole=options.whole))
    return 0


def _full(name: str) -> str:
    """A name unchanged, or the path of a file of lm-evaluation-harness' tasks."""
    if not name.endswith(".yaml") or Path(name).is_file():
        return name
    spec = importlib.util.find_spec("lm_eval")
    return str(Path(str(spec and spec.origin)).parent / "tasks" / name)


def _make(names: Sequence[str], path: Path) -> None:
    """Make rows for all datasets of the tasks, with the columns that their templates and functions read."""
    from bench.parity.columns import rows
    from bench.parity.learn import learned
    from bench.parity.make import USUAL, splits_of
    from bench.parity.sides import ANY, dataset_key
    from calipers.systems.lm_eval.benchmarks import nodes_of
    from calipers.systems.lm_eval.tasks.groups import leaves

    columns: dict[str, Any] = {}
    splits: dict[str, dict[str, int]] = {}
    for name in names:
        for leaf in leaves(nodes_of(name)):
            config = leaf.config
            key = dataset_key(config.dataset_path, config.dataset_name, config.dataset_kwargs)
            columns[key] = {**learned(config, leaf.code), **columns.get(key, {})}
            for split in (*splits_of(config), *USUAL):
                most = max(splits.setdefault(key, {}).get(split, 0), config.num_fewshot or 0)
                splits[key][split] = most
    data = {
        key: {split: rows(columns[key], DOCUMENTS + shots, f"{key} {split}") for split, shots in named.items()}
        for key, named in splits.items()
    }
    for key in data:
        languages = str(json.loads(key)[1]).split("-")
        for row in (row for several in data[key].values() for row in several if "translation" in row):
            row["translation"] = {language: f"a sentence in {language}" for language in languages}
    path.write_bytes(pickle.dumps({**data, ANY: next(iter(data.values()))}))


def _measured(side: str, name: str, rows: Path, home: Path, turn: int, *, whole: bool) -> Taken:
    """Run a side in a fresh process; RuntimeError if it fails before its expected end."""
    out = home / f"{turn} {side} {name}".replace("/", "-")
    out.mkdir()
    cache = home / "cache" if side == SIDES[2] else out / "cache"
    environment = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_HOME": str(home / "hf"),
        "TQDM_DISABLE": "1",
        "XDG_CACHE_HOME": str(cache),
        "CALIPERS_STORE": str(home / "store"),
        FIRST: str(out / "first"),
        WHOLE: str(int(whole)),
    }
    if side == SIDES[2] and not cache.exists():  # make the index that an earlier command would have cached
        kept = "from calipers.systems.lm_eval.tasks.groups import *; indexed_heads(installed())"
        subprocess.run([sys.executable, "-c", kept], cwd=home, check=True, env=environment)
    command = [sys.executable, __file__, name, "--side", side, "--rows", str(rows), "--out", str(out)]
    start, before = time.time(), os.times()
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False, env=environment)
    seconds, after = time.time() - start, os.times()
    if not (out / "first").exists() or (done.returncode and whole):
        last = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()][-1:]
        raise RuntimeError(f"{side} on {name} ended with {done.returncode}: {' '.join(last)}")
    moment, cpu = json.loads((out / "first").read_text())
    return Taken((moment - start, cpu), (seconds, sum(after[2:4]) - sum(before[2:4])))


def called() -> None:
    """Record the time of the first call, and end the process if only that is measured."""
    with contextlib.suppress(FileExistsError), Path(os.environ[FIRST]).open("x") as stream:
        stream.write(json.dumps([time.time(), sum(os.times()[:4])]))
    if os.environ[WHOLE] == "0":
        os._exit(0)


def _alone(side: str, name: str, rows: Path, out: Path) -> int:
    """Run one side in this process."""
    from bench.parity.sides import serve

    serve(pickle.loads(rows.read_bytes()))
    if side != SIDES[0]:
        from calipers.cli import main as calipers

        model = f"python/{Path(__file__)}:Free"
        sys.argv = ["calipers", "run", name, "--model", model, "--trust", "--api", "completions"]
        sys.argv += ["--limit", str(DOCUMENTS), "--out", str(out / "run"), "--format", "json"]
        calipers()
        return 0
    evaluator: Any = importlib.import_module("lm_eval.evaluator")
    model = _theirs(importlib.import_module("lm_eval.api.model").LM)()
    evaluator.simple_evaluate(model, tasks=[name], limit=DOCUMENTS, bootstrap_iters=0, confirm_run_unsafe_code=True)
    return 0


class Free:
    """The model on our side."""

    def complete(self, request: Any) -> str:
        """Return a fixed answer."""
        called()
        return "A"

    def score(self, requests: Sequence[Any]) -> list[Any]:
        """Return fixed likelihoods."""
        from calipers.clients import Scored

        called()
        return [Scored(-1.0, False, tokens=1) for _ in requests]


def _theirs(base: Any) -> Any:
    class Same(base):  # type: ignore[misc]  # of a library that is not installed where types are checked
        """The model on lm-evaluation-harness' side."""

        def loglikelihood(self, requests: Any) -> list[Any]:
            called()
            return [(-1.0, False) for _ in requests]

        def loglikelihood_rolling(self, requests: Any) -> list[Any]:
            called()
            return [-1.0 for _ in requests]

        def generate_until(self, requests: Any) -> list[str]:
            called()
            return ["A" for _ in requests]

    return Same


def _table(names: Sequence[str], best: Mapping[tuple[str, str], Taken], *, whole: bool) -> str:
    until = "to the end" if whole else "to the first request"
    lines = [
        f"| task | system | wall-clock seconds {until} | ratio to lm-eval | CPU seconds | ratio to lm-eval |",
        "|---|---|---|---|---|---|",
    ]
    for name in names:
        figures = {side: _figures(best.get((name, side)), whole=whole) for side in SIDES}
        for side, ours in figures.items():
            cells = [Path(name).name, side]
            for place in (0, 1):
                theirs = figures[SIDES[0]]
                cells.append(f"{ours[place]:.2f}" if ours else "failed")
                cells.append(f"{ours[place] / theirs[place]:.2f}" if ours and theirs and side != SIDES[0] else "")
            lines.append(f"| {' | '.join(cells)} |")
    for side in SIDES:
        small, large = (_figures(best.get((name, side)), whole=whole) for name in ("mmlu", "afrobench"))
        if small and large:
            times = (
                f"{large[0] / small[0]:.1f} times the wall-clock time and {large[1] / small[1]:.1f} times the CPU time"
            )
            lines.append(f"\n{side}: afrobench takes {times} of mmlu {until}.")
    return "\n".join(lines)


def _figures(taken: Taken | None, *, whole: bool) -> tuple[float, float] | None:
    return None if taken is None else taken.whole if whole else taken.first


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/harness/loading.py", description=__doc__)
    parser.add_argument("tasks", nargs="*", help=f"names or files of tasks (default: {' '.join(TASKS)})")
    parser.add_argument("--repeat", type=int, default=3, help="repeats of each system (default: %(default)s)")
    parser.add_argument(
        "--whole",
        action="store_true",
        help="measure whole runs with a few documents per task, not only the time to the first request",
    )
    for hidden in ("--side", "--rows", "--out"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
