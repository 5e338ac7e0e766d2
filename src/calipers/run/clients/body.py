"""The body of an answer, of limited size."""

from __future__ import annotations

import aiohttp

from calipers.errors import ClientError


async def read_body(content: aiohttp.StreamReader, most: int, *, whole: bool) -> bytes:
    """A body of limited size. The start is enough where it is not needed ``whole``."""
    chunks, size = [], 0
    try:
        while size <= most and (chunk := await content.readany()):
            chunks.append(chunk)
            size += len(chunk)
    except aiohttp.ClientPayloadError:
        if whole:
            raise
    if whole and size > most:
        raise ClientError(f"the answer is longer than {most} bytes", kind="malformed")
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
