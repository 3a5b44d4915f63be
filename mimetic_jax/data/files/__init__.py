"""Image files in folders, archives and array_record, read without unpacking."""
