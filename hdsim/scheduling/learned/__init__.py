"""The order ``learned``: its network, its queue in replays, and its checks on the past."""
