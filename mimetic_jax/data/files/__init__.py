"""Image files in class folders and in array_record."""
