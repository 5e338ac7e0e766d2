import asyncio

import pytest
from clients.asking import answer, request
from clients.scripted import Scripted

from calipers.clients import Completion
from calipers.errors import ClientError

BUSY = ClientError("busy", retry=True)


@pytest.mark.parametrize(
    ("script", "ends"),
    [
        ({("t", 0): "5"}, ["5", "5"]),
        ({("t", 0): Completion("5", ending="truncated")}, ["5", "5"]),
        ({("t", 0): BUSY}, [BUSY, BUSY]),
        ({("t", 0): [BUSY, "5"]}, [BUSY, "5", "5"]),  # the last answer is repeated
        (lambda asked: asked.prompt.upper(), ["HI", "HI"]),
        (lambda asked: BUSY, [BUSY]),
    ],
)
def test_answers_by_the_script(script, ends):
    async def main():
        model = Scripted(script)
        found = [await answer(model, request("hi")) for _ in ends]
        await model.close()
        return model, found

    model, found = asyncio.run(main())
    assert [end.text if isinstance(end, Completion) else end for end in found] == ends
    assert model.calls == [request("hi")] * len(ends)
    assert model.closed


def test_what_is_not_in_the_script():
    end = asyncio.run(answer(Scripted({}), request()))
    assert (end.kind, str(end)) == ("absent", "no answer to task 't', sample 0")


def test_calls_can_be_held_back():
    async def main():
        released = asyncio.Event()

        async def hold(asked):
            if asked.task == "slow":
                await released.wait()

        model = Scripted(lambda asked: asked.task, before=hold)
        slow = asyncio.create_task(model.complete(request(task="slow")))
        fast = await model.complete(request(task="fast"))
        waiting = not slow.done()
        released.set()
        return fast.text, waiting, (await slow).text

    assert asyncio.run(main()) == ("fast", True, "slow")
