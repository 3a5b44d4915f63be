"""Parameter trees: what leaves are, and schemes written into them."""
