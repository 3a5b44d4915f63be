"""Commands: what `main.py` and the installed `mimetic` run."""
