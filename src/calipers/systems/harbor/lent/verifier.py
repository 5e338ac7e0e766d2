"""Harbor's verifier for functions that live in another process: it asks them over a socket, and nothing runs inside.

Calipers starts Harbor, listens on a Unix socket, and answers what its own verifiers say of a completion. The
reward so never passes through a file that an agent could write.
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
LARGEST = 1 << 20  # bytes of an answer


class CallingVerifier(BaseVerifier):
    """Sends a trial's completion to the process that started the job; its answer is the reward."""

    def __init__(self, *, socket: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._socket = socket

    async def verify(self) -> VerifierResult:
        """The reward; VerifierOutputParseError when there is none."""
        path = self.trial_paths.agent_dir / COMPLETION
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None
        question = {"task": self.task.paths.task_dir.name, "completion": text}
        reader, writer = await asyncio.open_unix_connection(self._socket, limit=LARGEST)
        try:
            writer.write(json.dumps(question).encode() + b"\n")
            await writer.drain()
            answer = json.loads(await reader.readline())
        finally:
            writer.close()
        reward = answer.get("reward")
        if not isinstance(reward, (int, float)) or not math.isfinite(reward):
            raise VerifierOutputParseError(str(answer.get("error") or f"the reward is {reward!r}"))
        return VerifierResult(rewards={"reward": float(reward)})
