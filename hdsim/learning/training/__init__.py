"""Training of learning agents: the loop, evaluation on held-out windows, records, checkpoints and the model card.

Its modules import torch; nothing else in hdsim does.
"""
