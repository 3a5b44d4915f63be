"""Rows of the papers, trained and shown. A regular package, as `launch` is the name of others."""
