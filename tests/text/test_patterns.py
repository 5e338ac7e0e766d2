import asyncio
import fcntl
import gc
import math
import os
import re
import signal
import struct
import subprocess
import sys
import termios
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import PATIENCE

from calipers.errors import InputError
from calipers.text import patterns
from calipers.text.patterns import (
    KEPT,
    WORKER,
    BadPattern,
    Match,
    RegexTimeout,
    _kept,
    check,
    compiled,
    find_all,
    harmless_up_to,
    search,
)
from calipers.time_limit import Rang, Unavailable, _ring, within
from examples import examples

SOON = 0.05  # seconds: a bad pattern would need years

BAD = [
    ("(a+)+$", "a" * 40 + "!"),
    ("(a|aa)+$", "a" * 60 + "!"),
    ("(a|a)*$", "a" * 60 + "!"),
    ("(.*a){20}$", "a" * 60 + "!"),
    ("(x+x+)+y", "x" * 60),
    (r"^(\w+\s?)*$", "word" * 12 + "!"),
    (r"(?:[a-z]+)*\d", "a" * 60),
    (r"(a*)*\1b", "a" * 40),  # a back-reference
    ("(?=(a+)+$)b", "a" * 40 + "!"),  # in a look-ahead
    (".*.*.*.*.*.*x", "a" * 2_000),  # no nesting at all
]


def in_thread(call, *args, **named):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call, *args, **named).result()


def by_worker(call, *args):
    """Search in a thread, with no pattern known as harmless, so that the worker does it, with a generous limit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patterns, "AT_MOST", math.inf)
        return in_thread(call, *args, limit=PATIENCE)


async def in_loop(call, *args, **named):
    return call(*args, **named)


def on_main(call, *args, **named):
    return call(*args, **named)


def in_asyncio(call, *args, **named):
    return asyncio.run(in_loop(call, *args, **named))


PLACES = pytest.mark.parametrize("place", [on_main, in_thread, in_asyncio])


@pytest.fixture(autouse=True)
def _nothing_is_known_and_the_alarm_is_left_as_it_was():
    _kept.clear()
    before = signal.getsignal(signal.SIGALRM)
    yield
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@PLACES
@pytest.mark.parametrize(("pattern", "text"), BAD)
def test_a_bad_pattern_is_stopped(place, pattern, text):
    for action in (search, find_all):
        with pytest.raises(RegexTimeout, match=f"took longer than 0.05 s on a text of {len(text)} characters"):
            place(action, pattern, text, limit=SOON)
    assert place(search, "b", "abc").spans == ((1, 2),)  # and what comes next is served


@pytest.mark.parametrize(("pattern", "text"), BAD)
def test_a_bad_pattern_is_never_harmless(pattern, text):
    assert harmless_up_to(pattern, re.NOFLAG) < len(text)


@pytest.mark.parametrize(
    ("pattern", "least", "most"),
    [
        ("answer", 50_000, 2**22),
        (r"\b42$", 50_000, 2**22),
        ("(?i)yes|no", 20_000, 2**22),
        ("[0-9]{4}-[0-9]{2}", 10_000, 2**22),
        (r"#### (\-?[0-9\.\,]+)", 128, 1_000),
        ("a*b", 256, 2_000),  # quadratic: from every a to the end
        ("a++b", 256, 2_000),
        ("(?>a+)b", 256, 2_000),
        (r"(a)\1", 256, 2_000),  # a group may be as long as the text
        ("a*a*b", 32, 128),  # cubic
        ("^$", 0, 2**22),
        (r"answer is\s*:?\s*(-?[0-9.,]+)", 0, 64),
        ("(?:|a)*b", 0, 0),  # an empty round
        ("(a)?(?(1)b|c)", 0, 0),  # a conditional is not looked into
    ],
)
def test_what_is_harmless(pattern, least, most):
    assert least <= harmless_up_to(pattern, re.NOFLAG) <= most


@PLACES
@pytest.mark.parametrize(
    ("pattern", "text", "ignore_case", "groups"),
    [
        (r"(\d+)-(\w)?", "x 12-", False, ("12-", "12", None)),  # a group without a part in it
        ("B", "abc", True, ("b",)),
        ("B", "abc", False, None),
        ("", "abc", False, ("",)),
        ("(?m)^b", "a\nb", False, ("b",)),
        ("é|\ud800", "\ud800", False, ("\ud800",)),  # half a character, as broken JSON has them
        ("\n", "a\nb", False, ("\n",)),
        ("straße", "STRASSE", True, None),
        ("(a|b)*c" + "x?" * 40, "ab" * 40_000 + "c", False, ("ab" * 40_000 + "c", "b")),  # more than a pipe holds
    ],
)
def test_search(place, pattern, text, ignore_case, groups):
    for _ in "twice":  # by another way, once the pattern is known
        found = place(search, pattern, text, ignore_case=ignore_case)
        assert (None if found is None else (found[0], *found.groups())) == groups


@PLACES
@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("[0-9]+", ["12", "3"]),
        ("([a-z])=[0-9]", ["a", "b"]),
        ("([a-z])=([0-9])(x)?", [("a", "1", ""), ("b", "3", "")]),
        ("no", []),
    ],
)
def test_find_all(place, pattern, found):
    for _ in "twice":
        assert place(find_all, pattern, "a=12, b=3") == found


@PLACES
@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(a", r"pattern '\(a': missing \), unterminated subpattern at position 0; expected a regular expression"),
        ("ab**", "multiple repeat at position 3"),
        ("a[", "unterminated character set at position 1"),
        ("(?z)", "unknown extension .* at position"),
        ("a{99999999999}", "the repetition number is too large"),
        ("(" * 3_000 + ")" * 3_000, "it is nested too deeply"),
        ("x" * 10_001, "it has 10001 characters; the maximum is 10000"),
    ],
)
def test_a_pattern_that_is_none(place, pattern, said):
    for call in (partial(check, limit=PATIENCE), lambda text: search(text, "", limit=PATIENCE)):
        with pytest.raises(BadPattern, match=said) as caught:
            place(call, pattern)
        assert isinstance(caught.value, InputError)
        assert isinstance(caught.value, re.error)  # what code written for `re` expects
        assert len(str(caught.value)) < 250


@PLACES
def test_reading_a_pattern_is_limited_too(place):
    """Every class is a walk over half of Unicode when case is ignored."""
    slow = r"[\x00-\uffff]" * 700
    with pytest.raises(RegexTimeout):
        place(check, slow, ignore_case=True, limit=SOON)


def test_a_good_pattern_is_kept_and_no_more_than_so_many():
    check("a")
    assert compiled("a", False) is compiled("a", False)
    assert compiled("a", True).pattern.flags & re.IGNORECASE
    for number in range(KEPT):
        _kept[str(number), False] = compiled("a", False)
    check("b")
    assert list(_kept) == [("b", False)]


PIECES = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w", r"\b", "^", "$", " ", "é", r"\d"])
PATTERNS = st.recursive(
    PIECES,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda both: f"(?:{both[0]}|{both[1]})"),
        inner.map(lambda one: f"({one})"),
        inner.map(lambda one: f"(?={one})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2,5}", "*?", "{3}"])).map(lambda it: f"(?:{it[0]}){it[1]}"),
    ),
    max_leaves=8,
)


@examples(200)
@given(PATTERNS, st.text("aAb é1\n", max_size=16), st.booleans())
def test_the_answer_is_that_of_re(pattern, text, ignore_case):
    flags = re.IGNORECASE if ignore_case else re.NOFLAG
    match = re.search(pattern, text, flags)
    for _ in "twice":
        found = search(pattern, text, ignore_case=ignore_case)
        assert (found and found.spans) == (match and match.regs)
        assert found is None or (found[0], *found.groups()) == (match[0], *match.groups())
        assert find_all(pattern, text, ignore_case=ignore_case) == re.findall(pattern, text, flags)


@examples(60)
@given(PATTERNS, st.text("aAb é1\n", max_size=16))
def test_the_worker_answers_as_re_does(pattern, text):
    match = re.search(pattern, text)
    found = by_worker(search, pattern, text)
    assert found == (match and Match(text, match.regs))
    assert by_worker(find_all, pattern, text) == re.findall(pattern, text)


@examples(150)
@given(PATTERNS, st.sampled_from(["a", "ab", "b", "a ", "1"]), st.sampled_from(["", "!", "a"]))
def test_what_is_proven_harmless_is(pattern, unit, tail):
    """Bad texts of the longest length that was proven harmless: 0.1 s at most; exponential work would take years."""
    length = harmless_up_to(pattern, re.NOFLAG)
    text = (unit * length)[: max(0, length - len(tail))] + tail
    within(20.0, lambda: (re.search(pattern, text), re.findall(pattern, text)))


def test_somebody_elses_alarm_is_not_touched():
    rung = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 30.0, 7.0)
        assert search(*BAD[0][:1], "aaa")[0] == "aaa"
        with pytest.raises(RegexTimeout):
            search(*BAD[0], limit=SOON)
        left, interval = signal.setitimer(signal.ITIMER_REAL, 0)
        assert 0 < left <= 30
        assert interval == 7.0
        os.kill(os.getpid(), signal.SIGALRM)
        assert rung == [1]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_handler_without_a_timer_is_not_touched_either():
    before = signal.signal(signal.SIGALRM, print)
    try:
        with pytest.raises(Unavailable):
            within(1.0, lambda: None)
    finally:
        assert signal.signal(signal.SIGALRM, before) is print


def test_a_timer_without_a_handler_is_not_touched_either():
    """A program may use the alarm itself, to be ended if it hangs."""
    signal.setitimer(signal.ITIMER_REAL, 30.0)
    try:
        with pytest.raises(Unavailable):
            within(1.0, lambda: None)
        assert search("(a+)+$", "aaa")[0] == "aaa"
    finally:
        assert 0 < signal.setitimer(signal.ITIMER_REAL, 0)[0] <= 30


def test_an_alarm_is_put_away_whatever_the_call_does():
    for failure in (ValueError, KeyboardInterrupt):
        with pytest.raises(failure):
            within(5.0, lambda failure=failure: (_ for _ in ()).throw(failure))
    with pytest.raises(Unavailable):  # one alarm, one call
        within(5.0, lambda: within(5.0, lambda: None))
    _ring(signal.SIGALRM, None)  # one that comes too late says nothing


@pytest.mark.parametrize("collects", [True, False])
def test_no_collection_of_garbage_swallows_an_alarm(collects):
    """Callbacks of weak references cannot raise; Python reports their exceptions on standard error."""
    before = gc.isenabled()
    try:
        (gc.enable if collects else gc.disable)()
        assert within(PATIENCE, gc.isenabled) is False
        assert gc.isenabled() is collects
        with pytest.raises(Rang):
            within(SOON, lambda: re.search(*BAD[0]))
        assert gc.isenabled() is collects
    finally:
        (gc.enable if before else gc.disable)()


def test_an_alarm_that_somebody_swallows_rings_again():
    swallowed = []

    def stubborn():
        for _ in range(2):
            try:
                while True:
                    pass
            except Rang:
                swallowed.append(1)
        return "done"

    assert within(SOON, stubborn) == "done"
    assert swallowed == [1, 1]


def test_a_warning_is_an_error_where_warnings_are():
    with pytest.raises(BadPattern, match="Possible nested set at position 1"):
        check("[[a]")


def test_an_event_loop_goes_on_after_an_alarm():
    """The program's own signals arrive, before and after, and its wake-up descriptor is unchanged."""

    async def main():
        loop, came = asyncio.get_running_loop(), asyncio.Event()
        loop.add_signal_handler(signal.SIGUSR1, came.set)
        for _ in range(3):
            with pytest.raises(RegexTimeout):
                search(*BAD[0], limit=SOON)
            came.clear()
            os.kill(os.getpid(), signal.SIGUSR1)
            await asyncio.wait_for(came.wait(), 30)
            assert await asyncio.to_thread(search, "b", "abc") == search("b", "abc")
        return True

    assert asyncio.run(main())


def test_an_event_loop_that_waits_for_the_alarm_itself_is_not_misled():
    async def main():
        loop, rung = asyncio.get_running_loop(), []
        loop.add_signal_handler(signal.SIGALRM, rung.append, 1)
        with pytest.raises(RegexTimeout):
            search(*BAD[0], limit=SOON)
        await asyncio.sleep(0)
        loop.remove_signal_handler(signal.SIGALRM)
        return rung

    assert asyncio.run(main()) == []


def test_many_threads_share_one_process():
    def ask(number):
        return search(f"(a+)+{number}", "a" * 20 + str(number), limit=PATIENCE)[0]  # never harmless

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(40))) == ["a" * 20 + str(number) for number in range(40)]
    assert WORKER._process.poll() is None


def test_a_thread_that_was_told_a_pattern_is_harmless_needs_no_worker():
    in_thread(search, "b", "abc")
    WORKER.stop()
    assert in_thread(search, "b", "abc")[0] == "b"
    assert WORKER._process is None


def test_a_worker_survives_a_bad_pattern():
    by_worker(search, "b", "abc")
    process = WORKER._process
    with pytest.raises(RegexTimeout):
        in_thread(search, *BAD[0], limit=SOON)
    assert by_worker(search, "b", "abc")[0] == "b"
    assert WORKER._process is process


@pytest.mark.parametrize("size", [10, 1_000_000])  # less than a pipe holds, and more
def test_a_worker_that_hangs_is_killed_and_replaced(size):
    by_worker(search, "b", "abc")
    process = WORKER._process
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(RegexTimeout, match="took longer"):
        in_thread(search, "b", "a" * size, limit=SOON)
    assert process.returncode == -signal.SIGKILL
    assert by_worker(search, "b", "abc")[0] == "b"


def test_a_question_that_was_interrupted_has_no_answer_later():
    def interrupt(*_):
        raise KeyboardInterrupt

    by_worker(search, "b", "abc")
    before = signal.signal(signal.SIGALRM, interrupt)  # which also leads the search to the worker
    try:
        signal.setitimer(signal.ITIMER_REAL, SOON)
        with pytest.raises(KeyboardInterrupt):
            search(*BAD[0], limit=PATIENCE)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert by_worker(search, "b", "abc")[0] == "b"


def test_a_worker_that_is_gone_is_replaced():
    by_worker(search, "b", "abc")
    WORKER._process.kill()
    WORKER._process.wait()
    assert by_worker(search, "b", "abc")[0] == "b"


def test_a_worker_that_dies_of_a_pattern_says_so():
    by_worker(search, "b", "abc")
    process = WORKER._process
    os.kill(process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)  # until then it may still read a line
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(search, "b", "abc", limit=60.0, ignore_case=True)
        while not waiting_in(process.stdin):
            pass
        process.send_signal(signal.SIGKILL)
        with pytest.raises(
            RegexTimeout, match=("pattern 'b' crashed the process that matched it against a text of 3 characters")
        ):
            asked.result()


def waiting_in(pipe):
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0]


FORKS = """
import os, threading, sys
from calipers.text.patterns import search
from calipers.text.patterns import WORKER
def ask():
    found.append(search("(a+)+b", "aab", limit=60.0)[0])
def in_thread():
    one = threading.Thread(target=ask); one.start(); one.join()
    return WORKER._process.pid
found = []
first = in_thread()
with WORKER._lock:  # as if another thread was asking
    child = os.fork()
    if not child:
        own = in_thread()
        assert own != first and found == ["aab"] * 2
        sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert in_thread() == first and found == ["aab"] * 2
print(first)
"""


def test_after_a_fork_each_has_a_worker_and_none_is_left_behind():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORKS], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)
