"""A judge checked against labels: how it errs, how far it agrees, and the score once that is put right."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from calipers.readers.read import Input
from calipers.stats.judges import Confusion, Corrected, LabelledSample

if TYPE_CHECKING:
    import polars as pl

SCHEMA = "calipers.judge_check/1"
FIELDS = (
    *("dataset", "model", "agent", "judge", "what", "value", "stderr", "low", "high", "trust"),
    *("labelled", "judged", "why"),
)


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far raters agree beyond chance; 1 is perfect, 0 is chance."""

    among: str  # "raters and judge", "raters", or "labels and judge"
    level: str  # nominal or interval
    alpha: float | None
    rollouts: int  # with two ratings or more
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Shared:
    """How often two raters say the same of a rollout."""

    first: str
    second: str
    share: float
    rollouts: int  # that both rated


@dataclass(frozen=True, slots=True)
class Checked:
    """The judge of one agent, model and dataset."""

    agent: str | None
    model: str | None
    dataset: str | None
    judge: str  # the reward that is the judge's
    tasks: int
    rollouts: int  # that the judge has scored
    labelled_tasks: int
    labelled: int  # rollouts with a label and a judgement
    raters: Sequence[str]
    confusion: Confusion
    agreement: Sequence[Agreement]
    pairs: Sequence[Shared]
    uncorrected: Corrected  # the judge's word, as `score` reports it
    bias: Corrected  # judgement less label, over the labelled rollouts
    corrected: Sequence[Corrected]  # ppi++, labels, ppi, rogan_gladen
    binary: bool  # whether all labels and judgements are 0 or 1
    notes: Sequence[str] = ()
    labelled_sample: LabelledSample | None = None  # the judge's means with and without a label; p of a random sample

    @property
    def title(self) -> str:
        """``dataset · model · agent``, as far as they are known."""
        return " · ".join(part for part in (self.dataset, self.model, self.agent) if part)

    @property
    def score(self) -> Corrected:
        """The score by PPI++."""
        return self.corrected[0]


@dataclass(frozen=True, slots=True)
class JudgeCheck:
    """The check of every group that has labels."""

    labels: str  # the file
    threshold: float  # what a score must reach to be good
    confidence: float
    inputs: Sequence[Input]
    groups: Sequence[Checked]
    notes: Sequence[str] = ()

    @property
    def fields(self) -> Sequence[str]:
        """The keys of a row, in order."""
        return FIELDS

    def to_dict(self) -> dict[str, Any]:
        """The document, ready for strict JSON."""
        from calipers import __version__

        return {
            "schema": SCHEMA,
            "calipers": __version__,
            "labels": self.labels,
            "threshold": self.threshold,
            "confidence": self.confidence,
            "inputs": [asdict(source) for source in self.inputs],
            "groups": [asdict(group) for group in self.groups],
            "notes": list(self.notes),
        }

    def to_json(self) -> str:
        """The document as indented JSON with a final newline."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def rows(self) -> list[dict[str, Any]]:
        """One flat row per number: the scores, the judge's rates, the agreements."""
        return [row for group in self.groups for row in _rows(group)]

    def to_polars(self) -> pl.DataFrame:
        """The rows as a polars frame."""
        import polars as pl

        return pl.DataFrame(self.rows(), infer_schema_length=None)


def _rows(group: Checked) -> list[dict[str, Any]]:
    who = {"dataset": group.dataset, "model": group.model, "agent": group.agent, "judge": group.judge}
    empty: dict[str, Any] = dict.fromkeys(FIELDS)
    found = []
    for one in (*group.corrected, group.uncorrected, group.bias):
        low, high = one.interval or (None, None)
        numbers = {"value": one.value, "stderr": one.stderr, "low": low, "high": high, "trust": one.trust}
        counts = {"labelled": one.labelled, "judged": one.judged, "why": one.why}
        found.append(
            {**empty, **who, "what": one.method if one is group.bias else f"score.{one.method}", **numbers, **counts}
        )
    for name in ("sensitivity", "specificity", "accuracy"):
        rate = getattr(group.confusion, name)
        low, high = rate.interval or (None, None)
        numbers = {"value": rate.value, "low": low, "high": high, "labelled": rate.of, "why": rate.why}
        found.append({**empty, **who, "what": name, **numbers})
    cells = ("true_positives", "false_negatives", "false_positives", "true_negatives")
    found += [{**empty, **who, "what": name, "value": getattr(group.confusion, name)} for name in cells]
    for level in group.agreement:
        name = f"alpha.{level.among.replace(' ', '_')}"
        found.append({**empty, **who, "what": name, "value": level.alpha, "labelled": level.rollouts, "why": level.why})
    return found
