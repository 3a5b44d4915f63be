"""Images in files: folders, archives and array_record, read without unpacking."""
