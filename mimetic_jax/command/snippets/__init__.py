"""What `mimetic snippet` prints: functions to paste, which need nothing of this package."""
