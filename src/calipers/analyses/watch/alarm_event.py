"""An alarm for a tracker of experiments: its name there, and a client that may not be installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

from calipers.analyses.watch.monitor import Raised
from calipers.errors import InputError
from calipers.reports.tracker import plain_name
from calipers.reports.untrusted_text import clean

AlarmSender = Callable[[Raised, str], str]
"""``send(raised, path)``: hand an alarm of a watched folder to a tracker; a note that says where it is."""

LONGEST = 200  # characters of a client's message


def event_name(raised: Raised) -> str:
    """The name of an alarm's points: ``calipers_alarm/drop_pass_at_1``."""
    kind = raised.alarm.partition(">")[0]
    return f"calipers_alarm/{plain_name(kind.replace('(', '_').replace(')', '').strip())}"


def sender_of(name: str, send: AlarmSender) -> AlarmSender:
    """A sender whose client is installed, with its errors as one line; InputError where it is not."""
    if importlib.util.find_spec(name) is None:
        raise InputError.at(f"--log {name}", f"the package {name} is not installed", f"pip install {name}")

    def explained(raised: Raised, path: str) -> str:
        try:
            return send(raised, path)
        except Exception as error:
            first = clean((str(error).strip() or "no message").splitlines()[0], LONGEST)
            raise InputError.at(f"--log {name}", f"its client failed ({type(error).__name__}: {first})") from error

    return explained
