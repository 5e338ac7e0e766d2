from __future__ import annotations

import asyncio
from typing import Any

import pytest
from verifiers.judging import judge, task

from calipers.clients import Completion
from calipers.errors import InputError, VerifierError
from calipers.isolate.launch import NONE
from calipers.verifiers import maths, workers
from calipers.verifiers.maths import MATH, WORKERS
from calipers.verifiers.workers import WorkerPool

pytestmark = pytest.mark.skipif(bool(WORKERS.missing()), reason="math-verify is not installed: calipers[math]")

ENDLESS = r"$\int_0^1 \sin(x^x)^{\cos(x)} dx$"


@pytest.mark.parametrize(
    ("gold", "text", "reward"),
    [
        ("4", "It is 4.", 1),
        (4, "It is 4.", 1),
        (0.5, r"so \boxed{\frac12}", 1),
        (1e-7, "0.0000001", 1),  # written out: an e would be Euler's
        ("1/2", "0.5", 1),
        (r"\frac{1}{2}", "We get 1/2", 1),
        (r"$\frac{1}{2}$", "0.49", 0),
        ("x+1", r"\boxed{1+x}", 1),
        ("1/3", "0.333333", 1),  # as many places as are compared
        ("1/3", "0.33", 0),
        (r"\{1,2\}", r"$\{2,1\}$", 1),
        ("(1,2]", "$(1,2]$", 1),
        ("(1,2]", "$(1,2)$", 0),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", r"$\begin{pmatrix}1\\2\end{pmatrix}$", 1),
        ("Evelyn", r"\boxed{\text{Evelyn}}", 1),
        ("5050", r"$\sum_{i=1}^{100} i$", 1),
        (r"2^{1000}", "$4^{500}$", 1),
        (r"5 \text{ cm}", "5 cm", 1),
        ("9", "9%", 1),  # Math-Verify's own rule
        # The gold answer decides what is asked for, so the two cannot be exchanged.
        ("2x+z=1", "$1$", 0),
        ("1", "$2x+z=1$", 1),
        ("1 < x < 2", "$(1,2)$", 1),
        ("(1,2)", "$1 < x < 2$", 0),
        # What Math-Verify alone takes for right.
        ("1", "$5=1$", 0),
        ("5", "$2+3=5$", 1),
        ("0.0000001", "0.0000002", 0),
        ("0", "0.0000002", 0),
        ("0.0000001", "$10^{-7}$", 1),
    ],
)
def test_the_answer_is_right_in_any_form(gold: Any, text: str, reward: float) -> None:
    verdict = judge(MATH, text, gold)
    assert (verdict.reward, verdict.outcome) == (reward, "")
    assert verdict.answer


RIGHT = [  # as models print it
    ("It is 12.", "12"),
    ("3*4 = 12", "12"),
    ("x = 12", "12"),
    ("So the answer is 3*4 = 12.", "12"),
    ("3 × 4 = 12", "12"),
    ("We get 2 + 2 + 8 = 4 + 8 = 12", "12"),
    (r"\boxed{12}", "12"),
    ("Thus $x = 12$.", "12"),
    (r"So 3 + 9 = \boxed{12}.", "12"),
    (r"\[ 3 \cdot 4 = 12 \]", "12"),
    ("The total for 2020 = 500.", "500"),
    ("In set 2 = 15 cm", "15"),
    ("Step 2: 3 + 4 = 7", "7"),
    ("5! = 120", "120"),
    ("2^10 = 1024", "1024"),
    ("2**10 = 1024", "1024"),
    ("10/3 = 3.33", "3.33"),
    ("22/7 = 3.142857", "3.142857"),
    ("1/3 = 0.333333", "1/3"),
    ("50% = 0.5", "0.5"),
    ("1,200 + 34 = 1,234", "1234"),
    ("$5 + $7 = $12", "12"),
    ("7 / 2 = 3 remainder 1", "1"),
    ("17 mod 5 = 2", "2"),
    ("f(3) = 12", "12"),
    ("2x = 12", "12"),
    ("5 m = 500 cm", "500"),
    ("sqrt(16) = 4", "4"),
    ("The probability of rolling a 5 or 6 is 1/3.", "1/3"),
    ("**12**", "12"),
    ("The answer is **3 + 9 = 12**.", "12"),
    ("0.5 or 1/2", "1/2"),
    ("It takes 3 hours or 180 minutes.", "180"),
    ("x = 1 or 2, so there are 2 solutions", "2"),
    ("Therefore, 12 = 12.", "12"),
    ("n = 12 = 3*4", "12"),
    ("1000 = 10^3", "10^3"),
    ("We know 2 + 2 = 4, so the answer is 12.", "12"),
    ("#### 12", "12"),
    ("12 dollars (3 * 4 = 12)", "12"),
    ("Since 0 = 5 is impossible, there are 0 solutions.", "0"),
    ("Age in 5 years = 12", "12"),
    ("-3 + 15 = 12", "12"),
    ("x - 3 = 9, so x = 12", "12"),
    (r"$\frac{24}{2} = 12$", "12"),
    ("17 = 2 (mod 5), so 2", "2"),
    (r"$\{3,-3\}$", r"\{3,-3\}"),
    ("$3$ or $-3$", r"\{3,-3\}"),
    ("The sum is 5 + 7 = 12 apples.", "12"),
    ("Answer: 12", "12"),
    ("12 or so", "12"),
    ("(3)(4) = 12", "12"),
    ("Natalia sold 48/2 = 24 clips in May.\nNatalia sold 48+24 = 72 clips altogether.\n#### 72", "72"),
    ("She earns $12/60 = $0.2 per minute, so for 50 minutes she earns 0.2 x 50 = $10.", "10"),
    ("1 km = 1000 m", "1000"),
    ("the average of 3 and 5 = 4", "4"),
    ("|-7| = 7", "7"),
    ("2024-1990 = 34 years", "34"),
    ("x = 2 or x = 3, but x = 2 is extraneous, so x = 3", "3"),
    ("Either way (5 or 7 coins), the total is 12.", "12"),
    ("1/4 = 25%", "25"),
    (r"So $\binom{5}{2} = 10$", "10"),
]


@pytest.mark.parametrize(("text", "gold"), RIGHT)
def test_a_right_form_passes(text: str, gold: str) -> None:
    assert judge(MATH, text, gold).reward == 1


FALSE_OR_HEDGED = [
    ("13 = 12", "12"),
    ("13 = 12", "13"),
    ("The answer is 13 = 12.", "12"),
    ("$13 = 12$", "12"),
    ("12 = 13", "12"),
    ("12 = 13", "13"),
    ("x = 13 = 12", "12"),
    ("3*4 = 12 = 13", "13"),
    ("3*4 = 13 = 12", "12"),
    ("$x = 13 = 12$", "12"),
    ("So 5 + 5 = 12", "12"),
    ("We have 100 = 12.", "12"),
    ("**13** = **12**", "12"),
    ("$13$ = $12$", "12"),
    (r"13 = \boxed{12}", "12"),
    (r"\boxed{13 = 12}", "12"),
    ("1/2 = 1/3", "1/3"),
    ("0.5 = 0.6", "0.6"),
    ("2^3 = 9", "9"),
    ("1,000 = 12", "12"),
    ("5 or 7", "7"),
    ("5 or 7", "5"),
    ("The answer is 5 or 7.", "5"),
    ("The answer is 5 or 7.", "7"),
    ("either 5 or 7", "7"),
    ("x = 5 or x = 7", "7"),
    ("$5$ or $7$", "7"),
    (r"$5 \text{ or } 7$", "7"),
    (r"$5 \text{ or } 7$", "5"),
    (r"\boxed{5 \text{ or } 7}", "7"),
    (r"\boxed{5 \text{ or } 7}", "5"),
    (r"\boxed{5} or \boxed{7}", "7"),
    (r"\boxed{5} or \boxed{7}", "5"),
    ("5, 6, or 7", "7"),
    ("12 apples or 13 apples", "13"),
    ("It's 12, or maybe 13.", "13"),
    ("x = 3 or -3", "-3"),
    ("x = 3 or -3", "3"),
    ("0.5 or 0.6", "0.6"),
    (r"$x = 5 \quad\text{or}\quad x = 7$", "7"),
    ("The answer is 12 or 13, I am 50% sure.", "12"),
    ("1/2 or 1/3", "1/3"),
    ("Answer: 12 or 13", "13"),
    ("12 or possibly 13", "12"),
    ("2 + 2 = 4 and 13 = 12", "12"),
    ("12 (or maybe 13)", "13"),
    ("about 12 or 13", "13"),
    ("x = 5, or x = 7", "7"),
]


@pytest.mark.parametrize(("text", "gold"), FALSE_OR_HEDGED)
def test_a_false_chain_or_a_hedge_does_not_pass(text: str, gold: str) -> None:
    assert judge(MATH, text, gold).reward == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I cannot say.",
        "__import__('os').system('true')",
        "$9^{9^{9^{9}}}$",  # none of these is ever computed
        "9^9^9^9",
        "9**9**9",
        "$(10^9)!$",
        "$((10^3)!)!$",
        r"$\binom{10^9}{10^8}$",
        "$2^{100000}$",
        "$e^{10^{100}}$",
        "$0.5^{10^9}$",
        "$(x+y+z)^{9999}$",
        r"$\sum_{i=1}^{10^9} \sin(i)$",
        r"$\prod_{i=1}^{10^7} i$",
        "$" + "9" * 5000 + "$",
        "(" * 500 + "4" + ")" * 500,
        "$" + "{" * 500 + "4" + "}" * 500 + "$",
        r"\[ " * 100_000,
        r"\boxed{4}" + " and" * 20_000,  # an answer stands at the end
    ],
)
def test_no_answer_is_unparsed_and_so_is_one_that_nobody_should_compute(text: str) -> None:
    verdict = judge(MATH, text, "4")
    assert (verdict.reward, verdict.outcome, verdict.answer) == (0, "unparsed", None)


def test_a_verdict_that_takes_too_long_is_none() -> None:
    with pytest.raises(VerifierError, match=r"no verdict within 0\.1 s") as failed:
        judge(MATH, ENDLESS, "4", seconds=0.1)
    assert failed.value.outcome == "verifier_failed"
    assert judge(MATH, "4", "4").reward == 1  # by a new process


def test_decimal_places_can_be_chosen() -> None:
    assert [judge(MATH, "3.14", r"\pi", digits=digits).reward for digits in (2, 3)] == [1, 0]


def test_hostile_text_is_only_text(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """sympy's parser evaluates Python; nothing with a name in it may get there, sandbox or not."""
    monkeypatch.setattr(workers, "mechanism", lambda: NONE)  # where what it writes would be seen
    WORKERS.close()
    trace = tmp_path / "trace"
    for text in (f"open('{trace}', 'w')", f"1 + open('{trace}', 'w')", f"$\\text{{open('{trace}', 'w')}}$", "(1)(2)"):
        judge(MATH, text, "4")
    WORKERS.close()
    assert not trace.exists()


@pytest.mark.parametrize(
    ("target", "params", "said"),
    [
        (r"\foo{", {}, r"task 't1': target is '\\\\foo\{': it cannot be read as mathematics"),
        ("", {}, "task 't1': target is ''"),
        (None, {}, "target is None"),
        ([1], {}, r"target is \[1\]"),
        (True, {}, "target is True"),
        (float("nan"), {}, "target is nan"),
        ("1e-7", {}, "Euler"),
        ("9^{9^{9}}", {}, "a number of more than 2000 digits"),
        ("9" * 20_000, {}, "20000 characters"),
        ("4", {"seconds": 0}, "seconds is 0"),
        ("4", {"digits": -1}, "digits is -1"),
        ("4", {"digits": True}, "digits is True"),
        ("4", {"second": 1}, "did you mean 'seconds'"),
    ],
)
def test_check_refuses_what_no_answer_could_match(target: Any, params: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        MATH.check(task(target, "math", **params))


@pytest.mark.parametrize("target", ["4", 4, -0.5, r"\frac{1}{2}", "$x$", "Evelyn", "2e", "10^{-7}"])
def test_check_passes_a_target_that_is_mathematics(target: Any) -> None:
    MATH.check(task(target, "math", seconds=1, digits=3))


def test_a_target_that_slipped_through_is_no_verdict() -> None:
    for target in (r"\foo{", None):
        with pytest.raises(VerifierError, match="target is"):
            judge(MATH, "4", target)


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(maths, "WORKERS", WorkerPool(tmp_path, ("math_verify_of_elsewhere",)))
    with pytest.raises(InputError, match=r"needs math_verify_of_elsewhere; pip install 'calipers\[math\]'"):
        MATH.check(task("4", "math"))
    with pytest.raises(VerifierError, match="needs math_verify_of_elsewhere"):
        judge(MATH, "4", "4")


def test_its_card() -> None:
    assert (MATH.name, MATH.rerunnable, MATH.forgeable) == ("math", True, False)


def test_many_are_judged_at_once() -> None:
    async def whole() -> list[float | None]:
        cases = [(number, number + number % 2) for number in range(40)]
        verdicts = [MATH.verify(task(str(gold), "math"), Completion(f"It is {said}.")) for gold, said in cases]
        return [verdict.reward for verdict in await asyncio.gather(*verdicts)]

    assert asyncio.run(whole()) == [1, 0] * 20  # each its own answer, whichever process gave it
