"""Conditional independences that a graph implies among observed nodes, and their tests on a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal

import networkx as nx
import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, stdtr
from scipy.stats import rankdata
from sklearn.base import RegressorMixin
from sklearn.ensemble import RandomForestRegressor
from sklearn.kernel_approximation import Nystroem
from sklearn.model_selection import KFold
from sklearn.preprocessing import SplineTransformer

from pyrofair._progress import progress_bar
from pyrofair._random import seed_from
from pyrofair._validation import require_flag, require_instance, require_integer, require_real, require_seed
from pyrofair.audits.clusters import ROWS, describe_units
from pyrofair.audits.display import table_fragment
from pyrofair.audits.display.page import make_table, missing_fragment, missing_tables
from pyrofair.audits.view import CHECK, Block
from pyrofair.effects.estimates import by_unit, kish_size
from pyrofair.effects.potential_outcomes import FEWEST_ROWS
from pyrofair.exceptions import DataError
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.projection import LatentProjection
from pyrofair.nuisances.columns import take
from pyrofair.nuisances.folds import split_folds
from pyrofair.nuisances.learners import LearnerName, make_learner, require_learner
from pyrofair.tables.labels import as_levels, encode_levels, is_categorical
from pyrofair.tables.reading import as_pandas, read_groups, read_table, warn_unused
from pyrofair.tables.recorded import Missing, as_recorded, missing_shares, require_missing, with_flags
from pyrofair.tables.row_identity import hash_groups

__all__ = ["GraphCheck", "Independence", "check_graph", "implied_independences"]

FEWEST = 100
"""The fewest rows that a graph is checked on."""
FEWEST_OF_A_LEVEL = 20
"""Levels of fewer rows are pooled, and products of residuals with a smaller effective size are not tested: they are far
from normal."""
DRAWS = 2_000
"""Draws of the largest statistic where the null hypothesis holds."""
MOST_JOINT = 300
"""The most statistics of a test whose joint distribution is drawn; of more, Bonferroni's bound is taken."""
TITLE, MOST_SHOWN = "The graph against the table", 12
"""Of the part of a report: its title, and the most rows that show those that hold, too."""
LEAST_VARIANCE = 1e-8
"""A residual with less of the variance of its column has none: the nodes given determine the column."""
KNOTS, LANDMARKS, MOST_PRODUCTS = 6, 100, 20
"""Of the smooth regression: knots of a number, landmarks of the kernel, columns whose products enter."""
PLAIN, SPLINES = 10.0, 3.0
"""Levels, numbers and their splines are penalised so much less than products and the kernel: squares of these."""
UNDERSMOOTHED = 1
"""The penalty is so many steps below the one chosen for prediction: here bias costs more than variance."""
STRENGTHS = np.logspace(-6, 3, 19)
"""Ridge penalties, in units of a standardised column, among which generalised cross-validation chooses."""
TREES, IN_LEAF, MOST_IN_TREE = 25, 5, 5_000
"""Of a forest: trees, the fewest rows of a leaf, and the most rows of which a tree is made."""
SHARED_JUMPS = (
    "both columns jump with the nodes given (a forest predicts them better than a smooth regression), where true "
    "independences fail somewhat too often: distrust a small correlation"
)
JUMPY = 0.02
"""A share of the residual variance by which a forest must be better before regressions are said to have jumps."""
COLUMNS = ["left", "right", "given", "effect", "largest", "statistic", "p_value", "p_adjusted", "fails", "note"]
RECORDS = (
    "{} may be missing, and 'not recorded' counts as a value: what is tested holds of records if true values act on "
    "other nodes by their records alone."
)
ASSUMPTIONS = (
    "The regressions on the nodes given are accurate: the product of their errors vanishes faster than 1/sqrt(n).",
    "A dependence shows as a covariance of residuals, given the nodes, of normal scores of numbers or of levels of "
    "categories. One that shows in none, of a variance alone for example, is not found.",
    "What does not fail is not confirmed: other graphs imply the same independences, and no test sees the direction of "
    "an edge that is there, nor a latent cause of adjacent nodes.",
)


@dataclass(frozen=True)
class Independence:
    """Two observed nodes that a graph separates, and the observed nodes given which it does."""

    left: str
    right: str
    given: tuple[str, ...]

    def __str__(self) -> str:
        given = f" given {', '.join(self.given)}" if self.given else ""
        return f"{self.left} independent of {self.right}{given}"


@dataclass(frozen=True, eq=False, repr=False)
class GraphCheck:
    """The conditional independences of a graph on a table, made by ``graph.check(df)``; print it for a reading.

    Attributes
    ----------
    table : DataFrame
        A row for each pair of nodes: left, right, given; effect, the correlation of residuals, in [-1, 1], of the two
        columns (or levels) with the largest statistic, which ``largest`` names; statistic, the largest absolute value;
        p_value, of this pair of nodes alone; p_adjusted, Holm's, of all pairs; fails, whether that is below ``level``;
        note, why a pair could not be tested, or why to distrust a small correlation.
    failures : DataFrame
        The rows that fail, the largest effect first.
    untested : tuple
        Pairs of nodes without an edge that no observed nodes separate; the graph implies no independence of theirs.
    level : float
        The probability that any independence fails where all hold.
    rows : int
        The number of rows.
    graph : CausalGraph
        The graph that was checked.
    assumptions : tuple of str
        What the tests depend on.
    missing : DataFrame
        The shares of missing values, by column and group.
    """

    table: pd.DataFrame
    untested: tuple[tuple[str, str], ...]
    level: float
    rows: int
    graph: CausalGraph
    assumptions: tuple[str, ...] = (ROWS, *ASSUMPTIONS)
    missing: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def failures(self) -> pd.DataFrame:
        """The rows that fail, the largest effect first."""
        found = self.table[self.table["fails"]]
        return found.iloc[np.argsort(-found["effect"].abs().to_numpy(), kind="stable")]

    def __str__(self) -> str:
        numbered = [f"  {i}. {text}" for i, text in enumerate(self.assumptions, 1)]
        rest = [] if self.table.empty else ["These tests depend on:", *numbered]
        shares = [line for table in missing_tables(self.missing) for line in table.lines()]
        return "\n".join([self._summary(), *self._lines(), *rest, *shares])

    def block(self) -> Block:
        """Return the tests as a part of the report of an audit: those that fail in a table, all others folded."""
        if self.table.empty:
            return Block(CHECK, TITLE, [self._summary()])
        whole = self.table.assign(given=self.table["given"].map(", ".join))
        rows = whole.loc[self.failures.index] if len(whole) > MOST_SHOWN else whole
        shown = rows[["left", "right", "given", "effect", "p_adjusted", "fails"]]
        shown = shown.rename(columns={"effect": "correlation", "p_adjusted": "adjusted p"})
        what = "Independences that the graph implies" + ", those that fail" * (rows is not whole)
        table = make_table("check-table", what, shown, whole, note=self._summary())
        return Block(CHECK, TITLE, str(self).splitlines(), pictures=[table])

    def __repr__(self) -> str:
        fail = int(self.table["fails"].sum())
        return f"<Check of {len(self.table)} independences on {self.rows:,} rows: {fail} fail; print it for a reading>"

    def _repr_html_(self) -> str:
        table = self.table.drop(columns=["statistic"])
        shown = table.assign(given=[", ".join(each) for each in table["given"]])
        note = f"{self._summary()} {' '.join(self.assumptions)}"
        return table_fragment("Implied independences", shown, note) + missing_fragment(self.missing)

    def _summary(self) -> str:
        if self.table.empty:
            return (
                f"The graph implies no conditional independence of its {len(self.graph.observed)} observed nodes, so "
                "no table can contradict it."
            )
        fail = int(self.table["fails"].sum())
        return (
            f"{len(self.table)} conditional independence(s) implied by the graph, on {self.rows:,} rows: {fail} "
            f"fail{'s' * (fail == 1)} at {self.level:.0%} (Holm)."
        )

    def _lines(self) -> list[str]:
        lines = []
        for row in self.table.to_dict("records"):
            claim = Independence(row["left"], row["right"], row["given"])
            if row["note"] and np.isnan(row["p_value"]):
                lines.append(f"  not tested: {claim}: {row['note']}")
                continue
            lines.append(
                f"  {'FAILS' if row['fails'] else 'holds'}: {claim}: correlation {row['effect']:+.3f} "
                f"({row['largest']}), p = {_p(row['p_value'])}, adjusted {_p(row['p_adjusted'])}"
            )
            if row["fails"] and row["note"]:
                lines.append(f"    Note: {row['note']}.")
            if row["fails"]:
                lines.append(
                    f"    An edge between {row['left']} and {row['right']}, or a latent cause of both, would explain "
                    "it."
                )
        if self.untested:
            pairs = "; ".join(f"{one} and {other}" for one, other in self.untested)
            lines.append(f"  no observed nodes separate {pairs}, though there is no edge: nothing to test.")
        return lines


def implied_independences(graph: CausalGraph, outcome: bool = True) -> tuple[Independence, ...]:
    """Return for each pair of observed nodes that a graph separates one independence, by d-separation.

    Without latent nodes the pair is separated by the parents of the later node: these statements together imply all
    others that the graph implies, for distributions whose pairwise independences combine (compositional graphoids,
    Gaussian ones for example). With latent nodes it is a minimal set of observed nodes that separates the two.

    Parameters
    ----------
    graph
        The causal graph.
    outcome
        Whether the outcome is among the nodes.

    References
    ----------
    Pearl (2009), section 1.2.3; van der Zander, Liskiewicz and Textor (2014), for minimal separators.

    Examples
    --------
    >>> graph = CausalGraph("{A Q} -> D; {A Q} -> M; {A Q D M} -> Y", sensitive="A", outcome="Y")
    >>> [str(each) for each in implied_independences(graph)]
    ['Q independent of A', 'D independent of M given A, Q']
    """
    return _implied(graph, outcome)[0]


def _implied(graph: CausalGraph, outcome: bool) -> tuple[tuple[Independence, ...], tuple[tuple[str, str], ...]]:
    """Return the independences, and the pairs without an edge or a latent cause that nothing observed separates."""
    require_instance("graph", graph, CausalGraph, "a CausalGraph")
    require_flag("outcome", outcome)
    nodes = [node for node in graph.order if node not in graph.latent and (outcome or node != graph.outcome)]
    projection = LatentProjection.of(graph, known=False, beside=graph.observed)
    below, joined = projection.below, [projection.below[node] for node in projection.latent]
    found, without = [], []
    for one, other in combinations(nodes, 2):
        if not graph.latent:
            if one not in graph.parents(other):
                found.append(Independence(one, other, graph.parents(other)))
            continue
        given = nx.find_minimal_d_separator(graph.dag, one, other, restricted={*nodes} - {one, other})
        if given is not None:
            found.append(Independence(one, other, tuple(node for node in nodes if node in given)))
        elif other not in below[one] and one not in below[other] and not any({one, other} <= each for each in joined):
            without.append((one, other))
    return tuple(found), tuple(without)


def check_graph(
    graph: CausalGraph,
    df: pd.DataFrame,
    *,
    level: float = 0.05,
    regression: Literal["flexible", "smooth"] | LearnerName | RegressorMixin = "flexible",
    folds: int = 5,
    groups: npt.ArrayLike | str | None = None,
    missing: Missing = "refuse",
    random_state: int | np.random.Generator | None = None,
) -> GraphCheck:
    """Test the conditional independences that a graph implies on a table; also ``graph.check(df)``.

    The test is the generalised covariance measure, of nodes of any columns: numbers are their normal scores, categories
    one indicator for each level (those of fewer than 20 rows together). Each is regressed on the nodes given, each row
    predicted by a fit that did not see it; the statistic is the largest absolute t of the products of two residuals,
    one of each node, and its p-value that of the largest of jointly normal statistics, correlated as the products are.

    *Assumes* what ``.assumptions`` lists; above all that the regressions are accurate.

    Parameters
    ----------
    graph
        The causal graph, latent nodes declared.
    df
        n rows, at least 100, with the columns of all observed nodes; those of the outcome may be left out.
    level
        The probability that any of the independences fails where all hold (Holm).
    regression
        ``"smooth"``: ridge regression on splines, products and a Gaussian kernel at 100 landmarks, the penalty by
        generalised cross-validation; ``"flexible"``: for each column the best, by the errors of folds, of that, a
        forest, and a forest on what the smooth one leaves; or ``"boosted"``, ``"stacked"`` or a scikit-learn regressor,
        fitted for each column.
    folds
        The folds of cross-fitting.
    groups
        The column of ``df``, outside the graph, of groups of rows such as households, or their labels (n,): products of
        residuals are summed by group, of which there must be 10, and folds hold whole groups.
    missing
        ``"recorded"``: features may lack values, and "not recorded" counts as a value. ``"refuse"`` takes none.
    random_state
        Seed of folds, landmarks and draws.

    Returns
    -------
    GraphCheck

    Raises
    ------
    DataError
        If a setting is unfit, columns are missing or hold missing values, or there are fewer than 100 rows. The
        sensitive attribute and the outcome may lack no value.

    References
    ----------
    Shah and Peters (2020), theorem 6 and section 3.2, for the test; Holm (1979).

    Examples
    --------
    >>> graph = CausalGraph("{A Q} -> D; {A Q} -> M; {A Q D M} -> Y", sensitive="A", outcome="Y")
    >>> rng = np.random.default_rng(1)
    >>> A, Q = rng.integers(2, size=500), rng.normal(size=500)
    >>> D = Q + A + rng.normal(size=500)
    >>> df = pd.DataFrame({"A": A, "Q": Q, "D": D, "M": D - Q + rng.normal(size=500)})
    >>> graph.check(df, random_state=0).failures[["left", "right", "given"]].values.tolist()
    [['D', 'M', ('A', 'Q')]]
    """
    require_instance("graph", graph, CausalGraph, "a CausalGraph")
    require_real("level", level, above=0.0, below=1.0, such_as=0.05)
    require_seed(random_state)
    if not (isinstance(regression, str) and regression in ("flexible", "smooth")):
        require_learner("regression", regression, "regression")
    df = as_pandas(df)
    columns = graph.columns_of(graph.observed)
    outcome = graph.outcome_column in getattr(df, "columns", ())
    require_missing(missing)
    read_table(df, [graph.sensitive_column, *([graph.outcome_column] if outcome else [])], what="df")
    known = [name for name in columns if outcome or name != graph.outcome_column]
    given = read_table(df, known, what="df", missing=missing)
    table = as_recorded(given, given)
    warn_unused(df, graph, groups=groups)
    code = hash_groups(read_groups(groups, df, graph))
    if code is not None and (size := kish_size(np.ones(len(code)), code)) < FEWEST_ROWS:
        raise DataError(f"df has {size:.1f} effective group(s), fewer than {FEWEST_ROWS}: too few to test on.")
    if len(table) < FEWEST:
        raise DataError(f"df has {len(table)} rows, fewer than {FEWEST}: too few to test conditional independences on.")
    require_integer("folds", folds, least=2, most=len(table) // 2)
    seed = seed_from(random_state)
    claims, untested = _implied(graph, outcome)
    residuals = _Residuals(table, with_flags(graph, table), regression, folds, seed, code)
    rng = np.random.default_rng(seed)
    rows = [_test(claim, residuals, rng) for claim in progress_bar("independences", claims)]
    found = pd.DataFrame(rows, columns=[name for name in COLUMNS if name not in ("p_adjusted", "fails")])
    adjusted = _holm(found["p_value"].to_numpy(dtype=np.float64))
    found = found.assign(p_adjusted=adjusted, fails=np.nan_to_num(adjusted, nan=1.0) < level)[COLUMNS]
    shares = missing_shares(given, known, graph, np.ones(len(table)))
    stated = (RECORDS.format(", ".join(shares["column"])),) if len(shares) else ()
    assumed = (describe_units(code), *ASSUMPTIONS, *stated)
    return GraphCheck(found, untested, level, len(table), graph, assumed, shares)


def _test(claim: Independence, residuals: _Residuals, rng: np.random.Generator) -> dict[str, Any]:
    """Return the row of one independence."""
    row: dict[str, Any] = {"left": claim.left, "right": claim.right, "given": claim.given, "note": ""}
    row |= dict.fromkeys(("effect", "statistic", "p_value"), np.nan) | {"largest": ""}
    left, right = (residuals.of(node, claim.given) for node in (claim.left, claim.right))
    for side in (left, right):
        if side.note:
            return row | {"note": side.note}
    one, other = left.columns, right.columns
    n = len(one)
    scale = one.std(axis=0)[:, None] * other.std(axis=0)[None, :]
    correlation = (one - one.mean(axis=0)).T @ (other - other.mean(axis=0)) / n / scale
    mean, square = one.T @ other / n, (one**2).T @ (other**2) / n
    spread, degrees = np.sqrt(np.maximum(square - mean**2, 0.0)), np.inf
    if residuals.groups is not None:
        degrees = kish_size(np.ones(n), residuals.groups) - 1.0
        sums = [by_unit(each[:, None] * other - own, residuals.groups) for each, own in zip(one.T, mean, strict=True)]
        spread = np.where(spread > 0.0, np.sqrt([(each**2).sum(axis=0) / n for each in sums]), 0.0)
    # Of a product that is next to 0 but for a few rows, t is far from normal.
    size = np.abs(one).T @ np.abs(other)
    rows = np.divide(size**2, n * square, out=np.zeros_like(mean), where=square > 0.0)
    tested = (spread > 0.0) & (rows >= FEWEST_OF_A_LEVEL)
    if not tested.any():
        return row | {"note": f"given the other nodes, fewer than {FEWEST_OF_A_LEVEL} rows have residuals of both"}
    t = np.sqrt(n) * np.divide(mean, spread, out=np.zeros_like(mean), where=tested)
    size = np.abs(t)
    at = np.unravel_index(int(size.argmax()), size.shape)
    largest, count = float(size[at]), int(tested.sum())
    p = min(1.0, 2.0 * count * float(ndtr(-largest) if np.isinf(degrees) else stdtr(degrees, -largest)))
    if 1 < count <= MOST_JOINT:
        left_at, right_at = np.nonzero(tested)
        products = one[:, left_at] * other[:, right_at]
        values = by_unit(products - products.mean(axis=0), residuals.groups)
        values /= np.maximum(np.sqrt((values**2).mean(axis=0)), 1e-300)
        eigen, vectors = np.linalg.eigh(values.T @ values / len(values))
        root = vectors * np.sqrt(np.maximum(eigen, 0.0))
        drawn = np.abs(rng.normal(size=(DRAWS, count)) @ root.T).max(axis=1)
        if np.isfinite(degrees):
            drawn /= np.sqrt(rng.chisquare(degrees, DRAWS) / degrees)
        above = int((drawn >= largest).sum())
        p = (1 + above) / (1 + DRAWS) if above else min(p, 1.0 / (1 + DRAWS))
    return row | {
        "effect": float(correlation[at]),
        "largest": f"{left.names[at[0]]}; {right.names[at[1]]}",
        "statistic": largest,
        "p_value": p,
        "note": SHARED_JUMPS if left.jumpy[at[0]] and right.jumpy[at[1]] else "",
    }


@dataclass(frozen=True, eq=False)
class _Side:
    """The names of a node's k columns or levels that have residuals with a variance, and these, ``columns`` (n, k).

    ``jumpy`` (k,) is whether a forest predicts a column better than the smooth regression does.
    """

    names: list[str]
    columns: NDArray[np.float64]
    jumpy: NDArray[np.bool_]
    note: str = ""


class _Residuals:
    """Residuals of the columns of nodes given other nodes, each made once."""

    def __init__(
        self,
        table: pd.DataFrame,
        graph: CausalGraph,
        regression: Any,
        folds: int,
        seed: int,
        groups: NDArray[np.int64] | None = None,
    ) -> None:
        self.table, self.graph, self.regression, self.seed, self.groups = table, graph, regression, seed, groups
        self.folds = list(KFold(folds, shuffle=True, random_state=seed).split(table))
        if groups is not None:
            self.folds = split_folds(None, np.ones(len(table)), folds, seed, groups)
        self.known: dict[tuple[str, tuple[str, ...]], _Side] = {}
        self.scores: dict[str, tuple[list[str], NDArray[np.float64]]] = {}

    def of(self, node: str, given: tuple[str, ...]) -> _Side:
        """Return the residuals of a node's columns or levels."""
        key = node, given
        if key not in self.known:
            if node not in self.scores:
                self.scores[node] = _scores(self.table[self.graph.columns_of([node])])
            names, values = self.scores[node]
            rest, jumpy = self._residuals(node, given) if names else (values, np.zeros(0, dtype=bool))
            kept = [i for i in range(len(names)) if rest[:, i].var() > LEAST_VARIANCE]
            note = "" if kept else self._why_none(node)
            self.known[key] = _Side([names[i] for i in kept], rest[:, kept], jumpy[kept], note)
        return self.known[key]

    def _residuals(self, node: str, given: tuple[str, ...]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        values = self.scores[node][1]
        if not given:
            return values, np.zeros(values.shape[1], dtype=bool)
        X = self.table[self.graph.columns_of(given)]
        own = _make(self.regression, X, (self.seed + self.graph.nodes.index(node)) % 2**32)
        design = own.design(X)
        found: list[NDArray[np.float64]] = []
        for train, test in self.folds:
            ones = np.ones(len(train))
            rows, asked = take(design, train), take(design, test)
            fit = own.fits if isinstance(own, Flexible) else lambda *given: [own.fit(*given)]
            fits = fit(rows, values[train], ones)
            found = found or [np.empty_like(values) for _ in fits]
            for rest, predict in zip(found, fits, strict=True):
                rest[test] = values[test] - predict(asked)
        errors = np.stack([(rest**2).mean(axis=0) for rest in found])
        best = errors.argmin(axis=0)
        chosen = np.column_stack([found[i][:, k] for k, i in enumerate(best)])
        return chosen, errors.min(axis=0) < (1.0 - JUMPY) * errors[0]

    def _why_none(self, node: str) -> str:
        """Return why no column of a node has a residual."""
        table = self.table[self.graph.columns_of([node])]
        if not self.scores[node][0] and any(len(table[name].unique()) > 1 for name in table):
            return f"no two levels of {node} have {FEWEST_OF_A_LEVEL} rows"
        return f"{node} is constant, or determined by the nodes given"


def _make(regression: Any, X: pd.DataFrame, seed: int) -> Any:
    if isinstance(regression, str) and regression in ("flexible", "smooth"):
        return Flexible(X, seed) if regression == "flexible" else Smooth(X, seed)
    return make_learner(regression, X, seed, "regression")


def _scores(X: pd.DataFrame) -> tuple[list[str], NDArray[np.float64]]:
    """Return columns of mean 0 and variance 1: normal scores of numbers, an indicator for each level of categories."""
    names: list[str] = []
    parts: list[NDArray[np.float64]] = []
    for name in X.columns:
        column = X[name]
        if is_categorical(column):
            levels = as_levels(column)
            codes = encode_levels(column, levels)
            counts = np.bincount(codes, minlength=len(levels))
            rare = np.flatnonzero(counts < FEWEST_OF_A_LEVEL)
            own = {f"{name}={levels[int(i)]}": codes == i for i in np.flatnonzero(counts >= FEWEST_OF_A_LEVEL)}
            if counts[rare].sum() >= FEWEST_OF_A_LEVEL:
                own[f"{name} in {int((counts[rare] > 0).sum())} rare levels"] = np.isin(codes, rare)
            if len(own) == 2 and sum(int(each.sum()) for each in own.values()) == len(X):
                own = dict([next(reversed(own.items()))])  # the other one is its complement
        else:
            own = {name: _normal_scores(column.to_numpy(dtype=np.float64))}
        for label, values in own.items():
            numbers = np.asarray(values, dtype=np.float64)
            if (spread := numbers.std()) > 0.0:
                names.append(str(label))
                parts.append((numbers - numbers.mean()) / spread)
    return names, np.column_stack(parts) if parts else np.empty((len(X), 0))


def _normal_scores(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the normal quantiles of ranks (n,), which no outlier dominates; ties share one."""
    return np.asarray(ndtri(rankdata(numbers) / (len(numbers) + 1.0)), dtype=np.float64)


class Smooth:
    """Ridge regression on levels, splines of numbers, products of both, and a Gaussian kernel at some landmarks.

    The penalty is chosen for each response by generalised cross-validation (Golub, Heath and Wahba, 1979).
    """

    def __init__(self, X: pd.DataFrame, seed: int) -> None:
        self.seed = seed
        self.levels = {name: as_levels(X[name]) for name in X.columns if is_categorical(X[name])}

    def design(self, X: pd.DataFrame) -> NDArray[np.float64]:
        """Return normal scores and indicators, and the basis of splines and products of these, (n, k)."""
        scores = (_normal_scores(X[name].to_numpy(np.float64)) for name in X if name not in self.levels)
        numbers = np.column_stack([np.empty((len(X), 0)), *scores])
        numbers = numbers[:, numbers.std(axis=0) > 0.0] if numbers.size else numbers
        flags = [
            encode_levels(X[name], levels)[:, None] == np.arange(len(levels)) for name, levels in self.levels.items()
        ]
        plain = np.column_stack([numbers, *flags]).astype(np.float64)
        plain = plain[:, plain.std(axis=0) > 0.0]
        self.plain = plain.shape[1]
        parts, weights = [plain], [PLAIN]
        for each in numbers.T:
            if len(np.unique(each)) > KNOTS:
                splines = SplineTransformer(KNOTS, knots="quantile", include_bias=False, extrapolation="linear")
                parts.append(splines.fit_transform(each[:, None]))
                weights.append(SPLINES)
        common = plain[:, np.argsort(-plain.var(axis=0), kind="stable")[:MOST_PRODUCTS]]
        products = [common[:, i] * common[:, j] for i, j in combinations(range(common.shape[1]), 2)]
        parts.append(np.column_stack([np.empty((len(X), 0)), *products]))
        weights.append(1.0)
        if numbers.shape[1]:
            landmarks = min(LANDMARKS, len(X) // 5)
            kernel = Nystroem(gamma=0.5 / plain.shape[1], n_components=landmarks, random_state=self.seed)
            parts.append(kernel.fit_transform(plain))
            weights.append(1.0)
        self.weight = np.concatenate([np.full(part.shape[1], each) for part, each in zip(parts, weights, strict=True)])
        return np.column_stack(parts)

    def fit(self, design: Any, y: NDArray[np.float64], weight: NDArray[np.float64]) -> Any:
        """Fit all responses at once; predictions keep to their range, for beyond the rows seen they would run away."""
        low, high = y.min(axis=0), y.max(axis=0)
        center, spread = design.mean(axis=0), design.std(axis=0)
        spread = np.where(spread > 0.0, spread, 1.0) / self.weight
        B, mean = (design - center) / spread, y.mean(axis=0)
        n, rest = len(B), y - mean
        eigen, vectors = np.linalg.eigh(B.T @ B / n)
        eigen = np.maximum(eigen, 0.0)
        inner = vectors.T @ (B.T @ rest) / n
        shrunk = 1.0 / (eigen[None, :] + STRENGTHS[:, None])
        free = 1.0 - (shrunk @ eigen) / n
        error = (rest**2).mean(axis=0) - 2.0 * shrunk @ inner**2 + (shrunk**2 * eigen) @ inner**2
        chosen = np.argmin(error / np.maximum(free, 1e-6)[:, None] ** 2, axis=0)
        chosen = np.maximum(chosen - UNDERSMOOTHED, 0)
        coefficients = vectors @ (shrunk[chosen].T * inner)
        return lambda rows: (mean + (rows - center) / spread @ coefficients).clip(low, high)


class Flexible(Smooth):
    """The smooth regression, a forest, and a forest on what the smooth one leaves, of which the best is to be chosen.

    A function with jumps that both nodes share is what makes the test fail: a smooth fit errs on both sides of each
    jump, in the residuals of both nodes alike. Trees whose splits are exact (histograms would put them at the same
    wrong values for both nodes) and made of other draws of rows for each node err little, and not alike.
    """

    def fits(
        self, design: Any, y: NDArray[np.float64], weight: NDArray[np.float64]
    ) -> list[Callable[[Any], NDArray[np.float64]]]:
        """Return three predictions of responses (m, k), the smooth one first."""
        smooth = self.fit(design, y, weight)
        alone, after = self._forest(design, y), self._forest(design, y - smooth(design))
        return [smooth, alone, lambda rows: smooth(rows) + after(rows)]

    def _forest(self, design: NDArray[np.float64], y: NDArray[np.float64]) -> Callable[[Any], NDArray[np.float64]]:
        """Return the prediction of a forest, which reads the first columns alone: without splines and products."""
        most = min(MOST_IN_TREE, len(y))
        forest = RandomForestRegressor(TREES, min_samples_leaf=IN_LEAF, max_samples=most, random_state=self.seed)
        forest.fit(design[:, : self.plain], y if y.shape[1] > 1 else y[:, 0])
        return lambda rows: np.asarray(forest.predict(rows[:, : self.plain])).reshape(len(rows), -1)


def _holm(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Holm's adjusted p-values (k,); NaN stays, and does not count."""
    found = np.full(len(p), np.nan)
    known = np.flatnonzero(~np.isnan(p))
    ordered = known[np.argsort(p[known], kind="stable")]
    factors = len(known) - np.arange(len(known))
    found[ordered] = np.minimum(1.0, np.maximum.accumulate(factors * p[ordered]))
    return found


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else f"{value:.1e}"
