"""Folds: rows of both values in each, whole groups together, and what is refused."""

from __future__ import annotations

import time

import numpy as np
import pytest

from pyrofair.exceptions import DataError
from pyrofair.nuisances.folds import fold_of, hold_out, split_folds

N = 600
RNG = np.random.default_rng(0)
A = (RNG.random(N) < 0.2).astype(np.int8)
ONES = np.ones(N)


@pytest.mark.parametrize("folds", [2, 5])
@pytest.mark.parametrize("size", [1, 2, 7])
def test_whole_groups_stay_together_in_folds_of_like_shares(folds: int, size: int) -> None:
    groups = RNG.permutation(np.arange(N) // size)
    found = split_folds(A, ONES, folds, 0, groups)
    assert len(found) == folds
    assert np.sort(np.concatenate([test for _, test in found])).tolist() == list(range(N))
    for train, test in found:
        assert not {*groups[train]} & {*groups[test]}
        assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(N))
        assert len(test) == pytest.approx(N / folds, abs=2 * size)
        assert A[test].sum() == pytest.approx(A.sum() / folds, abs=2 * size)


def test_groups_of_unequal_sizes_make_folds_of_like_sizes() -> None:
    size = np.random.default_rng(1).geometric(0.05, 60)
    groups = np.repeat(np.arange(60), size)
    a = (np.random.default_rng(2).random(len(groups)) < 0.4).astype(np.int8)
    shares = [(len(test), a[test].sum()) for _, test in split_folds(a, np.ones(len(a)), 5, 0, groups)]
    expected = np.array([len(a), a.sum()]) / 5
    assert np.abs(np.array(shares) / expected - 1.0).max() < 0.25


def test_folds_do_not_depend_on_the_names_of_groups_and_differ_by_seed() -> None:
    groups = np.arange(N) // 2
    names = np.char.add("house ", np.char.zfill(groups.astype(str), 4))
    one, same, other = (split_folds(A, ONES, 5, seed, own) for seed, own in ((0, groups), (0, names), (1, groups)))
    assert all(np.array_equal(x[1], y[1]) for x, y in zip(one, same, strict=True))
    assert any(not np.array_equal(x[1], y[1]) for x, y in zip(one, other, strict=True))


def test_a_hundred_thousand_groups_take_no_time() -> None:
    groups = np.arange(200_000) // 2
    before = time.process_time()
    split_folds((groups % 3 == 0).astype(np.int8), np.ones(200_000), 5, 0, groups)
    assert time.process_time() - before < 5.0  # half a second; a loop over groups takes ten


def test_rows_without_weight_are_in_no_fold() -> None:
    weight = np.where(np.arange(N) % 4, 1.0, 0.0)
    for groups in (None, np.arange(N) // 2):
        folds = split_folds(A, weight, 3, 0, groups)
        assert ((fold_of(folds, N) < 0) == (weight == 0.0)).all()
    position = np.array([5, -1, 0])
    assert fold_of(folds, N, position)[1:].tolist() == [-1, -1]
    assert fold_of(folds, N, position)[0] == fold_of(folds, N)[5]


def test_one_fold_is_all_rows_and_rows_may_be_all_alike() -> None:
    ((train, test),) = split_folds(A, ONES, 1, 0)
    assert train.tolist() == test.tolist() == list(range(N))
    assert sorted(len(test) for _, test in split_folds(None, ONES, 3, 0)) == [200, 200, 200]


def test_too_few_rows_or_groups_are_refused() -> None:
    few = np.repeat([1, 0], [4, 596]).astype(np.int8)
    with pytest.raises(DataError, match="A group has 4 rows with a weight, too few for 5-fold"):
        split_folds(few, ONES, 5, 0)
    lone = np.where(A == 1, 0, np.arange(N))  # all rows with A = 1 in one cluster
    with pytest.raises(DataError, match="A group has 1 clusters with a weight, too few for 2-fold"):
        split_folds(A, ONES, 2, 0, lone)
    # Two clusters hold all rows with A = 1, and balance puts them into one fold.
    sizes = {"ones": (0, 200), "a": (150, 0), "b": (100, 0), "c": (90, 0), "one more": (50, 1)}
    a = np.concatenate([np.repeat([0, 1], size) for size in sizes.values()]).astype(np.int8)
    clusters = np.repeat(list(sizes), [sum(size) for size in sizes.values()])
    with pytest.raises(DataError, match="A group has 2 clusters with a weight, too few for 2-fold"):
        split_folds(a, np.ones(len(a)), 2, 0, clusters)


def test_rows_held_out_are_a_tenth_by_whole_groups() -> None:
    groups = np.arange(N) // 2
    train, held = hold_out(A, ONES, 0, groups)
    assert not {*groups[train]} & {*groups[held]}
    assert len(held) == pytest.approx(N / 10, abs=4)
    assert 0 < A[held].sum() < len(held)
