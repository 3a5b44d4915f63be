"""The table of ranges: what is outside is one line, what is inside passes."""

import doctest
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.default import default
from mimetic_jax.errors import InputError
from mimetic_jax.train import ranges
from mimetic_jax.train.compare import Comparison
from mimetic_jax.train.ranges import RANGES, Range, check_ranges

TEXT = {"data.length", "data.valid"}


def config_of(field, value):
    config = default("text") if field in TEXT else default()
    node, _, name = field.rpartition(".")
    for part in filter(None, node.split(".")):
        config = config[part]
    kind = type(config[name])
    whole = default("text") if field in TEXT else default()
    whole.steps = 10
    whole.update_from_flattened_dict({field: kind(value)})
    return whole


def test_doctests():
    assert not doctest.testmod(ranges).failed


def test_every_field_is_one():
    for field in RANGES:
        assert config_of(field, 1)


@given(st.sampled_from(sorted(RANGES)), st.data())
def test_what_is_outside_is_one_line_and_what_is_inside_passes(field, data):
    allowed = RANGES[field]
    low, high = allowed.low, min(allowed.high, 10**15)
    if field not in _FLOATS:
        inside = data.draw(st.integers(math.ceil(low) + allowed.above, int(high) - allowed.below))
        outside = data.draw(st.integers(-(10**9), math.ceil(low) - 1 + allowed.above))
    else:
        inside = data.draw(
            st.floats(low, high, exclude_min=allowed.above, exclude_max=allowed.below)
        )
        outside = data.draw(st.floats(-1e9, low, exclude_max=not allowed.above))
    check_ranges(config_of(field, inside))
    with pytest.raises(InputError, match=field) as caught:
        check_ranges(config_of(field, outside))
    assert str(allowed) in str(caught.value)
    if allowed.high < math.inf:
        with pytest.raises(InputError, match=field):
            check_ranges(config_of(field, math.nextafter(allowed.high * 2 + 1, math.inf)))


_FLOATS = {
    *("data.augment.color_jitter", "data.augment.erase", "data.eval_fraction", "data.mix.prob"),
    *("data.mix.switch", "data.subset", "ema", "label_smoothing", "model.dropout"),
    *("model.mlp_ratio", "model.token_std", "stall_seconds"),
}


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("batch", 0, "batch 0 is not at least 1"),
        ("steps", 10**13, "steps 10,000,000,000,000 is not at least 0 and at most 2,147,483,647"),
        ("optimizer.learning_rate", -0.1, "optimizer.learning_rate -0.1 is not at least 0"),
        ("ema", 1.0, "ema 1.0 is not at least 0 and below 1"),
        ("keep_checkpoints", 1, "keep_checkpoints 1 is not at least 2"),
        (
            "optimizer.betas",
            (),
            r"optimizer.betas \(\) are not two numbers, at least 0 and below 1",
        ),
        ("optimizer.betas", (2.0, 0.9), r"optimizer.betas \(2.0, 0.9\) are not"),
        ("optimizer.decay_rules", (("a(", 1.0),), r"'a\(' is not a regular expression: missing"),
        ("optimizer.rate_rules", (("a",),), r"\('a',\) is not \(regular expression, factor of"),
        ("optimizer.rate_rules", (1,), r"rate_rules: 1 is not \(regular expression, factor\)"),
        ("optimizer.rate_rules", ((2, 1.0),), r"\(2, 1.0\) does not begin with a regular"),
        ("optimizer.betas", ("0.9", 0.999), r"optimizer.betas \('0.9', 0.999\) are not two"),
        ("optimizer.skip_nonfinite", 3 * 10**9, "optimizer.skip_nonfinite 3,000,000,000 is not"),
        ("stall_seconds", 1e11, "stall_seconds 100,000,000,000.0 is not at least 0 and at most"),
        ("data.mean", ("a",), r"data.mean \('a',\) are not numbers, one per channel"),
        ("data.std", (0.0,), r"data.std \(0.0,\) are not numbers, above 0, one per channel"),
        ("mesh.rules", (("(a", "fsdp"),), r"mesh.rules: '\(a' is not a regular expression"),
        ("mesh.rules", (("kernel",),), r"mesh.rules: \('kernel',\) is not \(regular"),
        ("mesh.rules", ("kernel", "fsdp"), r"mesh.rules: 'kernel' is not \(regular expression"),
        ("mesh.rules", (("k", ("fsdp", "model")),), r"\('k', \('fsdp', 'model'\)\) is not"),
        ("rules", (("a", "query"),), r"rule \('a', 'query'\) is none of \(path, role, layout"),
        ("optimizer.rate_rules", (("a", -1.0),), r"\('a', -1.0\) is not"),
        ("name", "", "name is empty"),
    ],
)
def test_a_comparison_refuses_it_before_data_are_read(field, value, words):
    config = default()
    config.data.name = "a set that there isn't"
    config.update_from_flattened_dict({field: value})
    with pytest.raises(InputError, match=words):
        Comparison(config, say=lambda line: None)


def test_ends_that_are_left_out():
    assert 0 not in Range(0, 1, above=True)
    assert 1 in Range(0, 1, above=True)
    assert 1 not in Range(0, 1, below=True)
