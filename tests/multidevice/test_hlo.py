"""What compiled programs send between eight devices, and what they keep on each."""

import dataclasses
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from configs import imagenet_deit, wikitext103
from configs.default import default
from mimetic_jax import data
from mimetic_jax.train.cluster.mesh import BATCH, make_mesh
from mimetic_jax.train.tasks import TASKS
from mimetic_jax.train.tasks.cross_entropy import token_losses
from mimetic_jax.train.tasks.images import ImageTask
from tests.training import program_of
from tests.typical import typical


def compiled(config, *axes, devices, vocabulary=0):
    """The shapes of a program's parameters, and its compiled dispatch; there are no data."""
    info = TASKS[config.task].describe(config)
    if config.task == "text":
        info = dataclasses.replace(info, vocabulary=vocabulary, num_train=4096 * config.batch)
    program = program_of(config, info, make_mesh(*axes, devices=jax.devices()[:devices]))
    key, arrays = jax.eval_shape(lambda: jax.random.key(0)), program.feed.shapes()
    lowered = program.compiled_dispatch.lower(
        program.shapes, arrays, key, key, jnp.int32(1), jnp.ones(2)
    )
    return program.shapes.params, lowered.compile()


def small(kind, **model):
    """A config where no length of an activation is also one of a parameter."""
    config = default(kind)
    config.batch, config.steps, config.max_dispatch = 40, 10, 2
    config.model.update(width=48, depth=2, heads=2, **model)
    config.optimizer.clip, config.eval.batch = 1.0, 40
    if kind == "text":
        config.data.length, config.data.valid = 12, 8
    return config


def gathered(text):
    """The shapes that come out of all-gathers."""
    results = re.findall(r" = (.*) all-gather(?:-start)?\(", text)
    return {shape(found.split(",")) for line in results for found in re.findall(r"\[(.*?)\]", line)}


def shape(lengths):
    """Sorted and without ones, as the compiler turns and reshapes."""
    return tuple(sorted(int(length) for length in lengths if int(length) > 1))


OTHERS = [("images", False), ("text", True), ("text", False)]


@typical(("kind", "scan"), [("images", True)], slow=OTHERS)
def test_parameters_are_gathered_one_layer_at_a_time(kind, scan):
    """Each kernel of a block is, never a stack of them; and nothing else that is large."""
    params, program = compiled(small(kind, scan=scan), 2, 4, devices=8, vocabulary=56)
    cut = set()
    for path, leaf in jax.tree.leaves_with_path(params):
        if leaf.sharding.shard_shape(leaf.shape) != leaf.shape:
            cut.add(shape(leaf.shape[path[0].key == "blocks" :]))
    kernels = {(2, 24, 48), (48, 192)}
    found = gathered(program.as_text())
    assert kernels < found
    assert kernels < cut
    # XLA may gather the logits for the gradient of the head, which are fewer.
    assert max(map(math.prod, found - cut), default=0) < min(map(math.prod, kernels))


def vit_b():
    config = imagenet_deit.get_config(variant="B")
    config.model.scan = True  # compiles fast
    return config, 0, 0.57


def language_model():
    """The loss needs the embedding whole, 523 MiB, and its gradients."""
    return wikitext103.get_config(width=512, heads=8), 267_735, 0.52


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("make", [vit_b, language_model])
def test_memory_is_shared_out(make):
    """MiB of arguments and temporaries of a step on a device, alone and as one of eight."""
    (config, vocabulary, share), table = make(), []
    config.batch = config.eval.batch = 8
    for fsdp in (1, 8):
        _, program = compiled(config, 1, fsdp, devices=fsdp, vocabulary=vocabulary)
        found = program.memory_analysis()
        table.append((found.argument_size_in_bytes / 2**20, found.temp_size_in_bytes / 2**20))
        print(f"{config.name}: fsdp {fsdp}: {table[-1][0]:,.0f} + {table[-1][1]:,.0f} MiB")
    held, temporary = zip(*table, strict=True)
    for series in (held,) if vocabulary else (held, temporary):
        assert series[1] < share**3 * series[0]
    if vocabulary:
        assert max(temporary) < 4.5 * vocabulary * 512 * 4 / 2**20


@typical("placement", [P(None, "fsdp")], slow=[P(), P("fsdp")])
def test_each_device_works_through_its_own_tokens(placement):
    """The same as on one device; nothing but the embedding is gathered, once, and its gradient
    summed, once: no communication in a loop."""
    mesh, (tokens, vocab, width) = make_mesh(data=4, fsdp=2), (512, 1000, 32)
    keys = jax.random.split(jax.random.key(0), 3)
    hidden = jax.random.normal(keys[0], (tokens, width))
    embedding = jax.random.normal(keys[1], (vocab, width))
    targets = jax.random.randint(keys[2], (tokens,), 0, vocab)

    def gradients(mesh):
        def loss(hidden, embedding, bias):
            chunk = 16 * 4 * vocab
            return token_losses(
                hidden, embedding, bias, targets, chunk_bytes=chunk, mesh=mesh
            ).mean()

        return jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))

    expected = gradients(None)(hidden, embedding, jnp.zeros(vocab))
    placed = [
        jax.device_put(array, NamedSharding(mesh, spec))
        for array, spec in ((hidden, BATCH), (embedding, placement), (jnp.zeros(vocab), P()))
    ]
    sharded = gradients(mesh).lower(*placed).compile()
    found, program = sharded(*placed), sharded.as_text()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), found, expected)
    # Of the tokens nothing travels; of the embedding everything, before and after the loops.
    assert len(re.findall(r" all-gather(?:-start)?\(", program)) == (placement != P())
    assert len(re.findall(r" all-reduce(?:-start)?\(", program)) <= 2  # kernel and bias


POLICY = "torchvision-n2-m9"


@typical(("axes", "policy"), [((2, 2, 2), "")], slow=[((2, 2, 2), POLICY), ((8, 1), POLICY)])
def test_no_image_goes_to_another_device(tiny, axes, policy):
    config = tiny()
    config.data.augment.update(flip=True, erase=0.5, randaugment=policy)
    digits = data.load_dataset("digits")
    examples = digits.train_images[:32], digits.train_labels[:32].astype(np.int32)
    mesh = make_mesh(*axes, devices=jax.devices())
    sharded = jax.device_put(examples, NamedSharding(mesh, BATCH))
    info = data.describe("digits")
    arguments = jax.random.key(1), jnp.int32(7)
    many = jax.jit(ImageTask(config, info, mesh).prepare).lower(*arguments, sharded).compile()
    for moved in ("all-gather", "all-to-all", "collective-permute"):
        assert moved not in many.as_text()
    alone, _ = jax.jit(ImageTask(config, info).prepare)(*arguments, examples)
    np.testing.assert_array_equal(many(*arguments, sharded)[0], alone)
