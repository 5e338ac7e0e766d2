"""How long lm-evaluation-harness and Calipers take before they call a model, on lm-evaluation-harness' own tasks.

Run it with the interpreter of ``make parity-lm-eval``, which has the two beside each other. Documents are made up,
the model is free, and every turn is a fresh process, the sides in turns. Ours is measured without the index that an
earlier command has kept, and with it. A name that ends in ``.yaml`` is a file below lm-evaluation-harness' tasks.
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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

TASKS = ("mmlu", "afrobench", "mmlu/default/mmlu_anatomy.yaml")
SIDES = ("lm-eval", "Calipers, no index kept", "Calipers")
FIRST = "CALIPERS_BENCH_FIRST_CALL"  # the environment's name of the file that the first call writes its moment into
DOCUMENTS = 4  # of each split, and as many more as there are examples


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print: 0 when every side did every task."""
    options = _parse(arguments)
    if options.side:
        return _alone(options.side, options.tasks[0], Path(options.rows), Path(options.out))
    with tempfile.TemporaryDirectory(prefix="calipers-loading-") as scratch:
        home = Path(scratch)
        rows, best = home / "rows.pickle", dict[tuple[str, str], tuple[float, float]]()
        names = [_full(name) for name in options.tasks or TASKS]
        _make(names, rows)
        for turn in range(options.repeat):
            for name in names:
                for side in SIDES if turn % 2 else SIDES[::-1]:
                    seconds = _measured(side, name, rows, home, turn, first_only=options.first_call)
                    before = best.get((name, side), seconds)
                    best[name, side] = min(before[0], seconds[0]), min(before[1], seconds[1])
                    print(f"  {name}: {side} {seconds[0]:.2f} s, {seconds[1]:.2f} s", file=sys.stderr, flush=True)
    print(_table(names, best, first_only=options.first_call))
    return 0


def _full(name: str) -> str:
    """A name as it is; the path of a file of lm-evaluation-harness' tasks."""
    if not name.endswith(".yaml") or Path(name).is_file():
        return name
    spec = importlib.util.find_spec("lm_eval")
    return str(Path(str(spec and spec.origin)).parent / "tasks" / name)


def _make(names: Sequence[str], path: Path) -> None:
    """Rows for every dataset of some tasks, as their templates and functions read them."""
    from bench.parity.columns import rows
    from bench.parity.learn import learned
    from bench.parity.make import USUAL, splits_of
    from bench.parity.sides import ANY, dataset_key
    from calipers.systems.lm_eval.jobs.benchmarks import nodes_of
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


def _measured(side: str, name: str, rows: Path, home: Path, turn: int, *, first_only: bool) -> tuple[float, float]:
    """Seconds from the start of a process to the first call, and to its end."""
    out = home / f"{turn} {side} {name}".replace("/", "-")
    out.mkdir()
    cache = home / "cache" if side == SIDES[2] else out / "cache"
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(home / "hf"), "TQDM_DISABLE": "1"}
    ours = {"XDG_CACHE_HOME": str(cache), "CALIPERS_STORE": str(home / "store"), FIRST: str(out / "first")}
    ours |= {"CALIPERS_BENCH_STOP": "1"} if first_only else {}
    command = [sys.executable, __file__, name, "--side", side, "--rows", str(rows), "--out", str(out)]
    if side == SIDES[2] and not cache.exists():  # what an earlier command has left
        subprocess.run(
            [sys.executable, "-m", "calipers", "check", "mmlu_anatomy"],
            cwd=home,
            check=False,
            capture_output=True,
            env={**os.environ, **offline, **ours, "PYTHONPATH": str(ROOT / "src")},
        )
    start = time.time()
    done = subprocess.run(
        command, cwd=home, capture_output=True, text=True, check=False, env=os.environ | offline | ours
    )
    seconds = time.time() - start
    first = out / "first"
    if not first.exists() or (done.returncode and not first_only):
        raise RuntimeError(f"{side} on {name} ended with {done.returncode}:\n{(done.stderr or done.stdout)[-3000:]}")
    return float(first.read_text()) - start, seconds


def called() -> None:
    """Note the moment of the first call; end the process there, where no more is wanted."""
    with contextlib.suppress(FileExistsError), Path(os.environ[FIRST]).open("x") as stream:
        stream.write(repr(time.time()))
    if os.environ.get("CALIPERS_BENCH_STOP"):
        os._exit(0)


def _alone(side: str, name: str, rows: Path, out: Path) -> int:
    """One side in this process."""
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
        """Always the same."""
        called()
        return "A"

    def score(self, requests: Sequence[Any]) -> list[Any]:
        """All alike."""
        from calipers.clients.likelihood import Scored

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


def _table(names: Sequence[str], best: dict[tuple[str, str], tuple[float, float]], *, first_only: bool) -> str:
    lines = ["| task | side | seconds to the first call | to lm-eval's | whole run | to lm-eval's |"]
    lines.append("|---|---|---|---|---|---|")
    for name in names:
        theirs = best[name, SIDES[0]]
        for side in SIDES:
            first, whole = best[name, side]
            cells = [Path(name).name, side, f"{first:.2f}", f"{first / theirs[0]:.2f}"]
            cells += ["", ""] if first_only else [f"{whole:.2f}", f"{whole / theirs[1]:.2f}"]
            lines.append(f"| {' | '.join(cells)} |")
    if {"mmlu", "afrobench"} <= set(names):
        for side in SIDES:
            ratio = best["afrobench", side][0] / best["mmlu", side][0]
            lines.append(f"\n{side}: afrobench takes {ratio:.1f} times what mmlu takes before the first call.")
    return "\n".join(lines)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/lm_eval_loading.py", description=__doc__)
    parser.add_argument("tasks", nargs="*", help=f"names or files (default: {' '.join(TASKS)})")
    parser.add_argument("--repeat", type=int, default=3, help="turns of each side (default: %(default)s)")
    parser.add_argument("--first-call", action="store_true", help="end each process at its first call")
    for hidden in ("--side", "--rows", "--out"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
