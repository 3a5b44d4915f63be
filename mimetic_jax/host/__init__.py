"""Computation on the host: CPU cores, BLAS threads, LAPACK outside XLA."""
