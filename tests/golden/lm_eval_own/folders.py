"""Folders of task files, for tests: of a few words, in the shape of those that lm-evaluation-harness tests with."""

from __future__ import annotations

from pathlib import Path

FIELDS = """\
dataset_path: json
dataset_kwargs: {data_files: {test: data.json}}
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_target: "{{choices[answer]}}"
test_split: test
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""
ACC = "aggregate_metric_list: [{metric: acc, weight_by_size: true}]\n"
INLINE = "dataset_path: json, output_type: multiple_choice, test_split: test"
FILES = {
    "simple_task": f"task: simple_task\nnum_fewshot: 1\nmetadata: {{version: 1.0}}\n{FIELDS}",
    "simple_task_b": f"task: simple_task_b\nnum_fewshot: 0\n{FIELDS}",
    "include_base": f"task: base_task\nnum_fewshot: 0\n{FIELDS}",
    **{
        f"include_task_fs{shots}": f"task: include_task_fs{shots}\ninclude: include_base.yaml\nnum_fewshot: {shots}\n"
        for shots in (0, 1)
    },
    "include_task_fs5": "task: include_task_fs5\ninclude: include_base.yaml\nnum_fewshot: 5\n"
    "metric_list: [{metric: acc}, {metric: acc_norm}]\n",
    "include_group": "group: include_group\ntask: [include_task_fs0, include_task_fs1, include_task_fs5]\n",
    "group_ref_parent": "group: group_ref_parent\ntask: [{group: include_group, num_fewshot: 99}]\n",
    "propagation_group": "group: propagation_group\nnum_fewshot: 42\ntask: [simple_task, simple_task_b]\n",
    "asked_otherwise": "group: asked_otherwise\ntask: [{group: propagation_group, num_fewshot: 0}]\n",
    "mixed_members_group": "group: mixed_members_group\ntask:\n  - simple_task\n"
    "  - {task: simple_task_b, num_fewshot: 7}\n  - group: mixed_inline_sub\n    task: [simple_task]\n"
    f"    {ACC}",
    "inline_subgroup": "group: inline_subgroup_parent\ntask:\n"
    + "".join(
        f"  - group: subgroup_{letter}\n    task: [{task}]\n    {ACC}"
        for letter, task in (("a", "simple_task"), ("b", "simple_task_b"))
    )
    + ACC,
    "group": "group: test_group\ntask:\n"
    + "".join(f"  - {{task: group_task_fs{shots}, num_fewshot: {shots}, {INLINE}}}\n" for shots in (0, 2)),
    **{f"tag_task_{n}": f"task: tag_task_{n}\ntag: test_tag_tasks\nnum_fewshot: 0\n{FIELDS}" for n in (1, 2, 3)},
    "tag_subgroup": "group: tag_subgroup\ntask: [test_tag_tasks]\n",
    "tag_parent_group": "group: tag_parent_group\ntask: [tag_subgroup]\n",
    "empty_group": f"group: empty_group\n{ACC}",
}
LIBRARY = {
    **{name: f"task: {name}\ntag: ai2_arc\nnum_fewshot: 0\n{FIELDS}" for name in ("arc_easy", "arc_challenge")},
    "hellaswag": f"task: hellaswag\n{FIELDS}",
}
"""Stands for the tasks that come with lm-evaluation-harness."""


def folder(root: Path, files: dict[str, str]) -> Path:
    """These files, ``.yaml`` added where a name has no suffix; those below other folders as well."""
    for name, text in files.items():
        path = root / (name if "." in name else f"{name}.yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root
