"""Other systems' code, unchanged: their imports lead here while their packages are absent.

Nothing happens at import. `activate` lends ``evsys_sdk`` or ``nemo_gym``, `load_plugin` runs a file or module that
brings metrics, and `skip_unknown_metrics` restores what EvSys does with a metric it does not know.
"""

from __future__ import annotations

from calipers.compat.lending import activate, borrowing, deactivate
from calipers.compat.plugins import load_plugin

__all__ = ["activate", "borrowing", "deactivate", "load_plugin", "skip_unknown_metrics"]


def skip_unknown_metrics(on: bool = True) -> None:
    """The one switch: in the evsys dialect, leave out a metric that is unknown or fails, with a warning.

    EvSys does so always. Here a number that was asked for and is not there is an error, unless this
    is called; ``skip_unknown_metrics(False)`` calls it off.
    """
    from dataclasses import replace

    from calipers.dialects.evsys import EVSYS
    from calipers.names import DIALECTS

    DIALECTS.discard("evsys")
    if on:
        DIALECTS.add("evsys", replace(EVSYS, skips=True))
