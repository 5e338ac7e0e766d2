"""The comparison with lm-evaluation-harness as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.harness.checkpoint import HEADS, LAYERS, LENGTH, VOCABULARY, WIDTH
from bench.harness.tasks import Made
from bench.measure import Timing

MOST_RATIO = 0.8  # of lm-eval's time, over all tasks


@dataclass(frozen=True, slots=True)
class Side:
    """One side of the benchmark, with all its turns."""

    title: str
    takes: Sequence[Timing]

    def best(self, figure: str) -> float:
        """The smallest value of a figure, because noise only adds to it."""
        return min(take.numbers[figure] for take in self.takes)

    def start_up(self) -> float:
        """Seconds of the process outside the tasks, for imports and loading the checkpoint."""
        return min(take.process - take.seconds for take in self.takes)


@dataclass(frozen=True, slots=True)
class Measured:
    """All sides, and by task the number of equal answers and the largest difference."""

    ours: Side
    theirs: Sequence[Side]
    same: Mapping[str, tuple[int, float]]

    def fastest(self, figure: str) -> float:
        """lm-eval's best value over all batch sizes."""
        return min(side.best(figure) for side in self.theirs)

    def faster(self, names: Sequence[str]) -> int:
        """The index of lm-eval's side with the smaller total time."""
        totals = [sum(side.best(f"{name} clock") for name in names) for side in self.theirs]
        return totals.index(min(totals))

    def paired(self, names: Sequence[str], clock: str) -> float:
        """The median over turns of the ratio of our total time to that of lm-eval's faster side."""
        ratios = []
        for turn, mine in enumerate(self.ours.takes):
            rivals = [sum(side.takes[turn].numbers[f"{name} {clock}"] for name in names) for side in self.theirs]
            ratios.append(sum(mine.numbers[f"{name} {clock}"] for name in names) / min(rivals))
        return median(ratios)


def page(
    found: Measured, tasks: Sequence[Made], cores: int, load: tuple[float, float], repeat: int, commands: str
) -> str:
    """The whole page."""
    names = [task.name for task in tasks]
    answers = sum(count for count, _ in found.same.values())
    worst = max(difference for _, difference in found.same.values())
    ratios = {clock: found.paired(names, clock) for clock in ("clock", "cpu")}
    held = "1 core" if cores == 1 else f"{cores} cores"
    versions = {**found.theirs[0].takes[0].versions, **found.ours.takes[0].versions}
    lines = [
        "# Comparison with lm-evaluation-harness",
        "",
        "This page compares the speed and the numbers of Calipers with those of lm-evaluation-harness (lm-eval). `make "
        "bench-lm-eval` runs the same checkpoint and the same task files in both and writes the first sections. It ran "
        f"on {held}, alternating, {repeat} of each. The load before and after was {load[0]:.1f} and {load[1]:.1f}; "
        "other work on the machine adds to the times of both sides, and most to wall-clock time. "
        + ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
        + ".",
        "",
        f"**All {answers:,} answers agree**: every log-likelihood within 1e-5 (the largest difference is "
        f"{worst:.0e}), every greedy flag, every generated text.",
        "",
        *_table(found, tasks, "clock", "wall-clock seconds"),
        *_table(found, tasks, "cpu", "CPU seconds"),
        f"Target: at most {MOST_RATIO:g} of lm-eval's time over all tasks, with the better of its two batch sizes. "
        f"Median of the repeats: **{ratios['clock']:.2f}** in wall-clock time "
        f"({('met' if ratios['clock'] <= MOST_RATIO else '**missed**')}), {ratios['cpu']:.2f} in CPU time.",
        "",
        "These figures exclude imports and loading the checkpoint, which take: "
        + ", ".join(f"{side.title} {side.start_up():.1f} s" for side in (found.ours, *found.theirs))
        + ".",
        "",
        *([commands] if commands else []),
        "## What is measured",
        "",
        f"The model is a llama with {LAYERS} layers, width {WIDTH}, {HEADS} heads, {VOCABULARY:,} words and {LENGTH:,} "
        "positions, with random weights: large enough that the model dominates the time. The tasks consist of random "
        "words, in the form of well-known tasks:",
        "",
        *[f"- `{task.name}`, {len(task.docs)} documents, {task.about}" for task in tasks],
        "",
        "lm-eval runs `simple_evaluate` with its `hf` model, once with batches of one, its default, and once with "
        "batches of sixteen. Calipers reads the same files and uses its `hf/` model, 32 documents at once. lm-eval's "
        "figures include its metrics, without bootstrap, and Calipers' do not: they take milliseconds on either side.",
        "",
        "## Where the time goes",
        "",
        "- The common beginning of documents (the examples of `letters` and `written`) is processed once for all of "
        "them and cached for the next; lm-eval processes it for each document.",
        "- The context of a question is processed once for all its choices (`answers`, `endings`); lm-eval processes "
        "it once for each, except for choices of one token.",
        "- Scores over the vocabulary are computed only where a token is scored; lm-eval computes them everywhere.",
        "- Rows of similar length are processed together, as many tokens at once as suits the processor.",
        "- `pages` shares nothing: both sides process and score every token once.",
    ]
    return "\n".join(lines) + "\n"


def _table(found: Measured, tasks: Sequence[Made], clock: str, what: str) -> list[str]:
    sides = [found.ours, *found.theirs]
    rows = []
    for task in tasks:
        figure = f"{task.name} {clock}"
        cells = " | ".join(f"{side.best(figure):.2f}" for side in sides)
        rows.append(f"| `{task.name}` | {cells} | {found.ours.best(figure) / found.fastest(figure):.2f} |")
    totals = [sum(side.best(f"{task.name} {clock}") for task in tasks) for side in sides]
    return [
        f"| {what}, best of all repeats | {' | '.join(side.title for side in sides)} | ratio to lm-eval's faster |",
        "|---" * (len(sides) + 2) + "|",
        *rows,
        f"| all | {' | '.join(f'{total:.2f}' for total in totals)} | {totals[0] / min(totals[1:]):.2f} |",
        "",
    ]
