"""The published image data sets: a table of facts and a reader for each form of files."""
