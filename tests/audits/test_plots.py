"""Figures whose artists are where the numbers of the table put them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

from pyrofair import DataError, piu_bounds
from pyrofair._figures import BLUE, COLOURS, RED
from pyrofair.audits.plots import (
    plot_audit,
    plot_feasible_region,
    plot_frontier,
    plot_stages,
    plot_thresholds,
    plot_trade_off,
)
from pyrofair.audits.verdicts import WORDINGS
from pyrofair.effects.estimates import QUANTITIES

LONG = "a penalised network with quite a long name"
SAME_FOR_ALL = WORDINGS["constant"].head


@pytest.fixture(autouse=True)
def _nothing_global() -> Iterator[None]:
    """Neither an open figure nor a changed setting is left behind."""
    before = dict(mpl.rcParams)
    yield
    assert plt.get_fignums() == []
    assert dict(mpl.rcParams) == before


def audit_table(models: dict[str, tuple[float, float]], *, intervals: bool = True) -> pd.DataFrame:
    """A table from the marginals of each model, NaN for those that cannot be estimated."""
    rows = []
    for position, (model, (p0, p1)) in enumerate(models.items()):
        known = not np.isnan(p0)
        bounds = piu_bounds(p0, p1) if known else None
        for decisions in ("threshold", "score"):
            values = {"accuracy": 0.7 + 0.02 * position, "positive_rate": 0.3, "majority_rate": 0.75}
            values["mean_unfair_effect"] = p1 - p0
            for name, end in [("piu_paper_bound", "paper"), ("piu_lower", "lower"), ("piu_upper", "upper")]:
                values[name] = float(getattr(bounds, end)) if bounds else np.nan
            for quantity in QUANTITIES:
                if quantity in values and (decisions == "threshold" or quantity not in ("accuracy", "majority_rate")):
                    value = values[quantity]
                    low, high = (value - 0.03, value + 0.05) if intervals else (np.nan, np.nan)
                    note = "exact test-set bound" if quantity == "accuracy" else ""
                    rows.append((model, decisions, quantity, value, low, high, 100.0, note))
    return pd.DataFrame(rows, columns=["model", "decisions", "quantity", "estimate", "lower", "upper", "ess", "note"])


TWO = {"plain": (0.3, 0.45), LONG: (0.1, 0.12)}
SIX = TWO | {"vacuous": (0.4, 0.7), "coin": (0.5, 0.5), "unknown": (np.nan, np.nan), "last": (0.01, 0.0)}


def whiskers(axes: Axes) -> dict[tuple[float, float], tuple[float, float]]:
    """The ends of each horizontal line by its height and middle."""
    found = {}
    for lines in axes.collections:
        assert isinstance(lines, LineCollection)
        for segment in lines.get_segments():
            if len(segment):  # matplotlib empties those with a NaN
                (low, y), (high, _) = segment
                found[float(y), round((low + high) / 2, 6)] = (low, high)
    return found


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def inside(figure: Figure) -> None:
    """No label is cut off, no title of an axis covers another, and the legend covers no panel."""
    figure.savefig(io.BytesIO(), format="png")
    for one, other in combinations([axes.xaxis.label.get_window_extent() for axes in figure.axes], 2):
        assert not one.overlaps(other)
    width, height = figure.get_size_inches() * figure.dpi
    for axes in figure.axes:
        box = axes.get_tightbbox()
        assert box is not None
        assert box.x0 >= -1 and box.y0 >= -1  # noqa: PT018
        assert box.x1 <= width + 1 and box.y1 <= height + 1  # noqa: PT018
    for legend in figure.legends:
        frame = legend.get_window_extent()
        assert frame.x0 >= 0 and frame.x1 <= width and frame.y0 >= 0  # noqa: PT018
        for axes in figure.axes:
            assert not frame.overlaps(axes.get_window_extent())


# --- audit -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("models", [TWO, SIX])
@pytest.mark.parametrize("decisions", ["threshold", "score"])
def test_audit(models: dict[str, tuple[float, float]], decisions: str) -> None:
    table = audit_table(models)
    figure = plot_audit(table, decisions, paper_bound=True, verdicts=dict.fromkeys(models, SAME_FOR_ALL))
    left, middle, right = figure.axes
    names = list(models)
    assert [label.get_text().replace("\n", " ") for label in left.get_yticklabels()] == names
    position = {name: float(at) for name, at in zip(names, left.get_yticks(), strict=True)}
    assert position[names[0]] == len(names) - 1  # first on top
    rows = table[table["decisions"] == decisions].set_index(["model", "quantity"])
    accuracy = table[table["decisions"] == "threshold"].set_index(["model", "quantity"])
    found = whiskers(left)
    dots = {float(y): x for x, y in zip(*left.lines[0].get_data(), strict=True)}
    for name in names:
        row = accuracy.loc[(name, "accuracy")]
        assert dots[position[name]] == row["estimate"]
        assert found[position[name], round((row["lower"] + row["upper"]) / 2, 6)] == pytest.approx(
            (row["lower"], row["upper"])
        )
    assert left.lines[1].get_xdata()[0] == 0.75
    assert [text.get_text() for text in left.texts] == ["majority class"]
    effects = dict(zip(*middle.lines[0].get_data()[::-1], strict=True))
    for name in names:
        assert effects[position[name]] == pytest.approx(rows.loc[(name, "mean_unfair_effect"), "estimate"], nan_ok=True)
    assert middle.lines[1].get_xdata()[0] == 0.0
    found, bars = whiskers(right), {bar.get_y() + bar.get_height() / 2: bar for bar in right.patches}
    diamonds, arrows = (dict(zip(*line.get_data()[::-1], strict=True)) for line in right.lines[-2:])
    for name, (p0, _) in models.items():
        low, high, paper = (rows.loc[(name, f"piu_{end}")] for end in ("lower", "upper", "paper_bound"))
        if np.isnan(p0):
            continue
        bar = bars[position[name]]
        assert (bar.get_x(), bar.get_x() + bar.get_width()) == pytest.approx((low["estimate"], high["estimate"]))
        for end in (low, high):
            middle = round((end["lower"] + end["upper"]) / 2, 6)
            assert found[position[name], middle] == pytest.approx((end["lower"], end["upper"]))
        if paper["estimate"] < 1.0:
            assert diamonds[position[name]] == paper["estimate"]
            assert np.isnan(arrows[position[name]])
        else:
            assert arrows[position[name]] == 1.0
            assert np.isnan(diamonds[position[name]])
    paper_bounds = rows.xs("piu_paper_bound", level="quantity")["estimate"]
    unknown = [name for name, (p0, _) in models.items() if np.isnan(p0)]
    assert [(text.get_text(), text.get_position()[1]) for text in right.texts[: len(unknown)]] == [
        ("not available", position[name]) for name in unknown
    ]
    assert [each.get_text().replace("\n", " ") for each in right.texts[len(unknown) :]] == [SAME_FOR_ALL] * len(names)
    assert right.get_xlim() == (-0.02, 1.02)
    assert right.get_xlabel().endswith("decisions" if decisions == "threshold" else "scores")
    assert left.get_xlabel() == "accuracy, %\n(exact interval)"
    assert len(texts(figure)) == 2 + (paper_bounds < 1.0).any() + (paper_bounds >= 1.0).any()
    assert len(texts(plot_audit(table, decisions))) == 2
    inside(figure)


# --- trade-off -------------------------------------------------------------------------------------------------------


def path_table(methods: tuple[str, ...] = (), seeds: int = 3) -> pd.DataFrame:
    rows = []
    for position, method in enumerate(methods or ("",)):
        for seed in range(seeds):
            for strength in (0.0, 0.5, 1.0):
                p0, p1 = 0.3 - 0.1 * strength + 0.01 * seed, 0.5 - 0.2 * strength + 0.03 * position
                bounds = piu_bounds(p0, p1)
                for decisions in ("score", "threshold"):
                    rows.append(
                        {
                            "strength": strength,
                            "seed": seed,
                            "decisions": decisions,
                            "accuracy": 0.8 - 0.05 * strength + 0.01 * seed,
                            "majority_rate": 0.7,
                            "positive_rate": 0.4,
                            "mean_unfair_effect": p1 - p0,
                            "piu_paper_bound": bounds.paper,
                            "piu_lower": bounds.lower,
                            "piu_upper": bounds.upper + (0.02 if decisions == "score" else 0.0),
                        }
                        | ({"method": method} if methods else {})
                    )
    return pd.DataFrame(rows)


@pytest.mark.parametrize("methods", [(), ("Proposed", "FIO")])
@pytest.mark.parametrize("decisions", ["threshold", "score"])
@pytest.mark.some(2)
def test_trade_off(methods: tuple[str, ...], decisions: str) -> None:
    table = path_table(methods)
    figure = plot_trade_off(table, decisions)
    rows = table[table["decisions"] == decisions]
    count = max(1, len(methods))
    for axes, quantity in zip(figure.axes, ["accuracy", "mean_unfair_effect", "piu_upper"], strict=False):
        each = 4 if quantity == "piu_upper" else 2
        assert len(axes.lines) == count * each + (quantity != "piu_upper")
        assert len(axes.collections) == count
        for position in range(count):
            own = rows[rows["method"] == methods[position]] if methods else rows
            seeds = own.groupby("strength")[[quantity, "piu_lower", "piu_paper_bound"]]
            mean = seeds.mean()
            line, dots, *ends = axes.lines[position * each : (position + 1) * each]
            np.testing.assert_allclose(line.get_ydata(), mean[quantity])
            np.testing.assert_array_equal(line.get_xdata(), [0.0, 0.5, 1.0])
            assert len(dots.get_xdata()) == len(own) == 9
            np.testing.assert_array_equal(dots.get_ydata(), own[quantity])
            assert {each.get_color() for each in (line, dots, *ends)} == {COLOURS[position]}
            for end, name in zip(ends, ["piu_lower", "piu_paper_bound"], strict=False):
                np.testing.assert_allclose(end.get_ydata(), mean[name])
            band = axes.collections[position]
            assert isinstance(band, PolyCollection)
            corners = {tuple(corner) for corner in band.get_paths()[0].vertices.round(9).tolist()}
            for each_seed in (seeds.min(), seeds.max()):
                assert {(x, round(y, 9)) for x, y in each_seed[quantity].items()} <= corners
    assert figure.axes[0].lines[-1].get_ydata()[0] == pytest.approx(0.7)
    assert figure.axes[2].get_ylim() == pytest.approx((0.0, 1.05 * min(1.0, rows["piu_paper_bound"].max())))
    assert texts(figure)[:count] == list(methods or ["penalised"])
    assert len(texts(figure)[count:]) == 6
    inside(figure)


def test_frontier() -> None:
    """Accuracy against PIU: a line through the strengths, an interval for each, and the far end of its uncertainty."""
    table = path_table()
    rows = table[table["decisions"] == "threshold"]
    mean = rows.groupby("strength")[["accuracy", "piu_lower", "piu_upper"]].mean()
    intervals = rows[["strength", "seed", "decisions"]].assign(quantity="piu_upper", upper=rows["piu_upper"] + 0.04)
    axes = plot_trade_off(table, "threshold", intervals).axes[3]
    ends, line = axes.lines[1:3]
    np.testing.assert_allclose(line.get_xydata(), mean[["piu_upper", "accuracy"]])
    np.testing.assert_allclose(ends.get_xdata(), mean["piu_upper"] + 0.04)
    wide, thin = ([segment.tolist() for segment in each.get_segments()] for each in axes.collections)
    for strength, (_, row) in enumerate(mean.iterrows()):
        at = row["accuracy"]
        np.testing.assert_allclose(wide[strength], [(row["piu_lower"], at), (row["piu_upper"], at)])
        np.testing.assert_allclose(thin[strength], [(row["piu_upper"], at), (row["piu_upper"] + 0.04, at)])
    assert [text.get_text() for text in axes.texts] == ["0", "1"]
    assert axes.get_ylim()[0] > 0.7  # the frontier is not squeezed by the majority class
    inside(axes.figure)
    plain = plot_trade_off(table, "threshold", pd.DataFrame())
    assert len(plain.axes[3].collections) == 1
    assert len(texts(plain)) == len(texts(plot_trade_off(table, "threshold", intervals))) - 1


def test_one_point_for_each_strength() -> None:
    """With the limit drawn, the chosen strength ringed, and the intervals of both numbers."""
    table = path_table()
    rows = table[table["decisions"] == "threshold"]
    mean = rows.groupby("strength")[["piu_upper", "accuracy"]].mean()
    keys = rows[["strength", "seed", "decisions"]]
    piu = keys.assign(quantity="piu_upper", lower=0.0, upper=rows["piu_upper"] + 0.04)
    accuracy = keys.assign(quantity="accuracy", lower=rows["accuracy"] - 0.01, upper=rows["accuracy"] + 0.01)
    axes = plot_frontier(table, "threshold", pd.concat([piu, accuracy]), 0.3, 0.5).axes[0]
    np.testing.assert_allclose(axes.lines[1].get_xydata(), mean)
    across, along = ([np.array(each) for each in lines.get_segments()] for lines in axes.collections)
    for each, up, (_, row) in zip(across, along, mean.iterrows(), strict=True):
        np.testing.assert_allclose(each[:, 0], [row["piu_upper"], row["piu_upper"] + 0.04])
        np.testing.assert_allclose(up[:, 1], [row["accuracy"] - 0.01, row["accuracy"] + 0.01])
    assert [text.get_text() for text in axes.texts] == ["0", "0.5", "1"]
    limit, ring = axes.lines[-2:]
    assert limit.get_xdata()[0] == 0.3
    np.testing.assert_allclose(ring.get_xydata()[0], mean.loc[0.5])
    inside(axes.figure)


def test_labels_of_near_places_cover_no_other_text() -> None:
    table = path_table(seeds=1)
    near = pd.concat(
        table.assign(strength=table["strength"] + by, accuracy=table["accuracy"] - by) for by in (0, 1e-3, 2e-3)
    )
    axes = plot_frontier(near, "threshold", pd.DataFrame()).axes[0]
    axes.figure.savefig(io.BytesIO())
    boxes = [Text.get_window_extent(text) for text in axes.texts]  # without lines to places
    assert len(boxes) == 9
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_texts_are_large_and_dark_enough() -> None:
    """10 points at least, with a contrast of 4.5 with white (WCAG 2, level AA)."""
    frontier = plot_frontier(path_table(), "threshold", pd.DataFrame(), 0.3, 0.5)
    region = plot_feasible_region().figure
    for figure in (plot_audit(audit_table(TWO), title="t"), plot_stages(stages(), None, 3.0), frontier, region):
        figure.savefig(io.BytesIO())  # type: ignore[union-attr]
        for text in figure.findobj(Text):
            if text.get_text():
                assert text.get_fontsize() >= 10.0
                channels = np.array(to_rgb(text.get_color()))
                linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
                assert 1.05 / (linear @ [0.2126, 0.7152, 0.0722] + 0.05) >= 4.5


def test_thresholds_are_a_line_with_a_band() -> None:
    rows = [
        {"model": model, "threshold": at, "quantity": name, "estimate": x, "lower": x - 0.1, "upper": x + 0.1}
        for model in ("m", "n")
        for at in (0.7, 0.3)
        for name, x in (("mean_unfair_effect", at / 2), ("piu_lower", at / 2), ("piu_upper", at))
    ]
    figure = plot_thresholds(pd.DataFrame(rows), 0.5, 0.95, "title")
    left, right = figure.axes
    np.testing.assert_allclose(left.lines[0].get_xydata(), [(0.3, 0.15), (0.7, 0.35)])
    band = left.collections[0].get_paths()[0].vertices.round(9).tolist()
    assert all(corner in band for corner in ([0.3, 0.05], [0.3, 0.25], [0.7, 0.25], [0.7, 0.45]))
    np.testing.assert_allclose([line.get_ydata()[0] for line in right.lines[:2]], [0.15, 0.3])
    assert texts(figure)[:2] == ["m", "n"]
    inside(figure)


def test_one_seed_has_no_band() -> None:
    assert [len(axes.collections) for axes in plot_trade_off(path_table(seeds=1)).axes] == [0, 0, 0, 1]


def test_a_line_has_a_gap_where_a_seed_has_no_value() -> None:
    table = path_table()
    gone = (table["strength"] == 0.5) & (table["seed"] == 1)
    table.loc[gone, ["piu_upper", "piu_lower", "piu_paper_bound"]] = np.nan
    line, dots, *_ = plot_trade_off(table).axes[2].lines
    assert list(np.isnan(line.get_ydata())) == [False, True, False]
    assert np.isnan(dots.get_ydata()).sum() == 1
    plot_trade_off(table.assign(piu_paper_bound=np.nan))


def test_more_methods_than_colours() -> None:
    methods = tuple(f"method {i}" for i in range(7))
    figure = plot_trade_off(path_table(methods, seeds=1))
    assert len(figure.axes[0].lines) == 2 * 7 + 1
    assert texts(figure)[:7] == list(methods)
    inside(figure)


def test_audit_of_what_is_missing() -> None:
    figure = plot_audit(audit_table(TWO, intervals=False))
    assert [whiskers(axes) for axes in figure.axes] == [{}, {}, {}]
    assert len(figure.axes[2].patches) == 2
    inside(figure)
    table = audit_table(TWO)
    for note in ("", np.nan):  # of a weighted accuracy, which has no exact interval; as read back from CSV
        assert plot_audit(table.assign(note=note)).axes[0].get_xlabel() == "accuracy, %"
    table.loc[table["quantity"].isin(["accuracy", "majority_rate"]), ["estimate", "lower", "upper"]] = np.nan
    figure = plot_audit(table)
    assert [text.get_text() for text in figure.axes[0].texts] == ["no outcomes"]
    inside(figure)


@pytest.mark.parametrize(
    ("plot", "message"),
    [
        (lambda: plot_audit(audit_table(TWO), "hard"), r"decisions='hard' to draw; the table has \['"),
        (lambda: plot_trade_off(path_table(), "hard"), r"decisions='hard' to draw; the table has \['"),
        (lambda: plot_audit(pd.DataFrame()), "decisions='threshold' to draw; the table has no rows"),
        (lambda: plot_trade_off(pd.DataFrame()), "decisions='threshold' to draw; the table has no rows"),
        (lambda: plot_feasible_region((1.3,)), r"levels=1\.3 must be a number of at least 0 and of at most 1"),
        (lambda: plot_stages(stages(), "new", 3.0), "model='new' must be one of 'plain', 'other', or None"),
    ],
)
def test_what_cannot_be_drawn(plot: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        plot()


# --- feasible region -------------------------------------------------------------------------------------------------


def test_feasible_region() -> None:
    """Figure 2: at level .2 only the corners (0, 0) and (1, 1) are left, at .8 only the other two are cut off."""
    axes = plot_feasible_region()
    wide, narrow = axes.collections
    assert isinstance(wide, PolyCollection)
    assert [to_hex(each.get_facecolor()[0]) for each in (wide, narrow)] == [RED.lower()] * 2

    def allowed(region: PolyCollection, p0: float, p1: float) -> bool:
        return any(path.contains_point((p0, p1)) for path in region.get_paths())

    for p0, p1 in np.random.default_rng(0).uniform(size=(200, 2)):
        penalty = p0 * (1 - p1) + p1 * (1 - p0)
        for region, level in [(wide, 0.8), (narrow, 0.2)]:
            if abs(penalty - level) > 0.01:
                assert allowed(region, p0, p1) == (penalty < level)
    assert not allowed(narrow, 0.5, 0.5)
    gaps = [np.unique(np.round(line.get_ydata() - line.get_xdata(), 9)).tolist() for line in axes.lines]
    assert gaps == [[-0.4], [0.4], [-0.1], [0.1]]
    assert {line.get_color() for line in axes.lines} == {BLUE}
    assert (axes.get_xlim(), axes.get_ylim()) == ((0.0, 1.0), (0.0, 1.0))
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        "penalty at most 0.8",
        "mean unfair effect within 0.4 of 0 (FIO)",
        "penalty at most 0.2",
        "mean unfair effect within 0.1 of 0 (FIO)",
    ]
    figure = axes.figure
    assert isinstance(figure, Figure)
    figure.savefig(io.BytesIO())
    assert not legend.get_window_extent().overlaps(axes.get_window_extent())
    assert legend.get_window_extent().y1 <= figure.bbox.y1
    given = Figure().subplots()
    assert plot_feasible_region(0.3, ax=given) is given
    assert (len(given.collections), len(given.lines)) == (1, 2)


# --- stages ----------------------------------------------------------------------------------------------------------


def stages(**changed: object) -> pd.DataFrame:
    rows = [
        {"model": model, "decisions": decisions, "regime": regime, "nodes": nodes, "given": "C", "mean_weight": mean,
         "mean_weight_z": 2.0, "ess": ess, "balance_z": balance, "correction_z": -0.5, "problem": "",
         "counts": True}
        for model, balance in (("plain", 0.4), ("other", -5.2))
        for decisions in ("threshold", "score")
        for regime, nodes, mean, ess in (("baseline", "M, L", 1.04, 900.0), ("unfair", "M", 0.98, 450.0))
    ]  # fmt: skip
    return pd.DataFrame(rows).assign(**changed)


def test_stages_show_weights_sizes_and_the_largest_z() -> None:
    figure = plot_stages(stages(), None, 3.0)
    left, middle, right = figure.axes
    rows = ["baseline world: M, L\nC", "unfair-path world: M\nC"]
    assert [label.get_text() for label in left.get_yticklabels()] == rows
    blue = next(each for each in left.lines if to_hex(each.get_color()) == BLUE.lower() and len(each.get_xdata()))
    assert list(blue.get_xdata()) == [1.04, 0.98]
    assert [patch.get_width() for patch in middle.patches] == [900.0, 450.0]
    drawn = {(each.get_marker(), to_hex(each.get_color()), *each.get_xdata()) for each in right.lines}
    assert drawn == {("o", RED.lower(), 5.2), ("s", BLUE.lower(), 0.5)}
    told = [text.get_text() for text in right.texts]
    assert told.count("other") == 2  # whose balance is the largest
    assert told[-2:] == ["\N{BALLOT X} balance"] * 2
    alone = plot_stages(stages(), "plain", 3.0).axes[2]
    assert [list(each.get_xdata()) for each in alone.lines if each.get_marker() == "o"] == [[0.4], [0.4]]
    assert [text.get_text() for text in alone.texts] == ["\N{CHECK MARK} weight ok"] * 2


def test_a_stage_without_usable_weights_is_red() -> None:
    figure = plot_stages(stages(mean_weight=np.inf, problem="a propensity of exactly 0"), None, 3.0)
    assert {to_hex(patch.get_facecolor()) for patch in figure.axes[1].patches} == {RED.lower()}
    figure.savefig(io.BytesIO())


def test_stages_of_decisions_that_do_not_vary_are_not_drawn() -> None:
    table = stages().assign(counts=lambda rows: rows["decisions"] == "score")
    table.loc[table["decisions"] == "threshold", "balance_z"] = 40.0
    drawn = [each for each in plot_stages(table, None, 3.0).axes[2].lines if each.get_marker() == "o"]
    assert max(max(each.get_xdata(), default=0.0) for each in drawn) == 5.2
