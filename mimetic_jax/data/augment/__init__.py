"""Augmentation on the device; tests check each operation against Pillow."""
