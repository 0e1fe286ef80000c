"""The discrete-event engine and the replay that drives it."""
