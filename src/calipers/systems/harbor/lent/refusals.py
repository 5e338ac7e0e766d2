"""Lists the tasks that Harbor refuses before it runs them: ``python -m calipers_harbor.refusals SETTINGS.json``.

Harbor creates each trial before it runs it, and a trial that cannot be created ends the whole job. So this program
creates each task's trial once in a temporary folder and prints the errors, by task.
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
    """The reasons why trials cannot be created, by the task's path; ``settings`` are the agent and the environment."""
    refused = {}
    with TemporaryDirectory(prefix="calipers-") as scratch:
        for number, task in enumerate(tasks):
            name = f"check__{number}"
            config = {**settings, "task": {"path": task}, "trial_name": name, "trials_dir": scratch}
            try:
                trial = await Trial.create(TrialConfig.model_validate(config))
                getattr(trial, "_close_logger_handler", lambda: None)()  # its log is in the scratch folder
            except Exception as error:  # any exception would end the job
                refused[task] = "; ".join(dict.fromkeys(causes(error)))
    return refused


def causes(error: BaseException) -> Iterator[str]:
    """The type and message of an exception, or of each exception in a group."""
    group = getattr(error, "exceptions", None)
    if group:
        for inner in group:
            yield from causes(inner)
    else:
        yield f"{type(error).__name__}: {' '.join(str(error).split())[:LONGEST]}"


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sys.stdout.write(json.dumps(asyncio.run(refusals(request["settings"], request["tasks"]))) + "\n")
