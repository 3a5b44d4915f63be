"""metrics.jsonl: one whole line per record, each step once even if a run restarts."""

from __future__ import annotations

import json
from typing import Any

from mimetic_jax.train.workdir.paths import AnyPath, append, write_atomically


class MetricsFile:
    """The metrics of one run, appended line by line.

    A record has "step" and either training metrics or "eval_accuracy" and "eval_loss".
    """

    def __init__(self, path: AnyPath) -> None:
        self.path = path

    def read(self) -> list[dict[str, Any]]:
        """All whole records; a partial line that a kill left is ignored."""
        if not self.path.exists():
            return []
        records = []
        for line in self.path.read_text().splitlines():
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return records

    def rewind(self, step: int) -> None:
        """Remove the records after a step, which is about to run again."""
        kept = [record for record in self.read() if record["step"] <= step]
        if not kept and not self.path.exists():
            return
        write_atomically(self.path, "".join(json.dumps(record) + "\n" for record in kept))

    def append(self, record: dict[str, Any]) -> None:
        append(self.path, json.dumps(record) + "\n")
