"""EvSys' scoring of a benchmark while a model trains: the stand-in for ``evsys_sdk.training.evaluators``.

The live sampler takes tinker's types, so the package tinker must be installed when an evaluator uses it.
"""

from __future__ import annotations

import asyncio
import importlib
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

from calipers.errors import CalipersError, InputError
from calipers.systems.evsys.benchmark import Benchmark
from calipers.systems.evsys.lent import ChatTemplatedInference
from calipers.systems.evsys.predictions import eval_predictions, upload_eval_rollouts

__all__ = ["BenchmarkEvaluator", "build_in_loop_evaluators"]

KEYS: Final[Mapping[str, type]] = {  # key of a benchmark's section -> type of its value
    **{"split": str, "max_tokens": int, "temperature": float, "breakdown_keys": list, "metrics": list},
    **{"chat_template": dict, "limit": int, "engine": str, "num_samples": int, "n_concurrent": int},
}


class LiveSampler:
    """A client of tinker's sampler, which runs in an event loop. It is called from another thread."""

    name: ClassVar[str] = "in_loop_sampler"

    def __init__(self, sampler: Any, tokenizer: Any, loop: asyncio.AbstractEventLoop) -> None:
        try:
            self._tinker = importlib.import_module("tinker")
        except ModuleNotFoundError:
            advice = "install tinker, or give engine='harbor' and a model_path"
            raise CalipersError(f"the live sampler needs tinker, which is not installed; {advice}") from None
        self._sampler, self._tokenizer, self._loop = sampler, tokenizer, loop

    def generate(
        self, *, prompt: str, max_tokens: int = 256, temperature: float = 0.0, stop: list[str] | None = None
    ) -> str:
        """The completion of a prompt; "" if the sampler returns no tokens."""
        tokens = self._tokenizer.encode(prompt, add_special_tokens=False)
        params = self._tinker.SamplingParams(max_tokens=max_tokens, temperature=temperature, stop=stop or [])
        sampling = self._sampler.sample_async(prompt=self._tinker.ModelInput.from_ints(tokens), params=params)
        reply = asyncio.run_coroutine_threadsafe(sampling, self._loop).result()
        first = next(iter(getattr(reply, "sequences", None) or ()), None)
        answer = getattr(first, "tokens", None) or getattr(first, "token_ids", None)
        return str(self._tokenizer.decode(list(answer))) if answer else ""


@dataclass
class BenchmarkEvaluator:
    """An evaluator that scores a benchmark every ``run_every`` steps, with the live sampler or with a checkpoint."""

    name: str
    benchmark: Benchmark
    tokenizer: Any
    run_every: int = 0  # 0 means never
    split: str = "val"
    max_tokens: int = 256
    temperature: float = 0.0
    breakdown_keys: list[str] = field(default_factory=list)
    metrics: list[str] = field(default_factory=list)
    chat_template: dict[str, Any] = field(default_factory=dict)  # system_prompt, user_template, enable_thinking
    limit: int | None = None
    engine: str = ""  # "harbor" runs the checkpoint in Harbor, if it and model_name are known
    model_name: str | None = None
    workspace_dir: Any = None
    num_samples: int = 1
    n_concurrent: int = 8
    store: Any = None  # receives each evaluation and its prediction rows
    run_id: str | None = None
    benchmark_id: str | None = None

    async def evaluate(
        self, sampler: Any, *, model_path: str | None = None, step: int | None = None
    ) -> dict[str, float]:
        """Score the benchmark at a step, and return its metrics."""
        if self.engine.lower() == "harbor" and model_path and self.model_name:
            return await self._via_harbor(self.model_name, model_path, step)
        client: Any = LiveSampler(sampler, self.tokenizer, asyncio.get_running_loop())
        if self.chat_template:
            client = ChatTemplatedInference(client, **self.chat_template)
        score = await asyncio.to_thread(
            self.benchmark.score,
            client,
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            breakdown_keys=list(self.breakdown_keys),
            limit=self.limit,
            metrics=list(self.metrics),
            num_samples=self.num_samples,
        )
        return dict(score.metrics)

    async def _via_harbor(self, model_name: str, model_path: str, step: int | None) -> dict[str, float]:
        workspace = Path(self.workspace_dir or tempfile.mkdtemp(prefix="evsys_val_"))
        score = await self.benchmark.score_via_harbor(
            model_name=model_name,
            model_path=model_path,
            workspace_dir=workspace if step is None else workspace / f"step_{step}",
            num_samples=self.num_samples,
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            system_prompt=self.chat_template.get("system_prompt"),
            limit=self.limit,
            breakdown_keys=list(self.breakdown_keys),
            metrics=list(self.metrics) or None,
            n_concurrent=self.n_concurrent,
        )
        if self.store is not None and self.run_id:
            self._record(score.rollouts, score.metrics, step)
        return dict(score.metrics)

    def _record(self, rollouts: Sequence[Any], metrics: Mapping[str, float], step: int | None) -> None:
        """Write an evaluation and its prediction rows to the store. An error of the store only raises a warning."""
        try:
            record = self.store.create_eval(
                run_id=self.run_id, benchmark_id=self.benchmark_id, step=step, metrics=dict(metrics)
            )
            eval_id = record.get("id") or record.get("eval_id") if isinstance(record, Mapping) else record.id
            tasks = self.benchmark.tasks[: len(rollouts)]
            upload_eval_rollouts(self.store, self.run_id, eval_predictions(tasks, rollouts, eval_id=eval_id, step=step))
        except Exception as error:
            warnings.warn(f"the store rejected the evaluation of step {step}: {error!r}", stacklevel=2)


def build_in_loop_evaluators(
    metadata: Mapping[str, Any] | None,
    *,
    tokenizer: Any,
    store: Any = None,
    model_name: str | None = None,
    workspace_dir: Any = None,
    run_id: str | None = None,
) -> list[BenchmarkEvaluator]:
    """An evaluator for each section of ``metadata["benchmark"]``, a section or a list, with ``run_every`` above 0.

    InputError for a section that is not a mapping, names no benchmark, or has a value of a wrong type.
    """
    sections = (metadata or {}).get("benchmark") or []
    shared = {"tokenizer": tokenizer, "model_name": model_name, "workspace_dir": workspace_dir, "run_id": run_id}
    evaluators = []
    for number, section in enumerate(sections if isinstance(sections, list) else [sections]):
        location = f"benchmark[{number}]"
        if not isinstance(section, Mapping):
            raise InputError.at(location, f"is {section!r}", "expected a mapping with path, id or name")
        run_every = _converted(location, "run_every", int, section.get("run_every") or 0)
        if run_every <= 0:
            continue
        benchmark = Benchmark.load(section, store=store)
        if benchmark is None:
            raise InputError.at(location, "does not name a benchmark", "expected path, id or name")
        settings = {
            key: _converted(location, key, kind, section[key])
            for key, kind in KEYS.items()
            if section.get(key) is not None
        }
        name, key = str(section.get("name", f"benchmark_{number}")), section.get("id")
        evaluators.append(
            BenchmarkEvaluator(
                name,
                benchmark,
                **shared,
                **settings,
                run_every=run_every,
                store=store,
                benchmark_id=None if key is None else str(key),
            )
        )
    return evaluators


def _converted(location: str, key: str, kind: type, value: Any) -> Any:
    if kind is list and isinstance(value, str):
        return [value]  # one metric, or one key
    try:
        return kind(value)
    except (TypeError, ValueError):
        raise InputError.at(f"{location}.{key}", f"is {value!r}", f"expected {kind.__name__}") from None
