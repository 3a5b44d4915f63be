"""Schemes for state space layers."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated

import jax
import jax.numpy as jnp

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import Range
from mimetic_jax.schemes.base import Block, Context, Scheme, both_or_none
from mimetic_jax.weights.checks import CORRELATION, NOT_NEGATIVE

DECAY = Range(1e-30, 1e6, reason="as its logarithm is stored in float32")
STEP = Range(1e-6, 1e6)


@dataclasses.dataclass(frozen=True)
class MimeticSSM(Scheme):
    """A state space layer that starts as linear attention: it forgets nothing and reads by content.

    - A ≈ 0⁻, so that exp(A Δ) ≈ 1: A = −decay · u^−power, u ~ U(1, 16) by head, stored as log −A;
    - Δ ≈ 1: the bias of Δ is log(e^Δ − 1), .54;
    - W_C W_Bᵀ is aligned with I: W_C = ρ W_B + √(1 − ρ²) σ ε, W_B as the layer has it and σ its
      root mean square. What is read under x is what was written under it;
    - the causal convolution is near the identity: 1 at its last tap, plus noise; its bias is 0.

    Each part is left as it is if its field is None: 16 combinations.

    The four parts are those of reviews of the paper and of code derived from it. They were not
    checked against its text, and `decay`, `correlation` and `noise` are values of our own: don't
    report results as the paper's. What the literature calls A ≈ 1 is exp(A Δ) ≈ 1.

    On copying (docs/recall.md) A carries the effect, with or without W_C:
    `MimeticSSM(step=None)`. Δ without A destroys it.

    `Permuted` is the control for W_C: it keeps A and Δ. `NormMatched` draws A_log and the bias of Δ
    as noise of the same norm too, so that heads forget at very different rates.

    Attributes:
        decay: largest −A; 1 with `power` 2, 4 or 8 is A = −exp(−power · A_log) of Mamba-2's A_log.
        power: exponent of the spread over heads; 0: the same A in all.
        step: Δ where the input adds nothing to the bias.
        correlation: ρ.
        noise: standard deviation around the identity filter. None by default: a model of two layers
            whose filters see one token alone learns to copy more slowly (configs/copying.py).

    Reference: Mimetic Initialization Helps State Space Models Learn to Recall (Trockman,
    Harutyunyan, Kolter, Kumar and Bhojanapalli, arXiv 2410.11135), from secondary sources.
    """

    decay: Annotated[float, DECAY] | None = 1e-3
    power: Annotated[float, NOT_NEGATIVE] = 0.0
    step: Annotated[float, STEP] | None = 1.0
    correlation: Annotated[float, CORRELATION] | None = 1.0
    noise: Annotated[float, NOT_NEGATIVE] | None = None

    def validate(self) -> None:
        if self.decay is None and self.power:
            raise InputError(f"power {self.power} of a decay of None: give both or neither")
        if all(part is None for part in (self.decay, self.step, self.correlation, self.noise)):
            raise InputError("decay, step, correlation and noise are all None: nothing to write")

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        written = {
            "ssm_a": self.decay,
            "ssm_dt_bias": self.step,
            "ssm_conv": self.noise,
            "ssm_conv_bias": self.noise,
        }
        found = frozenset(role for role in roles & written.keys() if written[role] is not None)
        if self.correlation is not None and both_or_none(roles, "ssm_b", "ssm_c"):
            found |= {"ssm_c"}
        return found

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        shapes, written = block.shapes, self.writes(frozenset(block))
        a_key, c_key, conv_key = jax.random.split(key, 3)
        new: dict[str, jax.Array] = {}
        if self.decay is not None and "ssm_a" in written:
            (heads,) = shapes["ssm_a"]
            drawn = jnp.log(jax.random.uniform(a_key, (heads,), jnp.float32, 1, 16))
            new["ssm_a"] = math.log(self.decay) - self.power * drawn
        if self.step is not None and "ssm_dt_bias" in written:
            bias = self.step + math.log(-math.expm1(-self.step))  # whose softplus is Δ
            new["ssm_dt_bias"] = jnp.full(shapes["ssm_dt_bias"], bias, jnp.float32)
        if self.correlation is not None and "ssm_c" in written:
            if shapes["ssm_b"] != shapes["ssm_c"]:
                raise InputError(
                    f"ssm_b {shapes['ssm_b']} and ssm_c {shapes['ssm_c']} differ in shape"
                )
            like, rho = block["ssm_b"], jnp.float32(self.correlation)
            noise = jax.random.normal(c_key, like.shape, jnp.float32)
            noise = noise * jnp.sqrt(jnp.square(like).mean())
            new["ssm_c"] = self.correlation * like + jnp.sqrt(1 - jnp.square(rho)) * noise
        if self.noise is not None and "ssm_conv" in written:
            drawn = jax.random.normal(conv_key, shapes["ssm_conv"], jnp.float32) * self.noise
            new["ssm_conv"] = drawn.at[-1].add(1.0)
        if "ssm_conv_bias" in written:
            new["ssm_conv_bias"] = jnp.zeros(shapes["ssm_conv_bias"])
        return new
