"""Rollout files for the benchmarks: the same rows in three layouts, with the same bytes on every machine.

Rows are in the order in which a run with many workers would finish them: by task, but shuffled within a window. Only
the standard library's `random.random` is used, whose sequence is the same in all versions of Python.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / ".bench" / "data"

SAMPLES = 16  # rollouts per task
WINDOW = 256  # rollouts in flight at once
TEXTS = 4096  # distinct completions
TEXT_SIZE = 300
COLUMNS = ("reward", "f1", "steps", "format_ok", "latency_s", "input_tokens", "output_tokens")
"""The seven numeric columns of every row, in every layout."""

_WORDS = (
    *("the", "sum", "of", "both", "sides", "is", "therefore", "we", "have", "x", "=", "12", "so", "that", "each"),
    *("term", "cancels", "and", "answer", "must", "be", "even", "check:", "7 * 6", "\\frac{1}{2}", "first,", "then"),
    *("naïve", '"quoted"', "step 3.", "\n", "\n\n", "substituting", "gives", "remaining", "3.14159", "which", "hence"),
)


class Row(NamedTuple):
    """One rollout, with all values as JSON text."""

    task: int
    sample: int
    reward: str
    f1: str
    steps: int
    format_ok: str
    latency_s: str
    input_tokens: int
    output_tokens: int
    text: str
    difficulty: str


def rows(count: int, seed: int = 0) -> Iterator[Row]:
    """``count`` rollouts, `SAMPLES` to a task, in order of completion."""
    draw = random.Random(seed).random
    texts = _texts(draw)
    for first in range(0, count, WINDOW):
        window = list(range(first, min(first + WINDOW, count)))
        window.sort(key=lambda _: draw())
        for number in window:
            task, sample = divmod(number, SAMPLES)
            ease = (task * 2654435761 % 2**32) / 2**32  # the same for all samples of a task
            solved = draw() < ease
            f1 = 1.0 if solved else draw()
            output = 20 + int(2000 * draw())
            yield Row(
                task,
                sample,
                "1.0" if solved else "0.0",
                repr(f1),
                1 + int(12 * draw()),
                "true" if draw() < 0.97 else "false",
                f"{0.2 + output / 90 * (0.5 + draw()):.3f}",
                80 + task % 700,
                output,
                texts[int(TEXTS * draw())],
                "hard" if ease < 0.3 else "easy",
            )


def flat(row: Row) -> str:
    """A rollout with all its numbers at the top level."""
    return (
        f'{{"task":"task-{row.task:07}","sample":{row.sample},"reward":{row.reward},"f1":{row.f1},"steps":{row.steps},'
        f'"format_ok":{row.format_ok},"latency_s":{row.latency_s},"input_tokens":{row.input_tokens},'
        f'"output_tokens":{row.output_tokens},"completion":{row.text}}}\n'
    )


def nested(row: Row) -> str:
    """The same rollout with messages, usage and metadata, as a run logs it."""
    return (
        f'{{"task":"task-{row.task:07}","sample":{row.sample},"reward":{row.reward},"f1":{row.f1},"steps":{row.steps},'
        f'"format_ok":{row.format_ok},{_messages("prompt", row)},"completion":{row.text},'
        f'"usage":{{"input_tokens":{row.input_tokens},"output_tokens":{row.output_tokens},'
        f'"latency_s":{row.latency_s}}},"metadata":{{"difficulty":"{row.difficulty}","source":"made",'
        f'"tags":["a","b"],"split":{{"name":"test","part":{row.task % 8}}}}}}}\n'
    )


def nemo_gym(row: Row) -> str:
    """The same rollout as NeMo Gym's collector writes it."""
    return (
        f'{{"_ng_task_index":{row.task},"_ng_rollout_index":{row.sample},"agent_ref":{{"type":"responses_api_agents",'
        f'"name":"agent"}},"reward":{row.reward},"f1":{row.f1},"steps":{row.steps},"format_ok":{row.format_ok},'
        f'"latency_s":{row.latency_s},"responses_create_params":{{{_messages("input", row)}}},'
        f'"response":{{"id":"resp_{row.task}_{row.sample}","output":[{{"type":"message","role":"assistant",'
        f'"content":[{{"type":"output_text","text":{row.text}}}]}}],"usage":{{"input_tokens":{row.input_tokens},'
        f'"input_tokens_details":{{"cached_tokens":0}},"output_tokens":{row.output_tokens},'
        f'"output_tokens_details":{{"reasoning_tokens":0}}}}}},"difficulty":"{row.difficulty}"}}\n'
    )


LAYOUTS: dict[str, Callable[[Row], str]] = {"flat": flat, "nested": nested, "nemo_gym": nemo_gym}


def file(layout: str, count: int) -> Path:
    """The path of the file with this layout and size."""
    return DATA / f"{layout}-{count}.jsonl"


def make(layout: str, count: int) -> Path:
    """The file with this layout and size; written if it does not exist."""
    _drop_stale()
    path = file(layout, count)
    if not path.exists():
        print(f"writing {count:,} rollouts, {layout}", file=sys.stderr, flush=True)
        line = LAYOUTS[layout]
        unfinished = path.with_suffix(".part")
        with unfinished.open("w", encoding="utf-8", buffering=1 << 20) as out:
            out.writelines(map(line, rows(count)))
        unfinished.rename(path)
    return path


def _texts(draw: Callable[[], float]) -> list[str]:
    found = []
    for _ in range(TEXTS):
        text, size = "", TEXT_SIZE * (0.5 + draw())
        while len(text) < size:
            text += _WORDS[int(len(_WORDS) * draw())] + " "
        found.append(json.dumps(text.strip(), ensure_ascii=False))
    return found


def _messages(key: str, row: Row) -> str:
    asked = f"Problem {row.task}: what is {row.task % 97} + {row.task % 89}? Think first, then answer."
    return f'"{key}":[{{"role":"system","content":"You are careful."}},{{"role":"user","content":"{asked}"}}]'


def _drop_stale() -> None:
    """Remove the files that an earlier version of this script has written."""
    DATA.mkdir(parents=True, exist_ok=True)
    stamp, now = DATA / "made-by", hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != now:
        for path in DATA.glob("*.jsonl"):
            path.unlink()
        stamp.write_text(now)


if __name__ == "__main__":
    print(make(sys.argv[1], int(sys.argv[2])))
