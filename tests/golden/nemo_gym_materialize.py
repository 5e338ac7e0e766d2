"""NeMo Gym's materialised inputs: lines and settings in, planned rows out."""

from __future__ import annotations

import warnings

from calipers.systems.nemo_gym.collect.request import Materializing, materialize


def materialized(vector):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # repeats for an agent that no input names are worth a warning
        found = materialize(vector["input_jsonl_lines"], Materializing(**vector["config"]))
    return found, vector["expected_rows"]
