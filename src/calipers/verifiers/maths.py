"""Mathematics verifier: the last expression in the text, compared with the target by value.

Math-Verify parses and compares the expressions. It runs in a worker process, because it may compute forever and its
own time limit does not stop a huge power.
"""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from calipers.clients import Completion
from calipers.errors import InputError, VerifierError
from calipers.tasks import Task
from calipers.verifiers import Verdict, check_names, check_number, fault, is_number, workers
from calipers.verifiers.reasoning import of_answer
from calipers.verifiers.workers import WorkerPool

SECONDS: Final = 5.0
CHECKING: Final = 30.0  # seconds for a target, which is not hostile
PLACES: Final = 6
PLAIN: Final = re.compile(r"-?[0-9]{1,300}(\.[0-9]{1,300})?")  # a plain number, which needs no check by the parser
EXPONENT: Final = re.compile(r"(?<![A-Za-z\\])[0-9.][eE][+-]?[0-9]")
WORKERS: Final = WorkerPool(
    Path(workers.__file__).with_name("maths.py"), ("math_verify", "latex2sympy2_extended", "sympy", "mpmath", "antlr4")
)


class MathMatch:
    """Reward 1 if the answer, the last expression, equals the target in any form, else 0; `unparsed` without one.

    An answer too large to compute is `unparsed` too, as the target never is. When no verdict is reached within
    ``seconds`` the rollout is `verifier_failed`.
    """

    name = "math"
    rerunnable = True
    forgeable = False

    def check(self, task: Task) -> None:
        """Refuse a target that is not a mathematical expression; InputError also if Math-Verify is not installed."""
        check_names(task, ("seconds", "digits"))
        check_number(task, "seconds", least=0.1)
        digits = task.params.get("digits", PLACES)
        if not isinstance(digits, int) or isinstance(digits, bool) or not 0 <= digits <= 100:
            raise fault(task, f"digits is {digits!r}", "expected a number of decimal places, from 0 to 100")
        if WORKERS.missing():
            raise fault(task, f"verifier 'math' needs {WORKERS.missing()}", "pip install 'calipers[math]'")
        gold = as_text(task)
        if EXPONENT.search(gold):
            raise fault(
                task,
                (f"target {gold!r:.80} contains an e, which is read as Euler's number"),
                r"write 1.5e3 as 1.5 \cdot 10^{3}",
            )
        if not PLAIN.fullmatch(gold):
            try:
                problem = WORKERS.ask({"gold": gold}, CHECKING)["gold"]
            except VerifierError as error:
                raise fault(task, f"target {gold!r:.80} cannot be checked", str(error)) from error
            if problem:
                raise fault(
                    task, f"target is {gold!r:.80}: {problem}", r"expected LaTeX such as '\frac{1}{2}', or a number"
                )

    @of_answer
    async def verify(self, task: Task, completion: Completion) -> Verdict:
        """The verdict on one completion."""
        params = task.params
        if WORKERS.missing():
            raise VerifierError(f"verifier 'math' needs {WORKERS.missing()}; pip install 'calipers[math]'")
        try:
            gold, seconds = as_text(task), float(params.get("seconds", SECONDS))
        except (InputError, TypeError, ValueError) as error:
            raise VerifierError(str(error)) from error
        question = {"gold": gold, "text": completion.text[-100_000:], "digits": params.get("digits", PLACES)}
        reply: dict[str, Any] = await WORKERS.answer(question, seconds)
        if reply["gold"]:
            raise VerifierError(f"target is {gold!r:.80}: {reply['gold']}")
        if "unparsed" in reply:
            return Verdict(0.0, outcome="unparsed")
        return Verdict(float(reply["right"]), answer=reply["answer"])


def as_text(task: Task) -> str:
    """The target as text: LaTeX unchanged, a number in decimals."""
    target = task.target
    if isinstance(target, str) and target.strip():
        return target.strip()
    if is_number(target):
        return format(Decimal(repr(target)), "f")  # the shortest decimals without an exponent such as 1e-07
    raise fault(task, f"target is {target!r:.80}", r"expected LaTeX such as '\frac{1}{2}', or a number")


MATH: Final = MathMatch()
