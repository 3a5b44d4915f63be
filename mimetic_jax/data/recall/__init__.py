"""Sequences whose answers are in what comes before, drawn from a key inside the step."""
