"""Weighted mean and variance of many models, exact and stable (West's incremental form, 1979).

Kept beside the histograms because a bucket's edge says nothing about a deviation smaller than the bucket.
"""

import numpy as np

from agent.predict_server.decay import Floats
from agent.predict_server.histogram import Rows


class Moments:
    """Per model the weight, the mean, and the weighted sum of squared deviations from it."""

    def __init__(self, rows: int = 0) -> None:
        self.weights = np.zeros(rows)
        self.means = np.zeros(rows)
        self.squares = np.zeros(rows)

    def resize(self, rows: int) -> None:
        """Makes room for `rows` models; new ones are empty."""
        more = np.zeros(rows - len(self.weights))
        self.weights = np.concatenate([self.weights, more])
        self.means = np.concatenate([self.means, more])
        self.squares = np.concatenate([self.squares, more])

    def clear(self, row: int) -> None:
        self.weights[row] = self.means[row] = self.squares[row] = 0.0

    def add(self, rows: Rows, values: Floats, weights: Floats) -> None:
        """Adds to each (distinct) row one value with its weight, which is above 0."""
        total = self.weights[rows] + weights
        distance = values - self.means[rows]
        # A weight that underflowed to 0 must not turn an empty model into NaN.
        mean = self.means[rows] + distance * np.divide(weights, total, out=np.zeros_like(total), where=total > 0)
        self.squares[rows] += weights * distance * (values - mean)
        self.means[rows] = mean
        self.weights[rows] = total

    def scale(self, rows: Rows, factors: Floats) -> None:
        """Multiplies every sample's weight in each row by its factor."""
        self.weights[rows] *= factors
        self.squares[rows] *= factors

    def stdevs(self, rows: Rows) -> Floats:
        """Population standard deviation: the samples are the whole population. 0 for an empty model."""
        weights = self.weights[rows]
        variances = np.divide(self.squares[rows], weights, out=np.zeros_like(weights), where=weights > 0)
        return np.sqrt(variances)
