"""First come, first served for 200 completions, then a death that gives no notice."""

import os
import signal

from firstComeFirstServed import FirstComeFirstServed


class DiesAfterAWhile(FirstComeFirstServed):
    completed = 0

    def onJobCompletion(self, job):
        super().onJobCompletion(job)
        self.completed += 1
        if self.completed == 200:
            os.kill(os.getpid(), signal.SIGKILL)
