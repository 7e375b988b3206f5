"""How unlike are two groups' samples? The maximum mean discrepancy, with the mean of each group its own."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["mean_discrepancy"]


def mean_discrepancy(points: Tensor, group: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the squared maximum mean discrepancy between two groups of points, under a Gaussian kernel.

    With ``k(x, y) = exp(-|x - y|^2 / (2 d))`` in d dimensions it is the mean of k over all pairs in group 0, plus that
    over all pairs in group 1, minus twice that over all pairs of one from each. Each mean is by the group's own number
    of points (or their total weight), so that it does not shrink where a group is small.

    Parameters
    ----------
    points
        Shape (n, d).
    group
        0 or 1 for each point, shape (n,).
    weight
        Weights of shape (n,); by default ones.

    Returns
    -------
    Tensor
        A scalar of at least 0 but for rounding; 0 if one of the groups has no point, for then there is nothing to
        compare.

    References
    ----------
    Gretton et al. (2012), eq. (5); Chiappa (2018), the penalty on the posterior of the latent variables.

    Examples
    --------
    >>> mean_discrepancy(torch.tensor([[0.0], [2.0], [0.0], [2.0]]), torch.tensor([0, 0, 1, 1]))
    tensor(0.)
    >>> mean_discrepancy(torch.tensor([[0.0], [2.0]]), torch.tensor([0, 1]))  # 2 - 2 exp(-2)
    tensor(1.7293)
    """
    mass = torch.ones_like(points[:, 0]) if weight is None else weight.to(points)
    zero, one = (mass * (group == value).to(points) for value in (0, 1))
    if not bool(zero.sum() > 0) or not bool(one.sum() > 0):
        return points.new_zeros(())
    contrast = zero / zero.sum() - one / one.sum()
    kernel = torch.exp(torch.cdist(points, points).square() / (-2.0 * points.shape[1]))
    return contrast @ kernel @ contrast
