"""The picture of a decomposition: nothing that it writes lies over another thing."""

from __future__ import annotations

from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from pyrofair.audits.waterfall import UNFAIR, Panel, draw_waterfalls

WORDS = ["directly", "by way of marital status and by way of hours worked and by way of education", "by way of pay"]


def panel(k: int, first: float, *, ordered: bool) -> Panel:
    """Parts of both signs from a mean to another one."""
    estimates = [0.02, *(0.09 * (-1.0) ** i for i in range(k))]
    rows = pd.DataFrame({"part": ["confounding", *(f"{WORDS[i % 3]} {i}" for i in range(k))], "estimate": estimates})
    rows = rows.assign(lower=rows["estimate"] - 0.03, upper=rows["estimate"] + 0.02, smallest=np.nan, largest=np.nan)
    if ordered:
        rows.loc[1:, ["smallest", "largest"]] = rows.loc[1:, ["lower", "upper"]].to_numpy()
    gap = float(sum(estimates))
    long = ("a group with a long name, of several words", "confounding (age, country, year of birth, sector)")
    labels = [*long, *rows["part"].iloc[1:], "B"]
    ends = SimpleNamespace(estimate=gap, lower=gap - 0.01, upper=gap + 0.01)
    return Panel(
        rows,
        ends,
        (first, first + gap),
        labels,
        [f"{WORDS[0]} 0"],
        "B: more than A. Where does that come from?",
        "Decisions.",
    )


@pytest.mark.parametrize("first", [0.02, 0.6])
@pytest.mark.parametrize("k", [1, 4, 6])
def test_labels_do_not_overlap_and_unfair_parts_are_red(k: int, first: float) -> None:
    figure = draw_waterfalls([panel(k, first, ordered=k > 1)] * 2, 0.95)
    figure.draw_without_rendering()
    texts = [*figure.texts, *(each for axes in figure.axes for each in (*axes.texts, *axes.get_yticklabels()))]
    shown = [each for each in texts if each.get_text()]
    boxes = [each.get_window_extent().shrunk(0.98, 0.9) for each in shown]
    for (i, one), (j, other) in combinations(enumerate(boxes), 2):
        assert not one.overlaps(other), (shown[i].get_text(), shown[j].get_text())
    assert all(box.x0 >= 0.0 and box.x1 <= figure.bbox.x1 for box in boxes)
    for axes in figure.axes:
        red = {tick.get_text().replace("\n", " ") for tick in axes.get_yticklabels() if tick.get_color() == UNFAIR}
        assert red == {f"{WORDS[0]} 0"}
