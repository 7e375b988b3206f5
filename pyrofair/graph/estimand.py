"""Printable estimands: the g-formula of both worlds, the weights that reproduce it, and the assumptions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pyrofair._validation import require_choice
from pyrofair.exceptions import GraphError
from pyrofair.graph.path_sets import show_count, show_paths
from pyrofair.graph.paths import Regime, UnfairPaths

__all__ = ["Estimand", "Factor", "RegimeEstimand", "Target", "Weight"]

LONGEST_SHOWN = 3000
"""The longest formula, in characters, that a notebook sets."""

Target = Literal["prediction", "outcome"]
Event = tuple[str, int | None]
"""A node, and the value it takes where one is named."""


@dataclass(frozen=True)
class Factor:
    """One distribution in the g-formula: P(node | given, A = arm), and all observed nodes ``before`` it in the order.

    ``given`` and ``before`` lack the sensitive attribute A; ``arm`` is None where A does not enter.
    """

    node: str
    given: tuple[str, ...]
    before: tuple[str, ...]
    arm: int | None


@dataclass(frozen=True, repr=False)
class Weight:
    """A weight on observed rows: a product of powers of propensities P(A = a | prefix).

    Parameters
    ----------
    group
        The group whose rows are weighted: 0, 1, or None for all rows.
    powers
        Pairs of (value of A, prefix of nodes) and the power of that propensity.
    sensitive
        The name of A.
    """

    group: int | None
    powers: tuple[tuple[tuple[int, tuple[str, ...]], int], ...]
    sensitive: str = "A"

    @property
    def prefixes(self) -> tuple[tuple[str, ...], ...]:
        """The prefixes whose propensities it needs, shortest first."""
        return tuple(sorted({prefix for (_, prefix), _ in self.powers}, key=len))

    def evaluate(self, propensity: Callable[[tuple[str, ...]], NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return the weight of each row, shape (n,), from a function that gives P(A = 1 | prefix) of each row.

        It is zero times infinity, hence NaN, on rows where the formula is undefined; the caller decides what they mean.
        """
        result = np.asarray(1.0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            for (value, prefix), power in self.powers:
                p1 = propensity(prefix)
                result = result * (p1 if value else 1.0 - p1) ** float(power)
        return np.asarray(result, dtype=np.float64)

    def __str__(self) -> str:
        above, below = self._products(tex=False)
        indicator = f"1[{self.sensitive}={self.group}] " if self.group is not None else ""
        return f"{indicator}{above or '1'}{f' / [{below}]' if below else ''}"

    @property
    def latex(self) -> str:
        """The weight as LaTeX."""
        above, below = self._products(tex=True)
        indicator = rf"\mathbf{{1}}({_tex_name(self.sensitive)}={self.group}) " if self.group is not None else ""
        return rf"{indicator}\frac{{{above or '1'}}}{{{below or '1'}}}"

    def __repr__(self) -> str:
        whose = "both groups" if self.group is None else f"group {self.group}"
        return f"<Weight on {whose}: {len(self.powers)} propensities; print it for the formula>"

    def _repr_latex_(self) -> str | None:
        return _shown_latex(self.latex)

    def _products(self, *, tex: bool) -> tuple[str, str]:
        """Write the numerator and the denominator."""
        above: list[str] = []
        below: list[str] = []
        for (value, prefix), power in self.powers:
            written = _probability((self.sensitive, value), [(node, None) for node in prefix], tex=tex)
            (above if power > 0 else below).extend([written] * abs(power))
        return " ".join(above), " ".join(below)


@dataclass(frozen=True, repr=False)
class RegimeEstimand:
    """The distribution of the features in one world, as a product of factors, and the weights that reproduce it.

    Parameters
    ----------
    regime
        The world.
    order
        The observed ancestors of the target without the sensitive attribute, in topological order.
    roots
        How many of them come first that the sensitive attribute does not cause.
    factors
        One factor for each node of the order.
    outcome_arm
        The value of the sensitive attribute that the target itself reads, or None if it does not read it.
    outcome_given
        The nodes that the target's own distribution is conditioned on, without the sensitive attribute.
    """

    regime: Regime
    order: tuple[str, ...]
    roots: int
    factors: tuple[Factor, ...]
    outcome_arm: int | None
    outcome_given: tuple[str, ...]

    @property
    def paper_group(self) -> int:
        """The group that the paper weights: the arm of the outcome, or of the fair paths where it has none."""
        return self.regime.on_fair if self.outcome_arm is None else self.outcome_arm

    def weight(self, group: int | Literal["pooled"] | None, upto: int | None = None) -> Weight:
        """Return the weight that turns the rows of a group into this world.

        Density ratios become odds by Bayes: P(V | pre, A=a) / P(V | pre, A=g) = P(A=a | pre, V) P(A=g | pre) /
        (P(A=g | pre, V) P(A=a | pre)), and P(V | pre, A=a) / P(V | pre) = P(A=a | pre, V) / P(A=a | pre).

        Parameters
        ----------
        group
            0, 1, or ``"pooled"`` (None) for both: the weight of a group times the probability of that group given the
            features, the same for both.
        upto
            Stop after so many nodes of the order: the weight then reproduces the distribution of these nodes alone.

        Raises
        ------
        GraphError
            For another group.
        """
        if group is not None:
            require_choice("group", group, (0, 1, "pooled"), error=GraphError)
        if group == "pooled":
            group = None
        last = len(self.order) if upto is None else upto
        powers: Counter[tuple[int, tuple[str, ...]]] = Counter()
        if group is not None:
            powers[group, self.order[: min(self.roots, last)]] -= 1
        for factor in self.factors[self.roots : last]:
            if factor.arm is None or factor.arm == group:
                continue
            after = (*factor.before, factor.node)
            powers[factor.arm, after] += 1
            powers[factor.arm, factor.before] -= 1
            if group is not None:
                powers[group, after] -= 1
                powers[group, factor.before] += 1
        kept = sorted(
            ((key, power) for key, power in powers.items() if power), key=lambda kv: (len(kv[0][1]), kv[0][0])
        )
        return Weight(group, tuple(kept), self.regime.unfair.graph.sensitive)

    def needed_values(self, index: int, group: int | None) -> set[int]:
        """Return the values of A that a node of the order must occur with: the group, and later nodes' arms."""
        later = {factor.arm for factor in self.factors[index + 1 :]} | {group}
        return {int(value) for value in later if value is not None}

    def needed_groups(self, group: int | None) -> tuple[int, ...]:
        """Return the observed groups whose rows an estimate rests on when a group, or both (None), are weighted.

        There are none if the sensitive attribute causes no feature and all rows are weighted.
        """
        arms = {factor.arm for factor in self.factors} | {group}
        return tuple(value for value in (0, 1) if value in arms)

    def __str__(self) -> str:
        over = f"sum over {', '.join(self.order)} of " if self.order else ""
        return f"P({self.regime.symbol} = 1) = {over}{self._factors(tex=False)}"

    @property
    def latex(self) -> str:
        """The g-formula as LaTeX."""
        over = rf"\sum_{{{', '.join(map(_tex_name, self.order))}}} " if self.order else ""
        return rf"P({self.regime.latex} = 1) = {over}{self._factors(tex=True)}"

    def __repr__(self) -> str:
        return f"<RegimeEstimand of {self.regime.symbol}: {len(self.factors)} factors; print it for the formula>"

    def _repr_latex_(self) -> str | None:
        return _shown_latex(self.latex)

    def _factors(self, *, tex: bool) -> str:
        """Write the distribution of the outcome and those of the features, the last in the order first."""
        graph = self.regime.unfair.graph
        own: list[Event] = [] if self.outcome_arm is None else [(graph.sensitive, self.outcome_arm)]
        written = [_probability((graph.outcome, 1), [*own, *((node, None) for node in self.outcome_given)], tex=tex)]
        for factor in reversed(self.factors):
            arm: list[Event] = [] if factor.arm is None else [(graph.sensitive, factor.arm)]
            written.append(_probability((factor.node, None), [*((node, None) for node in factor.given), *arm], tex=tex))
        return " ".join(written)


@dataclass(frozen=True, repr=False)
class Estimand:
    """The two potential outcomes as functions of the distribution of the data, and the assumptions that make them so.

    Parameters
    ----------
    unfair
        The unfair paths.
    target
        ``"prediction"`` (a known function of the features) or ``"outcome"`` (the observed one).
    baseline, switched
        The estimands of the two worlds.
    """

    unfair: UnfairPaths
    target: Target
    baseline: RegimeEstimand
    switched: RegimeEstimand

    def of(self, regime: Regime) -> RegimeEstimand:
        """Return the estimand of a regime; equal regimes have equal ones."""
        for part in (self.baseline, self.switched):
            if regime == part.regime:
                return part
        given, own = (show_paths(each.paths) for each in (regime.unfair, self.unfair))
        raise GraphError(
            f"The regime {regime.symbol} of the unfair paths {given} is not one of the two that were identified, whose "
            f"unfair paths are {own}. Take it from unfair.regimes of the same paths."
        )

    @property
    def joins_worlds(self) -> bool:
        """Whether the switched world joins nodes that read different values of the sensitive attribute.

        If all that it causes reads one value, the features are those of a single world. What a classifier itself reads
        does not count, for it is known: P(Y(1, M(0)) = 1) is the mean of c(1, M(0)). The mechanism of an observed
        outcome is no known function, and does count.
        """
        arms = {factor.arm for factor in self.switched.factors}
        if self.target == "outcome":
            arms.add(self.switched.outcome_arm)
        return len(arms - {None}) > 1

    @property
    def support(self) -> str:
        """The assumption that weights need, and learned mechanisms do not."""
        return (
            "Every combination of features that occurs in a world occurs in the weighted group (positivity of "
            f"P({self.unfair.graph.sensitive} | features))."
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions on which the formulas rest, a sentence each."""
        graph = self.unfair.graph
        sensitive = graph.sensitive
        found = [
            "The graph is right: no edge and no latent common cause is missing beyond those declared"
            + (f" ({', '.join(graph.latent)})." if graph.latent else "."),
            self.support,
            f"{sensitive} is ignorable given what it does not cause.",
        ]
        if self.joins_worlds:
            found.append(
                f"Independent errors across worlds (NPSEM-IE): P({self.switched.regime.symbol}) joins nodes that read "
                f"{sensitive}=0 with nodes that read {sensitive}=1, which no experiment shows. Single-world "
                "ignorability, as the paper states it, is not enough."
            )
        if self.target == "prediction":
            found.append(
                "The outcome is the prediction, a known function of the features, so a latent cause of the observed "
                "outcome alone confounds nothing."
            )
        return tuple(found)

    @property
    def latex(self) -> str:
        """Both formulas as one LaTeX ``aligned`` block."""
        rows = (part.latex.replace(" = 1) = ", " = 1) &= ", 1) for part in (self.baseline, self.switched))
        return "\\begin{aligned}\n" + " \\\\\n".join(rows) + "\n\\end{aligned}"

    def __repr__(self) -> str:
        paths = show_count(self.unfair.paths.size)
        return f"<Estimand of the {self.target}, unfair paths: {paths}; print it for formulas, weights and assumptions>"

    def _repr_latex_(self) -> str | None:
        """Return the formulas as a notebook shows them; None, for the text, where they would be unreadable."""
        return _shown_latex(self.latex)

    def __str__(self) -> str:
        graph = self.unfair.graph
        lines = [
            f"Target: the {self.target}; {graph.sensitive}=0 is {graph.baseline!r}, 1 is {graph.contrast!r}; "
            f"{graph.outcome}=1 is {graph.positive!r}."
        ]
        for part in (self.baseline, self.switched):
            lines.append(str(part))
            lines.append(f"  weight on group {part.paper_group}: {part.weight(part.paper_group)}")
        lines.append("Assumptions:")
        lines.extend(f"  {i}. {text}" for i, text in enumerate(self.assumptions, 1))
        return "\n".join(lines)


def _shown_latex(formula: str) -> str | None:
    return f"$$\n{formula}\n$$" if len(formula) <= LONGEST_SHOWN else None


def _probability(event: Event, given: Sequence[Event], *, tex: bool) -> str:
    r"""Write a probability: P(Y=1 | A=0, M) as text, and with \mid and escaped names as LaTeX."""

    def write(node: str, value: int | None) -> str:
        return (_tex_name(node) if tex else node) + ("" if value is None else f"={value}")

    condition = (r" \mid " if tex else " | ") + ", ".join(write(*one) for one in given) if given else ""
    return f"P({write(*event)}{condition})"


def _tex_name(name: str) -> str:
    """Write a node's name as LaTeX: one letter as it is, any other as escaped text."""
    if len(name) == 1 and name.isalpha():
        return name
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    escaped = "".join(special.get(c, f"\\{c}" if c in "_%&#${}" else c) for c in name)
    return rf"\text{{{escaped}}}"
