"""Rows replayed: what is redrawn and what it reads, the noise of a row, and the recursion by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from pyrofair import CausalGraph, GraphError, UnfairPaths
from pyrofair._random import isolated, keyed_strata, keyed_uniform, row_keys
from pyrofair.classifiers.pscf.networks import LatentSEM, encoders_of, latents_of, read_networks
from pyrofair.classifiers.pscf.replay import FittedProgram, Replayed, read_plan, replay
from pyrofair.inference.noise import KeyedNoise, KeyedUniforms
from pyrofair.mechanisms.encoders import Encoders
from pyrofair.mechanisms.families import choose_family

CHAIN = CausalGraph("A -> D -> E -> Y; A -> M -> E; A -> M -> Y; A -> Y; Q -> E; Q -> Y", sensitive="A", outcome="Y")
HIRING = CausalGraph("{A Q} -> D; {A Q} -> M; {A Q D M} -> Y", sensitive="A", outcome="Y")


def sem_of(fitted: FittedProgram) -> Any:
    found: Any = fitted.equations.program
    return found


def make(unfair: UnfairPaths, n: int = 40, **columns: Any) -> tuple[FittedProgram, Any, dict[str, Tensor]]:
    """Return a program of networks as they are initialised, the plan, and rows that have nothing to do with it."""
    graph, rng = unfair.graph, np.random.default_rng(0)
    made = {
        name: columns.get(name, rng.integers(0, 2, n) if name in "AY" else rng.normal(size=n))
        for node in graph.order
        for name in graph.columns.get(node, [])
    }
    families = {name: choose_family(pd.Series(each, name=name)) for name, each in made.items()}
    plan = read_plan(unfair)
    with isolated(0):
        sem = LatentSEM(graph, families, latents_of(graph, plan.redrawn, [*families]), hidden=10)
        fitted = read_networks(sem, encoders_of(sem), unfair)
    return fitted, plan, {name: torch.tensor(each).double() for name, each in made.items() if name != "Y"}


def run(fitted: FittedProgram, plan: Any, rows: dict[str, Tensor], **settings: Any) -> Replayed:
    usual: dict[str, Any] = {"latents": "abducted", "draws": 3, "seed": 5, "coupling": "gumbel"}
    n = len(next(iter(rows.values())))
    with isolated(0):
        return replay(fitted, plan, rows, pd.RangeIndex(n), **{**usual, **settings})


# -- the plan ---------------------------------------------------------------------------------------------------------


def test_edges_not_nodes() -> None:
    """A -> Z -> D -> Y is unfair, A -> D is fair: D reads the fair Z and the unit's own A."""
    graph = CausalGraph("A -> Z -> D -> Y; A -> D; A -> Y", sensitive="A", outcome="Y")
    plan = read_plan(graph.unfair("A -> Z -> D -> Y"))
    assert (plan.redrawn, plan.switched) == (("Z", "D"), {"Z"})
    assert plan.reads("Z") == ()
    assert plan.reads("D") == plan.reads("Y") == ("A",)
    assert plan.columns_read("prior") == ["A"]
    assert plan.columns_read("abducted") == ["A", "Z", "D"]


def test_an_unfair_path_through_a_latent_node() -> None:
    graph = CausalGraph("A -> L -> Y; {A H} -> D; {A H D} -> Y", sensitive="A", outcome="Y", latent=["L", "H"])
    with pytest.raises(GraphError, match="A -> L -> Y runs through the latent node 'L'"):
        read_plan(graph.unfair("A -> L -> Y"))
    assert read_plan(graph.unfair("A -> Y")).columns_read("abducted") == ["D"]


# -- the recursion ----------------------------------------------------------------------------------------------------


def test_programs_of_some_sites_give_what_the_whole_does_and_the_guide_reads_a_row_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fitted, plan, rows = make(CHAIN.unfair("A -> D -> E -> Y", "A -> Y"))
    sizes, asked, posterior = list[int](), list[tuple[str, ...]](), Encoders.posterior

    def counted(guide: Encoders, site: str, some: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        sizes.append(len(some["A"]))
        return posterior(guide, site, some)

    def restrict(sites: Any) -> Any:
        asked.append(tuple(sorted(sites)))
        return sem_of(fitted).only(sites)

    whole = run(replace(fitted, restrict=None), plan, rows)
    monkeypatch.setattr(Encoders, "posterior", counted)
    parts = run(replace(fitted, restrict=restrict), plan, rows)
    torch.testing.assert_close(parts.score, whole.score, rtol=0, atol=1e-12)
    for site in plan.redrawn:
        torch.testing.assert_close(parts.fair[site], whole.fair[site], rtol=0, atol=1e-12)
    assert {*sizes} == {int((rows["A"] == group).sum()) for group in (0, 1)}
    assert set(asked) <= {("D",), ("E",), ("D", "E"), ("Y",)}


@pytest.mark.parametrize("latents", ["posterior", "prior"])
def test_redrawn_noise_is_the_recursion_by_hand(latents: Any) -> None:
    """A -> D -> E -> Y is unfair: E reads the fair D, and M with the unit's own A, which is left as it is."""
    fitted, plan, own = make(CHAIN.unfair("A -> D -> E -> Y"))
    assert (plan.redrawn, plan.switched) == (("D", "E"), {"D"})
    sem: Any = sem_of(fitted)
    guide: Any = fitted.guide
    found = run(fitted, plan, own, latents=latents)
    keys = row_keys([own[name] for name in own if name in ("Q", "M")], 40)  # all that no unfair path touches, but A
    with torch.no_grad():
        for j in range(3):
            now = own | {"A": torch.zeros(40).double()}
            for node in ("D", "E"):
                h = torch.special.ndtri(keyed_strata(keys, 5, f"H_{node}", (3, 1)))[j].T
                if latents == "posterior":
                    loc, scale = guide.posterior(f"H_{node}", own)
                    h = loc + scale * h
                if latents == "posterior":
                    torch.testing.assert_close(found.latents[f"H_{node}"][j], h)
                distribution = sem.distribution(node, now, h)
                u = keyed_strata(keys, 5, node, (3,))[j]
                torch.testing.assert_close(distribution.cdf(found.fair[node][j]), u, atol=1e-9, rtol=0)
                now[node] = found.fair[node][j]
            expected = sem.distribution("Y", now | {"A": own["A"]}).probs
            torch.testing.assert_close(found.score[j], expected, atol=1e-12, rtol=0)


def test_abducted_noise_is_the_recursion_by_hand() -> None:
    """The quantile of each unfair node is that of its value at the unit's own parents, and is kept."""
    fitted, plan, own = make(CHAIN.unfair("A -> D -> E -> Y"))
    sem: Any = sem_of(fitted)
    found = run(fitted, plan, own)
    with torch.no_grad():
        for j in range(3):
            now = own | {"A": torch.zeros(40).double()}
            for node in ("D", "E"):
                h = found.latents[f"H_{node}"][j]
                u = sem.distribution(node, own, h).cdf(own[node])
                contrast = own["A"] == 1
                here = sem.distribution(node, now, h).cdf(found.fair[node][j])
                torch.testing.assert_close(here[contrast], u[contrast], atol=1e-9, rtol=0)
                assert torch.equal(found.fair[node][j][~contrast], own[node][~contrast])
                now[node] = found.fair[node][j]
            expected = sem.distribution("Y", now | {"A": own["A"]}).probs
            torch.testing.assert_close(found.score[j], expected, atol=1e-12, rtol=0)
    assert float((found.fair["D"] - own["D"]).abs().max()) > 0.01


def test_only_abducted_noise_depends_on_what_unfair_paths_touch() -> None:
    fitted, plan, own = make(HIRING.unfair("A -> Y", "A -> D -> Y"))
    other = own | {"D": own["D"] + 1.0, "A": 1.0 - own["A"]}
    for latents, same in (("prior", True), ("posterior", False), ("abducted", False)):
        one, two = (run(fitted, plan, rows, latents=latents).score for rows in (own, other))
        assert torch.equal(one, two) == same


@pytest.mark.parametrize("coupling", ["gumbel", "monotone", "antithetic", "independent"])
@pytest.mark.parametrize("kind", ["continuous", "binary", "ordered", "nominal"])
def test_a_row_whose_distributions_do_not_change_is_given_back(coupling: Any, kind: str) -> None:
    rng = np.random.default_rng(1)
    columns = {
        "continuous": rng.normal(size=40),
        "binary": rng.integers(0, 2, 40),
        "ordered": rng.integers(0, 4, 40),
        "nominal": rng.choice(["a", "b", "c"], 40),
    }
    codes = np.unique(columns[kind], return_inverse=True)[1] if kind == "nominal" else columns[kind]
    family = choose_family(pd.Series(columns[kind], name="D"))
    fitted, plan, own = make(HIRING.unfair("A -> D -> Y"), D=codes)
    sem: Any = sem_of(fitted)
    with isolated(0):
        sem = LatentSEM(HIRING, {**sem.families, "D": family}, sem.latents, hidden=10)
        with torch.no_grad():
            sem.networks[sem.index["D"]].body[0].weight[:, sem.reads("D").index("A")] = 0.0
        fitted = read_networks(sem, encoders_of(sem), HIRING.unfair("A -> D -> Y"))
    found = run(fitted, plan, own, coupling=coupling, draws=20)
    assert torch.equal(found.fair["D"].double(), own["D"].expand(found.fair["D"].shape[0], -1))
    with torch.no_grad():
        expected = sem_of(fitted).distribution("Y", own).probs
    torch.testing.assert_close(found.score.mean(0), expected, atol=1e-12, rtol=0)


def test_two_independent_values_of_a_switched_distribution() -> None:
    """With independent noise a value under another distribution is a fresh draw of it; with antithetic its mirror."""
    fitted, plan, own = make(HIRING.unfair("A -> D -> Y"), n=400)
    own = own | {"A": torch.ones(400).double()}
    sem: Any = sem_of(fitted)
    for coupling in ("independent", "antithetic"):
        found = run(fitted, plan, own, coupling=coupling)
        with torch.no_grad():
            h = found.latents["H_D"][0]
            before = sem.distribution("D", own, h).cdf(own["D"])
            after = sem.distribution("D", own | {"A": torch.zeros(400).double()}, h).cdf(found.fair["D"][0])
        if coupling == "antithetic":
            torch.testing.assert_close(after, 1.0 - before, atol=1e-9, rtol=0)
        else:
            assert abs(float(torch.corrcoef(torch.stack([before, after]))[0, 1])) < 0.15
            assert float(after.mean()) == pytest.approx(0.5, abs=0.06)
            assert len(after.unique()) == 400


# -- keyed numbers ----------------------------------------------------------------------------------------------------


def test_noise_has_a_key_for_each_seed_name_and_number() -> None:
    keys = row_keys([torch.randn(5000, generator=torch.Generator().manual_seed(0))], 5000)
    streams = torch.cat([keyed_uniform(keys, seed, name, (3,)) for seed in (0, 1) for name in ("H_D", "D")])
    correlation = torch.corrcoef(streams) - torch.eye(len(streams), dtype=torch.float64)
    assert correlation.abs().max() < 0.06
    assert (streams.mean(1) - 0.5).abs().max() < 0.02
    assert (streams.var(1) - 1 / 12).abs().max() < 0.004
    assert len(streams.unique()) == streams.numel()


def test_strata_are_uniform_and_one_in_each_part() -> None:
    keys = row_keys([torch.arange(5000.0)], 5000)
    u = keyed_strata(keys, 0, "H", (5, 2))
    assert torch.equal((5 * u).floor().sort(0).values, torch.arange(5.0).double()[:, None, None].expand(5, 2, 5000))
    flat = u.reshape(10, 5000)
    assert (flat.mean(1) - 0.5).abs().max() < 0.02
    assert (flat.var(1) - 1 / 12).abs().max() < 0.004
    between = torch.corrcoef(flat)[0]  # of one number, the strata of the others are elsewhere; other numbers are free
    assert between[[2, 4, 6, 8]].tolist() == pytest.approx([-0.24] * 4, abs=0.06)
    assert between[[1, 3, 5, 7, 9]].abs().max() < 0.06


def test_noise_goes_with_the_row() -> None:
    values = torch.tensor([3.0, -0.0, 3.0, 0.0])
    keys = row_keys([values, torch.ones(4)], 4)
    u = keyed_uniform(keys, 0, "D", (2, 3))
    assert u.shape == (2, 3, 4)
    assert torch.equal(u[..., 0], u[..., 2])
    assert torch.equal(u[..., 1], u[..., 3])
    assert not (u[..., 0] == u[..., 1]).any()
    assert torch.equal(keyed_uniform(keys[2:], 0, "D", (2, 3)), u[..., 2:])


@pytest.mark.parametrize("rest", [(), (2,), (3, 2)])
def test_keyed_uniforms_of_units(rest: tuple[int, ...]) -> None:
    """The draws of a unit come one after the other; numbers of at most four elements are one in each part of (0, 1)."""
    m, draws = 2000, 5
    keys = row_keys([torch.arange(m).double()], m)
    uniform = KeyedUniforms(keys, 3, draws)
    u, other = (uniform(name, (m * draws, *rest)).double() for name in ("D", "E"))
    assert u.shape == (m * draws, *rest)
    assert float(u.mean()) == pytest.approx(0.5, abs=0.01)
    assert float(u.var()) == pytest.approx(1 / 12, abs=0.002)
    assert abs(float(torch.corrcoef(torch.stack([u.flatten(), other.flatten()]))[0, 1])) < 0.03
    by_unit = torch.sort((u.reshape(m, draws, *rest) * draws).floor(), 1)[0]
    parts = torch.arange(draws).double().reshape(1, draws, *[1] * len(rest)).expand_as(by_unit)
    assert torch.equal(by_unit, parts) == (int(np.prod(rest)) <= 4)
    twin = KeyedUniforms(np.concatenate([keys[5:6], keys[5:6]]), 3, draws)("D", (2 * draws, *rest)).double()
    assert torch.equal(twin[:draws], twin[draws:])
    assert torch.equal(twin[:draws], u.reshape(m, draws, *rest)[5])
    assert not torch.equal(KeyedUniforms(keys, 4, draws)("D", (m * draws, *rest)).double(), u)


def test_keyed_noise_keeps_its_first_value() -> None:
    keys = row_keys([torch.arange(500).double()], 500)
    noise = KeyedNoise(1500, "gumbel", seed=None, uniform=KeyedUniforms(keys, 0, 3))
    normal: Any = dist.Normal(torch.zeros(1500), 1.0)
    first = noise.draw("U", normal)
    assert first is noise.draw("U", dist.Normal(torch.full((1500,), 9.0), 1.0))
    u = KeyedUniforms(keys, 0, 3)("U", (1500,))
    torch.testing.assert_close(first, torch.special.ndtri(u), rtol=1e-4, atol=1e-5)
    assert torch.equal(noise.at("U", normal), first)
    one, other = noise.pair("D", normal, (1500,))
    assert one is other


def test_a_keyed_value_is_finite_where_rounding_makes_a_uniform_number_one() -> None:
    """Of numbers below 1 in double precision, one in 30 million is 1 in single precision."""
    keys = row_keys([torch.arange(4).double()], 4)
    assert float(torch.tensor(1.0 - 2.0**-26, dtype=torch.float64).to(torch.float32)) == 1.0

    class Ones(KeyedUniforms):
        def __call__(self, name: str, shape: Any) -> Tensor:
            return torch.ones(*shape)

    noise = KeyedNoise(4, "gumbel", seed=None, uniform=Ones(keys, 0, 1))
    assert torch.isfinite(noise.draw("U", dist.Normal(torch.zeros(4), 1.0))).all()
