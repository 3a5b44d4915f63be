"""The papers as data: every table and figure, with its published numbers."""
