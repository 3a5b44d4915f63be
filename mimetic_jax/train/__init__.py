"""Training: mesh, state, step, optimiser, loop, evaluation, checkpoints and the report."""
