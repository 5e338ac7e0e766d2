"""The simulation of many machines: the worlds in which its answer is known, and the one seed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from simulate_nodes import WRITER, Study, simulate

NEVER = 1e12  # hours


def test_without_failures_nothing_is_wasted_and_the_time_is_the_ideal_one():
    found = simulate(Study(nodes=10, rollouts=100_000, mtbf=NEVER, head=NEVER))
    assert (found.wasted, found.failures, found.heads) == (0, 0, 0)
    assert found.hours == pytest.approx(100_000 / (10 * 64 / 20) / 3600 + 20 / 3600)


def test_one_writer_bounds_a_run_however_many_machines_there_are():
    found = simulate(Study(nodes=10_000, rollouts=1_000_000, mtbf=NEVER, head=NEVER))
    assert found.ideal == pytest.approx(1_000_000 / WRITER / 3600)


def test_calls_made_for_nothing_follow_the_failures():
    often, seldom = (simulate(Study(nodes=100, mtbf=mtbf, head=NEVER)) for mtbf in (2.4, 24.0))
    assert often.failures == pytest.approx(10 * seldom.failures, rel=0.5)
    assert often.wasted == 64 * often.failures  # all of a machine's calls, as long as the writer keeps up
    assert often.hours > seldom.hours > seldom.ideal


def test_a_lost_head_stops_everything_until_somebody_starts_it_again():
    found = simulate(Study(nodes=100, mtbf=NEVER, head=1.0, restart=10.0))
    assert found.heads >= 1
    assert found.wasted == found.heads * 100 * 64
    assert found.hours == pytest.approx(found.ideal + found.heads / 6 + 20 / 3600, rel=1e-6)


def test_the_same_seed_gives_the_same_run():
    assert simulate(Study(nodes=300, seed=1)) == simulate(Study(nodes=300, seed=1))
    assert simulate(Study(nodes=300, seed=1)) != simulate(Study(nodes=300, seed=2))
