"""What leaves of a parameter tree are: their paths, names, layouts and rules."""
