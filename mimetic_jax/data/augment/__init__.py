"""Augmentation on the device, checked operation by operation against Pillow."""
