"""Bounds where the data do not identify the effect: what all models with the graph and the data have in common.

In come unfair paths, identified or not, and a table; out come bounds on both potential outcomes and on PIU, with what
they depend on and whether they can be improved. :func:`sharp_bounds` optimises over response types. What both worlds
read is in ``evaluations``, response types and what the data say of them in ``response_types``, what a combination of
types does in ``costs``, and the optimisation in ``program``.
"""

from pyrofair.robustness.partial_identification.sharp import SharpBounds, sharp_bounds

__all__ = ["SharpBounds", "sharp_bounds"]
