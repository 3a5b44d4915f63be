"""Texts as token numbers, and the windows that a model reads."""
