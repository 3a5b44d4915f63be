"""Mamba-2 of state-spaces, of Hugging Face transformers and of bonsai."""

from mimetic_jax.rules.rule import Rule

_PARTS = ("", "", "ssm_b", "ssm_c", "")
"""Of the input projection z, x, B, C, dt."""


def _mixer(weight: str, projection: str, conv: str, filters: str) -> tuple[Rule, ...]:
    """The rules of a layer, from the name of a weight, the name of the filters, and two layouts."""
    leaves: tuple[tuple[str, str | tuple[str, ...], str], ...] = (
        (rf"in_proj[/.]{weight}", _PARTS, projection),
        (rf"{conv}[/.]{weight}", "ssm_conv", filters),
        (rf"{conv}[/.]bias", "ssm_conv_bias", "c"),
        (r"A_log", "ssm_a", "m"),
        (r"dt_bias", "ssm_dt_bias", "m"),
        (r"norm[/.]weight", "ssm_norm", "i"),
    )
    return tuple(Rule(path, role, layout, within=r"mixer$") for path, role, layout in leaves)


STATE_SPACES_MAMBA2: tuple[Rule, ...] = _mixer("weight", "(2i+2s+m) d", "conv1d", "c 1 u")
"""Mamba-2 of state-spaces and of Hugging Face transformers, whose names and shapes agree.

Blocks are backbone/layers/N/mixer, or backbone.layers.N.mixer in a flat dictionary of PyTorch's
names. Kernels are stored output first: in_proj [2 I + 2 G S + H, D] in the order z, x, B, C, dt,
filters [C, 1, 4]. No number of heads is needed: A_log and the gated norm show the sizes. The layer
must have that norm (`rmsnorm`, the default) and no MLP in its projection (`d_ssm` unset, the
default).

Read from: state-spaces/mamba mamba_ssm/modules/mamba2.py (e9594ce).
"""

BONSAI_MAMBA2: tuple[Rule, ...] = _mixer("kernel", "d (2i+2s+m)", "conv1d[/.]conv", "u 1 c")
"""bonsai's Mamba-2, language model and forecaster.

Blocks are backbone/layers/N/mixer, in_proj (in, out) in the order z, x, B, C, dt, filters
[4, 1, C] of an nnx.Conv. One group; no number of heads is needed.

Read from: jax-ml/bonsai bonsai/models/mamba2/modeling.py (3628425).
"""
