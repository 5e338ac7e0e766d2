"""A small HTTP server on this machine, running for the duration of a test."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

from waiting import PATIENCE


@contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The server's base URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        thread = threading.Thread(target=http.serve_forever, args=[0.02], daemon=True)  # seconds that its end may take
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_address[1]}/v1"
        finally:
            http.shutdown()
            thread.join()


@contextmanager
def chat_model(answer: Callable[[str], str | dict[str, object]]) -> Iterator[str]:
    """The base URL of an OpenAI-compatible server that replies to the last message of each chat.

    An answer is a text, or the fields of the reply's message.
    """
    numbers = count()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            chat = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            reply = answer(chat["messages"][-1]["content"])
            message = {"role": "assistant", **({"content": reply} if isinstance(reply, str) else reply)}
            usage = {"prompt_tokens": 5, "completion_tokens": 2}
            choices = [{"message": message, "finish_reason": "stop"}]
            body = json.dumps({"id": f"chatcmpl-{next(numbers)}", "choices": choices, "usage": usage}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with served(Handler) as url:
        yield url


Post = tuple[str, Message, bytes]  # path, headers, body


@contextmanager
def hook(
    status: int = 200, headers: Sequence[tuple[str, str]] = (), delay: threading.Event | None = None
) -> Iterator[tuple[str, list[Post]]]:
    """The URL of a webhook, and the posts that it received; it responds when the event ``delay`` is set."""
    posts: list[Post] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posts.append((self.path, self.headers, body))
            if delay is not None:
                delay.wait(PATIENCE)
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with served(Handler) as url:
        yield url, posts
