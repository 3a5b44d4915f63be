"""Seeds on a command line."""

import pytest

from mimetic_jax.base.errors import InputError
from mimetic_jax.command.assign import parse_seeds


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("8", (8,)),
        ("(5,)", (5,)),
        ("(3, 1)", (3, 1)),
        ("[0,1]", (0, 1)),
        ("2-4", (2, 3, 4)),
        ("0-2,7", (0, 1, 2, 7)),
        ("range(3)", (0, 1, 2)),
        ("range(2, 4)", (2, 3)),
        ("4294967295", (2**32 - 1,)),
    ],
)
def test_one_form_is_as_good_as_another(text, seeds):
    assert parse_seeds("--seeds", text) == seeds


@pytest.mark.parametrize(
    "text",
    [
        *("", "0..7", "range(a)", "range(0)", "0:8", "all", "x", "1-", "0,,1", "-1"),
        *("3-1", "0,3-1", "4294967296", "0,4294967296"),
    ],
)
def test_another_form_names_the_right_ones(text):
    with pytest.raises(
        InputError, match=r"--seeds=.*: give 0-7, range\(8\) or 0,1,2, .*; 8 is seed 8 alone"
    ):
        parse_seeds("--seeds", text)


def test_a_seed_is_given_once():
    with pytest.raises(InputError, match="--seeds=0,0-1 names a seed twice"):
        parse_seeds("--seeds", "0,0-1")
