"""A forecaster of series: ``hdsim bsp forecast forecaster.path=drift.py forecaster.part=0.3``."""

import numpy as np

from hdsim.gangs.forecasting.base import Forecaster


class Drift(Forecaster):
    """The latest value and a part of the latest change."""

    def __init__(self, part: float = 0.5):
        self.part = part

    def predict(self, number, series, origins):
        latest, before = series.values[origins - 1], series.values[origins - 2]
        return np.repeat((latest + self.part * (latest - before))[:, None], self.columns, axis=1)
