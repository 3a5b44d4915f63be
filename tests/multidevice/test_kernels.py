"""What a compiled program sends between eight devices, against counts by hand."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from mimetic_jax.analysis.compile.hlo import parse
from mimetic_jax.analysis.compile.kernels import Sent, step_kernels
from mimetic_jax.train.cluster.mesh import make_mesh


@pytest.mark.parametrize(("axis", "size", "stride"), [("data", 2, 4), ("fsdp", 4, 1)])
def test_the_sum_of_a_gradient(axis, size, stride):
    mesh = make_mesh(2, 4, devices=jax.devices())

    def shaped(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    gradient = jax.jit(jax.grad(lambda w, x: (x @ w).sum()), out_shardings=NamedSharding(mesh, P()))
    lowered = gradient.lower(shaped((24, 10)), shaped((32, 24), axis))
    kernels = step_kernels(parse(lowered.compile().as_text()))
    (sent,) = (kernel.sent for kernel in kernels if kernel.sent)
    assert (sent.kind, sent.size, sent.stride) == ("all-reduce", size, stride)
    # The gradient is x summed over the batch, for each column: XLA may send one of them.
    assert sent in (Sent("all-reduce", 24 * columns * 4, size, stride) for columns in (1, 10))
