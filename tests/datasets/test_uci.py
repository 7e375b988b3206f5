"""Adult and German Credit: the published rows, the paper's subset, the splits, and the errors."""

from __future__ import annotations

import hashlib
import lzma
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pyrofair.datasets.uci import Dataset, load_adult, load_german
from pyrofair.exceptions import DataError

ADULT_COLUMNS = [
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship",
    "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income",
]  # fmt: skip
GERMAN_COLUMNS = [
    "checking", "duration", "credit-history", "purpose", "credit-amount", "savings", "employment",
    "installment-rate", "personal-status", "other-debtors", "residence-since", "property", "age",
    "other-installment-plans", "housing", "existing-credits", "job", "dependents", "telephone", "foreign-worker",
    "sex", "risk",
]  # fmt: skip
NUMBERS = {
    "age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week", "duration", "credit-amount",
    "installment-rate", "residence-since", "existing-credits", "dependents",
}  # fmt: skip
GRAPHS: dict[str, dict[str, Any]] = {
    "adult": {
        "edges": {"M": "AC", "L": "ACM", "R": "ACML", "Y": "ACMLR"},
        "labels": ("Female", "Male", ">50K"),
        "unfair": {"AY", "AMY", "AMLY", "AMRY", "AMLRY"},
        "columns": "sex age native-country marital-status education-num workclass occupation hours-per-week income",
        "levels": (["Female", "Male"], ["<=50K", ">50K"]),
    },
    "german": {
        "edges": {"S": "AC", "R": "AC", "Y": "ACSR"},
        "labels": ("female", "male", "good"),
        "unfair": {"AY", "ASY"},
        "columns": "sex age purpose savings checking housing credit-amount duration risk",
        "levels": (["female", "male"], ["bad", "good"]),
    },
}
VARIANTS = {"paper": (44_869, 34_000), "complete": (45_222, 34_267), "raw": (48_842, 37_011)}


def packaged(name: str) -> bytes:
    return lzma.decompress(resources.files("pyrofair.datasets").joinpath("data", f"{name}.xz").read_bytes())


@pytest.fixture(scope="module")
def adult() -> Dataset:
    return load_adult()


@pytest.fixture(scope="module")
def adult_all() -> dict[str, Dataset]:
    return {variant: load_adult(variant=variant, columns="all") for variant in VARIANTS}  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def german() -> Dataset:
    return load_german()


@pytest.fixture(scope="module")
def german_all() -> Dataset:
    return load_german(columns="all")


# The rows


def test_adult_matrix_is_the_papers(adult_all: dict[str, Dataset]) -> None:
    frame = adult_all["paper"].frame
    marital = [
        "Never-married", "Divorced", "Widowed", "Separated", "Married-spouse-absent", "Married-civ-spouse",
        "Married-AF-spouse",
    ]  # fmt: skip
    workclass = ["Without-pay", "Self-emp-not-inc", "Local-gov", "State-gov", "Self-emp-inc", "Federal-gov", "Private"]
    race = ["Amer-Indian-Eskimo", "Asian-Pac-Islander", "Black", "White"]

    def coded(column: str, order: list[str], first: int = 1) -> pd.Series[int]:
        return frame[column].astype(object).map({label: code for code, label in enumerate(order, first)})

    matrix = np.column_stack(
        [
            coded("income", ["<=50K", ">50K"], first=0),
            coded("sex", ["Female", "Male"], first=0),
            coded("marital-status", marital),
            frame["education-num"],
            frame["occupation"].cat.codes.astype(np.int64) + 1,
            frame["hours-per-week"],
            coded("workclass", workclass, first=2),
            coded("race", race),
            frame["age"],
            frame["native-country"].cat.codes.astype(np.int64) + 1,
        ]
    ).astype("<i8")
    sums = [11163, 30300, 164748, 454490, 312699, 1837272, 317090, 171337, 1731270, 1681110]
    assert matrix.sum(axis=0).tolist() == sums
    digest = hashlib.sha256(np.ascontiguousarray(matrix).tobytes()).hexdigest()
    assert digest == "20528b5084a08f0d6ae605c4de570a03ddcbb01227d9aa5fb46fc96640174c5d"


def test_adult_rows_of_each_variant(adult: Dataset, adult_all: dict[str, Dataset]) -> None:
    for variant, sizes in VARIANTS.items():
        assert (len(adult_all[variant].frame), adult_all[variant].n_train) == sizes
    raw, complete, paper = (adult_all[variant].frame for variant in ("raw", "complete", "paper"))
    assert raw.index.tolist() == list(range(48_842))
    missing = raw.isna().sum()
    assert missing[missing > 0].to_dict() == {"workclass": 2799, "occupation": 2809, "native-country": 857}
    kept = raw.dropna()
    pd.testing.assert_frame_equal(kept.astype(object), complete.astype(object))
    pd.testing.assert_frame_equal(kept[kept["race"] != "Other"].astype(object), paper.astype(object))
    assert list(paper.columns) == ADULT_COLUMNS
    pd.testing.assert_frame_equal(paper[adult.frame.columns], adult.frame)


def test_german_counts(german: Dataset, german_all: Dataset) -> None:
    frame = german_all.frame
    assert frame.shape == (1000, 22)
    assert list(frame.columns) == GERMAN_COLUMNS
    assert frame.index.tolist() == list(range(1000))
    assert not frame.isna().to_numpy().any()
    assert frame["risk"].value_counts().to_dict() == {"good": 700, "bad": 300}
    assert frame["sex"].value_counts().to_dict() == {"male": 690, "female": 310}
    pd.testing.assert_frame_equal(frame[german.frame.columns], german.frame)


def test_german_sex_is_read_from_personal_status(german_all: Dataset) -> None:
    counts = german_all.frame.groupby(["personal-status", "sex"], observed=True).size().to_dict()
    assert counts == {
        ("female divorced, separated or married", "female"): 310,
        ("male divorced or separated", "male"): 50,
        ("male married or widowed", "male"): 92,
        ("male single", "male"): 548,
    }


def test_german_labels_agree_with_the_raw_codes(german_all: Dataset) -> None:
    codes = pd.DataFrame([line.split() for line in packaged("german.data").decode().splitlines()])
    codes.columns = pd.Index([name for name in GERMAN_COLUMNS if name != "sex"])
    for name in codes:
        pairs = set(zip(codes[name], german_all.frame[name], strict=True))
        # One label a code, one code a label: nothing merged, nothing split.
        assert len(pairs) == codes[name].nunique() == german_all.frame[name].nunique(), name
    first = german_all.frame.iloc[0]
    assert first[["checking", "purpose", "savings", "housing", "risk"]].tolist() == (
        ["<0 DM", "radio or television", "none known", "own", "good"]
    )
    assert first[["duration", "credit-amount", "age"]].tolist() == [6, 1169, 67]


# Types


def test_numbers_are_int64_and_text_is_sorted_categories(adult_all: dict[str, Dataset], german_all: Dataset) -> None:
    for dataset in (*adult_all.values(), german_all):
        for column, values in dataset.frame.items():
            if column in NUMBERS:
                assert values.dtype == np.int64, column
            else:
                assert values.cat.categories.tolist() == sorted(values.dropna().unique()), column


# The graphs


@pytest.mark.parametrize("name", GRAPHS)
def test_graph_and_unfair_paths(request: pytest.FixtureRequest, name: str) -> None:
    dataset, stated = request.getfixturevalue(name), GRAPHS[name]
    graph = dataset.graph
    assert set(graph.edges) == {(parent, child) for child, held in stated["edges"].items() for parent in held}
    assert (graph.sensitive, graph.outcome) == ("A", "Y")
    assert (graph.baseline, graph.contrast, graph.positive) == stated["labels"]
    assert graph.columns_of(graph.nodes) == list(dataset.frame.columns) == stated["columns"].split()
    assert {"".join(path) for path in dataset.unfair.paths} == stated["unfair"]
    assert dataset.unfair.recanting_witnesses() == []
    for node, levels in zip("AY", stated["levels"], strict=True):
        assert dataset.frame[graph.columns[node][0]].cat.categories.tolist() == levels
    assert dataset.source in dataset.citation
    assert "CC BY 4.0" in dataset.citation


# The splits


@pytest.mark.parametrize(("name", "sizes"), [("adult", (34_000, 10_869)), ("german", (900, 100))])
@pytest.mark.some(1)
def test_split_sizes_and_disjointness(request: pytest.FixtureRequest, name: str, sizes: tuple[int, int]) -> None:
    dataset: Dataset = request.getfixturevalue(name)
    train, test = dataset.split(random_state=3)
    assert (len(train), len(test)) == sizes
    rejoined = pd.concat([train, test])
    assert rejoined.index.is_unique
    # Labels, values and categories are the frame's own.
    pd.testing.assert_frame_equal(rejoined.sort_index(), dataset.frame)
    for part in (train, test):
        pd.testing.assert_series_equal(part.dtypes, dataset.frame.dtypes)


def test_split_follows_its_seed(german: Dataset) -> None:
    first, same, other = (german.split(random_state=seed)[0] for seed in (0, 0, 1))
    pd.testing.assert_frame_equal(first, same)
    assert first.index.tolist() != other.index.tolist()
    generator = np.random.default_rng(0)
    pd.testing.assert_frame_equal(german.split(generator)[0], first)
    assert german.split(generator)[0].index.tolist() != first.index.tolist()
    assert german.split()[0].index.tolist() != german.split()[0].index.tolist()


# The user's own files


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.some(1)
def test_own_files_give_the_same_dataset(tmp_path: Path, adult: Dataset, german: Dataset, packed: bool) -> None:
    for name in ("adult.data", "adult.test", "german.data"):
        content = packaged(name)
        target = tmp_path / (f"{name}.xz" if packed else name)
        target.write_bytes(lzma.compress(content, preset=0) if packed else content)
    pd.testing.assert_frame_equal(load_adult(tmp_path).frame, adult.frame)
    pd.testing.assert_frame_equal(load_german(str(tmp_path)).frame, german.frame)


def as_it_is(raw: bytes) -> bytes:
    return raw


@pytest.mark.parametrize(
    ("load", "files", "message"),
    [
        (
            load_german,
            {"german.data": lambda raw: raw.replace(b"\n", b"\r\n")},
            "german.data in .*sha256 b21f3d8.*, got",
        ),
        (
            load_adult,
            {"adult.data": as_it_is, "adult.test": lambda raw: raw + b"\n"},
            "adult.test in .* is not the file that UCI published: expected sha256 a2a9044b",
        ),
        (load_german, {}, "No german.data or german.data.xz in .*; the folder holds nothing"),
        (load_adult, {"adult.data": as_it_is}, "No adult.test or adult.test.xz in .*; the folder holds adult.data"),
        (load_german, {"german.data.xz": lambda raw: b"not xz"}, "german.data.xz cannot be decompressed"),
        (load_german, {"german.data.xz": lambda raw: lzma.compress(raw)[:-8]}, "german.data.xz cannot be decompressed"),
    ],
    ids=["changed", "changed test part", "absent", "absent test part", "no archive", "cut archive"],
)
def test_unfit_files_are_refused(tmp_path: Path, load: Any, files: dict[str, Any], message: str) -> None:
    for name, change in files.items():
        (tmp_path / name).write_bytes(change(packaged(name.removesuffix(".xz"))))
    with pytest.raises(DataError, match=message):
        load(tmp_path)
    with pytest.raises(DataError, match="none' is not a folder"):
        load(tmp_path / "none")


# The package


def test_packaged_data_stays_small_and_has_a_notice() -> None:
    folder = resources.files("pyrofair.datasets").joinpath("data")
    files = {entry.name: len(entry.read_bytes()) for entry in folder.iterdir()}
    assert set(files) == {"adult.data.xz", "adult.test.xz", "german.data.xz", "NOTICE.md"}
    assert sum(files.values()) < 1_000_000
    notice = folder.joinpath("NOTICE.md").read_text(encoding="utf-8")
    for phrase in ("CC BY 4.0", "compressed, otherwise unmodified", "10.24432/C5XW20", "10.24432/C5NC77", "single men"):
        assert phrase in notice
