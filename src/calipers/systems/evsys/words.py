"""EvSys: six metrics by name, the first k samples by order, 0.0 for nothing."""

from __future__ import annotations

from calipers.request import Dialect
from calipers.systems.evsys import SYSTEM

EVSYS = Dialect("evsys", metrics=SYSTEM.card.words, undefined=0.0, lenient=True, label=str)
