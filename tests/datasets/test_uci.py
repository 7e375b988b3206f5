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
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
]
ADULT_GRAPH_COLUMNS = [
    "sex",
    "age",
    "native-country",
    "marital-status",
    "education-num",
    "workclass",
    "occupation",
    "hours-per-week",
    "income",
]
GERMAN_COLUMNS = [
    "checking",
    "duration",
    "credit-history",
    "purpose",
    "credit-amount",
    "savings",
    "employment",
    "installment-rate",
    "personal-status",
    "other-debtors",
    "residence-since",
    "property",
    "age",
    "other-installment-plans",
    "housing",
    "existing-credits",
    "job",
    "dependents",
    "telephone",
    "foreign-worker",
    "sex",
    "risk",
]
GERMAN_GRAPH_COLUMNS = [
    "sex",
    "age",
    "purpose",
    "savings",
    "checking",
    "housing",
    "credit-amount",
    "duration",
    "risk",
]
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


@pytest.mark.parametrize("variant", VARIANTS)
def test_adult_rows_of_each_variant(adult_all: dict[str, Dataset], variant: str) -> None:
    dataset = adult_all[variant]
    assert (len(dataset.frame), dataset.n_train) == VARIANTS[variant]
    assert dataset.frame.index.is_unique


def test_adult_matrix_is_the_papers(adult_all: dict[str, Dataset]) -> None:
    frame = adult_all["paper"].frame
    marital = [
        "Never-married",
        "Divorced",
        "Widowed",
        "Separated",
        "Married-spouse-absent",
        "Married-civ-spouse",
        "Married-AF-spouse",
    ]
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
    assert matrix.sum(axis=0).tolist() == [
        11163,
        30300,
        164748,
        454490,
        312699,
        1837272,
        317090,
        171337,
        1731270,
        1681110,
    ]
    digest = hashlib.sha256(np.ascontiguousarray(matrix).tobytes()).hexdigest()
    assert digest == "20528b5084a08f0d6ae605c4de570a03ddcbb01227d9aa5fb46fc96640174c5d"


def test_adult_row_keeps_its_label_in_all_variants(adult: Dataset, adult_all: dict[str, Dataset]) -> None:
    raw, complete, paper = (adult_all[variant].frame for variant in ("raw", "complete", "paper"))
    assert raw.index.tolist() == list(range(48_842))
    kept = raw.dropna()
    pd.testing.assert_frame_equal(kept.astype(object), complete.astype(object))
    pd.testing.assert_frame_equal(kept[kept["race"] != "Other"].astype(object), paper.astype(object))
    pd.testing.assert_frame_equal(paper[ADULT_GRAPH_COLUMNS], adult.frame)


def test_adult_question_mark_is_missing(adult_all: dict[str, Dataset]) -> None:
    missing = adult_all["raw"].frame.isna().sum()
    assert missing[missing > 0].to_dict() == {"workclass": 2799, "occupation": 2809, "native-country": 857}
    for variant in ("complete", "paper"):
        assert not adult_all[variant].frame.isna().to_numpy().any()


def test_adult_columns_and_order(adult: Dataset, adult_all: dict[str, Dataset]) -> None:
    assert list(adult.frame.columns) == ADULT_GRAPH_COLUMNS
    assert list(adult_all["paper"].frame.columns) == ADULT_COLUMNS


def test_german_counts(german: Dataset, german_all: Dataset) -> None:
    frame = german_all.frame
    assert frame.shape == (1000, 22)
    assert list(frame.columns) == GERMAN_COLUMNS
    assert frame.index.tolist() == list(range(1000))
    assert not frame.isna().to_numpy().any()
    assert frame["risk"].value_counts().to_dict() == {"good": 700, "bad": 300}
    assert frame["sex"].value_counts().to_dict() == {"male": 690, "female": 310}
    assert list(german.frame.columns) == GERMAN_GRAPH_COLUMNS
    pd.testing.assert_frame_equal(frame[GERMAN_GRAPH_COLUMNS], german.frame)


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
    assert first[["checking", "purpose", "savings", "housing", "risk"]].tolist() == [
        "<0 DM",
        "radio or television",
        "none known",
        "own",
        "good",
    ]
    assert first[["duration", "credit-amount", "age"]].tolist() == [6, 1169, 67]


# Types


@pytest.mark.parametrize("name", ["adult paper", "adult complete", "adult raw", "german"])
def test_numbers_are_int64_and_text_is_sorted_categories(
    adult_all: dict[str, Dataset], german_all: Dataset, name: str
) -> None:
    frame = german_all.frame if name == "german" else adult_all[name.removeprefix("adult ")].frame
    numbers = {"age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"} | {
        "duration",
        "credit-amount",
        "installment-rate",
        "residence-since",
        "existing-credits",
        "dependents",
    }
    for column, values in frame.items():
        if column in numbers:
            assert values.dtype == np.int64, column
        else:
            assert isinstance(values.dtype, pd.CategoricalDtype), column
            assert values.cat.categories.tolist() == sorted(values.dropna().unique()), column


def test_categories_of_the_sensitive_attribute_and_the_outcome(adult: Dataset, german: Dataset) -> None:
    assert adult.frame["sex"].cat.categories.tolist() == ["Female", "Male"]
    assert adult.frame["income"].cat.categories.tolist() == ["<=50K", ">50K"]
    assert german.frame["sex"].cat.categories.tolist() == ["female", "male"]
    assert german.frame["risk"].cat.categories.tolist() == ["bad", "good"]


# The graphs


def test_adult_graph_and_unfair_paths(adult: Dataset) -> None:
    graph = adult.graph
    parents = {"M": "AC", "L": "ACM", "R": "ACML", "Y": "ACMLR"}
    assert set(graph.edges) == {(parent, child) for child, held in parents.items() for parent in held}
    assert (graph.sensitive, graph.outcome) == ("A", "Y")
    assert (graph.baseline, graph.contrast, graph.positive) == ("Female", "Male", ">50K")
    assert [column for node in graph.nodes for column in graph.columns[node]] == ADULT_GRAPH_COLUMNS
    assert set(adult.unfair.paths) == {
        ("A", "Y"),
        ("A", "M", "Y"),
        ("A", "M", "L", "Y"),
        ("A", "M", "R", "Y"),
        ("A", "M", "L", "R", "Y"),
    }


def test_german_graph_and_unfair_paths(german: Dataset) -> None:
    graph = german.graph
    parents = {"S": "AC", "R": "AC", "Y": "ACSR"}
    assert set(graph.edges) == {(parent, child) for child, held in parents.items() for parent in held}
    assert (graph.baseline, graph.contrast, graph.positive) == ("female", "male", "good")
    assert [column for node in graph.nodes for column in graph.columns[node]] == GERMAN_GRAPH_COLUMNS
    assert set(german.unfair.paths) == {("A", "Y"), ("A", "S", "Y")}
    assert german.unfair.recanting_witnesses() == []


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


def test_split_leaves_global_state_and_the_frame_alone(german: Dataset) -> None:
    before_frame = german.frame.copy()
    before: Any = np.random.get_state()  # noqa: NPY002
    train, _ = german.split(random_state=0)
    german.split()
    after: Any = np.random.get_state()  # noqa: NPY002
    assert before[0] == after[0]
    assert np.array_equal(before[1], after[1])
    assert before[2:] == after[2:]
    train["age"] = 0
    pd.testing.assert_frame_equal(german.frame, before_frame)


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


def test_changed_file_is_refused(tmp_path: Path) -> None:
    content = packaged("german.data").replace(b"\n", b"\r\n")
    (tmp_path / "german.data").write_bytes(content)
    expected = "b21f3d81db8071257d5ff1deaeba1fd4303b62712e6fcc9715c7a86202cb5871"
    got = hashlib.sha256(content).hexdigest()
    with pytest.raises(DataError, match=rf"german\.data in .*expected sha256 {expected}, got {got}\. Download"):
        load_german(tmp_path)


def test_changed_test_part_is_refused(tmp_path: Path) -> None:
    (tmp_path / "adult.data").write_bytes(packaged("adult.data"))
    (tmp_path / "adult.test").write_bytes(packaged("adult.test") + b"\n")
    with pytest.raises(
        DataError, match=r"adult\.test in .* is not the file that UCI published: expected sha256 a2a9044b"
    ):
        load_adult(tmp_path)


def test_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"No german\.data or german\.data\.xz in .*; the folder holds nothing\. Put"):
        load_german(tmp_path)
    (tmp_path / "adult.data").write_bytes(packaged("adult.data"))
    with pytest.raises(DataError, match=r"No adult\.test or adult\.test\.xz in .*; the folder holds adult\.data\. Put"):
        load_adult(tmp_path)


def test_path_must_be_a_folder(tmp_path: Path) -> None:
    file = tmp_path / "adult.data"
    file.write_bytes(b"")
    with pytest.raises(DataError, match=r"adult\.data' is not a folder\. Pass the folder"):
        load_adult(file)


@pytest.mark.parametrize("damaged", [b"not xz", lzma.compress(b"cut short")[:-8]])
def test_damaged_archive_is_refused(tmp_path: Path, damaged: bytes) -> None:
    (tmp_path / "german.data.xz").write_bytes(damaged)
    with pytest.raises(DataError, match=r"german\.data\.xz cannot be decompressed .*store german\.data plain"):
        load_german(tmp_path)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(DataError, match=r"variant='clean' is not known; it is 'paper', 'complete' or 'raw'"):
        load_adult(variant="clean")  # type: ignore[arg-type]
    for load in (load_adult, load_german):
        with pytest.raises(DataError, match=r"columns='some' is not known; it is 'graph' or 'all'"):
            load(columns="some")  # type: ignore[arg-type]


# The package


def test_packaged_data_stays_small_and_cites_its_sources(adult: Dataset, german: Dataset) -> None:
    folder = resources.files("pyrofair.datasets").joinpath("data")
    files = {entry.name: len(entry.read_bytes()) for entry in folder.iterdir()}
    assert set(files) == {"adult.data.xz", "adult.test.xz", "german.data.xz", "NOTICE.md"}
    assert sum(files.values()) < 1_000_000
    notice = folder.joinpath("NOTICE.md").read_text(encoding="utf-8")
    for phrase in ("CC BY 4.0", "compressed, otherwise unmodified", "10.24432/C5XW20", "10.24432/C5NC77", "single men"):
        assert phrase in notice
    for dataset in (adult, german):
        assert dataset.source in dataset.citation
        assert "CC BY 4.0" in dataset.citation
