"""A training step compiled for a TPU or GPU that this machine doesn't have, and what it costs.

`target` names the hardware and loads its compiler, `hlo` reads a compiled program, `kernels` counts
what its kernels move and compute, `roofline` turns that into seconds, and `report` prints it.
"""
