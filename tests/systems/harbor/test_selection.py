import pytest

from calipers.errors import InputError
from calipers.systems.harbor.dataset import select

NAMES = ["apple-1", "apple-2", "beet-1", "beet-2"]


@pytest.mark.parametrize(
    ("include", "exclude", "first", "expected"),
    [
        ([], [], None, NAMES),
        (["apple-*", "*-2"], ["apple-2"], 2, ["apple-1", "beet-2"]),
        (["*"], [], 0, []),
        (["beet-[1]"], [], None, ["beet-1"]),
        (["*"], ["*"], None, []),  # only what is asked for has to match
        ([], ["nothing-*"], 1, ["apple-1"]),
        (["*-2", "apple-2"], [], None, ["apple-2", "beet-2"]),  # in the order of the dataset, each once
    ],
)
def test_which_tasks(include, exclude, first, expected):
    assert select(NAMES, include, exclude, first) == expected


@pytest.mark.parametrize(
    ("names", "patterns", "said"),
    [
        (["o/apple", "o/beet"], ["apple"], "names here start with an organisation, as in 'o/apple'"),
        (NAMES, ["aple-1"], "no task matches 'aple-1'; did you mean 'apple-1'?"),
        (NAMES, ["APPLE-1x*", "zz"], "no task matches 'APPLE-1x*' or 'zz'; "),
        ([], ["a"], "no task matches 'a'; there are none"),
    ],
)
def test_nothing_matches(names, patterns, said):
    with pytest.raises(InputError) as error:
        select(names, patterns)
    assert said in str(error.value)
