"""Settings of JAX that would change a run's numbers without a trace in its configuration."""

from __future__ import annotations

import os
import re

import jax

from mimetic_jax.base.errors import InputError, error_text
from mimetic_jax.host.sums import check_sums

_TRAINED_WITH = {
    "jax_enable_x64": False,
    "jax_default_prng_impl": "threefry2x32",
    "jax_threefry_partitionable": True,  # the same random numbers on every mesh
    "jax_random_seed_offset": 0,
    "jax_disable_jit": False,  # operations that aren't fused round otherwise
    "jax_numpy_dtype_promotion": "standard",  # that of optax's steps
}
"""JAX's defaults. With others, a member of a population isn't the run of its seed, a run depends on
the mesh, or two seeds are the same."""


def check_settings() -> None:
    """Check that JAX has devices, the settings that runs are exact with, and right sums."""
    try:
        jax.devices()
    except RuntimeError as error:
        platforms = jax.config.jax_platforms  # type: ignore[attr-defined]
        raise InputError(
            f"JAX has no devices, with JAX_PLATFORMS={platforms} ({error_text(error)})"
        ) from error
    for name, needed in _TRAINED_WITH.items():
        if (value := getattr(jax.config, name)) != needed:
            raise InputError(
                f"{name.upper()} is {value}, which changes every run's numbers or ends in errors: "
                f"unset it, so that it is {needed}"
            )
    flags = os.environ.get("XLA_FLAGS", "")
    if fast := re.search(r"--xla_cpu_enable_fast_math(=(true|1))?(?=\s|$)", flags):
        raise InputError(f"XLA_FLAGS has {fast[0]}, which changes every run's numbers: remove it")
    check_sums()
