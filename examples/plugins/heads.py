"""An action: ``hdsim train env.action=heads.py 'env.orders=[first,shortest]'``."""

import numpy as np

from hdsim.decisions import Action
from hdsim.decisions.base import more_events


class Heads(Action):
    """Starts the first job of one of several orders; the last action leaves the queue until the next instant."""

    fixed_policy = has_void = True

    def __init__(self, orders=("first", "smallest")):
        self.orders = orders

    def size(self, platform):
        return len(self.orders) + 1

    def begin(self, cluster, wait_queue):
        self.cluster, self.wait_queue = cluster, wait_queue
        self.queues = [wait_queue.ordered(name) for name in self.orders]

    def on_instant(self):
        self.left = False

    def pending(self):
        return bool(not self.left and self.cluster.queue and self.mask()[:-1].any())

    def mask(self):
        fits = [self.cluster.fits(queue.head()) for queue in self.queues]
        return np.array([*fits, more_events(self.cluster)])

    def act(self, action):
        self.left = action == len(self.orders)
        if not self.left:
            job = self.queues[action].head()
            self.cluster.start(job, self.cluster.pick(job))
            self.wait_queue.remove(job)
