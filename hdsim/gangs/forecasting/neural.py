"""Neural networks (PyTorch): the LSTM of Kube_Gang_Scheduling, and a convolutional network for all series."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hdsim.gangs.forecasting.base import Forecaster
from hdsim.gangs.forecasting.pooled import Standardized
from hdsim.gangs.forecasting.series import Series
from hdsim.util.arrays import Floats, Ints
from hdsim.util.rules import POSITIVE, integers_from, require


class Lstm(Forecaster):
    """The LSTM of Kube_Gang_Scheduling, one of some units (cells) for each series.

    It forecasts the next changes from the latest one and its state. Each step of training has one value. The state is
    kept from step to step, and reset in each epoch (a pass over the past) and before the first row.
    """

    def __init__(self, epochs: int = 100, units: int = 4) -> None:
        rules = {"epochs": integers_from(1), "units": integers_from(1)}
        require("forecaster", rules, {"epochs": epochs, "units": units})
        self.epochs, self.units = int(epochs), int(units)

    def fit(self, past: Sequence[Series], columns: int, seed: int) -> None:
        """Trains the networks; the range of the changes in the past is scaled to -1 and 1."""
        super().fit(past, columns, seed)
        self._ends = [len(one.values) for one in past]
        changes = [np.diff(one.values) for one in past]
        self._ranges = [(part.min(), np.ptp(part) or 1.0) for part in changes]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._networks = [self._train(self._scaled(number, part)) for number, part in enumerate(changes)]

    def predict(self, number: int, series: Series, origins: Ints) -> Floats:
        """Latest value plus the sums of the changes."""
        begin = self._ends[number]
        scaled = torch.from_numpy(self._scaled(number, np.diff(series.values)))
        cell, head = self._networks[number]
        state, outputs = None, {}
        with torch.no_grad():
            for origin in range(begin, int(origins[-1]) + 1):
                state = cell(scaled[origin - 2].reshape(1, 1), state)
                outputs[origin] = head(state[0])[0].double().numpy()
        low, width = self._ranges[number]
        changes = (np.stack([outputs[origin] for origin in origins.tolist()]) + 1.0) / 2.0 * width + low
        return series.values[origins - 1][:, None] + changes.cumsum(axis=1)

    def _scaled(self, number: int, changes: Floats) -> NDArray[np.float32]:
        low, width = self._ranges[number]
        return ((changes - low) / width * 2.0 - 1.0).astype(np.float32)

    def _train(self, changes: NDArray[np.float32]) -> tuple[nn.LSTMCell, nn.Linear]:
        cell, head = nn.LSTMCell(1, self.units), nn.Linear(self.units, self.columns)
        values = torch.from_numpy(changes)
        targets = values[1:].unfold(0, self.columns, 1)
        optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()], foreach=True)
        for _ in range(self.epochs):
            state = None
            for value, target in zip(values, targets, strict=False):
                state = cell(value.reshape(1, 1), state)
                loss = nn.functional.mse_loss(head(state[0])[0], target)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                state = state[0].detach(), state[1].detach()
        return cell, head


class Tcn(Standardized):
    """Temporal convolutional network for all series.

    Its inputs are the latest values and, shifted so that they show the time ahead, those of a day and of a week before.
    Dilated causal convolutions double their reach from layer to layer (Bai et al., An Empirical Evaluation of Generic
    Convolutional and Recurrent Networks for Sequence Modeling, 2018).

    Args:
        lags: Number of values before the origin that the network sees.
        channels: Number of channels of a layer.
        epochs: Passes over the past.
        rate: Largest learning rate of Adam, which falls to zero along a half cosine.
    """

    def __init__(self, lags: int = 64, channels: int = 32, epochs: int = 20, rate: float = 0.003) -> None:
        super().__init__(lags)
        rules = {"channels": integers_from(1), "epochs": integers_from(1), "rate": POSITIVE}
        require("forecaster", rules, {"channels": channels, "epochs": epochs, "rate": rate})
        self.channels, self.epochs, self.rate = int(channels), int(epochs), rate

    def fit(self, past: Sequence[Series], columns: int, seed: int) -> None:
        """Trains the network on the changes of all series."""
        super().fit(past, columns, seed)
        inputs, targets = [], []
        for number, series in enumerate(past):
            values, origins = self.standardized(number, series), self.learned(series)
            inputs.append(self._inputs(values, series.period, origins))
            targets.append(torch.from_numpy(self.changes(values, origins).astype(np.float32)))
        x, y = torch.cat(inputs), torch.cat(targets)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._network = _network(x.shape[1], self.channels, self.lags, columns)
            self._train(x, y)

    def predict(self, number: int, series: Series, origins: Ints) -> Floats:
        """Latest value plus the change of the network."""
        values = self.standardized(number, series)
        with torch.no_grad():
            # Batches of one size: the last bits of a product depend on the number of its rows.
            changes = [self._network(self._inputs(values, series.period, origin)) for origin in origins[:, None]]
        return self.restored(number, values[origins - 1], torch.cat(changes).double().numpy())

    def _inputs(self, values: Floats, period: int, origins: Ints) -> torch.Tensor:
        """(R, 3, lags) values before each origin, and those of a day and of a week before the times ahead."""
        places = origins[:, None] - self.lags + np.arange(self.lags)
        latest = values[origins - 1][:, None]
        shown = [values[np.maximum(places, 0)] - latest]
        for days in (1, 7):
            earlier = places + self.columns - days * period
            known = (earlier >= 0) & (earlier < origins[:, None])
            shown.append(np.where(known, values[np.where(known, earlier, 0)] - latest, 0.0))
        return torch.from_numpy(np.stack(shown, axis=1).astype(np.float32))

    def _train(self, x: torch.Tensor, y: torch.Tensor) -> None:
        batches = -(-len(x) // _BATCH)
        optimizer = torch.optim.Adam(self._network.parameters(), lr=self.rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.epochs * batches)
        for _ in range(self.epochs):
            for rows in torch.randperm(len(x)).tensor_split(batches):
                loss = nn.functional.mse_loss(self._network(x[rows]), y[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()


#: Origins of a step of training.
_BATCH = 256


def _network(inputs: int, channels: int, reach: int, outputs: int) -> nn.Module:
    """Layers of dilated convolutions that end at the latest time, and a linear layer for its channels."""
    layers: list[nn.Module] = []
    dilation = 1
    while dilation < reach:
        layers += [nn.ConstantPad1d((dilation, 0), 0.0), nn.Conv1d(inputs, channels, 2, dilation=dilation), nn.ReLU()]
        inputs, dilation = channels, 2 * dilation
    return nn.Sequential(*layers, _Latest(), nn.Linear(inputs, outputs))


class _Latest(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[..., -1]
