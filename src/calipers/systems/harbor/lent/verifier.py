"""A Harbor verifier that gets its rewards from another process over a socket; nothing runs in the environment.

Calipers starts Harbor, listens on a Unix socket, and replies with the reward of its own verifiers for a completion.
So the reward never passes through a file that an agent could write.
"""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

from harbor.models.verifier.result import VerifierResult
from harbor.verifier.base import BaseVerifier
from harbor.verifier.verifier import VerifierOutputParseError

COMPLETION = "completion.txt"
LARGEST = 1 << 20  # bytes of a reply


class CallingVerifier(BaseVerifier):
    """Sends a trial's completion to the process that started the job, which replies with the reward."""

    def __init__(self, *, socket: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._socket = socket

    async def verify(self) -> VerifierResult:
        """The reward; VerifierOutputParseError if the reply has none."""
        path = self.trial_paths.agent_dir / COMPLETION
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None
        request = {"task": self.task.paths.task_dir.name, "completion": text}
        reader, writer = await asyncio.open_unix_connection(self._socket, limit=LARGEST)
        try:
            writer.write(json.dumps(request).encode() + b"\n")
            await writer.drain()
            reply = json.loads(await reader.readline())
        finally:
            writer.close()
        reward = reply.get("reward")
        if not isinstance(reward, (int, float)) or not math.isfinite(reward):
            raise VerifierOutputParseError(str(reply.get("error") or f"the reward is {reward!r}"))
        return VerifierResult(rewards={"reward": float(reward)})
