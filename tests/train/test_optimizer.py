import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from mimetic_jax import InputError
from mimetic_jax.models import ViT
from mimetic_jax.rules import paths
from mimetic_jax.rules.rule import Rule
from mimetic_jax.train.optimizer import make_optimizer
from tests.typical import typical

PARAMS = {
    "a": {"kernel": jnp.arange(6.0).reshape(2, 3), "bias": jnp.ones(3)},
    "frozen": jnp.ones(2),
}

NO_DECAY = ((ViT.traits.no_decay, 0.0),)


def moves(name, tree, **options):
    """The updates of a first step along gradients that equal the parameters, by path."""
    optimizer = make_optimizer(name, **options)
    updates, _ = jax.jit(optimizer.update)(tree, optimizer.init(tree), tree)
    return dict(paths.flatten(updates)[0])


def test_rules_are_factors_of_rate_and_decay():
    rules = {"decay_rules": ((r"bias$", 0.0), (r".", 0.5)), "weight_decay": 0.1}
    rates = ((r"frozen", 0.0), (r"kernel", 2.0))
    plain, ruled = moves("adamw", PARAMS), moves("adamw", PARAMS, rate_rules=rates, **rules)
    factors = {"a/kernel": (2, 0.05), "a/bias": (1, 0.0), "frozen": (0, 0.05)}
    for path, leaf in paths.flatten(PARAMS)[0]:
        rate, decay = factors[path]
        expected = rate * (plain[path] - decay * leaf)
        np.testing.assert_allclose(ruled[path], expected, rtol=1e-5)


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
        options = {"eps": float(eps), "clip": clip, "decay_rules": NO_DECAY}
        options["weight_decay"] = float(torch["weight_decay"])
        optimizer = make_optimizer("adamw", **options)
        params = {name: jnp.asarray(torch[f"initial_{name}"]) for name in TREE}
        state, update = optimizer.init(params), jax.jit(optimizer.update)
        for step in range(len(rates)):
            grads = {name: jnp.asarray(torch[f"gradients_{name}"][step]) for name in TREE}
            updates, state = update(grads, state, params)
            updates = jax.tree.map(lambda leaf: rates[step] * leaf, updates)  # noqa: B023
            params = optax.apply_updates(params, updates)
            for name in TREE:
                expected, atol = torch[f"eps{eps}_clip{clip}_{name}"][step], 1e-8 if clip else 1e-14
                assert params[name].dtype == jnp.float64
                np.testing.assert_allclose(params[name], expected, rtol=0, atol=atol)


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
    kernels = {path for path, _ in named if path.endswith("kernel")}
    assert kernels == {path for path, _ in named} - excluded


def test_no_decay_matches_whole_names():
    kept = ("patch_embed/kernel", "bias_net/kernel", "rescale", "token_embed/embedding")
    assert [paths.first_match(NO_DECAY, path, 1.0) for path in kept] == [1.0] * 4


BLOCK = {
    "attention": {"query": {"kernel": (4, 2, 3)}, "out": {"kernel": (2, 3, 4), "bias": (4,)}},
    "mlp": {"fc1": {"kernel": (4, 9)}, "fc2": {"kernel": (9, 4)}},
}


def normal(shapes, seed=0):
    """A tree of normal draws, by a tree of shapes."""
    random = np.random.default_rng(seed)
    leaves, treedef = jax.tree.flatten(shapes, is_leaf=lambda node: isinstance(node, tuple))
    return jax.tree.unflatten(treedef, [jnp.array(random.normal(size=leaf)) for leaf in leaves])


@typical("stacked", [True], slow=[False])
def test_muon_moves_hidden_kernels_along_their_singular_vectors(stacked):
    """A first step is 0.2 √max(m, n) U f(S) Vᵀ of the gradient, all heads as one matrix, less the
    decay, where f are Newton and Schulz's five steps; embeddings, biases and the head move as by
    AdamW."""
    top = "blocks" if stacked else "block_0"
    tree = normal({top: BLOCK, "head": {"kernel": (4, 5)}, "embedding": (7, 4)})
    if stacked:
        tree["blocks"] = jax.tree.map(lambda leaf: jnp.stack([leaf, -leaf]), tree["blocks"])
    options = {"weight_decay": 0.1, "rate_rules": ((r"fc1", 2.0), (r"value", 0.0))}
    options |= {"decay_rules": ((r"out/kernel", 0.0),)}
    ours, adamw = (moves(name, tree, **options) for name in ("muon", "adamw"))
    for path, leaf in paths.flatten(tree)[0]:
        if "kernel" not in path or "head" in path:
            np.testing.assert_allclose(ours[path], adamw[path], rtol=1e-6)
            continue
        move, leaf = (np.asarray(each[0] if stacked else each) for each in (ours[path], leaf))
        rows = 6 if "out" in path else 9 if "fc2" in path else 4
        rate = 2 if "fc1" in path else 1
        direction = -move / rate - (0 if "out" in path else 0.1) * leaf
        u, s, vh = np.linalg.svd(leaf.reshape(rows, -1).astype(float), full_matrices=False)
        s /= np.linalg.norm(s)
        for _ in range(5):
            s = 3.4445 * s - 4.775 * s**3 + 2.0315 * s**5
        expected = 0.2 * max(rows, leaf.size // rows) ** 0.5 * (u * s) @ vh
        np.testing.assert_allclose(direction.reshape(rows, -1), expected, atol=1e-5)


def test_muon_takes_axes_from_rules_and_never_guesses_them():
    """A fused kernel in a stack is as many matrices as layers; the last layer of a rule's name, and
    kernels without a rule, move as by AdamW."""
    qkv = {"mixer": {"qkv": {"kernel": (2, 4, 12)}}, "lm_head": {"kernel": (4, 4)}}
    tree = normal({"layers": qkv, "other": {"kernel": (4, 4)}})
    rules = (
        Rule("mixer/qkv/kernel", ("query", "key", "value"), "l d (three h k)"),
        Rule("lm_head/kernel", "unembedding", "d t"),
    )
    muon, adamw = (moves(name, tree, roles=rules) for name in ("muon", "adamw"))
    for path in ("layers/lm_head/kernel", "other/kernel"):
        np.testing.assert_allclose(muon[path], adamw[path], rtol=1e-6)
    moved, fused = muon["layers/mixer/qkv/kernel"], tree["layers"]["mixer"]["qkv"]["kernel"]
    for move, matrix in zip(moved, fused, strict=True):
        alone = moves("muon", {"fc1": {"kernel": matrix}, "fc2": {"kernel": matrix.T}})
        np.testing.assert_allclose(move, alone["fc1/kernel"], rtol=1e-4, atol=1e-6)


def test_adam_is_adamw_without_decay():
    options = {"clip": 1.0, "eps": 1e-3, "rate_rules": ((r"kernel", 2.0),)}
    adam, decoupled = (moves(name, PARAMS, **options) for name in ("adam", "adamw"))
    jax.tree.map(np.testing.assert_array_equal, adam, decoupled)


def test_sgd_is_the_clipped_gradient():
    """Three steps; a frozen gradient doesn't count in the norm."""
    rules = ((r"frozen", 0.0), (r"bias", 2.0))
    optimizer = make_optimizer("sgd", clip=0.35, rate_rules=rules)
    params, state, update = PARAMS, optimizer.init(PARAMS), jax.jit(optimizer.update)
    expected = jax.tree.map(lambda p: np.asarray(p, np.float64), PARAMS)
    for step in range(3):
        gradients = jax.tree.map(lambda p: jnp.cos(p * (step + 1)) * 3, PARAMS)  # noqa: B023
        updates, state = update(gradients, state, params)
        params = optax.apply_updates(params, updates)
        grads = {name: np.asarray(g, np.float64) for name, g in gradients["a"].items()}
        norm = np.sqrt(sum((g**2).sum() for g in grads.values()))
        for name, rate in (("kernel", 1.0), ("bias", 2.0)):
            expected["a"][name] -= rate * grads[name] * min(1, 0.35 / norm)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), params, expected)


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_a_weight_decay_needs_an_optimizer_that_has_one(name):
    with pytest.raises(InputError, match=f"{name} has no weight decay: set 0.01 to 0"):
        make_optimizer(name, weight_decay=0.01)
