"""``GET /`` and ``GET /health``: the server is there."""

from __future__ import annotations

from calipers import __version__
from calipers.server.documents import Health, Status


async def root() -> Status:
    """Say that the server is there, as NeMo Gym's servers do."""
    return Status()


async def health() -> Health:
    """Say that the server is there, and whose it is."""
    return Health(calipers=__version__)
