"""``python -m hdsim``."""

from hdsim.cli import main

main()
