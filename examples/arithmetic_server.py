"""A server to use in place of your model: it answers sums on this machine, and is wrong at stated rates.

    python examples/arithmetic_server.py [--port 8000]

It needs only Python's standard library and provides the OpenAI-compatible chat route,
``POST /v1/chat/completions``. A reply depends only on the model, the prompt and the request's seed, so the same
run gives the same numbers on every machine.

| model    | replies                                                                    |
|----------|----------------------------------------------------------------------------|
| `calc-1` | wrong in 10 % of the additions and 60 % of the multiplications             |
| `calc-2` | wrong in 5 % of the additions and 35 % of the multiplications              |
| `judge`  | grades an answer: passes 98 % of the right ones and 45 % of the wrong ones |
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ERROR_RATES = {"calc-1": {"+": 0.10, "*": 0.60}, "calc-2": {"+": 0.05, "*": 0.35}}
JUDGE = "judge"
PASS_RATES = {True: 0.98, False: 0.45}  # of the judge, by whether the answer is right
SUM = re.compile(r"(\d+) ([+*]) (\d+)")
NUMBER = re.compile(r"\d+")
GRADED = re.compile(r"\[BEGIN answer (\w+)\]\n(.*?)\n\[END answer \1\]", re.DOTALL)


def reply(model: str, prompt: str, seed: int) -> str:
    """The reply of a model to a prompt; the same arguments give the same text."""
    dice = random.Random(f"{model} {seed} {prompt}")
    if not (found := SUM.search(prompt)):
        return "I can only add and multiply."
    first, sign, second = int(found[1]), found[2], int(found[3])
    right = first + second if sign == "+" else first * second
    if model == JUDGE:
        answer = GRADED.search(prompt)
        numbers = NUMBER.findall(answer[2]) if answer else []
        passes = dice.random() < PASS_RATES[bool(numbers) and int(numbers[-1]) == right]
        return f"I read the answer {numbers[-1] if numbers else 'without a number'}.\nSCORE: {int(passes)}"
    wrong = dice.random() < ERROR_RATES[model][sign]
    number = right + (10 if dice.random() < 0.5 else 1) if wrong else right
    return f"{first} {sign} {second} = {number}"


class Chat(BaseHTTPRequestHandler):
    """The chat route of an OpenAI-compatible server."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise the body of a reply waits until its head is acknowledged

    def do_POST(self) -> None:
        """Answer the last message of a chat."""
        chat = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        model = chat["model"]
        if self.path != "/v1/chat/completions":
            self.send(404, {"error": {"message": f"no route {self.path}; expected /v1/chat/completions"}})
        elif model not in (*ERROR_RATES, JUDGE):
            known = ", ".join((*ERROR_RATES, JUDGE))
            self.send(404, {"error": {"message": f"no model {model}; expected one of {known}"}})
        else:
            prompt = chat["messages"][-1]["content"]
            text = reply(model, prompt, chat.get("seed") or 0)
            choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            usage = {"prompt_tokens": len(prompt.split()), "completion_tokens": len(text.split())}
            self.send(200, {"object": "chat.completion", "model": model, "choices": [choice], "usage": usage})

    def send(self, status: int, content: dict[str, Any]) -> None:
        """Send an object as JSON."""
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing for a request."""


class Server(ThreadingHTTPServer):
    """A server that accepts a burst of connections, and ends without waiting for open ones."""

    daemon_threads = True
    request_queue_size = 128


def main() -> int:
    """Serve until the process ends."""
    parser = argparse.ArgumentParser(description="Answer sums on this machine, with stated error rates.")
    parser.add_argument("--port", type=int, default=8000, help="port on 127.0.0.1 [default: 8000]")
    port = parser.parse_args().port
    try:
        server = Server(("127.0.0.1", port), Chat)
    except OSError as error:
        print(f"port {port}: {error.strerror}; choose another with --port", file=sys.stderr)
        return 2
    with server:
        print(f"ready: http://127.0.0.1:{server.server_address[1]}/v1", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
