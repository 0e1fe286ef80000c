"""Tables of studies that no command of hdsim makes, and what several of these need."""
