"""Devices and processes: the mesh, joining other processes, and being preempted."""
