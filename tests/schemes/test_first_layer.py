"""Embeddings from counts through every door, with other schemes, and their controls."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mimetic_jax
from mimetic_jax import (
    InputError,
    Rule,
    embedding_rules,
    initializers,
    plan,
    rewrite,
    weights,
    zoo,
)
from mimetic_jax.models.gpt import GPT
from mimetic_jax.models.gpt import RULES as OF_GPT
from mimetic_jax.models.vit import ViT
from mimetic_jax.schemes import (
    Bigram,
    Cooccurrence,
    NormMatched,
    Permuted,
    PositionalHeads,
    SinCos,
    Unigram,
    Whitened,
    ZeroOut,
    as_tuple,
)
from mimetic_jax.schemes.base import used_by
from tests.models.values import initial

KEY = jax.random.key(0)
RULES = (Rule("(embedding|embed)", "embedding", "t d"), Rule("b", "unembedding_bias", "t"))
V, D = 12, 8
TEXT = np.random.default_rng(0).integers(0, V - 1, 500)  # the last token never occurs
COUNTS = weights.cooccurrence(TEXT, V)
PARAMS = {"embedding": 0.02 * jax.random.normal(KEY, (V, D)), "b": jnp.zeros(V)}


def rewritten(params, scheme, rules=RULES):
    counts = COUNTS if used_by(as_tuple(scheme)) else None
    return rewrite(KEY, params, scheme, rules=rules, counts=counts)


def test_the_law_and_log_p_are_written_and_nothing_else():
    params = PARAMS | {"head": jnp.ones((D, V))}
    new = rewritten(params, (Unigram(), Cooccurrence()))
    key = mimetic_jax.block_key(KEY, "")
    expected = weights.from_counts(key, COUNTS, D, base=params["embedding"])
    np.testing.assert_array_equal(new["embedding"], expected)
    frequencies = np.bincount(TEXT, minlength=V).clip(min=1) / len(TEXT)
    # A text's first and last tokens have fewer neighbors.
    np.testing.assert_allclose(new["b"][:-1], np.log(frequencies)[:-1], atol=0.1)
    assert new["head"] is params["head"]
    shapes = jax.eval_shape(lambda: params)
    written = plan(shapes, (Unigram(), Cooccurrence()), rules=RULES, counts=COUNTS)
    assert [write.path for write in written] == ["b", "embedding"]


OPTIONS = {"rules": RULES, "counts": COUNTS}
OF_UNTIED = (Rule("embedding", "embedding", "t d", form=True, untied=True), *OF_GPT)


def test_an_embed_layer_takes_it_as_its_initializer():
    layer = nn.Embed(V, D, embedding_init=initializers.from_counts(COUNTS))
    rows = layer.init(KEY, jnp.zeros(1, int))["params"]["embedding"]
    stock = nn.Embed(V, D).init(KEY, jnp.zeros(1, int))["params"]["embedding"]
    np.testing.assert_allclose(np.square(rows).mean(), np.square(stock).mean(), rtol=0.3)
    cosines = rows[:-1] @ rows[:-1].T
    law = weights.from_counts(KEY, COUNTS, D)[:-1]
    scale = np.square(rows[:-1]).sum(axis=1).mean() / np.square(law).sum(axis=1).mean()
    np.testing.assert_allclose(cosines, law @ law.T * scale, atol=1e-5)
    with pytest.raises(InputError, match="counts cover 12 tokens, but the embedding has 5"):
        nn.Embed(5, D, embedding_init=initializers.from_counts(COUNTS)).init(KEY, jnp.zeros(1, int))


def test_controls_keep_rows_and_norms_and_lose_the_tokens():
    law = np.asarray(rewritten(PARAMS, Cooccurrence())["embedding"])
    permuted = np.asarray(rewritten(PARAMS, Permuted(Cooccurrence()))["embedding"])
    assert not np.allclose(permuted, law)
    order = [np.flatnonzero((law == row).all(axis=1)) for row in permuted]
    assert sorted(np.concatenate(order)) == list(range(V)), "the rows of other tokens"
    noise = np.asarray(rewritten(PARAMS, NormMatched(Cooccurrence()))["embedding"])
    np.testing.assert_allclose(np.linalg.norm(noise), np.linalg.norm(law), rtol=1e-5)
    log_p = rewritten(PARAMS, Unigram())["b"]
    for control in (NormMatched, Permuted):
        arm = (Unigram(), control(Cooccurrence()))
        np.testing.assert_array_equal(rewritten(PARAMS, arm)["b"], log_p)


def test_a_constant_channel_goes_on_top():
    model = GPT(V, D, 1, 2, positions="rotary", bias_free=True, rms_norm=True, swiglu=True)
    params = initial(model, jnp.zeros((1, 4), int))
    both = (Cooccurrence(), PositionalHeads(10_000, channel=3))
    new = rewritten(params, both, OF_GPT)["embedding"]
    alone = rewritten(params, Cooccurrence(), OF_GPT)["embedding"]
    np.testing.assert_allclose(new[:, 3], new[0, 3], rtol=1e-6)
    others = np.delete(np.arange(D), 3)
    cosines = [
        rows @ rows.T / np.outer(*2 * [np.linalg.norm(rows, axis=1)])
        for rows in (np.asarray(each)[:, others] for each in (new, alone))
    ]
    np.testing.assert_allclose(*cosines, atol=1e-5)


LLAMA = {"positions": "rotary", "bias_free": True, "rms_norm": True, "swiglu": True}
UNTIED = {**LLAMA, "tied": False, "output_bias": False}
CHANNEL = PositionalHeads(10_000, channel=3)


def decoder(width=32, **fields):
    model = GPT(V, width, 2, 2, **UNTIED | fields)
    tokens = jnp.asarray(TEXT[:320].reshape(20, 16))
    params = initial(model, tokens)
    # Any gain of the last norm, as a model in training has.
    gain = 0.5 + jax.random.uniform(KEY, (width,))
    params["norm"]["scale"] = gain
    return model, tokens, params


@pytest.mark.parametrize("rms_norm", [True, False])
@pytest.mark.parametrize("first", [CHANNEL, PositionalHeads(10_000, channel=3, sharpness=0)])
def test_without_a_bias_a_constant_channel_gives_log_p(first, rms_norm):
    """What the model itself computes: with a zero in the place of the column, logits lose log p."""
    model, tokens, params = decoder(rms_norm=rms_norm)
    new = rewritten(params, (Cooccurrence(std=1.0), first, Unigram()), OF_GPT)
    without = rewritten(params, (Cooccurrence(std=1.0), first), OF_GPT)
    column = new["unembedding"] - without["unembedding"]
    assert np.flatnonzero(column.any(axis=0)).tolist() == [3], "and no other channel is read by it"
    logits, before = (model.apply({"params": p}, tokens, method="logits") for p in (new, without))
    added = np.asarray(logits - before).mean(axis=(0, 1))
    np.testing.assert_allclose(added, weights.log_frequency(COUNTS), rtol=0.03)
    shuffled = rewritten(params, (Cooccurrence(std=1.0), first, Permuted(Unigram())), OF_GPT)
    np.testing.assert_array_equal(
        np.sort(shuffled["unembedding"][:, 3]), np.sort(new["unembedding"][:, 3])
    )
    assert (shuffled["unembedding"][:, 3] != new["unembedding"][:, 3]).any()
    traced = jax.jit(lambda p: rewritten(p, (Cooccurrence(std=1.0), first, Unigram()), OF_UNTIED))
    np.testing.assert_allclose(
        traced(params)["unembedding"], new["unembedding"], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    ("unembedding", "bias"),
    [
        ("lm_head/kernel", "lm_head/bias"),
        ("(?:head|out)/weight", "(?:head|out)/bias"),
        ("(?:a/kernel|b/kernel)", None),
        ("(?:head/)?kernel", None),
        ("head[/.]kernel", None),
        ("decoder/unembed", None),
    ],
)
def test_the_bias_of_an_expression(unembedding, bias):
    rules = embedding_rules("e", unembedding, exclude="")
    assert [rule.path for rule in rules if rule.role == "unembedding_bias"] == [bias] * bool(bias)


def test_positions_beside_the_embedding_of_a_family_go_along():
    """Those of OPT, whose rules once put the two tables into two modules."""
    names = {"embed_tokens": (V, D), "embed_positions": (18, D)}
    params = {f"model.decoder.{name}.weight": jnp.ones(shape) for name, shape in names.items()}
    params["lm_head.weight"] = jax.random.normal(KEY, (V, D))
    new = rewritten(params, Cooccurrence(std=0.5), zoo.WHISPER)
    np.testing.assert_allclose(new["model.decoder.embed_positions.weight"], 0.5, rtol=1e-6)


def test_positions_of_images_are_no_others():
    text = {"embed": {"embedding": jnp.ones((V, D))}, "head": {"kernel": jnp.ones((D, V))}}
    vision = {"pos_embed": jnp.ones((1, 16, D)), "patch_embed": {"kernel": jnp.ones((12, D))}}
    rules = (
        *(Rule("pos_embed", "position", "1 n d"), Rule("patch_embed/kernel", "patch", "(u v c) d")),
        *embedding_rules("embed/embedding", "head/kernel"),
    )
    new = rewritten({"text": text, "vision": vision}, Cooccurrence(std=0.5), rules)
    assert new["vision"]["pos_embed"] is vision["pos_embed"]
    apart = {"text": text, "more": {"pos_embed": jnp.ones((16, D))}}
    rules = (Rule("pos_embed", "position", "n d"), *rules[2:])
    with pytest.raises(InputError, match="rescales the position beside the embedding"):
        rewritten(apart, Cooccurrence(std=0.5), rules)


def test_a_bias_beside_the_output_layer_needs_no_rule_of_its_own():
    head = {"kernel": jnp.ones((D, V)), "bias": jnp.zeros(V)}
    params = {"embed": {"embedding": jnp.ones((V, D))}, "head": head}
    by_hand = embedding_rules("embed/embedding", "head/kernel")
    new = rewritten(params, Unigram(), by_hand)["head"]
    np.testing.assert_allclose(new["bias"], weights.log_frequency(COUNTS), rtol=1e-6)
    np.testing.assert_array_equal(new["kernel"], head["kernel"])


def test_where_log_p_has_no_place_it_is_refused_in_words():
    _, _, params = decoder()
    silent = params | {"embedding": params["embedding"].at[:, 1].set(0)}
    for none in (params, silent):
        with pytest.raises(InputError, match=r"sharpness=0\), Unigram\(\)\): it makes such a cha"):
            rewritten(none, Unigram(), OF_GPT)
    with pytest.raises(InputError, match=r"pass \(PositionalHeads, Unigram\), in this order"):
        rewritten(params, (Unigram(), CHANNEL), OF_GPT)
    rules = tuple(rule for rule in OF_GPT if rule.role != "tied_gain")
    with pytest.raises(InputError, match="no rule describes the norm before the output layer"):
        rewritten(params, (CHANNEL, Unigram()), rules)
    _, _, tied = decoder(tied=True)
    with pytest.raises(
        InputError,
        match=r"needs a bias of the output layer \(Rule\(path, .unembedding_bias., .t.\)",
    ):
        rewritten(tied, Unigram(), OF_GPT)


def test_what_stands_in_several_modules():
    tied = {"tok": {"embedding": jnp.ones((V, D))}, "norm": {"scale": jnp.ones(D)}}
    rules = (Rule("norm/scale", "tied_gain", "d"), Rule("embedding", "embedding", "t d"))
    with pytest.raises(InputError, match="finds one in another module"):
        rewritten(tied, Cooccurrence(std=1.0), rules)
    rules = (rules[0], Rule("tok/embedding", "embedding", "t d"))
    gain = rewritten(tied, Cooccurrence(std=0.5), rules)["norm"]["scale"]
    np.testing.assert_allclose(gain, 2.0, rtol=1e-6)
    both = {"head": {"kernel": jnp.ones((D, V))}, "bias": jnp.zeros(V), "embed": jnp.ones((V, D))}
    rules = (Rule("embed", "embedding", "t d"), Rule("bias", "unembedding_bias", "t"))
    assert rewritten(both, Unigram(), rules)["bias"].any()
    rules = (Rule("kernel", "unembedding", "d t"), *rules)
    with pytest.raises(InputError, match="bias in another module than its kernel"):
        rewritten(both, Unigram(), rules)


def test_log_p_through_a_channel_is_not_undone():
    """In models whose embedding and output layer stand in two modules, too."""
    _, _, params = decoder()
    apart = {"inner": params, "unembedding": params.pop("unembedding")}
    rules = (Rule("unembedding", "unembedding", "t d"), *OF_GPT)
    for tree, of in ((decoder()[2], OF_GPT), (apart, rules)):
        started = rewritten(tree, (CHANNEL, Unigram()), of)
        with pytest.raises(InputError, match="after Unigram, whose draw it would undo"):
            rewritten(started, (Unigram(), Cooccurrence()), of)
    call = (
        r"pass \(Cooccurrence\(…\), PositionalHeads\(base, channel=0, sharpness=0\), Unigram\(\)\)$"
    )
    with pytest.raises(InputError, match=call):
        rewritten(decoder()[2], (Unigram(), Cooccurrence(std=0.25)), OF_GPT)
    alone = PositionalHeads(10_000, channel=0, sharpness=0)
    rewritten(decoder()[2], (Cooccurrence(std=0.25), alone, Unigram()), OF_GPT)


NEXT = weights.following(TEXT, V)


def dense(rows, smoothing=100.0):
    """Gᵀ by its formula in float64."""
    counts, share = NEXT.toarray(), np.bincount(TEXT, minlength=V).astype(float)
    np.subtract.at(share, TEXT[[0, -1]], 0.5)  # which stand in one pair alone
    share /= share.sum()
    target = np.log1p(counts / (smoothing * np.where(share > 0, share, 1)))
    target -= (target @ share)[:, None]
    weighted = np.asarray(rows, np.float64) * share[:, None]
    return np.linalg.lstsq(weighted.T @ rows, weighted.T @ target)[0].T


def test_next_tokens_are_counted_and_fitted(monkeypatch):
    pairs = np.zeros((V, V))
    np.add.at(pairs, (TEXT[:-1], TEXT[1:]), 1)
    np.testing.assert_array_equal(NEXT.toarray(), pairs)
    monkeypatch.setattr("mimetic_jax.weights.counts._PAIRS", 7)
    np.testing.assert_array_equal(weights.following(TEXT, V).toarray(), pairs)
    rows = jax.random.normal(KEY, (V, D))
    found = weights.next_token(NEXT, rows, smoothing=3.0)
    np.testing.assert_allclose(found, dense(np.float64(rows), 3.0), atol=5e-3)
    with pytest.raises(InputError, match=r"Use following\(tokens, vocab=5\)"):
        weights.next_token(NEXT, rows[:5])
    with pytest.raises(InputError, match=r"token id 11 is outside 0…1"):
        weights.following([0, 11], vocab=2)


@pytest.mark.parametrize("rms_norm", [True, False])
def test_a_model_starts_with_the_logits_of_a_bigram_model(rms_norm):
    """Where layers add nothing: log p, and half of what the embedding says of the next token."""
    model, tokens, params = decoder(8, output_bias=True, rms_norm=rms_norm)
    first = (Cooccurrence(std=0.25), Unigram(), Bigram(), ZeroOut())
    options = {"rules": OF_GPT, "counts": COUNTS, "following": NEXT}
    new = rewrite(KEY, params, first, **options)
    for block in ("block_0", "block_1"):
        new[block]["mlp"]["fc2"] = jax.tree.map(jnp.zeros_like, new[block]["mlp"]["fc2"])
    logits = model.apply({"params": new}, tokens, method="logits")
    rows = np.float64(new["embedding"])
    rows -= 0 if rms_norm else rows.mean(axis=1, keepdims=True)
    rows /= np.sqrt(np.mean(rows**2, axis=1, keepdims=True))
    rows *= np.float64(params["norm"]["scale"])
    expected = weights.log_frequency(COUNTS) + 0.5 * rows @ dense(rows).T
    np.testing.assert_allclose(logits, expected[np.asarray(tokens)], atol=5e-3)
    untied = options | {"rules": OF_UNTIED}
    traced = jax.jit(lambda params: rewrite(KEY, params, first, **untied))(params)
    np.testing.assert_allclose(traced["unembedding"], new["unembedding"], rtol=1e-3, atol=1e-4)
    shuffled = rewrite(KEY, params, (*first[:2], Permuted(Bigram())), **options)["unembedding"]
    order = np.lexsort(shuffled.T), np.lexsort(new["unembedding"].T)
    np.testing.assert_array_equal(shuffled[order[0]], new["unembedding"][order[1]])
    assert not np.array_equal(shuffled, new["unembedding"])


def test_where_a_bigram_model_has_no_place():
    _, _, params = decoder()
    options = {"rules": OF_GPT, "counts": COUNTS, "following": NEXT}
    for schemes, words in (
        ((Bigram(), Cooccurrence(std=0.25)), r"pass \(Cooccurrence, Bigram\), in this order"),
        ((CHANNEL, Unigram(), Bigram()), r"pass \(PositionalHeads, Bigram, Unigram\)"),
    ):
        with pytest.raises(InputError, match=words):
            rewrite(KEY, params, schemes, **options)
    with pytest.raises(InputError, match="--tokens=FILE"):
        rewrite(KEY, params, Bigram(), rules=OF_GPT)
    _, _, tied = decoder(tied=True)
    with pytest.raises(InputError, match="needs an output layer that isn't the embedding"):
        rewrite(KEY, tied, Bigram(), rules=OF_GPT, following=NEXT)
    started = rewrite(KEY, params, (CHANNEL, Bigram(), Unigram()), **options)
    assert started["unembedding"].any(axis=0).all(), "log p in the channel, next tokens elsewhere"


def test_noise_of_the_embedding_leaves_positions():
    model = GPT(V, D, 1, 2, positions="learned", embedding_std=0.1)
    params = initial(model, jnp.zeros((1, 4), int))
    ours, noise = (
        rewritten(params, scheme, OF_GPT)
        for scheme in (Cooccurrence(std=1.0), NormMatched(Cooccurrence(std=1.0)))
    )
    np.testing.assert_array_equal(noise["pos_embed"], ours["pos_embed"])
    assert not np.allclose(noise["embedding"], ours["embedding"])


@pytest.mark.parametrize("positions", ["rotary", "learned"])
@pytest.mark.parametrize("tied", [True, False])
def test_what_depends_on_the_scale_of_the_embedding_goes_along(positions, tied):
    model = GPT(V, D, 1, 2, positions=positions, embedding_std=0.1, tied=tied)
    params = initial(model, jnp.zeros((1, 4), int))
    new = rewritten(params, Cooccurrence(std=1.0), OF_GPT)
    ratio = 1 / np.sqrt(np.square(params["embedding"]).mean())
    alone = rewritten(params, Cooccurrence(), OF_GPT)["embedding"]
    np.testing.assert_allclose(new["embedding"], ratio * alone, rtol=1e-5)
    gain = 1 / ratio if tied else 1.0
    np.testing.assert_allclose(new["norm"]["scale"], gain * params["norm"]["scale"], rtol=1e-5)
    if positions == "learned":
        np.testing.assert_allclose(new["pos_embed"], ratio * params["pos_embed"], rtol=1e-5)
    if not tied:
        np.testing.assert_array_equal(new["unembedding"], params["unembedding"])
    with pytest.raises(InputError, match=r"std=1. rescales the embedding"):
        rewritten(PARAMS, Cooccurrence(std=1.0))


def test_patches_are_whitened_at_the_norm_of_the_kernel():
    images = np.random.default_rng(0).normal(size=(200, 8, 8, 3)).cumsum(axis=1).cumsum(axis=2)
    covariance = weights.patch_covariance(images, 2)
    model = ViT(num_classes=2, width=16, depth=1, heads=2, patch=2)
    params = initial(model, jnp.zeros((1, 8, 8, 3)))
    new = rewrite(KEY, params, (SinCos(), Whitened(share=1)), covariance=covariance)
    kernel, before = new["patch_embed"]["kernel"], params["patch_embed"]["kernel"]
    np.testing.assert_allclose(np.linalg.norm(kernel), np.linalg.norm(before), rtol=1e-5)
    outputs = np.asarray(kernel, np.float64).T @ covariance @ kernel
    values = np.linalg.eigvalsh(outputs)[-12:]
    np.testing.assert_allclose(values, values.mean(), rtol=1e-3)
    again = rewrite(KEY, params, (SinCos(), Permuted(Whitened(share=1))), covariance=covariance)
    rows, others = (np.asarray(each["patch_embed"]["kernel"]) for each in (new, again))
    assert not np.allclose(rows, others)
    np.testing.assert_array_equal(np.sort(rows, axis=0), np.sort(others, axis=0))
    conv = {"patch_embed": {"kernel": jnp.asarray(before.reshape(2, 2, 3, 16))}}
    rules = (Rule("patch_embed/kernel", "patch", "u v c d"),)
    same = rewrite(KEY, conv, Whitened(share=1), rules=rules, covariance=covariance)
    np.testing.assert_allclose(same["patch_embed"]["kernel"].reshape(12, 16), kernel, atol=1e-6)
    without = rewrite(KEY, conv, Whitened(), rules=rules)["patch_embed"]["kernel"]
    assert np.isfinite(without).all()
    for given, words in (
        (np.eye(5), "a covariance of 5 numbers, but patches of 2 x 2 x 3"),
        (np.float64(2), r"a covariance of shape \(\) is not a square"),
        ("x" * 12, "not an array of real numbers"),
    ):
        with pytest.raises(InputError, match=words):
            rewrite(KEY, params, Whitened(), covariance=given)


@pytest.mark.parametrize(
    ("scheme", "counts", "words"),
    [
        (Cooccurrence(), None, "Cooccurrence needs co-occurrence counts"),
        (Unigram(), None, r"counts=mimetic_jax.weights.cooccurrence\(tokens, vocab\), or --tokens"),
        (Cooccurrence(), np.ones((5, 5)), "counts cover 5 tokens, but the embedding has 12"),
        (Unigram(), np.ones((5, 5)), "counts cover 5 tokens, but the output layer has 12"),
        (Cooccurrence(), TEXT, r"counts of shape \(500,\) are not a square"),
    ],
)
def test_what_does_not_fit(scheme, counts, words):
    with pytest.raises(InputError, match=words):
        plan(PARAMS, scheme, rules=RULES, counts=counts)
    with pytest.raises(InputError, match=words):
        rewrite(KEY, PARAMS, scheme, rules=RULES, counts=counts)


def test_a_plan_says_that_an_embedding_is_too_small_for_its_rows_to_last():
    """Llama's files have σ = .02; in a tree of shapes nothing shows it."""
    small = plan(PARAMS, Permuted(Cooccurrence()), **OPTIONS)
    size = np.sqrt(np.mean(np.square(PARAMS["embedding"])))
    assert f"the embedding's σ of {size:.2g}. Adam" in small.notes[0]
    large = PARAMS | {"embedding": 50 * PARAMS["embedding"]}
    for params in (large, jax.eval_shape(lambda: PARAMS)):
        assert not plan(params, Cooccurrence(), **OPTIONS).notes
    jax.jit(lambda params: plan(params, Cooccurrence(), **OPTIONS) and 0)(PARAMS)


def test_zeros_have_no_size_to_keep():
    """A plan lists them, as it computes nothing; a size of its own needs none, unless others do."""
    blank = PARAMS | {"embedding": jnp.zeros((V, D))}
    assert len(plan(blank, Cooccurrence(), rules=RULES, counts=COUNTS)) == 1
    with pytest.raises(InputError, match="the embedding is all zeros, so Cooccurrence has no size"):
        rewrite(KEY, blank, Cooccurrence(), rules=RULES, counts=COUNTS)
    head = Rule("head", "unembedding", "d t")
    sized = rewritten(blank | {"head": jnp.ones((D, V))}, Cooccurrence(std=0.5), (*RULES, head))
    rows = sized["embedding"][:-1]  # the last token has none
    assert jnp.sqrt(jnp.mean(jnp.square(rows))) == pytest.approx(0.5, rel=1e-4)
    patches = {"patch_embed": {"kernel": jnp.zeros((4, 4, 3, D))}}
    rules = [Rule("patch_embed/kernel", "patch", "u v c d")]
    with pytest.raises(InputError, match="the patch kernel is all zeros, so Whitened has no norm"):
        rewrite(KEY, patches, Whitened(), rules=rules)
    new = jax.jit(lambda tree: rewrite(KEY, tree, Whitened(), rules=rules))(patches)
    assert jax.tree.structure(new) == jax.tree.structure(patches)


@pytest.mark.parametrize("channels", [5, 13])
def test_patches_of_many_channels(channels):
    """Satellites and microscopes: their embedding is whitened by their covariance alone."""
    images = np.random.default_rng(0).normal(size=(200, 8, 8, channels)).cumsum(axis=1)
    covariance = weights.patch_covariance(images, 4)
    model = ViT(num_classes=2, width=16, depth=1, heads=2, patch=4)
    params = initial(model, jnp.zeros((1, 8, 8, channels)))
    kernel = rewrite(KEY, params, Whitened(share=1), covariance=covariance)["patch_embed"]["kernel"]
    values = np.linalg.eigvalsh(np.asarray(kernel, np.float64).T @ covariance @ kernel)
    np.testing.assert_allclose(values, values.mean(), rtol=1e-2)
    with pytest.raises(InputError, match=rf"1 or 3 channels; got {channels}. Pass covariance="):
        rewrite(KEY, params, Whitened())
