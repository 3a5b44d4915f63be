"""Small tools that every other part uses: errors, extras, typed fields, tables of text, files of
tensors."""
