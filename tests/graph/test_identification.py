"""Which formula, for which graph: the paper's three, the refusals and their causes, and what is printed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from pyrofair.datasets.uci import load_adult, load_german
from pyrofair.exceptions import FormulaNotApplicableError, GraphError, NotIdentifiedError, PyrofairError
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.identification import Weight
from pyrofair.graph.identify import identify
from pyrofair.graph.paths import UnfairPaths

ADULT = "{A C} -> M; {A C M} -> L; {A C M L} -> R; {A C M L R} -> Y"
TWO_MEDIATORS = "A -> M -> D -> Y; A -> D; A -> Y; M -> Y"


def unfair_in(edges: str, *paths: str, latent: Iterable[str] = (), **named: Any) -> UnfairPaths:
    graph = CausalGraph(edges, sensitive="A", outcome="Y", latent=list(latent))
    return graph.unfair(*paths, **named)


def hiring() -> UnfairPaths:
    return unfair_in("Q -> A; {Q A} -> D; {Q A} -> M; {Q A D M} -> Y", "A -> Y", "A -> D -> Y")


# --- the three formulas of the paper ---------------------------------------------------------------------------------

PAPER = {
    "hiring, eq. 9": (
        hiring(),
        {(0, "Q"): -1},
        {(1, "QD"): 1, (0, "QDM"): 1, (1, "Q"): -1, (0, "QD"): -1, (1, "QDM"): -1},
    ),
    # The paper prints P(A | c, s, c) where P(A | c, s, r) is meant.
    "German": (
        load_german().unfair,
        {(0, "C"): -1},
        {(1, "CS"): 1, (0, "CSR"): 1, (1, "C"): -1, (0, "CS"): -1, (1, "CSR"): -1},
    ),
    "Adult": (
        load_adult().unfair,
        {(0, "C"): -1},
        {(1, "CM"): 1, (0, "CMLR"): 1, (1, "C"): -1, (0, "CM"): -1, (1, "CMLR"): -1},
    ),
}


@pytest.mark.parametrize(("unfair", "world0", "world1"), PAPER.values(), ids=PAPER)
def test_the_weights_of_the_paper(unfair: UnfairPaths, world0: dict[Any, int], world1: dict[Any, int]) -> None:
    found = identify(unfair)
    assert (found.baseline.paper_group, found.switched.paper_group) == (0, 1)
    for part, expected in ((found.baseline, world0), (found.switched, world1)):
        weight = part.weight(part.paper_group)
        assert weight.group == part.paper_group
        assert dict(weight.powers) == {(value, tuple(prefix)): power for (value, prefix), power in expected.items()}
        assert set(weight.prefixes) == {tuple(prefix) for _, prefix in expected}

        rng = np.random.default_rng(0)
        p1 = {prefix: rng.uniform(0.1, 0.9, size=7) for prefix in weight.prefixes}
        by_hand = np.ones(7)
        for (value, prefix), power in expected.items():
            p = p1[tuple(prefix)]
            by_hand *= (p if value else 1 - p) ** power
        assert weight.evaluate(p1.__getitem__) == pytest.approx(by_hand, rel=1e-14)


def test_pooled_weights_leave_out_what_no_arm_enters() -> None:
    """D reads no value of A: its distribution is that of both groups, and so its propensity has no part in the pooled
    weight."""
    part = identify(unfair_in("A -> M -> D -> Y; A -> Y", "A -> Y")).baseline
    assert str(part.weight(None)) == "P(A=0 | M) / [P(A=0)]"
    assert str(part.weight(0)) == "1[A=0] 1 / [P(A=0)]"
    assert str(part.weight(1)) == "1[A=1] P(A=0 | M) / [P(A=0) P(A=1 | M)]"


def test_weights_of_the_first_nodes_alone() -> None:
    part = identify(hiring()).switched
    assert part.order == ("Q", "D", "M")
    assert part.roots == 1
    assert str(part.weight(1, upto=0)) == "1[A=1] 1 / [P(A=1)]"
    assert str(part.weight(1, upto=1)) == str(part.weight(1, upto=2)) == "1[A=1] 1 / [P(A=1 | Q)]"
    assert str(part.weight(0, upto=2)) == "1[A=0] P(A=1 | Q, D) / [P(A=1 | Q) P(A=0 | Q, D)]"
    assert str(part.weight(None, upto=0)) == "1"


def test_values_that_must_occur_with_a_node() -> None:
    """The weighted group, and the arms of the distributions that come later: those are conditioned on the node."""
    part = identify(hiring()).switched  # D reads 1, M reads 0
    assert [part.needed_values(index, 1) for index in range(3)] == [{0, 1}, {0, 1}, {1}]
    assert [part.needed_values(index, 0) for index in range(3)] == [{0, 1}, {0}, {0}]
    assert [part.needed_values(index, None) for index in range(3)] == [{0, 1}, {0}, set()]


def test_undefined_weights_are_not_a_number() -> None:
    weight = Weight(1, (((0, ("M",)), 1), ((0, ()), -1), ((1, ("M",)), -1)))
    p1 = {(): np.array([0.5, 0.5]), ("M",): np.array([0.0, 1.0])}
    assert weight.evaluate(p1.__getitem__).tolist() == [np.inf, 0.0]
    undefined = Weight(1, (((1, ("M",)), 1), ((1, ("M", "D")), -1)))
    p1 = {("M",): np.array([0.0]), ("M", "D"): np.array([0.0])}
    assert np.isnan(undefined.evaluate(p1.__getitem__)).all()


# --- identified or not -----------------------------------------------------------------------------------------------

IDENTIFIED: list[tuple[UnfairPaths, dict[str, int | None]]] = [
    (unfair_in(TWO_MEDIATORS, "A -> M -> Y", "A -> M -> D -> Y"), {"M": 1, "D": 0, "Y": 0}),
    (unfair_in("A -> Z -> D -> Y; A -> D; A -> Y", "A -> Z -> D -> Y"), {"Z": 1, "D": 0, "Y": 0}),
    (unfair_in("A -> M -> D -> Y; A -> Y", "A -> Y"), {"M": 0, "D": None, "Y": 1}),
    (unfair_in("A -> M -> Y"), {"M": 0, "Y": None}),
    (
        unfair_in(f"{ADULT}; U -> {{M Y}}; V -> {{L R}}", latent="UV", direct=True, through="M"),
        {"C": None, "M": 1, "L": 0, "R": 0, "Y": 1},
    ),
    # A latent cause of A and of what it does not cause, and one of a parent of A and a mediator, harm nothing.
    (unfair_in("U -> {A C}; C -> M; A -> M -> Y", latent="U"), {"C": None, "M": 0, "Y": None}),
    (unfair_in("C -> A; V -> {C M}; A -> M -> Y", "A -> M -> Y", latent="V"), {"C": None, "M": 1, "Y": None}),
    # In a district that reads one value, those that are no children of A take it too.
    (unfair_in("A -> M -> L -> Y; U -> {M L}", "A -> M -> L -> Y", latent="U"), {"M": 1, "L": 1, "Y": None}),
    (unfair_in("{A C} -> S; {A C} -> R; {A C S R} -> Y; U -> {S R}", "A -> Y", latent="U"), {"S": 0, "R": 0, "Y": 1}),
    # The prediction is a known function: latent causes of the observed outcome alone confound nothing.
    (unfair_in("A -> M; {A M} -> Y; U -> {A Y}; V -> {M Y}", "A -> Y", latent="UV"), {"M": 0, "Y": 1}),
]


@pytest.mark.parametrize(("unfair", "arms"), IDENTIFIED)
def test_identified(unfair: UnfairPaths, arms: dict[str, int | None]) -> None:
    part = identify(unfair).switched
    found = {factor.node: factor.arm for factor in part.factors} | {"Y": part.outcome_arm}
    assert {node: found[node] for node in arms} == arms
    assert {f.arm for f in identify(unfair).baseline.factors} <= {0, None}


REFUSED = {
    "recanting witness": (
        unfair_in(TWO_MEDIATORS, "A -> M -> Y"),
        "prediction",
        "'M' is a recanting witness. The unfair path A -> M -> Y and the fair path A -> M -> D -> Y part only there",
    ),
    "M<->L, one unfair": (
        unfair_in(f"{ADULT}; U -> {{M L}}", latent="U", direct=True, through="M"),
        "prediction",
        "the district {M, L} is joined by latent U, and in Y(A<=1||pi) its nodes read different values of 'A' "
        "(M reads 1, L reads 0). Measure the latent node",
    ),
    "A<->M": (
        unfair_in(f"{ADULT}; U -> {{A M}}", "A -> Y", latent="U"),
        "prediction",
        "'A' shares a district with what it causes: {A, M}, joined by latent U. No data on these columns determine the "
        "effect of 'A' on {M}",
    ),
    "A<->C<->M": (
        unfair_in(f"{ADULT}; U -> {{A C}}; V -> {{C M}}", latent="UV", direct=True, through="M"),
        "prediction",
        "'A' shares a district with what it causes: {C, A, M}, joined by latent U, V",
    ),
    "M<->Y, one unfair, outcome": (
        unfair_in("A -> M; {A M} -> Y; U -> {M Y}", "A -> Y", latent="U"),
        "outcome",
        "(M reads 0, Y reads 1)",
    ),
    "A<->Y, outcome": (
        unfair_in("A -> Y; U -> {A Y}", "A -> Y", latent="U"),
        "outcome",
        "'A' shares a district with what it causes: {A, Y}, joined by latent U",
    ),
}


@pytest.mark.parametrize(("unfair", "target", "message"), REFUSED.values(), ids=REFUSED)
def test_not_identified(unfair: UnfairPaths, target: Any, message: str) -> None:
    with pytest.raises(NotIdentifiedError) as caught:
        identify(unfair, target)
    assert message in str(caught.value)
    assert type(caught.value) is NotIdentifiedError
    assert isinstance(caught.value, PyrofairError)
    with pytest.raises(NotIdentifiedError):
        identify(unfair.reversed(), target)


def test_what_another_formula_cannot_tell_either_is_not_identified() -> None:
    """The baseline has a front door here, but the unfair regime has a district that reads both values."""
    edges = "A -> D -> I -> Y; {A D} -> Y; U -> {A I}; V -> {D Y}"
    with pytest.raises(FormulaNotApplicableError):
        identify(unfair_in(edges, latent="UV"), "outcome")
    with pytest.raises(NotIdentifiedError, match=r"D reads 1, Y reads 0") as caught:
        identify(unfair_in(edges, "A -> D -> Y", "A -> D -> I -> Y", latent="UV"), "outcome")
    assert type(caught.value) is NotIdentifiedError


# --- columns that no table holds -------------------------------------------------------------------------------------


def test_a_missing_mediator_is_projected_with_its_arm() -> None:
    """Z is missing: M then reads A through it, and 1 is the value that A -> Z carries."""
    graph = CausalGraph("A -> Z -> M -> Y; A -> Y", sensitive="A", outcome="Y").with_latent("Z")
    part = identify(graph.unfair("A -> Z -> M -> Y")).switched
    assert [(f.node, f.given, f.arm) for f in part.factors] == [("M", (), 1)]
    assert part.outcome_arm == 0


def test_a_missing_common_cause_joins_its_children() -> None:
    graph = CausalGraph("{A C} -> M; {A C} -> L; {A M L} -> Y", sensitive="A", outcome="Y").with_latent("C")
    assert identify(graph.unfair("A -> Y")).switched.factors[1].given == ("M",)
    with pytest.raises(NotIdentifiedError, match=r"district \{M, L\} is joined by latent C"):
        identify(graph.unfair("A -> M -> Y"))


@pytest.mark.parametrize(
    ("edges", "missing", "paths", "message"),
    [
        (
            "A -> Z -> M -> Y; A -> M",
            ["Z"],
            ["A -> Z -> M -> Y"],
            "with Z latent, the edge A -> M stands for the unfair path A -> Z -> M -> Y and for the fair path "
            "A -> M -> Y, so 'M' would read both values of 'A'. Measure Z, or call both paths unfair.",
        ),
        (
            "A -> Z -> V -> M -> Y; A -> V; Z -> M",
            ["Z", "V"],
            ["A -> V -> M -> Y"],
            "with V, Z latent, the edge A -> M stands for the unfair path A -> V -> M -> Y",
        ),
        ("A -> Z -> {M L}; {M L} -> Y", ["Z"], ["A -> Z -> M -> Y"], "district {M, L} is joined by latent Z"),
        ("A -> Z -> W -> M -> Y; Z -> M", ["Z", "W"], ["A -> Z -> M -> Y"], "'Z' is a recanting witness"),
    ],
)
def test_a_projected_edge_cannot_carry_both_values(
    edges: str, missing: list[str], paths: list[str], message: str
) -> None:
    graph = CausalGraph(edges, sensitive="A", outcome="Y").with_latent(*missing)
    with pytest.raises(NotIdentifiedError) as caught:
        identify(graph.unfair(*paths))
    assert message in str(caught.value)
    assert identify(graph.unfair(lambda path: True))


def test_a_missing_parent_of_the_outcome_is_not_read_by_the_prediction() -> None:
    """As an outcome A -> Y then carries both values; the prediction reads A and nothing of Z."""
    graph = CausalGraph("A -> Z -> Y; A -> Y", sensitive="A", outcome="Y").with_latent("Z")
    assert identify(graph.unfair("A -> Y")).switched.outcome_arm == 1
    assert identify(graph.unfair("A -> Z -> Y")).switched.outcome_arm == 0
    with pytest.raises(NotIdentifiedError, match="with Z latent, the edge A -> Y stands for"):
        identify(graph.unfair("A -> Y"), "outcome")


# --- what is printed -------------------------------------------------------------------------------------------------


def test_text() -> None:
    formula, assumptions = str(identify(hiring())).split("Assumptions:\n")
    assert formula == (
        "Target: the prediction; A=0 is 0, 1 is 1; Y=1 is 1.\n"
        "P(Y(A<=0) = 1) = sum over Q, D, M of P(Y=1 | A=0, Q, D, M) P(M | Q, A=0) P(D | Q, A=0) P(Q)\n"
        "  weight on group 0: 1[A=0] 1 / [P(A=0 | Q)]\n"
        "P(Y(A<=1||pi) = 1) = sum over Q, D, M of P(Y=1 | A=1, Q, D, M) P(M | Q, A=0) P(D | Q, A=1) P(Q)\n"
        "  weight on group 1: 1[A=1] P(A=1 | Q, D) P(A=0 | Q, D, M) / [P(A=1 | Q) P(A=0 | Q, D) P(A=1 | Q, D, M)]\n"
    )
    assert [line.split(". ")[0] for line in assumptions.splitlines()] == [f"  {number}" for number in range(1, 6)]
    declared = identify(unfair_in("A -> M -> Y; A -> Y; U -> {M Y}", "A -> Y", latent="U")).assumptions[0]
    assert declared.endswith("missing beyond those declared (U).")


@pytest.mark.parametrize(
    ("edges", "paths", "prediction", "outcome"),
    [
        ("Q -> M; A -> M -> Y; A -> Y; Q -> Y", ["A -> Y"], False, True),  # E c(1, Q, M(0)) is of one world
        ("A -> M -> Y; A -> Y", ["A -> M -> Y"], False, True),  # E c(0, M(1))
        ("A -> M -> Y; A -> Y", ["A -> Y", "A -> M -> Y"], False, False),
        ("A -> {M D}; {A M D} -> Y", ["A -> Y"], False, True),
        ("A -> {M D}; {A M D} -> Y", ["A -> M -> Y"], True, True),  # M(1) beside D(0)
        ("A -> {M D}; {A M D} -> Y", ["A -> M -> Y", "A -> D -> Y"], False, True),
        ("A -> M -> D -> Y; A -> D; A -> Y", ["A -> D -> Y"], True, True),  # D(1, M(0))
        ("A -> M -> D -> Y; A -> Y", ["A -> M -> D -> Y"], False, True),
        ("A -> M -> Y", ["A -> M -> Y"], False, False),  # Y reads no A of its own
        ("Q -> Y; A -> Y", ["A -> Y"], False, False),
    ],
)
def test_worlds_are_joined_where_children_of_the_sensitive_attribute_read_different_values(
    edges: str, paths: list[str], prediction: bool, outcome: bool
) -> None:
    unfair = unfair_in(edges, *paths)
    for target, joined in [("prediction", prediction), ("outcome", outcome)]:
        for each in (unfair, unfair.reversed()):
            found = identify(each, target)
            assert found.joins_worlds is joined
            assert any("NPSEM-IE" in text for text in found.assumptions) is joined


def test_a_child_of_the_sensitive_attribute_that_the_prediction_does_not_depend_on_joins_no_worlds() -> None:
    unfair = unfair_in("A -> {M D}; M -> Y; D -> Z; A -> Y", "A -> Y")
    assert not identify(unfair).joins_worlds


def test_text_of_an_outcome_conditions_on_what_a_latent_node_joins_to_it() -> None:
    unfair = unfair_in("A -> {M D}; M -> Z -> Y; D -> Y; U -> {M Y}", "A -> D -> Y", latent="U")
    prediction, outcome = (identify(unfair, target).baseline for target in ("prediction", "outcome"))
    assert str(prediction).endswith("sum over M, D, Z of P(Y=1 | D, Z) P(Z | M) P(D | A=0) P(M | A=0)")
    assert str(outcome).endswith("sum over M, D, Z of P(Y=1 | A=0, M, D, Z) P(Z | M) P(D | A=0) P(M | A=0)")
    assert not any("is the prediction" in text for text in identify(unfair, "outcome").assumptions)


def test_text_without_features() -> None:
    part = identify(unfair_in("A -> Y", "A -> Y")).switched
    assert str(part) == "P(Y(A<=1||pi) = 1) = P(Y=1 | A=1)"
    assert str(part.weight(1)) == "1[A=1] 1 / [P(A=1)]"
    assert str(part.weight(None)) == "1"


def test_latex() -> None:
    found = identify(hiring())
    assert found.latex == (
        "\\begin{aligned}\n"
        "P(Y_{A \\Leftarrow 0} = 1) &= \\sum_{Q, D, M} P(Y=1 \\mid A=0, Q, D, M) P(M \\mid Q, A=0) "
        "P(D \\mid Q, A=0) P(Q) \\\\\n"
        "P(Y_{A \\Leftarrow 1 \\parallel \\pi} = 1) &= \\sum_{Q, D, M} P(Y=1 \\mid A=1, Q, D, M) "
        "P(M \\mid Q, A=0) P(D \\mid Q, A=1) P(Q)\n"
        "\\end{aligned}"
    )
    assert found.baseline.weight(0).latex == r"\mathbf{1}(A=0) \frac{1}{P(A=0 \mid Q)}"
    assert found.baseline.weight(None).latex.startswith(r"\frac{P(A=0 \mid Q, D, M)}{P(A=0 \mid Q)}")


def test_estimand_of_a_regime() -> None:
    unfair = hiring()
    found = identify(unfair)
    assert found.of(unfair.regimes[0]) is found.baseline
    assert found.of(unfair.regimes[1]) is found.switched
    for other in (unfair.reversed(), unfair.complement(), unfair.graph.unfair()):
        with pytest.raises(
            GraphError, match=r"is not one of the two that were identified, whose unfair paths are A -> D"
        ):
            found.of(other.regimes[1])


def test_names_are_escaped_in_latex() -> None:
    graph = CausalGraph('"hours_per week%" -> Y; A -> "hours_per week%"; A -> Y', sensitive="A", outcome="Y")
    found = identify(graph.unfair(direct=True))
    assert r"\sum_{\text{hours\_per week\%}}" in found.latex
    assert r"P(Y=1 \mid A=1, \text{hours\_per week\%})" in found.latex
    assert r"\text{hours\_per week\%}" in found.switched.weight(1).latex


def test_both_groups_pooled_have_a_name_and_others_are_refused() -> None:
    part = identify(CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y").unfair("A -> Y")).switched
    assert part.weight("pooled") == part.weight(None)
    with pytest.raises(GraphError, match="group=7 is not known"):
        part.weight(7)
