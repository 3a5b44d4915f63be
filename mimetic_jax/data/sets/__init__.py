"""The published image data sets: a table of facts, and a reader per file format."""
