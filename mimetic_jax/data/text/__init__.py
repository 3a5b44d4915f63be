"""Texts as token ids, and the windows of them that a model reads."""
