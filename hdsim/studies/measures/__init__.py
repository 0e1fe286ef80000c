"""Tables of bundled studies that no command of hdsim makes."""
