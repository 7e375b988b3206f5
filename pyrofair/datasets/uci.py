"""The Adult and German Credit data of the paper, with their causal graphs, unfair paths and splits."""

from __future__ import annotations

import hashlib
import io
import lzma
import os
from collections.abc import Collection
from dataclasses import dataclass, field
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final, Literal

import numpy as np
import pandas as pd

from pyrofair._validation import require_choice, require_path, require_seed
from pyrofair.exceptions import DataError
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.paths import UnfairPaths

__all__ = ["Dataset", "load_adult", "load_german"]

# sha256 of the files as the UCI repository serves them, before compression.
_SHA256: Final = {
    "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
    "german.data": "b21f3d81db8071257d5ff1deaeba1fd4303b62712e6fcc9715c7a86202cb5871",
}

# The columns of the raw files in file order.
_ADULT_COLUMNS: Final = (
    "age workclass fnlwgt education education-num marital-status occupation relationship race sex capital-gain "
    "capital-loss hours-per-week native-country income"
)
_ADULT_NUMBERS: Final = {"age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"}
# Labels shortened from UCI's own description of the codes, none for a number; load_german describes their errors.
_GERMAN_COLUMNS: Final[dict[str, dict[str, str]]] = {
    "checking": {"A11": "<0 DM", "A12": "0-200 DM", "A13": ">=200 DM", "A14": "none"},
    "duration": {},
    "credit-history": {
        "A30": "none or all paid back",
        "A31": "all at this bank paid back",
        "A32": "existing ones paid so far",
        "A33": "past delay",
        "A34": "critical account",
    },
    "purpose": {
        "A40": "new car",
        "A41": "used car",
        "A42": "furniture",
        "A43": "radio or television",
        "A44": "appliances",
        "A45": "repairs",
        "A46": "education",
        "A48": "retraining",
        "A49": "business",
        "A410": "other",
    },
    "credit-amount": {},
    "savings": {"A61": "<100 DM", "A62": "100-500 DM", "A63": "500-1000 DM", "A64": ">=1000 DM", "A65": "none known"},
    "employment": {"A71": "unemployed", "A72": "<1 year", "A73": "1-4 years", "A74": "4-7 years", "A75": ">=7 years"},
    "installment-rate": {},
    "personal-status": {
        "A91": "male divorced or separated",
        "A92": "female divorced, separated or married",
        "A93": "male single",
        "A94": "male married or widowed",
    },
    "other-debtors": {"A101": "none", "A102": "co-applicant", "A103": "guarantor"},
    "residence-since": {},
    "property": {
        "A121": "real estate",
        "A122": "building society or life insurance",
        "A123": "car or other",
        "A124": "none known",
    },
    "age": {},
    "other-installment-plans": {"A141": "bank", "A142": "stores", "A143": "none"},
    "housing": {"A151": "rent", "A152": "own", "A153": "free"},
    "existing-credits": {},
    "job": {
        "A171": "unemployed or unskilled non-resident",
        "A172": "unskilled resident",
        "A173": "skilled",
        "A174": "management or self-employed",
    },
    "dependents": {},
    "telephone": {"A191": "no", "A192": "yes"},
    "foreign-worker": {"A201": "yes", "A202": "no"},
    "risk": {"1": "good", "2": "bad"},
}
_GERMAN_SEX: Final = {"A91": "male", "A92": "female", "A93": "male", "A94": "male"}


@dataclass(frozen=True, eq=False)
class Dataset:
    """A table, the causal graph over its columns, and the paths that the paper calls unfair.

    Parameters
    ----------
    name : str
        ``"adult"`` or ``"german"``.
    frame : DataFrame of shape (n, columns)
        One row a unit, the outcome last. Numbers are int64; text is categorical, its categories sorted and fixed over
        all n rows. The index is the row number in the raw files (Adult: ``adult.data``, then ``adult.test``).
    graph, unfair : CausalGraph, UnfairPaths
        The graph whose nodes hold the columns, and its unfair paths.
    n_train : int
        Rows in the training part of a split.
    source, citation : str
        Where the raw files were published, and what to cite, with the licence.
    """

    name: str
    frame: pd.DataFrame = field(repr=False)
    graph: CausalGraph = field(repr=False)
    unfair: UnfairPaths = field(repr=False)
    n_train: int
    source: str
    citation: str = field(repr=False)

    def split(
        self, random_state: int | np.random.Generator | np.random.RandomState | None = None
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Split the rows by one uniform permutation into a training part of n_train rows and a test part, as copies.

        The paper's own seed is unknown. The split has a generator of its own, seeded by ``random_state`` (None: a fresh
        seed); a Generator is advanced.
        >>> train, test = load_german().split(random_state=0)
        >>> len(train), len(test), train.index.intersection(test.index).size
        (900, 100, 0)
        """
        require_seed(random_state)
        seed = random_state.randint(2**31 - 1) if isinstance(random_state, np.random.RandomState) else random_state
        order = np.random.default_rng(seed).permutation(len(self.frame))
        return self.frame.iloc[order[: self.n_train]].copy(), self.frame.iloc[order[self.n_train :]].copy()


def load_adult(
    path: str | os.PathLike[str] | None = None,
    *,
    variant: Literal["paper", "complete", "raw"] = "paper",
    columns: Literal["graph", "all"] = "graph",
) -> Dataset:
    """Load the Adult census data with the paper's graph and unfair paths.

    Sex ``A`` and ``C`` = {age, native country} are roots; marital status ``M``, education ``L`` and work ``R`` =
    {class, occupation, hours} follow, each with an edge from every node before it, and all lead to income ``Y``.
    Unfair are the direct path and every path through ``M``. The baseline is female, the contrast male.

    *Assumes* the graph, which no data can confirm. The sampling weight ``fnlwgt`` is not used.

    Parameters
    ----------
    path : path-like or None
        A folder with your own ``adult.data`` and ``adult.test``, plain or as ``.xz``; the packaged copy by default.
    variant : {"paper", "complete", "raw"}
        ``"raw"``: all 48,842 rows, unknown entries missing. ``"complete"``: the 45,222 rows in which none of the
        15 columns is missing. ``"paper"``: those without the race level ``Other``, 44,869 rows, of which 11,163 earn
        more than 50,000 US dollars a year and 30,300 are male.
    columns : {"graph", "all"}
        The nine columns of the graph in node order, or all 15 of the raw files in file order. Ages are in years,
        education in ordinal levels 1 to 16, hours per week, capital gains and losses in US dollars.

    Raises
    ------
    DataError
        If a file is absent or is not the published one (its sha256 is checked), or an option is unknown.

    References
    ----------
    B. Becker and R. Kohavi, *Adult*, UCI Machine Learning Repository, 1996, doi:10.24432/C5XW20.

    Examples
    --------
    >>> adult = load_adult()
    >>> adult.frame.shape, adult.n_train
    ((44869, 9), 34000)
    >>> adult.frame["income"].value_counts().to_dict()
    {'<=50K': 33706, '>50K': 11163}
    """
    require_choice("variant", variant, ("paper", "complete", "raw"))
    require_choice("columns", columns, ("graph", "all"))
    folder = _folder(path)
    # adult.test opens with a line that is no unit, and ends its labels in a full stop.
    text = _read(folder, "adult.data") + _read(folder, "adult.test").partition(b"\n")[2]
    frame = _parse(text, _ADULT_COLUMNS.split(), _ADULT_NUMBERS, separator=",", missing=["?"])
    frame["income"] = frame["income"].str.removesuffix(".")
    if variant != "raw":
        frame = frame.dropna()
    if variant == "paper":
        frame = frame[frame["race"] != "Other"]
    graph = CausalGraph(
        "{A C} -> M; {A C M} -> L; {A C M L} -> R; {A C M L R} -> Y",
        sensitive="A",
        outcome="Y",
        baseline="Female",
        contrast="Male",
        positive=">50K",
        columns={
            "A": ["sex"],
            "C": ["age", "native-country"],
            "M": ["marital-status"],
            "L": ["education-num"],
            "R": ["workclass", "occupation", "hours-per-week"],
            "Y": ["income"],
        },
    )
    return Dataset(
        name="adult",
        frame=_finish(frame, columns, graph),
        graph=graph,
        unfair=graph.unfair(direct=True, through=["M"]),
        n_train=round(len(frame) * 34_000 / 44_869),  # 34,000 in the paper; the other variants keep the proportion
        source="https://doi.org/10.24432/C5XW20",
        citation="Becker, B. and Kohavi, R. (1996). Adult. UCI Machine Learning Repository. "
        "https://doi.org/10.24432/C5XW20. Licence: CC BY 4.0.",
    )


def load_german(path: str | os.PathLike[str] | None = None, *, columns: Literal["graph", "all"] = "graph") -> Dataset:
    """Load the German Credit data with the paper's graph and unfair paths, for replication only.

    Sex ``A`` and ``C`` = {age, purpose} are roots; ``S`` = {savings, checking account, housing} and ``R`` = {credit
    amount, duration} follow from both, and all lead to the risk ``Y``. Unfair are the direct path and the one through
    ``S``. The baseline is female, the contrast male.

    **Caveat.** Sex cannot truly be recovered from this file. Here ``sex`` is ``"female"`` for code A92 of attribute 9
    (310 rows) and ``"male"`` for A91, A93 and A94 (690), as the literature reads it. The corrected code table of the
    South German Credit data shows that A92 also covers single men, and lists single women as the fourth level (A94
    here): both groups are mixed. It also reads other attributes otherwise, among them the checking account, housing
    and purpose, whose labels here follow the original description. Conclude nothing about women or men from it.

    Parameters
    ----------
    path : path-like or None
        A folder with your own ``german.data``, plain or as ``.xz``; the packaged copy by default.
    columns : {"graph", "all"}
        The nine columns of the graph in node order; or all 20 attributes in file order, then ``sex`` and ``risk``.
        The duration is in months, the amount in Deutsche Mark, the age in years, the instalment rate in the
        original codes 1 to 4.

    Raises
    ------
    DataError
        If the file is absent or is not the published one (its sha256 is checked), or an option is unknown.

    References
    ----------
    H. Hofmann, *Statlog (German Credit Data)*, UCI Machine Learning Repository, 1994, doi:10.24432/C5NC77.

    U. Grömping, *South German Credit Data: Correcting a Widely Used Data Set*, Report 4/2019, Reports in Mathematics,
    Physics and Chemistry, Department II, Beuth University of Applied Sciences Berlin, 2019.

    Examples
    --------
    >>> german = load_german()
    >>> german.frame.shape, german.n_train
    ((1000, 9), 900)
    >>> german.frame["sex"].value_counts().to_dict()
    {'male': 690, 'female': 310}
    """
    require_choice("columns", columns, ("graph", "all"))
    numbers = {name for name, labels in _GERMAN_COLUMNS.items() if not labels}
    frame = _parse(_read(_folder(path), "german.data"), list(_GERMAN_COLUMNS), numbers, separator=" ", missing=[])
    frame.insert(frame.shape[1] - 1, "sex", frame["personal-status"].map(_GERMAN_SEX))
    for name, labels in _GERMAN_COLUMNS.items():
        if labels:
            frame[name] = frame[name].map(labels)
    graph = CausalGraph(
        "{A C} -> S; {A C} -> R; {A C S R} -> Y",
        sensitive="A",
        outcome="Y",
        baseline="female",
        contrast="male",
        positive="good",
        columns={
            "A": ["sex"],
            "C": ["age", "purpose"],
            "S": ["savings", "checking", "housing"],
            "R": ["credit-amount", "duration"],
            "Y": ["risk"],
        },
    )
    return Dataset(
        name="german",
        frame=_finish(frame, columns, graph),
        graph=graph,
        unfair=graph.unfair("A -> Y", "A -> S -> Y"),
        n_train=900,
        source="https://doi.org/10.24432/C5NC77",
        citation="Hofmann, H. (1994). Statlog (German Credit Data). UCI Machine Learning Repository. "
        "https://doi.org/10.24432/C5NC77. Licence: CC BY 4.0.",
    )


def _folder(path: str | os.PathLike[str] | None) -> Traversable:
    """Return the user's folder of the raw files, or the packaged one."""
    if path is None:
        return resources.files("pyrofair.datasets").joinpath("data")
    folder = Path(os.path.expanduser(require_path("path", path, "the folder of the raw files")))
    if not folder.is_dir():
        raise DataError(
            f"path={str(path)!r} is not a folder. Pass the folder of the raw files, or leave path=None to read the "
            "packaged copy."
        )
    return folder


def _read(folder: Traversable, name: str) -> bytes:
    """Return the decompressed bytes of a raw file, once their sha256 is the published one."""
    plain, packed = folder.joinpath(name), folder.joinpath(f"{name}.xz")
    try:
        if plain.is_file():
            content = plain.read_bytes()
        elif packed.is_file():
            content = lzma.decompress(packed.read_bytes())
        else:
            entries = sorted(entry.name for entry in folder.iterdir())
            raise DataError(
                f"No {name} or {name}.xz in {folder}; the folder holds {', '.join(entries[:8]) or 'nothing'}"
                f"{', ...' if len(entries) > 8 else ''}. Put the raw UCI file there, or leave path=None."
            )
    except lzma.LZMAError as error:
        raise DataError(f"{packed} cannot be decompressed ({error}). Copy it again, or store {name} plain.") from error
    found = hashlib.sha256(content).hexdigest()
    if found != _SHA256[name]:
        raise DataError(
            f"{name} in {folder} is not the file that UCI published: expected sha256 {_SHA256[name]}, got {found}. "
            "Download it again without changing its line endings, or leave path=None to read the packaged copy."
        )
    return content


def _parse(
    content: bytes, columns: list[str], numbers: Collection[str], *, separator: str, missing: list[str]
) -> pd.DataFrame:
    """Read a raw table without header; only the entries in `missing` are missing."""
    return pd.read_csv(
        io.BytesIO(content),
        header=None,
        names=columns,
        dtype={name: np.int64 if name in numbers else str for name in columns},
        sep=separator,
        skipinitialspace=True,
        na_values=missing,
        keep_default_na=False,
    )


def _finish(frame: pd.DataFrame, columns: str, graph: CausalGraph) -> pd.DataFrame:
    """Choose the columns and turn text into categories, sorted and fixed over the rows that are left."""
    names = graph.columns_of(graph.nodes) if columns == "graph" else list(frame.columns)
    text = [name for name in names if frame[name].dtype != np.int64]
    return frame[names].astype(dict.fromkeys(text, "category"))
