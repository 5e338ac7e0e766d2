"""``POST /seed_session``: a session begins, of which this server needs to know nothing."""

from __future__ import annotations

from typing import Any

from fastapi import Body


async def seed_session(body: dict[str, Any] = Body()) -> dict[str, Any]:  # noqa: B008
    """Begin a session; the answer is empty."""
    return {}
