"""FLOPs that are read off a compiled program, against counts that don't read it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax.analysis.compile.hlo import parse
from mimetic_jax.analysis.compile.kernels import step_kernels


def counted(function, *shapes, dtype=jnp.float32):
    arrays = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    text = jax.jit(function).lower(*arrays).compile().as_text()
    kernels = step_kernels(parse(text))
    return sum(kernel.times * kernel.flops.total for kernel in kernels)


def test_a_product():
    assert counted(lambda a, b: jax.nn.relu(a @ b) + 1, (6, 7), (7, 5)) == 2 * 6 * 7 * 5


def test_a_product_of_batches():
    heads = "bnhk,bmhk->bhnm"
    found = counted(lambda q, k: jnp.einsum(heads, q, k), (2, 5, 3, 4), (2, 6, 3, 4))
    assert found == 2 * 2 * 3 * 5 * 6 * 4


@pytest.mark.parametrize(
    "window",
    [
        {"window_strides": (1, 1), "padding": "SAME"},
        {"window_strides": (2, 3), "padding": [(1, 2), (0, 1)], "rhs_dilation": (2, 1)},
        {"window_strides": (1, 1), "padding": [(2, 2), (1, 1)], "lhs_dilation": (2, 2)},
        {"window_strides": (1, 1), "padding": "SAME", "feature_group_count": 2},
    ],
)
def test_a_convolution(window):
    """Of ones with ones, where each product adds 1 to the sum of the outputs."""
    shapes = (2, 9, 8, 4), (3, 3, 4 // window.get("feature_group_count", 1), 6)

    def convolved(x, kernel):
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, kernel, dimension_numbers=numbers, **window)

    products = float(convolved(*(np.ones(shape, np.float32) for shape in shapes)).sum())
    assert counted(convolved, *shapes) == 2 * products


def kernel_of(call):
    """A module with one custom call, as the CUDA compiler writes it."""
    return parse(
        "ENTRY %main (a: f32[1], b: f32[1]) -> f32[1] {\n"
        "  %a = bf16[32,24,3,64]{3,2,1,0} parameter(0)\n"
        "  %b = bf16[32,24,3,64]{3,2,1,0} parameter(1)\n"
        f"  ROOT %c = {call}\n"
        "}\n"
    )


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (
            "(bf16[32,24,3,8]{3,2,1,0}, s8[64]{0}) custom-call(%a, %b), custom_call_target="
            '"__cublas$gemm", backend_config={"gemm_backend_config":{"dot_dimension_numbers":'
            '{"lhs_contracting_dimensions":["3"],"rhs_contracting_dimensions":["3"]}}}',
            2 * (32 * 24 * 3 * 8) * 64,
        ),
        (
            "(bf16[32,24,3,64]{3,2,1,0}, u8[0]{0}) custom-call(%a, %b), custom_call_target="
            '"__cudnn$fmhaSoftmaxBackward", backend_config={"cudnn_fmha_backend_config":{'
            '"intermediate_tensor_shape":{"element_type":"BF16","dimensions":["32","3","24","24"]}'
            "}}",
            5 * 2 * (32 * 3 * 24 * 24) * 64,
        ),
    ],
)
def test_calls_of_cuda_libraries(call, expected):
    (kernel,) = step_kernels(kernel_of(call))
    assert kernel.flops.half == expected
    assert kernel.flops.full == 0
