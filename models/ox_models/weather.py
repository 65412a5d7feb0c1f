"""Forecast of the temperature of the next three days: an LSTM on the last 30 days of Seattle's weather.

The forecast "same as today" has a mean error of 3.0 °C over the next three days. A much better one is hard, because
the network sees the weather of one city only. It can learn that hot days are followed by cooler ones, that the
temperature changes little with rain, and the season. Together they reduce the error by an eighth. The parts follow each
other in time, so that no data of the future are used: training is on 2012 to mid-2014, validation (it chooses the best
epoch) on the half year after that, and the test set is 2015.

Data: NOAA, daily weather of Seattle, public domain.
"""

import numpy as np

import ox
from ox import nn
from ox.data import TensorDataset
from ox_models.tables_data import table

SEEN, AHEAD = 30, 3  # days of input, and days of the forecast

inputs = {
    "days": f"the last {SEEN} days, the newest last; of each highest and lowest temperature in °C, precipitation in "
    "mm, wind in m/s, and the day of the year from 1"
}
outputs = {"highest": f"highest temperature in °C of each of the {AHEAD} days that follow"}
shareable = True

# The averaged weights (EMA) are evaluated and exported: weather data is noisy, and so are single steps.
defaults = {"epochs": 25, "batch_size": 32, "lr": 0.003, "clip": 1.0, "ema": 0.98}
metrics = ["mae", "rmse"]
best = "-mae"


def data() -> tuple[TensorDataset, TensorDataset, TensorDataset]:
    """Windows of 30 days and the next 3, split by the time of the forecast days: no day is a target in two parts."""
    columns = table("seattle_weather")
    dates = np.array(columns["date"], "datetime64[D]")
    of_year = (dates - dates.astype("datetime64[Y]")).astype(int) + 1
    names = ["temp_max", "temp_min", "precipitation", "wind"]
    days = np.stack([*(columns[name] for name in names), of_year], axis=1).astype(np.float32)
    parts = []
    for begin, end in (("2012-01-01", "2014-07-01"), ("2014-07-01", "2015-01-01"), ("2015-01-01", "2016-01-01")):
        there = np.flatnonzero((dates >= np.datetime64(begin)) & (dates < np.datetime64(end)))
        firsts = [day for day in there[: len(there) - AHEAD + 1] if day >= SEEN]
        windows = np.stack([days[day - SEEN : day] for day in firsts])
        parts.append(TensorDataset(windows, np.stack([days[day : day + AHEAD, 0] for day in firsts])))
    return parts[0], parts[1], parts[2]


class Forecaster(nn.Module):
    """An LSTM with 32 units; its state after the last day gives the forecast."""

    def __init__(self, days: ox.Tensor) -> None:
        super().__init__()
        # The scales of the training days are part of the model: inputs and outputs are in degrees.
        self.register_buffer("mean", days[..., :4].mean((0, 1)))
        self.register_buffer("std", days[..., :4].std((0, 1)))
        self.lstm = nn.LSTM(6, 32, batch_first=True)
        self.dropout = nn.Dropout(0.3)
        self.head = nn.Linear(32, AHEAD)
        # The forecast is today's temperature plus a change, whose initial weights are 0.
        for weights in self.head.parameters():
            nn.init.zeros_(weights)

    def forward(self, days: ox.Tensor) -> ox.Tensor:
        # The day of the year as sine and cosine, so that the 31st of December is next to the 1st of January.
        angle = days[..., 4:] * (2 * np.pi / 365.25)
        standard = (days[..., :4] - self.mean) / self.std
        states, _ = self.lstm(ox.cat([standard, ox.sin(angle), ox.cos(angle)], dim=-1))
        change = self.head(self.dropout(states[:, -1]))
        highest: ox.Tensor = days[:, -1, :1] + self.std[0] * change
        return highest


def model() -> nn.Module:
    return Forecaster(data()[0].tensors[0])


# The absolute error is the metric of the task; with the squared error a few stormy days would dominate.
loss = nn.L1Loss()


def optimizer(model: nn.Module, lr: float) -> ox.optim.Optimizer:
    return ox.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.05)


def scheduler(optimizer: ox.optim.Optimizer, lr: float, steps: int) -> ox.optim.lr_scheduler.LRScheduler:
    return ox.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=steps)


def sample(model: nn.Module) -> str:
    """The forecast of the last three days of 2015."""
    days, truth = data()[2].tensors
    foretold = model(days[-1:])[0].tolist()
    pairs = zip(foretold, truth[-1].tolist(), strict=True)
    return "29 to 31 December 2015: " + ", ".join(f"{guess:.1f} °C (was {was:.1f})" for guess, was in pairs)
