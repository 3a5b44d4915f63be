"""Work for the host: LAPACK outside XLA, cores and BLAS threads."""
