import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from mimetic_jax import InputError
from mimetic_jax.models import ViT
from mimetic_jax.train.optimizer import make_optimizer
from mimetic_jax.tree import paths
from mimetic_jax.tree.rules import Rule
from mimetic_jax.tree.tables import FLAX
from tests.typical import typical

PARAMS = {
    "a": {"kernel": jnp.arange(6.0).reshape(2, 3), "bias": jnp.ones(3)},
    "frozen": jnp.ones(2),
}

NO_DECAY = ((ViT.traits.no_decay, 0.0),)


def gradients(step):
    return jax.tree.map(lambda p: jnp.cos(p * (step + 1)) * 3, PARAMS)


def run(optimizer, steps=5):
    """The parameters after these steps, in one program."""

    @jax.jit
    def taken(params):
        state = optimizer.init(params)
        for step in range(steps):
            updates, state = optimizer.update(gradients(step), state, params)
            params = optax.apply_updates(params, updates)
        return params

    return taken(PARAMS)


def numpy_adamw(name, steps, rate, decay, norms, clip):
    """AdamW by its formula, in float64."""
    betas, eps = (0.9, 0.999), 1e-8
    get = (lambda t: t["frozen"]) if name == "frozen" else (lambda t: t["a"][name])
    p = np.asarray(get(PARAMS), np.float64)
    m = v = np.zeros_like(p)
    for step in range(steps):
        g = np.asarray(get(gradients(step)), np.float64) * min(1, clip / norms[step])
        m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g * g
        hat = (m / (1 - betas[0] ** (step + 1))) / (np.sqrt(v / (1 - betas[1] ** (step + 1))) + eps)
        p = p - rate * (hat + decay * p)
    return p


def test_update_is_adamw_by_its_formula():
    optimizer = make_optimizer(
        "adamw",
        optax.constant_schedule(0.01),
        weight_decay=0.1,
        clip=1.0,
        decay_rules=((r"bias$", 0.0), (r".", 0.5)),
        rate_rules=((r"frozen", 0.0), (r"kernel", 2.0)),
    )
    params = run(optimizer)
    # Frozen gradients don't count in the norm that is clipped.
    norms = [float(optax.tree.norm(gradients(step)["a"])) for step in range(5)]
    expected = numpy_adamw("kernel", 5, 0.02, 0.05, norms, clip=1.0)
    np.testing.assert_allclose(params["a"]["kernel"], expected, rtol=1e-5)
    expected = numpy_adamw("bias", 5, 0.01, 0.0, norms, clip=1.0)
    np.testing.assert_allclose(params["a"]["bias"], expected, rtol=1e-5)
    np.testing.assert_array_equal(params["frozen"], PARAMS["frozen"])


TREE = ("kernel", "bias", "pos_embed")


@pytest.mark.parametrize("eps", ["1e-8", "1e-3"])
@pytest.mark.parametrize("clip", [0, 1])
def test_six_steps_are_those_of_pytorch(golden, eps, clip):
    """torch.optim.AdamW of PyTorch 2.13 in float64, with clip_grad_norm_ and a rate per step.

    Two groups, kernel with weight decay 0.05 and the rest without. Gradients are normal draws that
    halve with each step, so that three of six are clipped. Unclipped steps agree to rounding;
    clipped ones to the 1e-6 that PyTorch adds to the norm, in moves of 0.03.
    """
    torch = golden("torch_adamw")
    with jax.enable_x64(True):
        rates = jnp.asarray(torch["rates"])
        optimizer = make_optimizer(
            "adamw",
            lambda step: rates[step],
            weight_decay=float(torch["weight_decay"]),
            betas=tuple(torch["betas"].tolist()),
            eps=float(eps),
            clip=clip,
            decay_rules=NO_DECAY,
        )
        params = {name: jnp.asarray(torch[f"initial_{name}"]) for name in TREE}
        state, update = optimizer.init(params), jax.jit(optimizer.update)
        for step in range(len(rates)):
            grads = {name: jnp.asarray(torch[f"gradients_{name}"][step]) for name in TREE}
            updates, state = update(grads, state, params)
            params = optax.apply_updates(params, updates)
            for name in TREE:
                expected = torch[f"eps{eps}_clip{clip}_{name}"][step]
                assert params[name].dtype == jnp.float64
                np.testing.assert_allclose(
                    params[name], expected, rtol=0, atol=1e-8 if clip else 1e-14
                )


@pytest.mark.parametrize("pool", ["token", "mean"])
def test_no_decay_is_what_timm_excludes(pool):
    """Everything of one dimension, and biases, positions and class token of any."""
    model = ViT(num_classes=10, width=16, depth=2, heads=2, patch=4, pool=pool)
    shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.ones((1, 8, 8, 3)))
    named, _ = paths.flatten(shapes["params"])
    excluded = {path for path, _ in named if paths.first_match(NO_DECAY, path, 1.0) == 0}
    assert excluded == {
        path
        for path, leaf in named
        if leaf.ndim <= 1 or path.split("/")[-1] in ("bias", "pos_embed", "cls_token")
    }
    assert {path for path, _ in named if path.endswith("kernel")} == {
        path for path, _ in named
    } - excluded


def test_no_decay_matches_whole_names():
    kept = ("patch_embed/kernel", "bias_net/kernel", "rescale", "token_embed/embedding")
    assert [paths.first_match(NO_DECAY, path, 1.0) for path in kept] == [1.0] * 4


BLOCK = {
    "attention": {"query": {"kernel": (4, 2, 3)}, "out": {"kernel": (2, 3, 4), "bias": (4,)}},
    "mlp": {"fc1": {"kernel": (4, 9)}},
}


@typical("stacked", [True], slow=[False])
def test_muon_moves_hidden_kernels_along_their_singular_vectors(stacked):
    """A first step is nearly 0.2 √max(m, n) U Vᵀ of the gradient's own singular vectors, all heads
    as one matrix, less the decay; embeddings, biases and the head move as by AdamW."""
    shapes = {"blocks" if stacked else "block_0": BLOCK, "head": {"kernel": (4, 5)}}
    shapes |= {"embedding": (7, 4)}
    leaves, treedef = jax.tree.flatten(shapes, is_leaf=lambda node: isinstance(node, tuple))
    random = np.random.default_rng(0)
    tree = jax.tree.unflatten(treedef, [jnp.array(random.normal(size=leaf)) for leaf in leaves])
    if stacked:
        tree["blocks"] = jax.tree.map(lambda leaf: jnp.stack([leaf, -leaf]), tree["blocks"])
    options = {"weight_decay": 0.1, "rate_rules": ((r"fc1", 2.0), (r"value", 0.0))}
    options |= {"decay_rules": ((r"out/kernel", 0.0),)}
    schedule = optax.constant_schedule(0.01)
    ours, adamw = (make_optimizer(name, schedule, **options) for name in ("muon", "adamw"))
    moves, theirs = (
        paths.flatten(jax.jit(each.update)(tree, each.init(tree), tree)[0])[0]
        for each in (ours, adamw)
    )
    for (path, move), (_, adam), (_, leaf) in zip(
        moves, theirs, paths.flatten(tree)[0], strict=True
    ):
        if "kernel" not in path or "head" in path:
            np.testing.assert_allclose(move, adam, rtol=1e-6)
            continue
        move, leaf = (np.asarray(each[0] if stacked else each) for each in (move, leaf))
        rows = 4 if "out" not in path else 6
        rate = 0.01 * (2 if "fc1" in path else 1)
        direction = -move / rate - (0 if "out" in path else 0.1) * leaf
        u, _, vh = np.linalg.svd(leaf.reshape(rows, -1), full_matrices=False)
        sizes = (
            u.T @ direction.reshape(rows, -1) @ vh.T / (0.2 * max(rows, leaf.size // rows) ** 0.5)
        )
        # Newton and Schulz's five steps leave singular values in this range.
        assert (np.diag(sizes) > 0.6).all()
        assert (np.diag(sizes) < 1.3).all()
        np.testing.assert_allclose(sizes, np.diag(np.diag(sizes)), atol=1e-4)


def test_muon_takes_axes_from_roles_and_never_guesses_them():
    """A stack under another name, a kernel of several roles, a gate beside them that has none; and
    an unknown kernel of four axes, which moves as by AdamW."""
    random = np.random.default_rng(1)
    tree = {
        "layers": {
            "mixer": {"qkv": {"kernel": random.normal(size=(2, 4, 12))}},
            "mlp": {"gate": {"kernel": random.normal(size=(2, 4, 6))}},
        },
        "last": {"kernel": random.normal(size=(3, 4))},
        "other": {"kernel": random.normal(size=(2, 2, 3, 3))},
    }
    tree = jax.tree.map(jnp.asarray, tree)
    roles = (Rule("mixer/qkv/kernel", ("query", "key", "value"), "l d (three h k)"),)
    schedule = optax.constant_schedule(0.01)
    muon = make_optimizer("muon", schedule, roles=roles)
    moves, _ = jax.jit(muon.update)(tree, muon.init(tree), tree)
    adamw = make_optimizer("adamw", schedule)
    theirs, _ = adamw.update(tree, adamw.init(tree), tree)
    np.testing.assert_allclose(moves["other"]["kernel"], theirs["other"]["kernel"], rtol=1e-6)
    for layer in range(2):
        alone = {"a": {"kernel": tree["layers"]["mixer"]["qkv"]["kernel"][layer]}}
        alone |= {"b": {"kernel": tree["layers"]["mlp"]["gate"]["kernel"][layer]}}
        alone |= {"c": tree["last"]}
        expected, _ = jax.jit(muon.update)(alone, muon.init(alone), alone)
        stacked = moves["layers"]
        for ours, name in ((stacked["mixer"]["qkv"], "a"), (stacked["mlp"]["gate"], "b")):
            np.testing.assert_allclose(
                ours["kernel"][layer], expected[name]["kernel"], rtol=1e-4, atol=1e-6
            )
        np.testing.assert_allclose(
            moves["last"]["kernel"], expected["c"]["kernel"], rtol=1e-4, atol=1e-6
        )


def test_muon_goes_by_roles_where_they_are_known_else_by_names():
    """Attention under a name that has "head" in it, and last layers under others; a role counts
    whatever the name, also of what looks like a hidden kernel."""
    random = np.random.default_rng(3)
    layer = {role: {"kernel": random.normal(size=(4, 2, 2))} for role in ("query", "key", "value")}
    layer["out"] = {"kernel": random.normal(size=(2, 2, 4))}
    kernel = {"kernel": random.normal(size=(4, 4))}
    hidden = {"block_0": {"multihead_attention": layer, "multihead_proj": kernel}}
    last = ("classifier", "lm_head", "Head_0", "logits", "pos_net")
    tree = jax.tree.map(jnp.asarray, hidden | dict.fromkeys(last, kernel))
    roles = (*FLAX, Rule("pos_net/kernel", "position", "n d"))
    muon = make_optimizer("muon", optax.constant_schedule(0.01), roles=roles)
    adam = make_optimizer("adam", optax.constant_schedule(0.01))
    moves, theirs = (
        paths.flatten(jax.jit(each.update)(tree, each.init(tree), tree)[0])[0]
        for each in (muon, adam)
    )
    of_muon = {
        path
        for (path, ours), (_, adams) in zip(moves, theirs, strict=True)
        if (ours != adams).any()
    }
    assert of_muon == {path for path, _ in moves if path.startswith("block_0/")}


def test_muon_sees_the_leaf_that_a_rule_wants_beside_its_own():
    """A projection named like any layer's has its roles only beside the query."""
    random = np.random.default_rng(2)
    attention = {"query": {"kernel": random.normal(size=(4, 2, 2))}}
    attention |= {"last": {"kernel": random.normal(size=(2, 2, 4))}}
    tree = jax.tree.map(jnp.asarray, {"attention": attention, "other": attention["last"]})
    roles = (
        Rule("query/kernel", "query", "d h k"),
        Rule("last/kernel", "out", "h k d", beside="query/kernel"),
    )
    schedule = optax.constant_schedule(0.01)
    muon = make_optimizer("muon", schedule, roles=roles)
    moves, _ = jax.jit(muon.update)(tree, muon.init(tree), tree)
    alone = {"kernel": tree["attention"]["last"]["kernel"].reshape(4, 4)}
    expected, _ = jax.jit(muon.update)(alone, muon.init(alone), alone)
    np.testing.assert_allclose(
        moves["attention"]["last"]["kernel"].reshape(4, 4),
        expected["kernel"],
        rtol=1e-4,
        atol=1e-6,
    )


def test_adam_is_adamw_without_decay():
    options = {"clip": 1.0, "eps": 1e-3, "rate_rules": ((r"kernel", 2.0),)}
    adam = run(make_optimizer("adam", optax.constant_schedule(0.01), **options))
    decoupled = run(make_optimizer("adamw", optax.constant_schedule(0.01), **options))
    jax.tree.map(np.testing.assert_array_equal, adam, decoupled)


def test_sgd_is_the_clipped_gradient():
    optimizer = make_optimizer(
        "sgd",
        lambda step: 4.0 / (step + 1),
        clip=0.35,
        rate_rules=((r"frozen", 0.0), (r"bias", 0.5)),
    )
    params = run(optimizer, steps=3)
    expected = jax.tree.map(lambda p: np.asarray(p, np.float64), PARAMS)
    for step in range(3):
        grads = jax.tree.map(lambda g: np.asarray(g, np.float64), gradients(step)["a"])
        norm = np.sqrt(sum((g**2).sum() for g in grads.values()))
        for name, rate in (("kernel", 4.0), ("bias", 2.0)):
            expected["a"][name] -= rate / (step + 1) * grads[name] * min(1, 0.35 / norm)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), params, expected)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("adam", {"weight_decay": 0.01}, "adam has no weight decay: set 0.01 to 0"),
        ("sgd", {"weight_decay": 0.01}, "sgd has no weight decay"),
    ],
)
def test_bad_optimizer(name, options, words):
    with pytest.raises(InputError, match=words):
        make_optimizer(name, optax.constant_schedule(1.0), **options)
