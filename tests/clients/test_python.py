import asyncio
import threading

import pytest
from clients.asking import ask, request

from calipers.clients import Completion, Connection, Price, connect
from calipers.clients.python import guarded, wrap
from calipers.errors import ClientError, InputError, PluginError

MODELS = """
import asyncio, threading
from calipers.errors import ClientError
from calipers.clients import Completion

def plain(prompt): return f"plain {prompt}"
async def waiting(prompt): return f"waiting {prompt}"
def chat(messages): return "/".join(turn["content"] for turn in messages)
def late(prompt): return waiting(prompt)
def whole(prompt): return Completion("cut", "length", "truncated", {"output_tokens": 3, "latency_s": 2.0})
def broken(prompt): return 1 / 0
def ended(prompt): raise SystemExit(3)
def cancelled(prompt): raise asyncio.CancelledError("gave up")
def stopped(prompt): raise StopIteration("nothing left")
def leaky(prompt): raise RuntimeError("\\x1b[31m key sk-12345678 refused")
def nothing(prompt): return None
def counted(prompt): return Completion("5", usage={"input_tokens": 1000, "output_tokens": 500})
def billed(prompt): return Completion("5", usage={"input_tokens": 1000, "output_tokens": 500, "cost_usd": 7.0})
def odd_text(prompt): return Completion(None)
def odd_ending(prompt): return Completion("5", ending="bored")
def odd_count(prompt): return Completion("5", usage={"input_tokens": "many"})
def odd_cost(prompt): return Completion("5", usage={"cost_usd": float("nan")})
def busy(prompt): raise ClientError("busy", kind="mine", retry=True)
async def broken_later(prompt): raise KeyError("a")
number = 5

class Text(str): pass
def text_of_a_library(prompt): return Text("5")
def completion_of_a_library(prompt): return Completion(Text("5"), usage={"input_tokens": 3})
def odd_seed(prompt): return Completion("5", seed=10**5000)
def odd_reason(prompt): return Completion("5", Text("stop"))
def odd_name(prompt): return Completion("5", usage={'tok"ens': 3})

class Untellable(Exception):
    def __str__(self): return 1 / 0

def untellable(prompt): raise Untellable

class Callable:
    def __call__(self, prompt): return f"called {prompt}"

class Waiting:
    async def __call__(self, messages): return f"called {len(messages)}"

class Whole:
    closed = False
    async def complete(self, request): return Completion(f"{request.task}:{request.sample}:{request.seed}")
    async def close(self): type(self).closed = True

class EvSys:
    name = "mock"
    def __init__(self): self.seen = []
    def generate(self, *, prompt, max_tokens=256, temperature=0.0, stop=None):
        return f"{prompt}|{max_tokens}|{temperature}|{stop}"

class Demanding:
    def __init__(self, size): pass

class Holder:
    model = EvSys()
"""


@pytest.fixture
def mine(tmp_path):
    (tmp_path / "models.py").write_text(MODELS)
    return f"python/{tmp_path}/models.py:"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plain", "plain hi"),
        ("waiting", "waiting hi"),
        ("chat", "Be brief./hi"),
        ("late", "waiting hi"),
        ("Callable", "called hi"),  # a class is instantiated
        ("Waiting", "called 2"),
        ("Whole", "t:0:7"),
        ("EvSys", "hi|256|0.0|None"),
        ("Holder.model", "hi|256|0.0|None"),
    ],
)
def test_what_can_be_a_model(mine, name, text):
    takes_chat = name in ("chat", "Waiting")
    (end,) = ask(mine + name, request("hi", seed=7, system="Be brief." if takes_chat else None))
    assert end.text == text
    assert end.usage["latency_s"] >= 0


def test_evsys_is_told_what_it_understands(mine):
    asked = request("hi", max_tokens=9, temperature=0.5, stop=["\n"], seed=1, system="Add.")
    ends = ask(f"{mine}EvSys", asked, request([{"role": "user", "content": "hi"}]), request(extra={"top_p": 1}))
    assert ends[0].text == "Add.\n\nhi|9|0.5|['\\n']"
    assert (ends[1].kind, str(ends[1])) == (
        "prompt",
        "the prompt is a chat, but only text can be sent; give the object an async complete()",
    )
    assert (str(ends[2]), ends[2].hopeless) == ("generate() does not accept top_p; remove it", True)


def test_a_completion_is_kept_as_it_is(mine):
    (end,) = ask(f"{mine}whole", request())
    assert end == Completion("cut", "length", "truncated", {"output_tokens": 3, "latency_s": 2.0})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("broken", "ZeroDivisionError: division by zero"),
        ("broken_later", "KeyError: 'a'"),
        ("ended", "SystemExit: 3"),  # one call fails, and the run continues
        ("cancelled", "CancelledError: gave up"),
        ("untellable", "Untellable"),
        ("odd_reason", "it returned an invalid Completion: Encoding objects of type Text is unsupported"),
        ("odd_name", "its usage has the name 'tok\"ens'; expected one without quotes and backslashes"),
        ("stopped", "StopIteration: nothing left"),  # a future cannot carry this exception
        ("nothing", "it returned NoneType; expected text or a Completion"),
        ("odd_text", "it returned an invalid Completion: Expected `str`, got `null` - at `$.text`"),
        ("odd_ending", "it returned an invalid Completion: Invalid enum value 'bored' - at `$.ending`"),
        ("odd_count", "it returned an invalid Completion: Expected `float`, got `str` - at `$.usage[...]`"),
        ("odd_cost", "its usage.cost_usd is nan; expected a finite number"),  # a cost limit could not be enforced
        ("leaky", "RuntimeError: \ufffd[31m key [secret] refused"),
    ],
)
def test_code_that_fails(mine, name, said):
    connection = Connection()
    connection.secrets.add("sk-12345678")
    (end,) = ask(mine + name, request(), connection=connection)
    assert isinstance(end, ClientError)
    assert (str(end), end.kind, end.retry, end.hopeless) == (said, "python", False, False)


def test_a_number_of_too_many_digits(mine):
    (end,) = ask(f"{mine}odd_seed", request())
    assert str(end).startswith("it returned an invalid Completion: Exceeds the limit (4300 digits)")


class Text(str):
    __slots__ = ()


class Untellable(ClientError):
    def __str__(self):
        raise ValueError


class Bare(ClientError):
    def __init__(self):
        pass


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ClientError("x", kind=object()), "ClientError: x"),
        (ClientError("x", kind=Text("mine")), "ClientError: x"),  # a log cannot have a subclass of str
        (ClientError("x", wait="soon", retry=True), "ClientError: x"),
        (ClientError("x", retry=None), "ClientError: x"),
        (Untellable("x"), "Untellable"),
        (Bare(), "Bare:"),
    ],
)
@pytest.mark.parametrize("method", ["complete", "score"])
def test_an_error_of_its_own_that_a_run_cannot_use_fails_one_call(error, said, method):
    class Model:
        async def complete(self, request):
            raise error

        score = complete

    async def main():
        client = guarded(Model(), "mine", Connection())
        with pytest.raises(ClientError) as raised:
            await getattr(client, method)(request())
        return raised.value

    end = asyncio.run(main())
    assert (str(end), end.kind, end.retry, end.wait, end.hopeless) == (said, "python", False, None, False)


@pytest.mark.parametrize("name", ["text_of_a_library", "completion_of_a_library"])
def test_text_of_another_type_is_text(mine, name):
    """A log cannot have a subclass of ``str``, such as numpy's."""
    (end,) = ask(mine + name, request())
    assert (end.text, type(end.text)) == ("5", str)


@pytest.mark.parametrize(
    ("notes", "expected"),
    [([], []), (["a", 3], ["a", "3"]), ("once", ["once"]), (5, []), (None, [])],
)
def test_the_notes_of_the_object(notes, expected):
    class Model:
        async def complete(self, request):
            return Completion("5")

    model = Model()
    model.notes = notes
    assert wrap(model, "mine", Connection()).notes == expected


def test_an_object_that_cannot_be_closed_is_told():
    class Model:
        notes = ("it has a cold",)

        def generate(self, **_):
            return "x"

        def score(self, texts):
            return []

        async def close(self):
            raise OSError("stuck")

    client = guarded(Model(), "mine", Connection())
    asyncio.run(client.close())
    assert list(client.notes) == ["close() failed: OSError: stuck"]


def test_a_key_that_the_code_took_from_the_environment_is_not_shown(mine, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sk-12345678")
    (end,) = ask(f"{mine}leaky", request())
    assert str(end) == "RuntimeError: \ufffd[31m key [secret] refused"


@pytest.mark.parametrize(("name", "cost"), [("counted", 0.002), ("billed", 7.0), ("whole", None)])
def test_a_price_gives_the_cost_of_a_completion_that_has_none(mine, name, cost):
    (end,) = ask(mine + name, request(), connection=Connection(price=Price(1.0, 2.0)))
    assert end.usage.get("cost_usd") == cost


def test_code_that_knows_better(mine):
    (end,) = ask(f"{mine}busy", request())
    assert (str(end), end.kind, end.retry) == ("busy", "mine", True)


@pytest.mark.parametrize(
    ("spec", "error", "said"),
    [
        (
            "python/no_such_module_x:f",
            InputError,
            "python/no_such_module_x: no such module; write a file as FILE.py:",
        ),
        ("python/json", InputError, "python/json: no object is named; expected MODULE:OBJECT or FILE.py:OBJECT"),
        ("python/json:", InputError, "python/json:: no object is named"),
        ("python/json:nope", InputError, "python/json:nope: it has no 'nope'; it has: "),
        ("python/no/file:f", InputError, "python/no/file: is neither a module nor a .py file"),
        ("python/nowhere.py:f", InputError, "nowhere.py: No such file or directory"),
        ("python/{}/models.py:number", InputError, "python/{}/models.py:number: it is int; expected a client with"),
        ("python/{}/models.py:Demanding", PluginError, "python/{}/models.py:Demanding: Demanding() failed: TypeError"),
        ("python/{}/syntax.py:f", InputError, "{}/syntax.py:2: it is not valid Python: "),
        ("python/{}/null.py:f", InputError, "{}/null.py"),
        ("python/{}/raises.py:f", PluginError, "{}/raises.py: ValueError: no"),
    ],
)
def test_what_is_no_model(mine, tmp_path, spec, error, said):
    (tmp_path / "syntax.py").write_text("x = 1\ndef f(:\n")
    (tmp_path / "null.py").write_bytes(b"x = 1\0")
    (tmp_path / "raises.py").write_text("raise ValueError('no')\n")
    with pytest.raises(error) as raised:
        connect(spec.format(tmp_path), Connection())
    assert str(raised.value).startswith(said.format(tmp_path))
    assert not (tmp_path / "__pycache__").exists()


def test_a_module_by_its_name(tmp_path, monkeypatch):
    (tmp_path / "modelled").mkdir()
    (tmp_path / "modelled" / "mine.py").write_text(MODELS)
    monkeypatch.syspath_prepend(tmp_path)
    assert ask("python/modelled.mine:plain", request("hi"))[0].text == "plain hi"


def test_what_does_not_wait_runs_in_one_thread():
    """If it were called from two threads, the second call would pass the barrier together with the first."""
    barrier = threading.Barrier(2)
    threads = set()

    def answer(prompt):
        threads.add(threading.current_thread().name)
        try:
            barrier.wait(0.02)
        except threading.BrokenBarrierError:
            barrier.reset()
            return "alone"
        return "together"

    async def main():
        client = wrap(answer, "mine", Connection())
        ends = await asyncio.gather(*(client.complete(request(task=str(n))) for n in range(4)))
        await client.close()
        return [end.text for end in ends]

    assert asyncio.run(main()) == ["alone"] * 4
    assert len(threads) == 1
    assert threading.main_thread().name not in threads


def test_what_waits_runs_side_by_side():
    async def main():
        here = asyncio.Event()

        async def answer(prompt):
            if prompt == "first":
                await here.wait()
            here.set()
            return prompt

        client = wrap(answer, "mine", Connection())
        ends = await asyncio.gather(*(client.complete(request(prompt)) for prompt in ("first", "second")))
        await client.close()
        return [end.text for end in ends]

    assert asyncio.run(main()) == ["first", "second"]


def test_the_object_is_closed():
    class Model:
        closed = 0

        def generate(self, **_):
            return "x"

        def close(self):
            self.closed += 1

    model = Model()
    asyncio.run(wrap(model, "mine", Connection()).close())
    assert model.closed == 1
