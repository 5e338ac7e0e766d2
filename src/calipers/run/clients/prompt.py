"""A request's prompt for models that take one text and know no turns."""

from __future__ import annotations

from calipers.errors import ClientError
from calipers.run.client import Request


def as_text(request: Request, instead: str) -> str:
    """The prompt, the system's words before it and a blank line between; ClientError for a chat.

    ``instead`` says what would take a chat. Turns are not joined: which words tell them apart is
    the model's own affair, and a guess would change what is measured.
    """
    if not isinstance(request.prompt, str):
        raise ClientError(f"the prompt is a chat and only text can be sent; {instead}", kind="prompt")
    return f"{request.system}\n\n{request.prompt}" if request.system else request.prompt
