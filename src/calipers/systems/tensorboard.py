"""An alarm in TensorBoard: a point at its step, in an event file of the folder that is given."""

from __future__ import annotations

import os

from calipers.analyses.watch.document import AlarmSender, event_name, sender_of
from calipers.analyses.watch.monitor import Raised

FOLDER = "calipers-watch"  # below the watched folder, where none is given


def sender(target: str | None) -> AlarmSender:
    """``--log tensorboard[=DIR]``: an event file in DIR; by default below the watched folder."""

    def send(raised: Raised, path: str) -> str:
        from tensorboard.summary import Writer

        folder = target or os.path.join(path, f".{FOLDER}", "tensorboard")
        writer = Writer(folder)
        writer.add_scalar(event_name(raised), raised.evidence, raised.step)
        writer.close()
        return f"tensorboard: {event_name(raised)} at step {raised.step} in {folder}"

    return sender_of("tensorboard", send)
