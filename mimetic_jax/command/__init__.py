"""Commands: what `main.py` and the installed `mimetic` run."""

from mimetic_jax.host.sums import compile_right_sums

compile_right_sums()  # before JAX has devices
