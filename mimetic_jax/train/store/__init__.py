"""What a comparison stores: runs, metrics, checkpoints, and the locks that guard them."""
