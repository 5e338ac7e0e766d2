"""The pictures of the docs; ``CALIPERS_PICTURES=1 make test-browser ARGS=tests/browser/test_pictures.py`` makes them.

Without that variable nothing is written: a run of the tests leaves the tree as it is.
"""

import os
import shutil
from importlib.resources import files
from pathlib import Path

import pytest

IMAGES = Path(__file__).parents[2] / "docs" / "images"
LARGEST = 150_000  # bytes
PICTURES = {
    "report-run.png": ("run", "light", 1000),
    "report-compare.png": ("pair", "dark", 860),
    "report-leaderboard.png": ("board", "light", 820),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_small(name, opened, reports, tmp_path):
    kind, scheme, height = PICTURES[name]
    page = opened(reports[kind], color_scheme=scheme, viewport={"width": 1152, "height": height})
    folder = IMAGES if os.environ.get("CALIPERS_PICTURES") else tmp_path
    folder.mkdir(exist_ok=True)
    page.screenshot(path=folder / name)
    assert 10_000 < (folder / name).stat().st_size < LARGEST


def test_the_picture_of_the_viewer_is_small(viewing, tmp_path):
    for file in ("arith.jsonl", "arith_next.jsonl"):
        shutil.copy(str(files("calipers") / "examples" / file), tmp_path / file)
    page = viewing(".").open(color_scheme="dark", viewport={"width": 1280, "height": 800})
    page.get_by_role("row", name="tiny-calculator").get_by_role("link").click()
    page.locator(".row-line", has_text="refused").first.click()
    page.locator("#detail h2").wait_for()
    page.locator(".number").wait_for()
    folder = IMAGES if os.environ.get("CALIPERS_PICTURES") else tmp_path
    page.screenshot(path=folder / "viewer-run.png")
    assert 10_000 < (folder / "viewer-run.png").stat().st_size < LARGEST
