"""Search for settings by Optuna: the space, the trials and what comes of them."""
