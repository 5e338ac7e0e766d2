"""Every test of lm-evaluation-harness' own: ported as cases of ours, or not, and why.

``theirs.json`` lists them as a checkout has them (``scripts/lm_eval_own.py --names``). A name below stands for one
test, for those of a class, or for those of a file; of several that fit, the longest counts. What is ported needs no
reason.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

THEIRS: Final = json.loads(Path(__file__).with_name("theirs.json").read_text(encoding="utf-8"))
TESTS: Final = [f"{file}::{test}" for file, tests in THEIRS["tests"].items() for test in tests]

GROUP, COLLECT = "test_group.py::TestGroup", "test_evaluator_utils.py::TestCollectResults"
MANAGER, CLI = "test_task_manager.py::", "test_cli_subcommands.py"
NOT_PORTED: Final[dict[str, tuple[str, ...]]] = {
    "its command line: names of options, parsing, listing, messages": (
        CLI,
        "scripts/test_zeno_visualize.py",
    ),
    "its classes for models and servers: loading, payloads, libraries, checkpoints of the hub": (
        *(f"models/test_{name}.py" for name in ("anthropic_llms", "api", "gguf", "gptqmodel", "hf_steered")),
        *(f"models/test_{name}.py" for name in ("huggingface", "litellm", "onnxruntime_genai", "openvino")),
        *(f"models/test_{name}.py" for name in ("sglang", "vllm", "vllm_context_length", "winml", "max_length")),
        "models/test_bos_handling.py",
        "test_evaluator.py::test_evaluator",
        "test_utils.py::test_remote_tokenizer_custom_cert_and_token",
        "test_utils.py::test_remote_tokenizer_no_cert",
        "test_utils.py::test_remote_tokenizer_http_url",
        "test_utils.py::test_check_remote_tokenizer_support",
        "test_utils.py::test_apply_chat_template",
    ),
    "settings that Calipers does not have: truncation other than on the left, shorter answers for longer prompts, an "
    "end of thinking, null for no bootstrap": (
        "models/test_model_utils.py",
        "models/test_local_chat_completion.py",
        "test_evaluator_utils.py::TestComputeTaskAggregations::test_stderr_with_bootstrap_iters_none",
    ),
    "batches and caches": ("test_utils.py::TestCollator", "test_cache.py"),
    "windows with a longer context, which lm-evaluation-harness does not use": tuple(
        f"test_utils.py::test_get_rolling_token_windows_v{number}" for number in (2, 3, 4)
    ),
    "methods of its objects: containers, registries, enumerations, copies": (
        GROUP,
        "test_group.py::TestGroupSerialization",
        "test_registry.py",
        "test_evaluator_utils.py::TestEvalResults",
        f"{COLLECT}::test_samples_populated",
        f"{COLLECT}::test_groups_stored",
        f"{COLLECT}::test_groups_default_to_empty",
        "test_evaluator_utils.py::TestProcessResults::test_returns_eval_results",
        "test_evaluator_utils.py::TestToEvalResults::test_samples_included_when_provided",
        "test_evaluator_utils.py::TestToEvalResults::test_samples_absent_when_not_provided",
        "test_samplers.py",
        f"{MANAGER}TestKind",
        f"{MANAGER}TestEntry",
        f"{MANAGER}TestGroupBuilding::test_group_metadata_includes_factory_meta",
        "models/test_model_utils.py::TestNormalizeGenKwargs::test_original_dict_not_mutated",
    ),
    "its own task library, which `make parity-lm-eval` runs": (
        f"{MANAGER}TestTaskManagerIntegration",
        "test_tasks.py",
    ),
    "the Python of one task, which Calipers runs unchanged": (
        "test_kormedmcqa.py",
        "test_fewshot_context.py::test_mmlu_pro_fewshot_chat_template_split",
        "test_tasks.py::test_strip_whitespace_in_target_and_metric",
    ),
    "skipped in lm-evaluation-harness, too": ("test_janitor.py", "test_unitxt_tasks.py"),
    "different in Calipers, see docs/dialects.md: seeds of None, a folder as a task, empty settings, an empty group, a "
    "group whose tasks disagree on which direction is better": (
        f"{MANAGER}TestGroupBuilding::test_empty_group_has_no_children",
        f"{CLI}::TestCLIUtils::test_int_or_none_list_with_none",
        f"{CLI}::TestEvaluatorConfigSeedNormalization::test_none_seed_disables_seeding",
        f"{CLI}::TestEvaluatorConfigTaskLoading::test_custom_yaml_directory_resolves_function_refs",
        "test_evaluator_utils.py::TestPropagateHigherIsBetter::test_conflicting_values_log_warning",
        "test_utils.py::TestSimpleParseArgsString::test_none_input",
        "test_utils.py::TestSimpleParseArgsString::test_empty_input",
    ),
}
REASONS: Final = {name: reason for reason, names in NOT_PORTED.items() for name in names}

HEADING: Final = "## lm-evaluation-harness' own tests"
_CASE: Final = re.compile(r"^(?P<test>.+::test_\w+)\.\d+$")


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of their tests."""

    cases: Counter[str]  # of ours, by the test that each is taken from

    def ported(self, file: str) -> int:
        """Tests of a file that have a case of ours."""
        return sum(f"{file}::{test}" in self.cases for test in THEIRS["tests"][file])

    def of(self, file: str) -> int:
        """Cases of ours from a file."""
        return sum(self.cases[f"{file}::{test}"] for test in THEIRS["tests"][file])

    def reasons(self) -> Counter[str]:
        """How many tests are left out, by reason."""
        return Counter(reason(test) or "nobody said why" for test in TESTS if test not in self.cases)


def named(test: str) -> str | None:
    """The name in the table above that stands for a test."""
    fits = [name for name in REASONS if test == name or test.startswith(f"{name}::")]
    return max(fits, key=len, default=None)


def reason(test: str) -> str | None:
    """Why a test is not ported; None where nobody said."""
    name = named(test)
    return None if name is None else REASONS[name]


def counts(ids: Iterable[str]) -> Counts:
    """The counts of cases by their ids; others are passed over."""
    return Counts(Counter(match["test"] for one in ids if (match := _CASE.match(one)) and match["test"] in TESTS))


def line(found: Counts) -> str:
    """All of it in a line."""
    ported = len(found.cases)
    told = "; ".join(f"{count}: {why}" for why, count in found.reasons().most_common())
    return f"{len(TESTS)} tests there, ported {ported} as {found.cases.total()} cases, not ported {told}"


def section(found: Counts) -> str:
    """The part of docs/benchmarks-lm-eval.md."""
    ported, cases = len(found.cases), found.cases.total()
    rows = [
        (f"`{file}`", len(tests), found.ported(file), found.of(file))
        for file, tests in THEIRS["tests"].items()
        if found.ported(file)
    ]
    others = len(THEIRS["tests"]) - len(rows)
    rest = sum(len(tests) for file, tests in THEIRS["tests"].items() if not found.ported(file))
    rows += [(f"{others} other files", rest, 0, 0), ("all", len(TESTS), ported, cases)]
    table = "".join(f"| {name} | {there} | {ours} | {held} |\n" for name, there, ours, held in rows)
    reasons = "".join(f"| {why} | {count} |\n" for why, count in found.reasons().most_common())
    return f"""{HEADING}

Written by `python scripts/lm_eval_own.py --write`. lm-evaluation-harness has {len(TESTS)} tests of its own at commit
`{THEIRS["commit"][:7]}`, version 0.4.13.dev0. If a test asserts a number, an answer, a prompt, a random draw or the
meaning of a task file, its inputs and expected values are test cases of Calipers, in `tests/golden/lm_eval_own`:
**{ported} tests, as {cases} cases**. All of them pass. If a test takes documents or tokenizers from the hub, the
case uses made-up ones of the same form.

| its file | tests | ported | as cases |
|---|---|---|---|
{table}
| why a test is not ported | tests |
|---|---|
{reasons}"""


def with_section(page: str, text: str) -> str:
    """A page with the section in the place of the one before, else at its end."""
    before, heading, after = page.partition(HEADING)
    if not heading:
        return f"{page.rstrip()}\n\n{text}"
    _, next_heading, rest = after.partition("\n## ")
    return before + text + (f"\n## {rest}" if next_heading else "")
