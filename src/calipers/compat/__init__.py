"""Other systems' code, unchanged: their imports lead here while their packages are absent.

Nothing happens at import. `activate` lends ``evsys_sdk``, `load_plugin` runs a file or module that
brings metrics, and `score_leniently` leaves out what EvSys would leave out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from calipers.compat.lending import activate, borrowing, deactivate
from calipers.compat.plugins import load_plugin

if TYPE_CHECKING:
    from calipers.compat.evsys.lenient import score_leniently

__all__ = ["activate", "borrowing", "deactivate", "load_plugin", "score_leniently"]


def __getattr__(name: str) -> Any:  # loads the pipeline, so only when it is asked for
    if name != "score_leniently":
        raise AttributeError(f"module 'calipers.compat' has no attribute {name!r}")
    from calipers.compat.evsys.lenient import score_leniently

    return score_leniently
