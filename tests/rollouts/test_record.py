import pytest

from calipers.rollouts.record import Stop, without_sentences


@pytest.mark.parametrize(
    ("side", "words"),
    [
        ("lower", "is too high on average"),
        ("upper", "is too low on average"),
        ("width", "at most slightly biased"),
        ("", "the rule that stopped the run is not known"),
    ],
)
def test_the_bias_is_told_with_its_direction(side, words):
    assert words in Stop("rule", "pass@1", side).bias


def test_a_stop_is_told_with_how_far_the_run_came():
    stop = Stop("lower(pass@1) > 0.6", "pass@1", "lower", 1200, 5000)
    assert stop.sentence == (
        "--until 'lower(pass@1) > 0.6' stopped the run after 1,200 of 5,000 tasks; "
        "its intervals (beta_mixture) are valid at any stopping time"
    )
    assert stop.notes == (stop.sentence, stop.bias)
    assert Stop().fact == "a stopping rule ended the run early"
    later = Stop("lower(pass@1) > 0.6", "pass@1", "lower", 1200, 5000, continued=True)
    assert later.fact.endswith("tasks, and a later start did not complete the plan")


def test_notes_that_stand_elsewhere_are_left_out_whatever_file_they_name():
    assert without_sentences(["run: said", "run: not said yet", "other"], ["said"]) == ["run: not said yet", "other"]
    assert without_sentences(["one"], []) == ["one"]
