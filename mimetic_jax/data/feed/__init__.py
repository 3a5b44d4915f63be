"""Which examples a step sees, and how they reach the devices."""
