"""The answer in a model's opinion: one judge or several, by a rubric.

What a judge says is an opinion and can be wrong, and an answer can be written to please it. What cannot happen is
that a judge who fails, refuses or rambles counts as a verdict: that is `judge_failed`. Whether the answer made it so,
and then counts 0, is found out by whoever asked (`blame`).
"""

from __future__ import annotations

import asyncio
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from calipers.errors import InputError, VerifierError
from calipers.run.client import Completion, Connection, Request
from calipers.run.endpoint import endpoint, is_moved
from calipers.run.models import connect
from calipers.run.secrets import Secrets
from calipers.run.verifier import Verdict
from calipers.run.verifiers.judge_params import Settings, settings
from calipers.run.verifiers.judge_prompt import FIRST, SECOND, fill, shown, system_prompt, text_of
from calipers.run.verifiers.judge_reply import Scale
from calipers.run.verifiers.jury import Jury, Said
from calipers.tasks.task import Task

TIE: Final = 0.5
LONGEST: Final = 400_000  # characters of an answer that a judge is shown


@dataclass(frozen=True, slots=True)
class LLMJudge:
    """Reward as models judge it: from 0 to 1 on a scale of numbers, or what their label is worth.

    It may judge stored completions again, but that costs money, and the verdict may differ.
    """

    name: str = "llm_judge"
    rerunnable: bool = True
    costs: bool = True
    forgeable: bool = True  # by an answer that talks the judge into it

    def check(self, task: Task) -> None:
        """Refuse a task without a judge that can be reached, or with a rubric that shows it nothing."""
        asked = settings(task)
        for spec in dict.fromkeys(asked.judges):
            try:
                connect(spec, Connection(asked.base_url))  # nothing is sent
            except InputError as error:
                raise InputError(f"task {task.id!r}: {error}") from error

    def endpoints(self, task: Task) -> dict[str, str]:
        """Where the environment says that the judges of a task are, without keys; a URL in the task is its content."""
        asked = settings(task)
        found = {} if asked.base_url else {spec: endpoint(spec, None) for spec in asked.judges if is_moved(spec)}
        return {spec: where for spec, where in found.items() if where}

    def use(self, secrets: Secrets) -> Sitting:
        """The verifier for one run, which keeps its connections and adds its keys to the run's secrets."""
        return Sitting(secrets)

    async def verify(self, task: Task, completion: Completion) -> Verdict:
        """The verdict on one completion, by judges who are called in for it alone."""
        sitting = self.use(Secrets())
        try:
            return await sitting.verify(task, completion)
        finally:
            await sitting.close()


class Sitting:
    """`llm_judge` for the length of a run."""

    def __init__(self, secrets: Secrets) -> None:
        self._jury = Jury(secrets)

    @property
    def notes(self) -> list[str]:
        """What there is to say about the judges when the run is over."""
        return self._jury.notes

    async def close(self) -> None:
        """Give back all connections."""
        await self._jury.close()

    async def verify(self, task: Task, completion: Completion) -> Verdict:
        """The verdict on one completion; `judge_failed` unless a quorum gives a score in time."""
        try:
            asked = settings(task)
            if len(completion.text) > LONGEST:
                much = f"the answer has {len(completion.text)} characters; no judge is shown so many"
                raise VerifierError(much, outcome="judge_failed")
            began = perf_counter()
            said = await self._opinions(asked, task, completion.text)
        except InputError as error:
            raise VerifierError(str(error), outcome="judge_failed") from error
        usage = total([part.usage for parts in said for part in parts]) | {"latency_s": perf_counter() - began}
        opinions = [opinion(parts) for parts in said]
        rewards = [reward for reward in opinions if reward is not None]
        if len(rewards) < asked.quorum:
            why = "; ".join(dict.fromkeys(part.why for parts in said for part in parts if part.why))
            few = f"{len(rewards)} of {len(opinions)} judges gave a score, {asked.quorum} must: "
            lost = sum(any(part.spared for part in parts) for parts in said)  # these might have given one
            raise VerifierError(
                f"{few if len(opinions) > 1 else ''}{why}",
                outcome="judge_failed",
                usage=usage,
                blameless=len(rewards) + lost >= asked.quorum,
            )
        fields = {f"judge_{place}": reward for place, reward in enumerate(opinions, 1) if reward is not None}
        if asked.pair:
            whole = [parts for parts, reward in zip(said, opinions, strict=True) if reward is not None]
            fields["swapped_disagree"] = float(any(len({part.reward for part in parts}) > 1 for parts in whole))
        fields["judges_failed"] = float(len(opinions) - len(rewards))
        return Verdict(combined(rewards, asked.aggregate), fields=fields, usage=usage)

    async def _opinions(self, asked: Settings, task: Task, answer: str) -> list[list[Said]]:
        """What each judge says, one opinion or one for each order; all are asked at once."""
        orders = [*questions(asked, task, answer)]
        calls = [
            asyncio.create_task(self._ask(asked, task, spec, seed, order, prompt, scale))
            for seed, spec in enumerate(asked.judges)
            for order, (prompt, scale) in enumerate(orders)
        ]
        try:
            await asyncio.wait(calls, timeout=asked.seconds)
        finally:
            for call in calls:
                call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        seats = [spec for spec in asked.judges for _ in orders]
        late = [Said(None, f"{spec}: no score within {asked.seconds:g} s", spared=True) for spec in seats]
        said = [none if call.cancelled() else call.result() for call, none in zip(calls, late, strict=True)]
        return [said[start : start + len(orders)] for start in range(0, len(said), len(orders))]

    async def _ask(
        self, asked: Settings, task: Task, spec: str, seed: int, order: int, prompt: str, scale: Scale
    ) -> Said:
        request = Request(
            task.id,
            order,
            prompt,
            system=system_prompt(scale),
            max_tokens=asked.max_tokens,
            temperature=asked.temperature,
            seed=seed,  # a judge that sits twice is at least not bound to say the same
        )
        return await self._jury.ask((spec, asked.base_url, asked.price), request, scale, asked.retries)


def questions(asked: Settings, task: Task, answer: str) -> Sequence[tuple[str, Scale]]:
    """The prompts for one judge, each with its scale: two for a pair, so that neither answer is always first."""
    question = shown(task.prompt)
    target = "" if task.target is None else text_of(task.target)
    if not asked.pair:
        return [(fill(asked.rubric, {"question": question, "answer": answer, "target": target}), asked.scale)]
    first = {"question": question, "answer_a": answer, "answer_b": target}
    second = {"question": question, "answer_a": target, "answer_b": answer}
    return [(fill(asked.rubric, first), FIRST), (fill(asked.rubric, second), SECOND)]


def opinion(parts: Sequence[Said]) -> float | None:
    """One judge's reward: None if any part of it is missing, a tie if the two orders do not agree."""
    rewards = {part.reward for part in parts}
    if None in rewards:
        return None
    return next(iter(rewards)) if len(rewards) == 1 else TIE


def combined(rewards: Sequence[float], how: str) -> float:
    """The rewards of several judges as one: their mean, their median, or the one that most gave; ties are shared.

    >>> combined([1, 0, 1], "vote"), combined([1, 0], "vote"), combined([1, 0.5, 0], "median")
    (1.0, 0.5, 0.5)
    """
    if how == "vote":
        votes = Counter(rewards)
        return statistics.fmean(reward for reward, count in votes.items() if count == max(votes.values()))
    return statistics.fmean(rewards) if how == "mean" else float(statistics.median(rewards))


def total(usages: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The sum of what calls used, of each thing over the calls that say it."""
    whole: Counter[str] = Counter()
    for usage in usages:
        whole.update({name: value for name, value in usage.items() if name != "latency_s"})
    return dict(whole)


LLM_JUDGE: Final = LLMJudge()
