import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import serialization, traverse_util

import mimetic_jax
from mimetic_jax import InputError, Rule, rewrite, weights
from mimetic_jax.rules.flax import FLAX
from mimetic_jax.schemes import (
    Impulse,
    Layers,
    MeanShift,
    Mimetic,
    NormMatched,
    Scheme,
    SinCos,
    TFixup,
)
from mimetic_jax.tree.rewrite import rewrite_in_place
from tests.models.values import initial
from tests.noise import Noise
from tests.products import of_layer as products

NOISE = Noise()

KEY = jax.random.key(3)
DIM, HEADS = 16, 2


class Stack(nn.Module):
    """Stock Flax attention, nothing of ours."""

    layers: int = 3

    @nn.compact
    def __call__(self, x):
        for layer in range(self.layers):
            y = nn.MultiHeadDotProductAttention(HEADS, name=f"layer_{layer}")(x)
            x = x + nn.Dense(DIM, name=f"dense_{layer}")(y)
        return x


def stock(layers=3):
    return initial(Stack(layers), jnp.ones((1, 5, DIM)))


def assert_same_products(left, right, atol=1e-5):
    for a, b in zip(products(left), products(right), strict=True):
        np.testing.assert_allclose(a, b, atol=atol)


@pytest.mark.parametrize("implementation", ["threefry2x32", "rbg"])
def test_raw_keys_draw_like_typed_ones(implementation):
    params = stock(2)
    with jax.default_prng_impl(implementation):
        raw, typed = (
            mimetic_jax.rewrite(key, params, NOISE)
            for key in (jax.random.PRNGKey(3), jax.random.key(3))
        )
    jax.tree.map(np.testing.assert_array_equal, raw, typed)


def test_layers_and_keys_differ():
    first = mimetic_jax.rewrite(KEY, stock(), Mimetic())
    second = mimetic_jax.rewrite(jax.random.key(4), stock(), Mimetic())
    trees = (first["layer_0"], first["layer_1"], second["layer_0"])
    noise = [products(tree)[1][~np.eye(DIM, dtype=bool)] for tree in trees]
    assert np.abs(np.corrcoef(noise) - np.eye(3)).max() < 0.3


def test_double_precision_changes_no_draw():
    scheme = NormMatched(Mimetic())
    params = stock(1)
    expected = mimetic_jax.rewrite(KEY, params, scheme)
    with jax.enable_x64(True):
        found = mimetic_jax.rewrite(KEY, params, scheme)
    assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {jnp.dtype("float32")}
    assert_same_products(found["layer_0"], expected["layer_0"])


def test_constants_may_be_traced_where_parameters_are_concrete():
    params = stock(2)

    def rewritten(alpha):
        scheme = NormMatched(Mimetic(alpha_qk=(alpha, 0.7)))
        return mimetic_jax.rewrite(KEY, params, scheme)

    shapes = jax.eval_shape(rewritten, 0.7)
    assert jax.tree.map(jnp.shape, shapes) == jax.tree.map(jnp.shape, params)


@dataclasses.dataclass(frozen=True)
class Toy(Scheme):
    """Uses the context as Impulse and T-Fixup do: position table, grid and depth."""

    depends_on_layer = True

    def writes(self, roles):
        return roles & {"query", "out"}

    def draw(self, key, block, context):
        h, w = context.grid
        return {
            "query": jnp.full(block.shapes["query"], context.position[h * w - 1, 0]),
            "out": block["out"] * context.num_layers**-0.25 + context.layer,
        }


def test_schemes_see_the_tables_that_the_ones_before_wrote():
    tree = {"encoder": stock(2), "pos_embed": jnp.ones((1, 13, DIM))}
    new = mimetic_jax.rewrite(KEY, tree, (SinCos(), Toy()), grid=(3, 4))
    last = new["pos_embed"][0, -1, 0]
    assert last != 1
    for layer in range(2):
        name = f"layer_{layer}"
        np.testing.assert_allclose(new["encoder"][name]["query"]["kernel"], last)
        expected = tree["encoder"][name]["out"]["kernel"] * 2**-0.25 + layer
        np.testing.assert_allclose(new["encoder"][name]["out"]["kernel"], expected, rtol=1e-6)


def aligned(array):
    """A copy at a multiple of 64 bytes, as PyTorch allocates, whose memory JAX can share."""
    memory = np.empty(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def test_blocks_that_are_written_in_place_read_the_table_as_it_was():
    random = np.random.default_rng(0)
    shapes = {"pos_embed": (1, 16, 64)}
    for layer in range(4):
        shapes[f"blocks.{layer}.attn.qkv.weight"] = (192, 64)
        shapes[f"blocks.{layer}.attn.proj.weight"] = (64, 64)
    weights = {
        name: aligned(random.standard_normal(shape, np.float32)) for name, shape in shapes.items()
    }
    expected = mimetic_jax.rewrite(KEY, weights, Impulse(), num_heads=4)
    rewrite_in_place(KEY, weights, Impulse(), num_heads=4)
    for name, array in expected.items():
        np.testing.assert_array_equal(weights[name], array, err_msg=name)


@pytest.mark.parametrize("rows", [16, 17])
def test_square_grids_are_found(rows):
    tree = {"pos_embed": jnp.ones((1, rows, 8)), "patch_embed": {"kernel": jnp.ones((48, 8))}}
    new = mimetic_jax.rewrite(KEY, tree, SinCos())["pos_embed"]
    assert bool((new[0, 0] == 0).all()) == (rows == 17)
    np.testing.assert_array_equal(new[0, rows - 16 :], weights.sincos_2d(4, 4, 8))


POSITIONS = jnp.ones((1, 16, 8))


@pytest.mark.parametrize(
    ("tree", "form"),
    [
        ({"patch_embed": {"kernel": (48, 8)}}, "grid"),
        ({"embedding": {"kernel": (4, 4, 3, 8)}}, "grid"),  # vit_jax
        ({"conv_proj": {"weight": (8, 3, 4, 4)}}, "grid"),  # torchvision
        ({"embedding": (50, 8)}, "line"),
        ({"Embed_0": {"embedding": (50, 8)}}, "line"),
        ({"embed_tokens": {"weight": (50, 8)}}, "line"),
        ({"mlp": {"fc1": {"kernel": (8, 32)}}}, "unknown"),
        ({"embed": {"kernel": (48, 8)}}, "unknown"),  # of patches or of anything else
        ({"embed": {"weight": (8, 48), "bias": (8,)}}, "unknown"),
        ({"embedding": (50, 8), "patch_embed": {"kernel": (48, 8)}}, "unknown"),
    ],
)
def test_the_form_of_positions_is_that_of_what_the_tree_embeds(tree, form):
    tree = jax.tree.map(jnp.ones, tree, is_leaf=lambda leaf: isinstance(leaf, tuple))
    tree["pos_embed"] = POSITIONS
    grid, line = weights.sincos_2d(4, 4, 8), weights.sincos_1d(16, 8)
    if form == "unknown":
        for call in (mimetic_jax.plan, functools.partial(mimetic_jax.rewrite, KEY)):
            words = r"16 positions.*grid=\(4, 4\) for patches, or use SinCos\(axes=1\)"
            with pytest.raises(InputError, match=words):
                call(tree, SinCos())
    else:
        new = mimetic_jax.rewrite(KEY, tree, SinCos())["pos_embed"][0]
        np.testing.assert_array_equal(new, grid if form == "grid" else line)
    # Naming the form is enough in every tree.
    named = mimetic_jax.rewrite(KEY, tree, SinCos(), grid=(4, 4))["pos_embed"][0]
    np.testing.assert_array_equal(named, grid)
    named = mimetic_jax.rewrite(KEY, tree, SinCos(axes=1))["pos_embed"][0]
    np.testing.assert_array_equal(named, line)


def test_the_nearest_embedding_decides():
    """PaliGemma: a tower of images with positions beside a language model without."""
    image = {"embedding": {"kernel": jnp.ones((4, 4, 3, 8))}, "pos_embed": POSITIONS}
    tree = {"img": image, "llm": {"embedder": {"input_embedding": jnp.ones((50, 8))}}}
    new = mimetic_jax.rewrite(KEY, tree, SinCos())["img"]["pos_embed"][0]
    np.testing.assert_array_equal(new, weights.sincos_2d(4, 4, 8))


def test_plan_lists_what_stays_unchanged():
    """With rules for some of the layers only, the others are listed."""
    params = jax.eval_shape(lambda: stock(3))
    rules = [dataclasses.replace(rule, path=f"layer_0/{rule.path}") for rule in FLAX]
    planned = mimetic_jax.plan(params, Mimetic(), rules=rules)
    assert {f"layer_{layer}/query/kernel" for layer in (1, 2)} <= set(planned.untouched)
    assert "layer_0/query/kernel" not in planned.untouched
    assert "unchanged: " in str(planned)
    assert "2 layer_#/query/kernel" in str(planned)


def test_a_plan_keeps_the_numbers_that_layers_share():
    """Of fc1 and fc2 one is written: which one must be seen."""
    kernels = {"fc1": {"kernel": jnp.zeros((8, 32))}, "fc2": {"kernel": jnp.zeros((32, 8))}}
    shown = str(mimetic_jax.plan({"block_0": kernels, "block_1": kernels}, MeanShift()))
    assert "2       block_#/fc1/kernel  mlp_in" in shown
    assert "unchanged: 2 block_#/fc2/kernel" in shown


@pytest.mark.parametrize(
    "call",
    [
        lambda state: mimetic_jax.plan(state, Mimetic()),
        lambda state: mimetic_jax.rewrite(KEY, state, Mimetic()),
        mimetic_jax.check,
    ],
)
def test_the_moments_of_a_training_state_are_no_weights(call):
    params = stock(1)
    with pytest.raises(InputError, match=r"opt_state/0/mu/.* pass the parameters alone"):
        call({"opt_state": [{"mu": params, "nu": params}], "params": params})
    with pytest.raises(InputError, match=r"ema/.* belongs to ema, a copy of params: pass the"):
        call({"ema": params, "params": params})
    assert call(params)


@pytest.mark.parametrize("name", ["mu", "nu", "trace", "count"])
def test_modules_may_have_the_names_of_moments(name):
    layer = stock(1)["layer_0"]
    tree = {"encoder": layer, "head": {name: layer}}
    paths = {write.path for write in mimetic_jax.plan(tree, Mimetic())}
    assert f"head/{name}/query/kernel" in paths


def test_blocks_of_groups_shapes_and_traces():
    kernels = {"query": {"kernel": jnp.ones((8, 4, 2))}, "key": {"kernel": jnp.ones((8, 2, 2))}}
    ((path, _, block),) = mimetic_jax.blocks(jax.eval_shape(lambda: kernels))
    assert (path, block.shapes) == ("", {"query": (8, 4, 2), "key": (8, 2, 2)})
    total = jax.jit(lambda tree: sum(x.sum() for x in mimetic_jax.blocks(tree)[0][2].values()))
    assert total(kernels) == 96


def test_only_a_part_of_a_fused_kernel():
    rules = (Rule("qkv/kernel", ("query", "key", "value"), "d (three h k)"),)
    tree = {"qkv": {"kernel": jnp.arange(16.0 * 48).reshape(16, 48)}}
    scheme = Mimetic(alpha_vo=None, beta_vo=None)
    new = mimetic_jax.rewrite(KEY, tree, scheme, rules=rules, num_heads=2)["qkv"]["kernel"]
    np.testing.assert_array_equal(new[:, 32:], tree["qkv"]["kernel"][:, 32:])
    assert (new[:, :32] != tree["qkv"]["kernel"][:, :32]).all()


def test_names_in_tuples_are_those_of_the_tree():
    tree = stock(1)
    found = rewrite(KEY, traverse_util.flatten_dict(tree), Mimetic())
    expected = traverse_util.flatten_dict(rewrite(KEY, tree, Mimetic()))
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def stacked(layers):
    """Attention and an MLP of so many layers along the first axis."""
    shapes = dict.fromkeys((f"attention/{n}" for n in ("query", "key", "value")), (DIM, HEADS, 8))
    shapes |= {"attention/out": (HEADS, 8, DIM)}
    shapes |= {"mlp/fc1": (DIM, 4 * DIM), "mlp/fc2": (4 * DIM, DIM)}
    random = np.random.default_rng(0)
    return {
        f"blocks/{name}/kernel": random.standard_normal((layers, *shape), np.float32)
        for name, shape in shapes.items()
    }


@pytest.mark.parametrize("scheme", [Mimetic(), NormMatched(Mimetic()), (Mimetic(), MeanShift())])
def test_the_program_of_a_stack_has_one_layer_whatever_their_number(scheme):
    def size(layers):
        inside = jax.jit(rewrite, static_argnums=2)
        return inside.lower(KEY, stacked(layers), scheme).as_text().count("\n")

    assert size(2) == size(24)


@pytest.mark.parametrize(
    ("places", "experts", "each"),
    [
        (["layer_0", "layer_1"], True, 1),
        (["layers/0", "layers/1"], True, 1),
        (["stage_0", "stage_1"], True, 1),
        (["h.0", "h.1"], True, 1),
        (["layer_0", "layer_1"], False, 1),  # members
        (["h/0", "h/1"], False, 1),
        (["stage_0", "stage_1"], False, 4),
        (["stage_0/layers", "stage_1/layers"], False, 4),
        (["layers/0/blocks", "layers/1/blocks"], False, 4),
        (["ScanBlock_0", "ScanBlock_1"], False, 4),
        (["blocks"], False, 4),
        (["Block_0"], False, 4),
    ],
)
def test_what_one_layer_stacks_is_as_deep_as_it(places, experts, each):
    """Four experts beside one attention, or members of an ensemble; else four layers."""
    layers = stacked(4)
    if experts:
        layers |= {path: leaf[0] for path, leaf in layers.items() if "attention" in path}
    tree = {
        path.replace("blocks", place).replace("/", "." if "." in place else "/"): leaf
        for place in places
        for path, leaf in layers.items()
    }
    new = rewrite(KEY, tree, Layers(MeanShift(), 0.75, 1))
    first = [path for path in tree if "fc1" in path]
    changed = [
        not np.array_equal(*pair)
        for path in first
        for pair in zip(tree[path], new[path], strict=True)
    ]
    count = each * len(places)
    drawn = len(changed) // count * max(1, count // 4)
    assert changed == [False] * (len(changed) - drawn) + [True] * drawn
    [mlps] = [names for _, names in mimetic_jax.plan(tree, TFixup()).depth if "mlp" in names[0]]
    assert len(mlps) == count


@pytest.mark.parametrize(
    "names", [("tower1", "tower2"), ("towers/0", "towers/1"), ("Encoder_0", "Encoder_1")]
)
def test_towers_have_a_depth_each(names):
    scheme, layer = Mimetic(beta_vo=(-0.2, -0.4)), jax.eval_shape(lambda: stock(1))["layer_0"]
    layers = [f"{name}/block_{number}" for name in names for number in range(2)]
    planned = mimetic_jax.plan(dict.fromkeys(layers, layer), scheme)
    assert [of for _, of in planned.depth] == [tuple(layers[:2]), tuple(layers[2:])]
    stages = [f"stage_{stage}/block_{number}" for stage in range(2) for number in range(2)]
    with pytest.raises(InputError, match="2 values for 4 layers"):
        mimetic_jax.plan(dict.fromkeys(stages, layer), scheme)


@pytest.mark.parametrize("partitioned", ["kernel_init", "bias_init"])
def test_boxes_that_a_checkpoint_gives_back_as_dictionaries(partitioned):
    """Restored without a target, a box is the key "value" above its array: the draws are equal."""
    given = {"kernel_init": nn.initializers.lecun_normal(), "bias_init": nn.initializers.ones}
    axes = ("embed", "heads", "kv") if partitioned == "kernel_init" else ("heads", "kv")
    given[partitioned] = nn.with_partitioning(given[partitioned], axes)
    if partitioned == "bias_init":
        given["out_bias_init"] = nn.initializers.ones
    layer = nn.MultiHeadDotProductAttention(HEADS, **given)
    boxed = layer.init(jax.random.key(0), jnp.ones((1, 5, DIM)))["params"]
    restored = serialization.msgpack_restore(serialization.to_bytes(boxed))
    plain = rewrite(KEY, nn.unbox(boxed), Mimetic())
    new = rewrite(KEY, restored, Mimetic())
    assert "value" in new["query"][partitioned.removesuffix("_init")]
    jax.tree.map(np.testing.assert_array_equal, jax.tree.leaves(new), jax.tree.leaves(plain))
