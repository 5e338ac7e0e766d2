"""Which tasks Harbor refuses before it begins: ``python -m calipers_harbor.refusals SETTINGS.json``.

Harbor makes each trial before it runs it, and one that it cannot make ends the whole job. So each task's trial is made
once beforehand, in a scratch folder, and thrown away; printed is what was wrong with those that could not be made.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from harbor.models.trial.config import TrialConfig
from harbor.trial.trial import Trial

LONGEST = 300  # characters of a message


async def refusals(settings: Mapping[str, Any], tasks: Sequence[str]) -> dict[str, str]:
    """Why no trial can be made, by the task's path; ``settings`` are a trial's agent and environment."""
    refused = {}
    with TemporaryDirectory(prefix="calipers-") as scratch:
        for number, task in enumerate(tasks):
            name = f"check__{number}"
            config = {**settings, "task": {"path": task}, "trial_name": name, "trials_dir": scratch}
            try:
                trial = await Trial.create(TrialConfig.model_validate(config))
                getattr(trial, "_close_logger_handler", lambda: None)()  # its log is in the scratch folder
            except Exception as error:  # whatever it is would end the job
                refused[task] = "; ".join(dict.fromkeys(causes(error)))
    return refused


def causes(error: BaseException) -> Iterator[str]:
    """An exception in words; of a group, each of those in it."""
    inner = getattr(error, "exceptions", None)
    if inner:
        for other in inner:
            yield from causes(other)
    else:
        yield f"{type(error).__name__}: {' '.join(str(error).split())[:LONGEST]}"


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    wanted = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sys.stdout.write(json.dumps(asyncio.run(refusals(wanted["settings"], wanted["tasks"]))) + "\n")
