"""``calipers check``: checks of a benchmark, and a self-test of its verifiers."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import click

from calipers.cli import options
from calipers.cli.output import plugins_loaded, print_lines, print_notes, rendered, write
from calipers.errors import InputError
from calipers.reports.untrusted_text import clean, safe_json
from calipers.systems.harbor.dataset import Examined, examine, is_dataset
from calipers.systems.harbor.registry import REGISTRY, DatasetAt, is_spec, resolve
from calipers.systems.harbor.trials.environment import runnable


def means_dataset(benchmark: str) -> bool:
    """Whether an argument is a dataset: a directory of Harbor tasks, or a name if this project has a registry."""
    if os.path.lexists(benchmark):
        return is_dataset(benchmark)
    return is_spec(benchmark) and Path(REGISTRY).is_dir()


def check_dataset(benchmark: str, registry: str | None, fix: bool, shape: str) -> bool:
    """Check a dataset and print the findings; return whether it has no error."""
    if os.path.lexists(benchmark):
        if not is_dataset(benchmark):
            expected = "expected a directory of tasks, each with a task.toml"
            raise InputError.at(benchmark, "is not a dataset, as --fix and --registry require", expected)
        dataset = examine(benchmark, fix)
    elif fix:
        raise InputError.at("--fix", f"there is no directory {benchmark}", "a published dataset cannot be changed")
    else:
        dataset = _published(resolve(benchmark, registry))
    here = runnable(dataset.directories)
    if shape == "json":
        document = {item.name: getattr(dataset, item.name) for item in fields(dataset) if item.name != "directories"}
        runs = {"tasks": here.able, **{name: value for name, value in asdict(here).items() if name != "tasks"}}
        _write_json({**document, "runs_here": runs})
        return not dataset.faults
    version = f" {dataset.version}" if dataset.version else ""
    tasks = f"{dataset.tasks:,} task{'s' if dataset.tasks != 1 else ''}"
    write(f"{clean(dataset.name)}{clean(version)}: {tasks}, {_verdict(dataset)}\n")
    print_lines([*dataset.faults, *(here.lines() if here.tasks else ())])
    print_notes([*dataset.changes, *dataset.notes])
    return not dataset.faults


def _verdict(dataset: Examined) -> str:
    if dataset.faults:
        count = len(dataset.faults)
        return f"{count:,} error{'s' if count > 1 else ''}:"
    return f"no errors, digest {dataset.digest}" if dataset.digest else "no errors"


def _published(dataset: DatasetAt) -> Examined:
    """A dataset of a registry: reading it has already checked it against its digests."""
    notes = [note for task in dataset.tasks for note in task.unknown]
    if not dataset.digest:
        notes.append("the registry states no digest, so the content could not be checked")
    tasks = tuple(dataset.tasks)
    return Examined(dataset.name, dataset.version, len(tasks), dataset.digest, (), tuple(notes), directories=tasks)


FAULT = 1  # the exit code if the check finds an error
VERIFIERS = "Tasks and verifiers"  # a group of options


@click.command(cls=options.GroupedCommand)
@click.argument("benchmark", metavar="BENCHMARK")
@options.flag(VERIFIERS, "--selftest", "Test the verifiers: gold answers must pass, and nonsense must fail.")
@options.integer(VERIFIERS, "--limit", "N", "Check only the first N tasks.")
@options.integer(VERIFIERS, "--seed", "N", "Random seed for the random texts of --selftest.", default=0)
@options.verifications
@options.confidence(0.95)
@options.shape("table", "json")
@options.trust(False)
@options.include_path
@options.load_seeds
@options.default_metrics("release")
@options.flag(options.HARBOR, "--fix", "Update a dataset's dataset.toml from its directory before the check.")
@options.registry
@options.plugins
@click.pass_context
def check(
    ctx: click.Context,
    /,
    benchmark: str,
    selftest: bool,
    limit: int | None,
    include_path: tuple[str, ...],
    fix: bool,
    registry: str | None,
    trust: bool,
    load_seeds: str | None,
    default_metrics: str,
    concurrency: int,
    seed: int,
    confidence: float,
    shape: str,
    plugins: tuple[str, ...],
) -> None:
    """Check that BENCHMARK can be run: read every task, and check its verifier and its target.

    --selftest gives each verifier the gold answer, an empty text, the prompt, random words and another
    task's answer. It exits with 1 if a gold answer fails or another text passes. No model is called.

    A directory of Harbor tasks, or org/name@version in a registry, is a dataset. The check reads its tasks, names,
    digests, files and links, runs none of them, and exits with 1 if it finds an error. It reports how many
    tasks can run on this machine and why the others cannot.
    """
    _checked_numbers(limit, concurrency, confidence)
    if not selftest:
        options.refuse(("seed", "concurrency", "confidence"), "is for the self-test", "add --selftest")
    if registry is not None or fix or means_dataset(benchmark):
        for option, given in (("--selftest", selftest), ("--limit", limit), ("--include-path", include_path)):
            if given:
                raise InputError.at(
                    option, f"{benchmark} is a dataset", "remove it: all tasks are checked, and none is run"
                )
        ctx.exit(0 if check_dataset(benchmark, registry, fix, shape) else FAULT)
    from calipers.running.library import library, suite_of
    from calipers.tasks.questions import Questions
    from calipers.tasks.store import names

    in_library = benchmark not in names() and library().is_known(benchmark, ())  # an installed lm-evaluation-harness
    if include_path or benchmark.endswith((".yaml", ".yml")) or in_library:
        for option, given in (("--selftest", selftest), ("--limit", limit)):
            if given:
                problem = f"{benchmark} is a task of lm-evaluation-harness"
                raise InputError.at(option, problem, "remove it: all tasks are checked, and none is run")
        with redirect_stdout(sys.stderr):  # keeps text that the task's code prints out of the output
            request = {"trust": trust, "default_metrics": default_metrics, **_seeds(load_seeds)}
            library_tasks = library().checked(benchmark, include_path, request)
        if shape == "json":
            _write_json({"benchmark": benchmark, "tasks": [asdict(task) for task in library_tasks]})
        else:
            print_lines(line for task in library_tasks for line in task.lines())
        return
    with plugins_loaded(plugins):
        from calipers.analyses.selftest import checked

        suite = suite_of(benchmark, Questions())
        questions = checked(suite, limit)
        test = None
        if selftest:
            from calipers.analyses.selftest import selftest as try_verifiers

            test = try_verifiers(questions, concurrency=concurrency, seed=seed, confidence=confidence)
    document: dict[str, Any] = {
        "benchmark": suite.name,
        "tasks": len(questions.tasks),
        "verifiers": dict(questions.counts),
        "unjudged": questions.unjudged,
        "sha256": suite.sha256,
    }
    if test is not None:
        document["selftest"] = test.to_dict()
    if shape == "json":
        _write_json(document)
    else:
        from calipers.analyses.selftest import document as document_of
        from calipers.reports.figures import counted

        verifiers = [f"{name} {count:,}" for name, count in questions.counts.items()]
        verifiers += [f"no verifier {questions.unjudged:,}"] if questions.unjudged else []
        tasks = counted(len(questions.tasks), "task")
        write(f"{clean(suite.name)}: {tasks}, verified by {clean(', '.join(verifiers), None)}\n")
        if test is not None:
            write("\n" + rendered(document_of(test), shape))
    print_notes([*suite.opening, *suite.notes, *(test.notes if test else ())])
    if test is not None and not test.clean:
        ctx.exit(FAULT)


def _write_json(document: Mapping[str, Any]) -> None:
    write(safe_json(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"))


def _seeds(text: str | None) -> dict[str, Any]:
    from calipers.running.settings import load_seeds

    return {} if text is None else {"seeds": load_seeds("--load-seeds", text)}


def _checked_numbers(limit: int | None, concurrency: int, confidence: float) -> None:
    if limit is not None and limit < 1:
        raise InputError.at("--limit", f"is {limit}", "expected an integer >= 1")
    if concurrency < 1:
        raise InputError.at("--concurrency", f"is {concurrency}", "expected an integer >= 1")
    if not 0 < confidence < 1:
        raise InputError.at("--confidence", f"is {confidence:g}", "expected a number between 0 and 1, such as 0.95")
