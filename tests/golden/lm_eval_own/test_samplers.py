"""Which examples are drawn: at random by a seed, or the first, and never the document itself."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from golden.lm_eval_own.ported import ported
from systems.lm_eval.tasks.given import config, task

from calipers.errors import InputError, UnknownName
from calipers.systems.lm_eval.tasks.loaded import Sampler

DOCS = [
    {"id": place, "q": word, "a": "x"} for place, word in enumerate(["first", "second", "third", "fourth", "fifth"])
]
MANY = [{"id": place, "q": f"doc_{place}", "a": "x"} for place in range(100)]
OTHER = {"id": -1, "q": "other", "a": "x"}
AT_RANDOM = "TestContextSampler::test_"
FIRST = "TestFirstNSampler::test_"
REMOVED = "TestRmEvalDoc::test_"


def drawn(pool, count, seed, *, sampler="default", doc=None):
    """The numbers of the examples; with a document, they come from the split that it is in."""
    split = "test" if doc is not None else "train"
    made = task(pool, pool, fewshot_split=split, fewshot_config={"sampler": sampler}, num_fewshot=1)
    return [
        one["id"] for one in Sampler(replace(made, seeds=(0, 0, 0, seed))).draw(OTHER if doc is None else doc, count)
    ]


def lots(seed, pool, count):
    return [one["id"] for one in random.Random(seed).sample(pool, count)]


@ported(
    "test_samplers.py",
    "pool, count, seed",
    {
        f"{AT_RANDOM}sample_returns_exactly_n_documents": [(DOCS, count, 42) for count in range(1, 6)],
        f"{AT_RANDOM}sample_with_seed_is_reproducible": [(DOCS, 3, 42)],
        f"{AT_RANDOM}sample_zero_returns_empty": [(DOCS, 0, 42)],
        f"{AT_RANDOM}different_seeds_produce_different_samples": [(MANY, 10, 42), (MANY, 10, 999)],
        f"{AT_RANDOM}set_rnd_changes_random_state": [(MANY, 5, 42)],
        "TestSamplerIntegration::test_sampler_from_registry": [(DOCS, 3, 42)],
    },
)
def test_examples_at_random_are_those_of_the_seed(pool, count, seed):
    found = drawn(pool, count, seed)
    assert found == lots(seed, pool, count) == drawn(pool, count, seed)
    assert len(set(found)) == count


def test_different_seeds_draw_different_examples():
    assert drawn(MANY, 10, 42) != drawn(MANY, 10, 999)


@ported(
    "test_samplers.py",
    "sampler, doc, count",
    {
        f"{AT_RANDOM}sample_excludes_eval_doc": [("default", 0, 4)],
        f"{AT_RANDOM}sample_all_docs_with_exclusion": [("default", 2, 4)],
    },
)
def test_a_document_is_no_example_of_itself(sampler, doc, count):
    found = drawn(DOCS, count, 42, sampler=sampler, doc=DOCS[doc])
    assert found == [one for one in lots(42, DOCS, count + 1) if one != doc][:count]
    assert len(found) == count
    assert doc not in found


@ported(
    "test_samplers.py",
    "pool, count, doc, expected",
    {
        f"{FIRST}returns_first_n_in_order": [(DOCS, 3, None, [0, 1, 2])],
        f"{FIRST}is_deterministic": [(DOCS, 3, None, [0, 1, 2])],
        f"{FIRST}sample_all": [(DOCS, 5, None, [0, 1, 2, 3, 4])],
        f"{FIRST}excludes_eval_doc_preserving_order": [(DOCS, 3, DOCS[0], [1, 2, 3])],
        f"{REMOVED}removes_matching_doc": [(DOCS[:3], 2, DOCS[1], [0, 2])],
        f"{REMOVED}limits_to_n_results": [(MANY[:10], 3, MANY[5], [0, 1, 2])],
        f"{REMOVED}no_match_returns_all": [(DOCS[:2], 2, OTHER, [0, 1])],
        "TestSamplerIntegration::test_first_n_from_registry": [(DOCS, 2, None, [0, 1])],
    },
)
def test_the_first_examples(pool, count, doc, expected):
    assert {tuple(drawn(pool, count, seed, sampler="first_n", doc=doc)) for seed in (42, 999)} == {tuple(expected)}


@ported(
    "test_samplers.py",
    "pool, count, sampler, said",
    {
        f"{AT_RANDOM}empty_df_raises_on_sample": [([], 1, "default", "1 examples are needed, but there are only 0")],
        f"{FIRST}exceeding_available_raises": [(DOCS, 10, "first_n", "10 examples are needed, but there are only 5")],
    },
)
def test_more_examples_than_there_are_is_an_error(pool, count, sampler, said):
    made = task(DOCS, pool, fewshot_split="train", fewshot_config={"sampler": sampler}, num_fewshot=1)
    with pytest.raises(InputError, match=said):
        Sampler(made).draw(OTHER, count)


@ported("test_samplers.py", "count", {f"{AT_RANDOM}sample_negative_raises": [(-5,)]})
def test_fewer_examples_than_none_is_an_error(count):
    with pytest.raises(InputError, match=f"num_fewshot: is {count}; expected an integer >= 0"):
        config(num_fewshot=count)


NAMED = "TestSamplerRegistry::test_"


@ported(
    "test_samplers.py",
    "name",
    {f"{NAMED}registry_contains_default": [("default",)], f"{NAMED}registry_contains_first_n": [("first_n",)]},
)
def test_a_sampler_by_name(name):
    assert config(fewshot_config={"sampler": name}).fewshot_config.sampler == name


@ported(
    "test_samplers.py",
    "name, said",
    {
        f"{NAMED}get_sampler_unknown_raises_keyerror": [
            ("nonexistent_sampler", "no sampler named 'nonexistent_sampler'")
        ],
        f"{NAMED}get_sampler_error_lists_available": [("bad_name", "default")],
    },
)
def test_an_unknown_sampler_is_refused_with_the_known_ones(name, said):
    with pytest.raises(UnknownName, match=said):
        config(fewshot_config={"sampler": name})
