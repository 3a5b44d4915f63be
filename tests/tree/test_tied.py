"""An embedding of tokens that a tree holds twice, or under the name of the output layer, is one."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from mimetic_jax import InputError, Rule, plan, rewrite, weights, zoo
from mimetic_jax.command.expressions import parse_rules
from mimetic_jax.models.gpt import RULES
from mimetic_jax.nnx import initialize
from mimetic_jax.schemes import Cooccurrence, PositionalHeads

KEY = jax.random.key(0)
V, D = 40, 16
COUNTS = weights.cooccurrence(np.random.default_rng(0).zipf(1.5, 4000) % V, V)
TABLE = np.random.default_rng(1).standard_normal((V, D)).astype(np.float32)
ATTENTION = {
    f"model.layers.0.self_attn.{name}_proj.weight": TABLE[:D] * (1 + at)
    for at, name in enumerate("qkvo")
}
ATTENTION["model.layers.0.post_attention_layernorm.weight"] = TABLE[0]
ONE = ATTENTION | {"model.embed_tokens.weight": TABLE}
BOTH = ONE | {"lm_head.weight": TABLE.copy()}


def rewritten(params, scheme=None, **options):
    scheme = scheme or Cooccurrence()
    options = {"num_heads": 2, "counts": COUNTS if scheme.uses else None} | options
    return rewrite(KEY, params, scheme, **options)


@pytest.mark.parametrize(
    "others",
    [
        {"lm_head.weight": TABLE.copy()},
        {"lm_head.weight": TABLE},
        {"output.weight": TABLE.copy()},  # a name that no rule has
        {"lm_head.weight": TABLE.copy(), "side.embed_tokens.weight": TABLE.copy()},
        {"lm_head.weight": jnp.asarray(TABLE)},
    ],
)
def test_copies_are_written_alike_and_named(others):
    expected = rewritten(ONE)["model.embed_tokens.weight"]
    new = rewritten(ONE | others)
    for name in ("model.embed_tokens.weight", *others):
        np.testing.assert_array_equal(new[name], expected)
    planned = plan(ONE | others, Cooccurrence(), num_heads=2, counts=COUNTS)
    assert {write.path for write in planned} == {"model.embed_tokens.weight", *others}
    assert planned.notes[0].startswith(f"{', '.join(others)} = model.embed_tokens.weight: one")


@pytest.mark.parametrize("tree", [ONE, BOTH], ids=["one", "both"])
@pytest.mark.parametrize("plus_one", [False, True])
def test_logits_of_a_tied_model_keep_their_size_at_any_scale(tree, plus_one):
    """γ divided by what the rows are multiplied by; some models store γ − 1."""
    gain, scheme = np.linspace(0.5, 2, D, dtype=np.float32), Cooccurrence(std=1.0)
    tree = tree | {"model.norm.weight": gain - plus_one}
    rules = zoo.GEMMA_1 if plus_one else zoo.LLAMA
    new, same = rewritten(tree, scheme, rules=rules), rewritten(tree, rules=rules)
    unit = new["model.embed_tokens.weight"]
    assert np.sqrt(np.mean(np.square(unit))) == pytest.approx(1, rel=1e-5)
    scaled = unit * (new["model.norm.weight"] + plus_one)
    np.testing.assert_allclose(scaled, same["model.embed_tokens.weight"] * gain, rtol=1e-4)


def test_the_norm_before_an_output_layer_of_its_own_stays():
    gain = np.ones(D, np.float32)
    untied = ONE | {"lm_head.weight": TABLE[::-1].copy(), "model.norm.weight": gain}
    new = rewritten(untied, Cooccurrence(std=1.0))
    np.testing.assert_array_equal(new["model.norm.weight"], gain)
    np.testing.assert_array_equal(new["lm_head.weight"], TABLE[::-1])


def test_a_gain_of_zeros_is_not_scaled():
    """Gemma's, whose names are Llama's: it would stay as it is, and logits grow sixteenfold."""
    with pytest.raises(InputError, match=r"all zeros\. If the model adds 1 to it"):
        rewritten(ONE | {"model.norm.weight": np.zeros(D, np.float32)}, Cooccurrence(std=1.0))


def test_a_constant_channel_stays_in_both():
    """Of an untied model it goes out of the output layer."""
    scheme = PositionalHeads(10_000, channel=0)
    layer, random = "model.layers.0.mlp", np.random.default_rng(2)
    mlp = {f"{layer}.{n}_proj.weight": random.normal(size=(24, D)) for n in ("gate", "up")}
    mlp[f"{layer}.down_proj.weight"] = random.normal(size=(D, 24))
    new, alone = (rewritten(tree | mlp, scheme) for tree in (BOTH, ONE))
    assert new["lm_head.weight"][:, 0].all()
    for name, array in alone.items():
        np.testing.assert_array_equal(new[name], array)
    np.testing.assert_array_equal(new["lm_head.weight"], new["model.embed_tokens.weight"])


def test_what_a_configuration_has_untied_stays_two():
    rules = tuple(
        dataclasses.replace(rule, untied=True) if rule.role == "embedding" else rule
        for rule in zoo.LLAMA
    )
    new = rewritten(BOTH, rules=rules)
    np.testing.assert_array_equal(new["lm_head.weight"], TABLE)
    assert not np.array_equal(new["model.embed_tokens.weight"], TABLE)
    planned = plan(BOTH, Cooccurrence(), rules=rules, num_heads=2, counts=COUNTS)
    assert "two tensors, by tie_word_embeddings=false" in planned.notes[0]


@pytest.mark.parametrize(
    "other", [2 * TABLE, np.concatenate([TABLE[:-1], TABLE[:1]]), TABLE[:, ::-1]]
)
def test_other_numbers_are_another_tensor(other):
    new = rewritten(ONE | {"lm_head.weight": other.copy()})
    np.testing.assert_array_equal(new["lm_head.weight"], other)
    blank = {name: np.zeros_like(array) for name, array in BOTH.items()}
    shapes = jax.eval_shape(lambda: BOTH)
    for tree in (blank, shapes):
        assert len(plan(tree, Cooccurrence(), num_heads=2, counts=COUNTS)) == 1


def test_an_output_layer_alone_is_the_embedding():
    """So `save_model` of safetensors stores a tied model."""
    alone = ATTENTION | {"lm_head.weight": TABLE}
    new = rewritten(alone)["lm_head.weight"]
    law = rewritten(ONE)["model.embed_tokens.weight"]
    np.testing.assert_allclose(new @ new.T, law @ law.T, atol=1e-4)
    planned = plan(alone, Cooccurrence(), num_heads=2, counts=COUNTS)
    assert planned.notes[0].startswith("lm_head.weight is the embedding of a tied model")
    unnamed = alone | {"words": 2 * TABLE}
    with pytest.raises(InputError, match="Cooccurrence matches nothing"):
        rewritten(unnamed)


@pytest.mark.parametrize("table", [(V, 8), (V + 24, D), None], ids=["narrow", "padded", "none"])
def test_an_output_layer_of_a_common_name_is_the_embedding_if_the_user_says_so(table):
    """Another leaf may embed the tokens: that of a factorized embedding, or one with padding."""
    random = np.random.default_rng(3)
    params = {
        "lm_head": {"kernel": TABLE.T.copy()},
        "proj_in": {"kernel": random.normal(size=(8, D))},
    }
    params |= {"tok": {"table": random.normal(size=table)}} if table else {}
    with pytest.raises(InputError, match="Cooccurrence matches nothing") as refused:
        rewrite(KEY, params, Cooccurrence(), counts=COUNTS)
    calls = re.findall(r"rules=(.+?)(?=; or| if|, where)", str(refused.value))
    assert calls[0] == ('embedding_rules("tok/table")' if table else "embedding_rules(…)")
    new = rewrite(KEY, params, Cooccurrence(), counts=COUNTS, rules=parse_rules(calls[-1]))
    rows, law = new["lm_head"]["kernel"].T, rewritten(ONE)["model.embed_tokens.weight"]
    np.testing.assert_allclose(rows @ rows.T, law @ law.T, atol=1e-4)
    if table == (V, 8):
        new = rewrite(KEY, params, Cooccurrence(), counts=COUNTS, rules=parse_rules(calls[0]))
        assert not np.array_equal(new["tok"]["table"], params["tok"]["table"])
        np.testing.assert_array_equal(new["lm_head"]["kernel"], params["lm_head"]["kernel"])


def test_trees_of_flax():
    """The output layer is stored the other way round there."""

    class Model(nnx.Module):
        def __init__(self):
            self.embed = nnx.Embed(V, D, rngs=nnx.Rngs(0))
            self.lm_head = nnx.Linear(D, V, use_bias=False, rngs=nnx.Rngs(1))
            self.lm_head.kernel[...] = self.embed.embedding[...].T

    model = Model()
    written = initialize(model, KEY, Cooccurrence(), counts=COUNTS)
    assert [(x.path, x.layout) for x in written][1] == ("lm_head/kernel", "d t")
    table, kernel = model.embed.embedding[...], model.lm_head.kernel[...]
    np.testing.assert_array_equal(table, kernel.T)
    params = {"embed": {"embedding": TABLE}, "lm_head": {"kernel": TABLE.T.copy()}}
    new = rewrite(KEY, params, Cooccurrence(), counts=COUNTS)
    np.testing.assert_array_equal(new["embed"]["embedding"], new["lm_head"]["kernel"].T)
    rules = (Rule("embed/embedding", "embedding", "t d", form=True),)
    new = rewrite(KEY, params, Cooccurrence(), counts=COUNTS, rules=rules)
    np.testing.assert_array_equal(new["embed"]["embedding"], new["lm_head"]["kernel"].T)


def test_inside_of_a_program_one_array_is_one():
    def made(key):
        table = jnp.asarray(TABLE)
        params = {"wte": {"embedding": table}, "lm_head": table}
        return rewrite(key, params, Cooccurrence(), counts=COUNTS)

    new = jax.jit(made)(KEY)
    np.testing.assert_array_equal(new["wte"]["embedding"], new["lm_head"])


GAIN = np.linspace(0.5, 2, D, dtype=np.float32)


@pytest.mark.parametrize(
    ("params", "options"),
    [
        ({"embed": {"embedding": TABLE}, "lm_head": {"kernel": TABLE.T.copy()}}, {}),
        ({"embed": {"embedding": TABLE}, "readout": {"kernel": TABLE.T.copy()}}, {}),
        (BOTH | {"model.norm.weight": GAIN}, {"num_heads": 2}),
        ({f"model.{name}": leaf for name, leaf in BOTH.items()}, {"num_heads": 2}),
        ({"embedding": TABLE, "unembedding": TABLE.copy()}, {"rules": RULES}),
    ],
)
def test_a_program_hides_whether_an_output_layer_is_a_copy(params, options):
    """Told that it is, the draw is that of the values; told that it isn't, the layer stays."""
    options, scheme = options | {"counts": COUNTS}, Cooccurrence()

    def inside(**more):
        return jax.jit(lambda params: rewrite(KEY, params, scheme, **options | more))(params)

    with pytest.raises(InputError, match="may be a copy of") as error:
        inside()
    calls = re.fullmatch(r".*pass rules=(.+) if it is; or rules=(.+) if not", str(error.value))
    known = {"Rule": Rule, "zoo": zoo, "rules": options.get("rules")}
    tied, untied = (eval(call, known) for call in calls.groups())
    expected = rewrite(KEY, params, scheme, **options)
    for new in (inside(rules=tied), rewrite(KEY, params, scheme, **options | {"rules": tied})):
        for leaf, other in zip(*map(jax.tree.leaves, (new, expected)), strict=True):
            np.testing.assert_allclose(leaf, other, atol=1e-5)
    alone, apart = (
        rewrite(KEY, params, scheme, **options | {"rules": untied}),
        inside(rules=untied),
    )
    kept = [np.array_equal(*x) for x in zip(*map(jax.tree.leaves, (alone, params)), strict=True)]
    assert kept.count(False) == 1
    for leaf, other in zip(*map(jax.tree.leaves, (alone, apart)), strict=True):
        np.testing.assert_allclose(leaf, other, atol=1e-5)
