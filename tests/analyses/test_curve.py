import struct
from functools import cache
from xml.etree import ElementTree

import numpy as np
import pytest
from making import rollouts

from calipers.analyses.curve import MOST_PANELS, curve, kind_of, picture
from calipers.errors import InputError

SVG = "{http://www.w3.org/2000/svg}"


def texts(drawn):
    tree = ElementTree.fromstring(drawn)
    assert tree.tag == f"{SVG}svg"
    return ["".join(found.itertext()).strip() for found in tree.iter(f"{SVG}text")]


def table(models=("m",), samples=4, tasks=5):
    return rollouts(
        *(
            {"task": f"t{t}", "sample": s, "reward": float((t + s) % 3 == 0), "model": m, "answer": (t + s) % 3}
            for m in models
            for t in range(tasks)
            for s in range(samples)
        ),
        labels=("answer",),
    )


@cache
def drawn_once(kind="svg"):
    """The picture of the plain table."""
    return picture(curve(table()), kind)


def test_the_picture_says_what_it_shows():
    said = texts(drawn_once())
    for word in ("m", "5 tasks, 4 samples each", "pass@k", "pass^k", "maj@k", "k, samples"):
        assert word in said
    assert "bands: 95 % over tasks, for each k on its own" in said
    assert "max@k" not in said  # it lies on pass@k where rewards are 0 and 1


def test_beyond_the_samples_lines_are_dashed_and_that_is_said():
    seen = [[1] * c + [0] * (4 - c) for c in range(5) for _ in range(8)]
    drawn = picture(curve(seen, upto=64))
    assumed = "dashed: beyond the samples, assuming that pass probabilities follow a beta distribution"
    assert any(assumed in text for text in texts(drawn))
    assert b"stroke-dasharray" in drawn
    assert b"stroke-dasharray" not in picture(curve(seen))
    assert "64" in texts(drawn)


def test_a_refused_extrapolation_is_not_drawn_and_that_is_said():
    drawn = picture(curve(table(), upto=64))
    assert any("no value beyond the samples" in text for text in texts(drawn))
    assert b"stroke-dasharray" not in drawn
    assert "64" not in texts(drawn)


def test_the_same_curves_give_the_same_bytes():
    assert picture(curve(table())) == drawn_once()
    assert picture(curve(table()), "png") == drawn_once("png")
    assert b"<dc:date>" not in drawn_once()


def test_a_png_is_a_png_of_a_useful_size():
    drawn = drawn_once("png")
    assert drawn.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", drawn[16:24])
    assert width >= 600
    assert height >= 400


def test_each_group_has_a_panel():
    said = texts(picture(curve(table(("one", "two", "three", "four")))))
    assert [name for name in said if name in ("one", "two", "three", "four")] == ["four", "one", "three", "two"]


def test_names_are_text_whatever_they_hold():
    said = texts(picture(curve(table(("$x^2$ <b>&\x1b[31m",)))))
    assert any("$x^2$ <b>&" in text for text in said)  # no formula, no markup
    assert not any("\x1b" in text for text in said)


@pytest.mark.parametrize("rewards", [[[1]], [[1], [0]], [[-3, 5], [2, 9]], [[1, 1], [1, 1]]])
def test_odd_shapes_can_be_drawn(rewards):
    assert "pass@k" in texts(picture(curve(rewards, threshold=1)))


def test_rewards_above_one_need_a_threshold():
    with pytest.raises(InputError, match=r"pass@k: rewards reach 5; say what passes, such as --threshold 4"):
        curve([[1, 5], [2, 3]])
    assert curve([[1, 5], [2, 3]], threshold=4)["pass@k"].points[1].value == 0.5
    assert curve([[-1, 1 + 1e-12], [0, 0]])["pass@k"].points[1].value == 0.5  # a rounded 1


def test_too_many_panels_are_refused():
    many = curve(table([f"m{n:02}" for n in range(MOST_PANELS + 1)], samples=1, tasks=1))
    with pytest.raises(InputError, match=r"--plot: there are 25 groups, too many for a picture; expected 24 or fewer"):
        picture(many)


@pytest.mark.parametrize(("name", "kind"), [("a.svg", "svg"), ("b/c.PNG", "png")])
def test_the_name_says_the_kind(name, kind):
    assert kind_of(name) == kind


@pytest.mark.parametrize("name", ["a.pdf", "svg", "a.svg.gz", ""])
def test_other_kinds_are_refused(name):
    with pytest.raises(InputError, match=r"expected a name that ends in \.svg or \.png"):
        kind_of(name)


@pytest.mark.parametrize(
    ("models", "headings"),
    [
        (("a" * 46, "b"), ["a" * 46, "b"]),
        # models of one family differ at the end of their names: cut there, panels could not be told apart
        (("m" * 60 + "-a", "m" * 60 + "-b"), ["m" * 22 + "…" + "m" * 21 + "-a", "m" * 22 + "…" + "m" * 21 + "-b"]),
        (("x" * 40 + "1" + "y" * 40, "x" * 40 + "2" + "y" * 40), [f"{n}: {'x' * 20}…{'y' * 21}" for n in (1, 2)]),
        (("中" * 40, "b"), ["b", "中" * 11 + "…" + "中" * 11]),  # signs of two columns each
    ],
)
@pytest.mark.filterwarnings("error")  # a font without Chinese is no matter for a warning
def test_headings_fit_and_tell_panels_apart(models, headings):
    curves = curve(table(models))
    said = texts(picture(curves))
    assert [text for text in said if text in headings] == headings
    assert picture(curves, "png")


@pytest.mark.parametrize("reward", [1e300, 1.7e308])  # the square overflows; the sum of the tasks, too
def test_rewards_too_large_for_their_spread_have_no_band(reward):
    rows = [{"task": f"t{t}", "sample": s, "reward": reward * ((t + s) % 3 > 0)} for t in range(9) for s in range(2)]
    curves = curve(rollouts(*rows), threshold=1)
    point = curves["max@k"].points[0]
    assert (point.stderr, point.interval) == (None, None)
    assert point.why == "the values are too large for their spread to be a number"
    assert curves["pass@k"].points[0].interval is not None
    assert curves.digest.startswith("sha256:")  # no number in it is infinite


def test_the_headline_has_no_value_beyond_the_samples():
    """Such a value holds only if chances follow the fitted law, which a headline has no room to say."""
    rng = np.random.default_rng(0)
    curves = curve((rng.random((60, 8)) < rng.beta(0.5, 0.7, 60)[:, None]).astype(float).tolist(), upto=64)
    assert curves["pass@k"].points[-1].value is not None
    assert " and a pass@8 of " in curves.headline()
    assert "pass@64" not in f"{curves.headline()}{curves.glance().sentence}"
