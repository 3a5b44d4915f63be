"""`python -m mimetic_jax` is the command `mimetic`."""

from mimetic_jax.command.console import main

main()
