"""What structure weights have, before and after training."""
