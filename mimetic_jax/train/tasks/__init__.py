"""What a program trains: a model with its loss, for images and for text."""
