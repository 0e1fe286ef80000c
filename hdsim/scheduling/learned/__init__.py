"""The order ``learned``: its network, its queue in replays, and its checks on the past.

Inputs have no scale: times and widths are logarithms relative to the queue, the last 256 jobs and the machine. Of each
job: run time, cores, time waited, whether it fits, when it could start, and how much pressure (1 / max(run time, 10 s),
the bounded slowdown gained per second) of the first 16 jobs its start would relieve or put off. Of the state: queue,
idle cores, load, spread of run times and widths, errors of requested times over the latest 512 jobs, measured after
every 128. The score is a bilinear form of job and state, plus a perceptron with eleven hidden units over both.

Run times are requested ones; once two jobs of the same user, cores and requested time have ended, others like them are
expected to take as long as the longer of the last two, at least 1 s and at most the requested time (only for the order,
not for reservations; not with RLScheduler's rule).

Guard: in a comparison the latest 512 jobs are replayed under the network and under ``sjf``, ``saf``, run time x
sqrt(cores), and cores x sqrt(run time). The logarithms of their ratios are summed over comparisons, each counting 0.7
of the next. A plain order whose sum is below -4 is followed until the next comparison, 128 jobs later (256, then 512
while no sum is negative).
"""
