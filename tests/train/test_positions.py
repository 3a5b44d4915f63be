"""A scheme whose positions aren't the model's is refused before anything is trained."""

import pytest

from configs import text
from configs.default import default, model
from mimetic_jax import InputError
from mimetic_jax.schemes import Layers, NormMatched, PositionalHeads
from mimetic_jax.train.comparison import Comparison

GRID = PositionalHeads(100, offsets=((0, 8),), axes=2)


def comparison(scheme, task="text", **fields):
    config = text.get_config("word", width=32, depth=2, heads=2, length=64, init=("default",))
    config.data.name = "ptb_word"
    if task == "images":
        config = default()
        config.update(steps=4)
        config.data.name = "cifar10"
        config.model = model("vit", width=32, depth=2, heads=2, patch=4, rotary=100.0)
    config.model.update(fields)
    config.arms = {"heads": {"scheme": (scheme,)}}
    return Comparison(config, say=lambda _: None)


def test_the_constants_of_the_model_pass():
    comparison(PositionalHeads(10_000, offsets=(0, 63)))
    comparison(PositionalHeads(500), rotary_base=500.0)


@pytest.mark.parametrize(
    ("scheme", "fields", "message"),
    [
        (PositionalHeads(500), {}, r"turns by Rotary\(base=10000.0.* scheme by Rotary\(base=500.0"),
        (PositionalHeads(10_000, pairs="neighbors"), {}, "pairs='neighbors'"),
        (NormMatched(PositionalHeads(500)), {}, "base=500.0"),
        (Layers(PositionalHeads(10_000, offsets=(64,))), {}, "offset 64 is beyond the 64 tokens"),
        (PositionalHeads(10_000), {"positions": "sinusoidal"}, "which model gpt doesn't have"),
        (GRID, {"task": "images"}, "offset 8 is beyond the 8 tokens"),
    ],
)
def test_others_are_refused(scheme, fields, message):
    with pytest.raises(InputError, match=message):
        comparison(scheme, **fields)
