"""The thread for synchronous code: it makes one call after another, and does not delay the end of a command."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest
from waiting import PATIENCE

from calipers.clients.python import CallThread

HANGS = """
import asyncio, threading
from calipers.clients.python import CallThread

async def main():
    aside, begun = CallThread("model"), threading.Event()
    def hang():
        begun.set()
        threading.Event().wait()
    call = asyncio.create_task(aside.call(hang))
    await asyncio.to_thread(begun.wait)
    call.cancel()
    aside.close()

asyncio.run(main())
print("over")
"""


def test_a_call_that_never_ends_does_not_keep_the_process():
    done = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "over\n", "")


@pytest.mark.parametrize("raised", [ValueError("no"), StopIteration(), SystemExit(3), KeyboardInterrupt()])
def test_what_the_code_raises_is_returned_and_the_thread_lives_on(raised):
    def code():
        raise raised

    async def main():
        aside = CallThread("model")
        ends = [await aside.call(code), await aside.call(lambda: threading.current_thread().name)]
        aside.close()
        return ends

    assert asyncio.run(main()) == [raised, "model"]


def test_a_call_that_was_given_up_before_its_turn_is_not_made():
    made = []

    async def main():
        aside, gate = CallThread("model"), threading.Event()
        first = asyncio.create_task(aside.call(gate.wait))
        second = asyncio.create_task(aside.call(lambda: made.append("second")))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.sleep(0)
        gate.set()
        await first
        await aside.call(lambda: made.append("third"))
        aside.close()

    asyncio.run(main())
    assert made == ["third"]
