"""The configurations. As a regular package this one is found first from a checkout's root."""
