"""What labels are bound to: the judge that they check, and the rubric by which it judges."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from calipers.analyses.compare.source import settings_of
from calipers.formats.read import Input
from calipers.formats.run_folder import is_run, read_plan

COLUMN: Final = "judge_sha256"
"""The column of a file of labels that says which judge and rubric they are bound to."""

OF_A_RUN: Final = ("judges", "verifier_code", "tasks")
"""The parts of a run's identity that say how it was judged; the tasks have the rubrics and targets."""

_ABOUT_JUDGING: Final = re.compile("judge|rubric|grader|scorer|verifier|metric|dataset|template", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class JudgeBinding:
    """A judge and its rubric, as far as a run says."""

    reward: str  # the reward that is the judge's
    settings: dict[str, Any]  # of the judge; empty where the run says nothing of it

    @property
    def sha256(self) -> str:
        """The hash of all of it."""
        content = json.dumps([self.reward, self.settings], sort_keys=True, default=str)
        return hashlib.sha256(content.encode("utf-8", "replace")).hexdigest()

    @property
    def sentence(self) -> str:
        """What the labels are bound to, for people."""
        if not self.settings:
            return f"Labels are bound to reward {self.reward!r}: the run does not say which judge and rubric gave it."
        bound = f"Labels are bound to the judge of reward {self.reward!r} and its rubric by hash."
        return f"{bound} If either changes, they expire."


def binding_of(paths: Sequence[str], inputs: Sequence[Input], reward: str) -> JudgeBinding:
    """The judge of a run and its rubric: from its plan, or from what the files of another system say."""
    settings: dict[str, Any] = {}
    for path in paths:
        if os.path.isdir(path) and is_run(path):
            identity = read_plan(path).identity
            settings |= {key: identity[key] for key in OF_A_RUN if key in identity}
    if not settings:
        said = settings_of(inputs, None)
        settings = {name: value for name, value in said.items() if _ABOUT_JUDGING.search(name)}
    return JudgeBinding(reward, settings)
