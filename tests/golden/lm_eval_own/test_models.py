"""What a task's settings mean for a model: how long an answer may be, how it is drawn, how much the model reads."""

from __future__ import annotations

import json
from types import SimpleNamespace

from golden.lm_eval_own.ported import ported
from systems.lm_eval.tasks.given import TASK, task_folder

from calipers.clients.huggingface.checkpoint import DEFAULT_LENGTH, _longest
from calipers.systems.lm_eval.benchmarks import TaskRequest, settings

FILE = "models/test_model_utils.py"
GEN = "TestNormalizeGenKwargs::test_"
LENGTHS = {"max_gen_toks": 100, "max_new_tokens": 200, "max_tokens": 300, "max_completion_tokens": 400}


def lengths(*names):
    return {name: LENGTHS[name] for name in names}


@ported(
    FILE,
    "given, expected",
    {
        f"{GEN}until_string_converted_to_list": [({"until": "stop"}, {"stop": ("stop",)})],
        f"{GEN}until_list_passed_through": [({"until": ["stop1", "stop2"]}, {"stop": ("stop1", "stop2")})],
        f"{GEN}max_gen_toks_used_directly": [({"max_gen_toks": 100}, {"max_tokens": 100})],
        f"{GEN}max_new_tokens_converted": [({"max_new_tokens": 150}, {"max_tokens": 150, "gen_kwargs": {}})],
        f"{GEN}max_tokens_converted": [({"max_tokens": 200}, {"max_tokens": 200, "gen_kwargs": {}})],
        f"{GEN}max_completion_tokens_converted": [
            ({"max_completion_tokens": 250}, {"max_tokens": 250, "gen_kwargs": {}})
        ],
        f"{GEN}default_max_gen_toks_when_none_provided": [({}, {"max_tokens": 256})],
        f"{GEN}max_token_priority_max_gen_toks_first": [
            (lengths("max_gen_toks", "max_new_tokens", "max_tokens"), {"max_tokens": 100, "gen_kwargs": {}})
        ],
        f"{GEN}max_token_priority_max_new_tokens_second": [
            (lengths("max_new_tokens", "max_tokens", "max_completion_tokens"), {"max_tokens": 200, "gen_kwargs": {}})
        ],
        f"{GEN}max_token_priority_max_tokens_third": [
            (lengths("max_tokens", "max_completion_tokens"), {"max_tokens": 300, "gen_kwargs": {}})
        ],
        f"{GEN}do_sample_none_temperature_zero_sets_do_sample_false": [({"temperature": 0.0}, {"temperature": 0.0})],
        f"{GEN}do_sample_none_temperature_positive_sets_do_sample_true": [({"temperature": 0.7}, {"temperature": 0.7})],
        f"{GEN}do_sample_false_sets_temperature_zero": [({"do_sample": False}, {"temperature": 0.0})],
        f"{GEN}do_sample_false_temperature_positive_forces_temperature_zero": [
            ({"do_sample": False, "temperature": 0.8}, {"temperature": 0.0})
        ],
        f"{GEN}do_sample_true_temperature_positive_preserved": [
            ({"do_sample": True, "temperature": 0.9}, {"temperature": 0.9})
        ],
        f"{GEN}do_sample_true_temperature_zero_preserved": [
            ({"do_sample": True, "temperature": 0.0}, {"temperature": 0.0})
        ],
        f"{GEN}extra_kwargs_passed_through": [
            (
                {"top_p": 0.95, "top_k": 50, "repetition_penalty": 1.1},
                {"gen_kwargs": {"top_p": 0.95, "top_k": 50, "repetition_penalty": 1.1}},
            )
        ],
    },
)
def test_generation_settings(tmp_path, given, expected):
    path = task_folder(tmp_path, f"{TASK}generation_kwargs: {json.dumps(given)}\n")
    [found] = settings(str(path), TaskRequest())
    assert {key: found[key] for key in expected} == expected


READS = "TestResolveMaxLength::test_"
UNSET = int(1e30)  # what a tokenizer says that knows no limit


def holder(**values):
    return SimpleNamespace(**values)


TEXT = holder(text_config=holder(max_position_embeddings=32768))


@ported(
    "models/test_max_length.py",
    "config, tokenizer, expected",
    {
        f"{READS}reads_nested_text_config": [
            (holder(text_config=holder(max_position_embeddings=131072)), UNSET, 131072)
        ],
        f"{READS}reads_top_level_config": [(holder(max_position_embeddings=4096), 2048, 4096)],
        f"{READS}nested_text_config_wins_over_top_level": [
            (holder(max_position_embeddings=1200, text_config=TEXT.text_config), UNSET, 32768)
        ],
        f"{READS}config_wins_over_smaller_tokenizer": [(TEXT, 4096, 32768)],
        f"{READS}attr_precedence": [(holder(n_positions=1024, max_position_embeddings=2048, n_ctx=512), UNSET, 1024)],
        f"{READS}skips_attrs_set_to_none": [(holder(n_positions=None, max_position_embeddings=4096), UNSET, 4096)],
        f"{READS}coerces_to_int": [(holder(max_position_embeddings=1200.0), UNSET, 1200)],
        f"{READS}falls_back_to_tokenizer": [(holder(), 8192, 8192)],
        f"{READS}ignores_tokenizer_infinity": [(holder(), UNSET, 2048)],
        f"{READS}falls_back_to_default": [(holder(), None, 2048)],
        "TestHFLMMaxLength::test_nested_text_config": [(TEXT, UNSET, 32768)],
        "TestHFLMMaxLength::test_top_level_config": [(holder(max_position_embeddings=4096), UNSET, 4096)],
    },
)
def test_how_many_tokens_a_model_reads(config, tokenizer, expected):
    found = _longest(holder(config=config), holder(model_max_length=tokenizer))
    assert (type(found), found) == (int, expected)
    assert DEFAULT_LENGTH == 2048
