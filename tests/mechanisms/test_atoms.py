"""Point masses: the mixture as a distribution, the columns that get one, and what is learned of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import pyrofair as pf
from pyrofair.exceptions import DataError
from pyrofair.mechanisms.atoms import AtomMixture
from pyrofair.mechanisms.families import (
    GAP,
    Atoms,
    Bounded,
    Categorical,
    Continuous,
    Integer,
    Positive,
    choose_family,
    decode,
    encode,
    features,
    gap_of,
)
from pyrofair.programs.couplings import is_point, noise_of, parameters_of, quantile

HOURS = Atoms((0.0, 37.5), (0.3, 0.2, 0.5), Continuous(20.0, 15.0, 2))
CAPPED = Atoms((0.0, 0.1), (0.2, 0.3, 0.5), Bounded(0.5, 1.0, 2, 0.0, 0.1))
both = pytest.mark.parametrize("family", [HOURS, CAPPED], ids=["inside", "at both ends"])


def mixture(family: Atoms, dtype: torch.dtype = torch.float64) -> AtomMixture:
    out = family.offset.to(dtype) + 0.3 * torch.randn(3, family.size, generator=torch.Generator().manual_seed(0))
    found: Any = family.distribution(out)
    return found


@both
def test_atoms_and_the_density_of_the_rest_sum_to_one(family: Atoms) -> None:
    made = mixture(family)
    low, high = (max(end, -200.0) if end < 0 else min(end, 200.0) for end in family.rest.ends)
    steps = torch.linspace(low, high, 20_003, dtype=torch.float64)[1:-1]
    rest = torch.trapezoid(made.log_prob(steps[:, None]).exp(), steps, dim=0)
    atoms = made.log_prob(torch.tensor(family.atoms, dtype=torch.float64)[:, None]).exp()
    torch.testing.assert_close(rest + atoms.sum(0), torch.ones(3, dtype=torch.float64), atol=2e-3, rtol=0.0)


@both
def test_quantiles_keep_the_order_of_numbers_and_an_atom_has_an_interval_of_noise(family: Atoms) -> None:
    made, u = mixture(family), torch.linspace(0.0005, 0.9995, 1000, dtype=torch.float64)[:, None]
    value = made.icdf(u)
    assert bool((value.diff(dim=0) >= 0.0).all())
    low, high = noise_of("V", made, value)
    assert bool(((low <= u + 1e-6) & (u <= high + 1e-6)).all())
    at = torch.isin(value, torch.tensor(family.atoms, dtype=value.dtype))
    p = torch.where(value == family.atoms[0], made.logits[:, 0].exp(), made.logits[:, 1].exp())
    torch.testing.assert_close((high - low)[at], p[at])
    assert bool((high - low)[~at].abs().max() < 1e-9)
    assert not is_point(made, "monotone")
    counted = at.double().mean(0)
    torch.testing.assert_close(counted, made.logits[:, :2].exp().sum(-1), atol=2e-3, rtol=0.0)


@both
def test_draws_in_single_precision_are_the_atoms(family: Atoms) -> None:
    torch.manual_seed(0)
    made = mixture(family, torch.float32)
    drawn = made.expand((2, 3)).sample((20_000,))
    for i, atom in enumerate(family.atoms):
        share = (drawn == torch.tensor(atom)).float().mean((0, 1))
        torch.testing.assert_close(share, made.logits[:, i].exp(), atol=0.01, rtol=0.0)
    wide = drawn[:500, 0].double()  # a value that was rounded is the atom still
    assert bool((noise_of("V", mixture(family), wide)[0] < 1.0).all())
    torch.testing.assert_close(mixture(family).log_prob(wide).float(), made.log_prob(drawn[:500, 0]), atol=1e-3, rtol=0)


def test_two_mixtures_with_another_rest_are_different_distributions() -> None:
    one, other = (parameters_of(mixture(Atoms((0.0,), (0.5, 0.5), Continuous(mean, 1.0, 1)))) for mean in (0.0, 3.0))
    assert any(not torch.equal(left, right) for left, right in zip(one, other, strict=True))


# -- the columns that get one ------------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
PAY, HEIGHT = np.exp(RNG.normal(3.0, 1.0, 2000)), RNG.normal(0.0, 1.0, 2000)


@pytest.mark.parametrize(
    ("values", "atoms", "rest", "ends"),
    [
        (np.where(RNG.random(2000) < 0.4, 0.0, PAY), (0.0,), Positive, (0.0, np.inf)),
        (np.append(PAY, 0.0), (0.0,), Positive, (0.0, np.inf)),
        (np.minimum(PAY, 49.99), (49.99,), Bounded, (0.0, 49.99)),
        (HEIGHT.clip(-1.0, 1.5), (-1.0, 1.5), Bounded, (-1.0, 1.5)),
        (HEIGHT.clip(max=1.5), (1.5,), Bounded, (-np.inf, 1.5)),
        (HEIGHT.clip(min=-1.0), (-1.0,), Bounded, (-1.0, np.inf)),
        (np.where(RNG.random(2000) < 0.1, 0.1, HEIGHT), (0.1,), Continuous, (-np.inf, np.inf)),
        (np.where(RNG.random(2000) < 0.1, 16777217001.0, 1e9 * PAY), (16777217001.0,), Positive, (0.0, np.inf)),
    ],
)
def test_values_that_recur_are_atoms_and_at_an_end_the_end(values: Any, atoms: Any, rest: type, ends: Any) -> None:
    column = pd.Series(values, name="M")
    family = choose_family(column)
    assert isinstance(family, Atoms)
    assert (family.atoms, type(family.rest), family.rest.ends) == (atoms, rest, ends)
    share = np.isin(values, atoms).mean()
    assert sum(family.frequencies[:-1]) == pytest.approx(share, abs=0.001)
    again = decode(family, encode(family, column))
    np.testing.assert_array_equal(again[np.isin(values, atoms)], values[np.isin(values, atoms)])
    read = features(family, encode(family, column)).double().numpy()
    np.testing.assert_array_equal(read[:, : len(atoms)], values[:, None] == np.array(atoms))
    others = read[read[:, : len(atoms)].sum(1) == 0, -1]
    assert (others.mean(), others.std()) == (pytest.approx(0.0, abs=1e-4), pytest.approx(1.0, abs=1e-4))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (RNG.normal(36.0, 9.0, 2000).round(1), Positive),  # each value a few times
        (HEIGHT.round(2), Continuous),
        (RNG.integers(2, 11, 2000) / 2, Categorical),  # half stars
        (np.append(RNG.integers(4, 11, 80) / 2, 1.0), Categorical),  # one of them once
        (np.where(RNG.random(2000) < 0.003, 37.5, HEIGHT), Continuous),
        (HEIGHT.round(1), Integer),  # codes of even steps
        (np.log1p(RNG.integers(0, 90, 2000)), Atoms),  # at 0; steps are not even
    ],
)
def test_values_that_recur_as_others_do_are_none(values: Any, expected: type) -> None:
    assert type(choose_family(pd.Series(values))) is expected


def test_a_grid_of_fractions_is_coded_and_read_as_numbers_of_which_some_may_be_new() -> None:
    grades = pd.Series(RNG.binomial(80, 0.6, 3000) / 10, name="M")
    grades[grades == 4.3] = 4.4
    family = choose_family(grades)
    assert isinstance(family, Integer)
    assert 4.3 in family.levels
    values = pd.Series([4.3, 4.4, np.float32(4.5)], name="M")
    assert decode(family, encode(family, values)).tolist() == [4.3, 4.4, 4.5]
    read = features(family, encode(family, grades)).double()
    assert (read.shape, read.mean().item()) == ((3000, 1), pytest.approx(0.0, abs=1e-4))
    with pytest.raises(DataError, match=r"'M' holds 4\.35, .*Integer"):
        encode(family, pd.Series([4.35], name="M"))


def test_a_value_beyond_an_end_is_refused_by_name() -> None:
    with pytest.raises(DataError, match=r"'M' holds 0\.2, .*Atoms, .*numbers above 0 and below 0\.1, or 0, 0\.1"):
        encode(CAPPED, pd.Series([0.05, 0.1, 0.2], name="M"))


GAPS = RNG.random(2000) < 0.3
LACKING: dict[str, Any] = {
    "numbers": (np.where(GAPS, np.nan, HEIGHT), (GAP,), Continuous),
    "spikes": (np.where(GAPS, np.nan, np.where(HEIGHT > 0.0, PAY, 0.0)), (GAP, 0.0), Positive),
    "integers": (np.where(GAPS, np.nan, RNG.integers(18, 90, 2000)), (GAP,), Integer),
    "few": (np.where(GAPS, np.nan, RNG.integers(0, 4, 2000)), (math.nan, 0, 1, 2, 3), None),
    "binary": (pd.Series(HEIGHT > 0.0, dtype="boolean").mask(GAPS), (math.nan, 0, 1), None),
    "text": (np.where(GAPS, None, np.where(HEIGHT > 0.0, "a", "b")), (math.nan, "a", "b"), None),
    "category": (pd.Categorical(np.where(GAPS, None, np.where(HEIGHT > 0.0, "a", "b"))), (math.nan, "a", "b"), None),
}


@pytest.mark.parametrize(("values", "known", "rest"), LACKING.values(), ids=LACKING)
def test_not_recorded_is_the_lowest_value(values: Any, known: Any, rest: type | None) -> None:
    column = pd.Series(values, name="M")
    family: Any = choose_family(column, missing="recorded")
    assert repr(family.levels if rest is None else family.atoms) == repr(known)
    assert rest is None or type(family.rest) is rest
    assert family.frequencies[0] == pytest.approx(GAPS.mean(), abs=1e-3)
    assert sum(family.frequencies) == pytest.approx(1.0)
    coded = encode(family, column)
    again = pd.Series(decode(family, coded))
    assert (again.isna() == GAPS).all()
    expected = column.dropna().tolist()
    assert again.dropna().tolist() == (expected if rest is None else pytest.approx(expected, rel=1e-6, abs=1e-6))
    assert bool((coded == gap_of(family)).numpy()[GAPS].all())
    read = features(family, coded)
    assert bool(read.isfinite().all())
    assert bool((read[GAPS] == read[GAPS][:1]).all())
    made = family.distribution(family.offset.expand(2000, -1))
    assert bool(made.log_prob(coded).isfinite().all())
    u = torch.linspace(0.0005, 0.9995, 2000)
    low = quantile("M", made, u) == gap_of(family)
    assert bool((low == (u <= family.frequencies[0])).all())
    below, most = noise_of("M", made, coded)
    torch.testing.assert_close((most - below)[GAPS], torch.full((int(GAPS.sum()),), family.frequencies[0]))
    if rest not in (Continuous, Positive):
        torch.testing.assert_close(made.log_prob(coded).exp(), most - below, atol=1e-5, rtol=0.0)
    with pytest.raises(DataError, match=r"missing value.*'M'"):
        choose_family(column)
    with pytest.raises(DataError, match=r"'M' has .* missing.*missing='recorded'"):
        encode(choose_family(column.dropna()), column)


# -- what is learned of them -------------------------------------------------------------------------------------------

GRAPH = pf.CausalGraph("A -> M; {A M} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> M -> Y")


def spiked(n: int, seed: int = 0) -> pd.DataFrame:
    """Incomes of 0 in 60 % and 20 % of the groups, cut at 49.99."""
    rng = np.random.default_rng(seed)
    A = rng.integers(0, 2, n)
    M = np.where(rng.random(n) < np.where(A == 1, 0.2, 0.6), 0.0, np.exp(rng.normal(3.0, 1.0, n)).round(2))
    return pd.DataFrame({"A": A, "M": np.minimum(M, 49.99), "Y": rng.random(n) < 0.2 + 0.5 * (M > 0.0)}).astype(
        {"Y": int}
    )


@pytest.fixture(scope="module")
def learned() -> pf.LearnedMechanisms:
    return pf.learn_mechanisms(spiked(2000), GRAPH, progress=False, random_state=0)


def test_an_sem_keeps_atoms_and_takes_their_noise_for_an_interval(learned: pf.LearnedMechanisms) -> None:
    sem, df = pf.SEM.from_mechanisms(learned, UNFAIR, random_state=0), spiked(2000)
    baseline, switched = sem.nodes(4000, random_state=0)
    for world, group in ((baseline, 0), (switched, 1)):
        assert world["M"].between(0.0, 49.99).all()
        for atom in (0.0, 49.99):
            assert (world["M"] == atom).mean() == pytest.approx((df["M"][df["A"] == group] == atom).mean(), abs=0.03)
    assert (switched["M"] >= baseline["M"]).all()
    given = df[(df["A"] == 0) & (df["M"] == 0.0)].head(3)
    found = sem.counterfactual(given, draws=400)
    assert not found.exact
    assert found.diagnostics.set_index("node").loc["M", "note"].str.contains("up to what gives the value").all()


def test_what_is_learned_of_missing_values_is_no_program() -> None:
    df = spiked(600).assign(M=lambda rows: rows["M"].where(rows.index % 5 > rows["A"]))
    learned = pf.learn_mechanisms(df, GRAPH, missing="recorded", parameters="linear", progress=False, random_state=0)
    new = pd.DataFrame({"A": [0, 1]})
    lost = learned.distribution("M", new).log_prob(torch.tensor(GAP)).exp()
    np.testing.assert_allclose(lost, df["M"].isna().groupby(df["A"]).mean(), atol=0.02)
    given = learned.distribution("Y", pd.DataFrame({"A": [1], "M": [np.nan]})).mean
    assert float(given) == pytest.approx(df["Y"][df["M"].isna() & (df["A"] == 1)].mean(), abs=0.1)
    shown = learned.to_inference_data(2)
    assert (np.isnan(shown.observed_data["M"].values) == df["M"].isna()).all()
    assert not (shown.posterior_predictive["M"] < 0.0).any()
    assert learned.doubts() == []
    texts = [each.get_text() for axes in learned.plot().axes for each in axes.texts or [axes.title, axes._right_title]]
    assert any("missing: 0." in text for text in texts)
    for refused in (lambda: learned.program, lambda: pf.SEM.from_mechanisms(learned, UNFAIR)):
        with pytest.raises(DataError, match=r"'M'.*SEM, PSCF and abduction"):
            refused()
    with pytest.raises(DataError, match=r"missing value.*'M'.*reads no gaps"):
        pf.PSCF(UNFAIR, progress=False).fit(df[["A", "M"]], df["Y"])
