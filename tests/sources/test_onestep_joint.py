"""One-step ends of PIU over couplings of what unfair edges switch: exact worlds, samples, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.special import expit

import pyrofair as pf
from pyrofair.effects.bounds import choose_potentials, consistent_ends
from pyrofair.effects.potential_outcomes import CounterfactualSample
from pyrofair.exceptions import DataError

SATURATED: dict[str, Any] = {"propensity": "saturated", "regression": "saturated", "folds": 1}
LOGISTIC: dict[str, Any] = {"propensity": "logistic", "regression": "logistic"}
NOISE = 4
"""A rest node's noise has so many equally probable values."""


@dataclass(frozen=True)
class Discrete:
    """A structural model with tables drawn at random: roots Q, switched mediators W, and mediators R after them.

    Probabilities of R are fractions of ``NOISE``, so that equally probable values of its noise give it exactly.
    """

    roots: int
    switched: tuple[int, ...]
    rest: int
    seed: int
    reads: bool = True
    direct: bool = True

    @property
    def names(self) -> tuple[list[str], list[str], list[str]]:
        return (
            [f"Q{i}" for i in range(self.roots)],
            [f"W{i}" for i in range(len(self.switched))],
            [f"R{i}" for i in range(self.rest)],
        )

    @cached_property
    def unfair(self) -> pf.UnfairPaths:
        q, w, r = self.names
        edges = [(root, node) for root in q for node in ("A", *w, *r, "Y")]
        edges += [("A", node) for node in (*w, *(r if self.reads else ()), "Y")]
        edges += [(node, later) for nodes in (w, r) for i, node in enumerate(nodes) for later in nodes[i + 1 :]]
        edges += [(node, later) for node in w for later in (*r, "Y")] + [(node, "Y") for node in r]
        graph = pf.CausalGraph(edges, sensitive="A", outcome="Y")
        return graph.unfair(direct=self.direct, through=w)

    def table(self, name: str, levels: int, df: pd.DataFrame, *reads: Any) -> NDArray[np.float64]:
        """Probabilities (n, levels) of a node in rows where it reads these values, from a table that the seed fixes."""
        rng = np.random.default_rng([self.seed, *name.encode()])
        whole = rng.dirichlet(np.full(levels, 2.0), size=(3,) * len(reads))
        return np.broadcast_to(whole[tuple(reads)], (len(df), levels))

    def fraction(self, name: str, *reads: Any) -> NDArray[np.int64]:
        rng = np.random.default_rng([self.seed, *name.encode()])
        return rng.integers(1, NOISE, size=(3,) * len(reads))[tuple(reads)]

    def rows(self) -> pd.DataFrame:
        """All values of the features with their probabilities ``p`` in the population."""
        q, w, r = self.names
        sizes = [2 + (i % 2) for i in range(len(q))] + [2, *self.switched, *[2] * len(r)]
        df = pd.DataFrame(list(product(*map(range, sizes))), columns=[*q, "A", *w, *r])
        p = np.ones(len(df))
        for i, name in enumerate(q):
            p *= self.table(name, sizes[i], df)[np.arange(len(df)), df[name]]
        p *= self.table("A", 2, df, *(df[name] for name in q))[np.arange(len(df)), df["A"]]
        p *= self.cells(df, df["A"])
        for i, name in enumerate(r):
            one = self.fraction(name, *self.given(df, i, df["A"])) / NOISE
            p *= np.where(df[name] == 1, one, 1.0 - one)
        return df.assign(p=p)

    def cells(self, df: pd.DataFrame, a: Any) -> NDArray[np.float64]:
        """The probability of each row's switched values given its roots, where they read the group ``a``."""
        q, w, _ = self.names
        p = np.ones(len(df))
        for i, name in enumerate(w):
            reads = [df[each] for each in (*q, *w[:i])]
            p *= self.table(name, self.switched[i], df, *reads, a)[np.arange(len(df)), df[name]]
        return p

    def given(self, df: pd.DataFrame, i: int, a: Any) -> list[Any]:
        q, w, r = self.names
        return [*(df[each] for each in (*q, *w, *r[:i])), *([a] if self.reads else [])]

    def score(self, world: CounterfactualSample) -> NDArray[np.float64]:
        """Two columns: decisions and scores."""
        rng = np.random.default_rng([self.seed, 7])
        names = ["A", *(name for part in self.names for name in part)]
        a = world.rows.get("A", 0)
        s = rng.uniform(size=(3,) * len(names))[(a, *(world.rows[each] for each in names[1:]))]
        return np.column_stack([s > 0.5, s]).astype(float)

    def worlds(self) -> tuple[CounterfactualSample, CounterfactualSample]:
        """Both worlds with a cell for each switched value, and one value of all noise of the rest in both."""
        q, w, r = self.names
        sizes = [2 + (i % 2) for i in range(len(q))] + [*self.switched, *[NOISE] * len(r)]
        df = pd.DataFrame(list(product(*map(range, sizes))), columns=[*q, *w, *(f"U{name}" for name in r)])
        for i, name in enumerate(r):
            df[name] = (df[f"U{name}"] < self.fraction(name, *self.given(df, i, np.zeros(len(df), int)))).astype(int)
        p = np.full(len(df), float(NOISE) ** -len(r))
        for i, name in enumerate(q):
            p *= self.table(name, sizes[i], df)[np.arange(len(df)), df[name]]
        unit = df.groupby(q).ngroup().to_numpy() if q else np.zeros(len(df), dtype=int)
        found = [
            CounterfactualSample(
                df[[*q, *w, *r]].assign(A=arm if self.direct else 0),
                p * self.cells(df, np.full(len(df), arm)),
                unit,
                cell=df.groupby(w).ngroup().to_numpy(),
            )
            for arm in (0, 1)
        ]
        return found[0], found[1]


MODELS = [
    Discrete(1, (2,), 1, 0),
    Discrete(2, (3,), 1, 1),
    Discrete(0, (3,), 2, 2),
    Discrete(1, (2, 3), 1, 3),
    Discrete(1, (3,), 2, 4, reads=False),
    Discrete(2, (2, 2), 0, 5),
    Discrete(0, (3,), 0, 6),
    Discrete(1, (3,), 1, 7, direct=False),
    Discrete(1, (2,), 2, 8, direct=False, reads=False),
]


def ends(values: pf.effects.InfluenceValues) -> NDArray[np.float64]:
    """The lower and the upper end for each column, (2, Q)."""
    mean = values.weight / values.weight.sum()
    return np.stack([mean @ values.lower, 1.0 - mean @ values.rest])


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_exact_tables_give_the_ends_of_the_programs(model: Discrete) -> None:
    df = pd.concat([model.rows()] * 40, ignore_index=True)  # no row weighs much
    p = df.pop("p")
    one, other = (
        pf.OneStep(model.unfair, form="prefix", joint=joint, **SATURATED).fit(df, p) for joint in (None, "consistent")
    )
    plain, values = one.influence(model.score), other.influence(model.score)
    found, worlds = ends(values), model.worlds()
    for column in range(2):
        scores = [tuple(model.score(world)[:, column] for world in worlds)]
        expected = consistent_ends(scores, [worlds], choose_potentials(scores, [worlds]))
        assert found[:, column] == pytest.approx(expected, abs=1e-10)
    wide = ends(plain)
    assert (found[0] >= wide[0] - 1e-12).all()
    assert (found[1] <= wide[1] + 1e-12).all()
    assert not model.rest or (found[1] - found[0] < wide[1] - wide[0] - 1e-3).any()
    for name in ("y0", "ypi", "disagreement"):
        mean = (np.average(getattr(each, name), axis=0, weights=each.weight) for each in (plain, values))
        assert next(mean) == pytest.approx(next(mean), abs=1e-12)


# --- samples ---------------------------------------------------------------------------------------------------------

SAMPLED = MODELS[0]


def draw(n: int, seed: int) -> pd.DataFrame:
    whole = SAMPLED.rows()
    return whole.drop(columns="p").sample(n, replace=True, weights=whole["p"], random_state=seed, ignore_index=True)


def test_ends_of_other_rows_do_not_err_inward() -> None:
    worlds = SAMPLED.worlds()
    scores = [tuple(SAMPLED.score(world)[:, 1] for world in worlds)]
    low, high = consistent_ends(scores, [worlds], choose_potentials(scores, [worlds]))
    found = []
    for seed in range(20):
        source = pf.OneStep(SAMPLED.unfair, joint="consistent", **SATURATED).fit(draw(2000, seed))
        found.append(ends(source.influence(SAMPLED.score, draw(2000, 100 + seed)))[:, 1])
    mean, error = np.mean(found, axis=0), np.std(found, axis=0) / np.sqrt(len(found))
    assert low - 0.02 < mean[0] < low + 2.0 * error[0]
    assert high - 2.0 * error[1] < mean[1] < high + 0.02


def test_the_lower_end_is_around_nothing_where_nothing_differs() -> None:
    def score(world: CounterfactualSample) -> NDArray[np.float64]:
        return SAMPLED.score(CounterfactualSample(world.rows.assign(A=0), world.weight))

    found = []
    for seed in range(20):
        fitted, audited = (
            draw(1000, s).assign(A=lambda df, s=s: np.random.default_rng(s).integers(0, 2, len(df)))
            for s in (seed, 100 + seed)
        )
        source = pf.OneStep(SAMPLED.unfair, joint="consistent", **SATURATED).fit(fitted)
        found.append(ends(source.influence(score, audited))[0])
    mean, error = np.mean(found, axis=0), np.std(found, axis=0) / np.sqrt(len(found))
    assert (mean < 2.0 * error).all()
    assert (mean > -0.03).all()


def units(n: int, seed: int = 0) -> pd.DataFrame:
    """A number as root, an integer that unfair edges switch, and a number after it."""
    rng = np.random.default_rng(seed)
    q = rng.normal(size=n)
    a = (rng.random(n) < expit(0.5 * q)).astype(int)
    m = (rng.random(n) < expit(0.8 * a + 0.6 * q)).astype(int) + (rng.random(n) < 0.3)
    return pd.DataFrame({"Q": q, "A": a, "M": m, "L": 0.7 * m + 0.5 * a + 0.4 * q + rng.normal(size=n)})


GRAPH = pf.CausalGraph("Q -> A; {A Q} -> M; {A Q M} -> L; {A Q M L} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair(direct=True, through=["M"])


class Rule:
    """Scores that rise with all features."""

    def predict_proba(self, rows: pd.DataFrame) -> NDArray[np.float64]:
        p = expit(-1.0 + 0.5 * rows["A"] + rows["M"] + rows["L"] + 0.3 * rows["Q"]).to_numpy()
        return np.column_stack([1.0 - p, p])


def test_an_audit_has_the_tighter_ends() -> None:
    df = units(1500)
    plain, tight = (
        pf.audit({"rule": Rule()}, pf.OneStep(UNFAIR, joint=joint, **LOGISTIC), df, random_state=0)
        for joint in (None, "consistent")
    )
    keys = ["decisions", "quantity"]
    one, other = (report.table.set_index(keys)["estimate"] for report in (plain, tight))
    for quantity in ("p_y0", "p_ypi", "mean_unfair_effect", "piu_paper_bound"):
        assert one["threshold", quantity] == other["threshold", quantity]
    width = [each["threshold", "piu_upper"] - each["threshold", "piu_lower"] for each in (one, other)]
    assert width[1] < width[0] - 0.01
    assert "Wherever both worlds agree in M, they agree in all that follows from it" in str(tight)


def test_rows_may_hold_a_value_that_was_not_fitted() -> None:
    df, other = units(600), units(200, 1)
    source = pf.OneStep(UNFAIR, joint="consistent", **LOGISTIC).fit(df)
    other.loc[0, "M"] = 7
    values = source.influence(lambda world: Rule().predict_proba(world.rows)[:, 1], other)
    assert np.isfinite(values.lower).all()
    assert np.isfinite(values.rest).all()


def test_without_anything_switched_it_changes_nothing() -> None:
    df, unfair = units(600), GRAPH.unfair("A -> Y")
    one, other = (
        pf.OneStep(unfair, joint=joint, folds=2, random_state=0)
        .fit(df)
        .influence(lambda world: Rule().predict_proba(world.rows))
        for joint in (None, "consistent")
    )
    assert (one.lower == other.lower).all()


# --- refusals --------------------------------------------------------------------------------------------------------


def test_an_effect_that_both_worlds_share_is_refused() -> None:
    graph = pf.CausalGraph("Q -> {A M L}; A -> M -> Y; A -> L -> Y", sensitive="A", outcome="Y")
    with pytest.raises(DataError, match=r"shared by both worlds to be no effect of A, and L is one\. Use joint=None"):
        pf.OneStep(graph.unfair(through=["M"]), joint="consistent").fit(units(300))


def test_the_graph_form_is_refused() -> None:
    with pytest.raises(DataError, match="takes the prefix form, not form='graph'"):
        pf.OneStep(UNFAIR, joint="consistent", form="graph").fit(units(300))


def test_a_switched_node_that_reads_another_drawn_one_is_refused() -> None:
    graph = pf.CausalGraph("A -> D -> M -> N -> Y; {A D M} -> Y; A -> {M N}", sensitive="A", outcome="Y")
    unfair = graph.unfair("A -> D -> Y", "A -> D -> M -> Y", "A -> D -> M -> N -> Y", "A -> N -> Y")
    df = pd.DataFrame(np.random.default_rng(0).integers(0, 2, (200, 4)), columns=[*"ADMN"])
    with pytest.raises(DataError, match="'N', which unfair edges switch, reads a drawn node that they do not"):
        pf.OneStep(unfair, joint="consistent", **SATURATED).fit(df)


def test_many_values_and_numbers_are_refused() -> None:
    df = units(500)
    with pytest.raises(DataError, match="takes each value of M by itself, and they have more than 200"):
        pf.OneStep(UNFAIR, joint="consistent").fit(df.assign(M=np.arange(500)))
    with pytest.raises(DataError, match="or are no categories or integers"):
        pf.OneStep(UNFAIR, joint="consistent").fit(df.assign(M=df["M"] + 0.0))


def test_outcomes_are_refused() -> None:
    source = pf.OneStep(UNFAIR, joint="consistent", **LOGISTIC).fit(units(600))
    with pytest.raises(DataError, match=r"of an outcome only one is observed\. Use joint=None"):
        source.for_outcome()
