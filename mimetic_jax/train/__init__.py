"""Training: mesh, state, step, optimizer, loop, evaluation, checkpoints and the report."""
