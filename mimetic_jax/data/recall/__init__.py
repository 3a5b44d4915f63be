"""Sequences that are drawn from a key inside the step: copying and recall."""
