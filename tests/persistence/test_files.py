"""Damaged, foreign and hostile files end in an error that names the file, and never in another object."""

from __future__ import annotations

import ast
import copy
import hashlib
import inspect
import json
import os
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save as save_arrays
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE

import pyrofair as pf
from pyrofair.persistence.classes import CLASSES, KINDS, MAKE, RESTORE, TAKE, TOP
from pyrofair.persistence.codec import Reader, Writer
from pyrofair.persistence.files import FORMAT, Content, read_file, to_bytes
from pyrofair.persistence.trees import take_boosted
from pyrofair.tables.encoder import TableEncoder

PACKAGE = Path(pf.__file__).parent
ELSEWHERE = {"PYTHONPATH": str(PACKAGE.parent), "LC_ALL": "C", "OMP_NUM_THREADS": "1", "PATH": ""}
ELSEWHERE |= {name: value for name, value in os.environ.items() if name.startswith("OPENBLAS")}
"""The environment of another process, with the same kernels for sums: those of another processor round otherwise."""
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame({"A": RNG.integers(0, 2, 60), "M": RNG.normal(size=60)})
UNFAIR = pf.CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y").unfair("A -> Y")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("files") / "source.pyrofair"
    pf.save(pf.IPW(UNFAIR, random_state=0).fit(TABLE), path)
    return path.read_bytes()


def refused(path: Path, content: bytes, match: str = "") -> None:
    path.write_bytes(content)
    with pytest.raises(pf.DataError, match=match) as caught:
        pf.load(path)
    assert str(path) in str(caught.value)


def rewritten(content: bytes, change: Any, tmp_path: Path) -> bytes:
    """Return a file with another structure, and the digest of that."""
    path = tmp_path / "whole.pyrofair"
    path.write_bytes(content)
    found = read_file(path)
    structure = json.loads(json.dumps(found.structure))
    change(structure, found.arrays)
    return to_bytes(Content(structure, found.arrays))


def test_each_flipped_bit_and_each_cut_is_noticed(data: bytes, tmp_path: Path) -> None:
    path, rng = tmp_path / "damaged.pyrofair", np.random.default_rng(0)
    for at in (*range(90), *rng.integers(90, len(data), 300), len(data) - 1):
        changed = bytearray(data)
        changed[at] ^= 1 << int(rng.integers(8))
        refused(path, bytes(changed), "damaged|not a file|the format")
    for end in (*range(1, 90, 7), *rng.integers(90, len(data), 100), len(data) - 1):
        refused(path, data[:end], "damaged|not a file")
    refused(path, data + b"\0", "damaged or cut off")
    refused(path, b"", "is empty")


def signed(body: bytes, version: int = FORMAT) -> bytes:
    return f"pyrofair {version} {hashlib.blake2b(body, digest_size=32).hexdigest()}\n".encode() + body


def test_foreign_files_are_named(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "foreign"
    tensors = {"x": np.zeros(3)}
    for content in (b"PK\x03\x04" + b"\0" * 50, b"\x80\x04\x95", b"A,B\n1,2\n", save_arrays(tensors), b"\0" * 100):
        refused(path, content, "not a file that pyrofair.save wrote")
    refused(path, signed(save_arrays(tensors), FORMAT + 1), f"format {FORMAT + 1}.* {FORMAT}")
    refused(path, signed(save_arrays(tensors)), r"damaged.*structure\.json")
    header = json.dumps({"x": {"dtype": "F64", "shape": [0, 2**60], "data_offsets": [0, 0]}}).encode()
    for body in (b"", b"\0" * 9, struct.pack("<Q", 2**63) + b"{}", struct.pack("<Q", len(header)) + header,
                 save_arrays({"structure.json": np.frombuffer(b"[" * 200_000, dtype=np.uint8)})):  # fmt: skip
        refused(path, signed(body), "damaged")
    with pytest.raises(pf.DataError, match=r"none.* cannot be read"):
        pf.load(tmp_path / "none")
    with pytest.raises(pf.DataError, match="directory"):
        pf.load(tmp_path)
    with pytest.raises(pf.DataError, match="skops=1 must"):
        pf.load(path, skops=1)  # type: ignore[arg-type]
    with pytest.raises(pf.DataError, match="given=3 must be a dictionary"):
        pf.load(path, given=3)  # type: ignore[arg-type]


def test_another_version_is_warned_of(data: bytes, tmp_path: Path) -> None:
    def older(structure: Any, _: Any) -> None:
        structure["version"] = "0.0.1"

    path = tmp_path / "older.pyrofair"
    path.write_bytes(rewritten(data, older, tmp_path))
    with pytest.warns(pf.PyrofairWarning, match=r"older.pyrofair' was written by version 0\.0\.1 of the package"):
        pf.load(path)


def test_a_graph_saved_before_labels_were_has_none(data: bytes, tmp_path: Path) -> None:
    def unlabelled(structure: Any, _: Any) -> None:
        del structure["object"]["state"]["unfair"]["state"]["graph"]["state"]["label_map"]

    path = tmp_path / "unlabelled.pyrofair"
    path.write_bytes(rewritten(data, unlabelled, tmp_path))
    assert pf.load(path).unfair.graph.labels == {}


HOSTILE: dict[str, Any] = {
    "a class of another module": {"object": "os.system", "state": {}},
    "a class that is none": {"object": "Path", "state": {}},
    "a function of another module": {"object": "function", "state": {"name": "os.system"}},
    "code that is not declared": {"code": "program"},
    "a state that is no setting": {"object": "IPW", "state": {"unfair": None, "__class__": "x"}},
    "a word": {"nonsense": 1},
    "nothing": {},
    "a future object": {"ref": 7},
    "a number of another kind": {"ref": True},
    "a type of huge size": {"object": "dtype", "state": {"name": "U99999999"}},
    "a type of structures": {"object": "dtype", "state": {"name": "f8,f8"}},
    "an array that is not there": {"array": "none"},
    "a value in place of a method": {"object": "IPW", "state": {
        **dict.fromkeys(inspect.signature(pf.IPW).parameters), "fit": 1}},
    "a cyclic graph": {"object": "CausalGraph", "state": {
        "nodes": {"tuple": ["A", "Y"]}, "edges": {"tuple": [{"tuple": ["A", "Y"]}, {"tuple": ["Y", "A"]}]},
        "sensitive": "A", "outcome": "Y", "baseline": 0, "contrast": 1, "positive": 1, "latent": {"tuple": []},
        "column_map": {"tuple": [{"tuple": ["A", {"tuple": ["A"]}]}, {"tuple": ["Y", {"tuple": ["Y"]}]}]}}},
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_structures_that_mean_nothing_are_refused(name: str, data: bytes, tmp_path: Path) -> None:
    def change(structure: Any, _: Any) -> None:
        structure["object"] = HOSTILE[name]

    refused(tmp_path / "hostile", rewritten(data, change, tmp_path), "cannot be loaded")


def test_deep_structures_and_other_classes_are_refused(data: bytes, tmp_path: Path) -> None:
    def deep(structure: Any, _: Any) -> None:
        structure["object"] = nested

    nested: Any = 1
    for _ in range(500):
        nested = [nested]
    refused(tmp_path / "deep", rewritten(data, deep, tmp_path), "nested too deep")

    def another(structure: Any, _: Any) -> None:
        structure["class"] = "PSCF"

    refused(tmp_path / "class", rewritten(data, another, tmp_path), "it holds a IPW")


def test_unfair_paths_of_another_graph_are_refused(data: bytes, tmp_path: Path) -> None:
    def change(structure: Any, _: Any) -> None:
        structure["class"] = "UnfairPaths"
        structure["object"] = structure["object"]["state"]["unfair"]
        structure["object"]["state"]["paths"]["state"]["states"] = {"tuple": [{"tuple": ["A", {"tuple": [0]}]}]}

    refused(tmp_path / "paths", rewritten(data, change, tmp_path), "paths do not go forward")


def boosted(categories: bool) -> tuple[pd.DataFrame, HistGradientBoostingClassifier]:
    table = pd.DataFrame({"c": pd.Categorical(RNG.choice(["x", "y", "z"], 200)), "v": RNG.normal(size=200)})
    labels = ((table["c"] == "x") | (table["v"] > 0)).astype(int)
    table = table if categories else table.assign(c=table["c"].cat.codes)
    return table, HistGradientBoostingClassifier(max_iter=3, random_state=0).fit(table, labels)


@pytest.mark.parametrize("categories", [True, False])
def test_boosted_trees_are_equal(categories: bool) -> None:
    table, model = boosted(categories)
    writer = Writer()
    again = _read(json.loads(json.dumps(writer.write(model))), **writer.arrays)
    for one, other in zip(again.staged_decision_function(table), model.staged_decision_function(table), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(again.predict(table), model.predict(table))
    assert again.get_params() == model.get_params()


@pytest.mark.parametrize(("field", "value"), [
    ("left", 0), ("right", 10**6), ("feature_idx", 2), ("feature_idx", -1), ("bitset_idx", 99), ("is_leaf", 1),
    ("is_categorical", 1), ("is_categorical", 0), ("num_threshold", np.nan), ("value", 1e308), ("value", np.nan),
])  # fmt: skip
def test_trees_that_lead_out_of_their_memory_are_refused(field: str, value: float) -> None:
    _, model = boosted(categories=True)
    state = take_boosted(model, vars(model))
    forged = [[nodes.view(PREDICTOR_RECORD_DTYPE).copy(), sets] for nodes, sets in state["trees"]]
    assert sum(len(sets) for _, sets in forged) > 0, "a tree splits by categories"
    for nodes, _ in forged:
        nodes[field] = value if field == "value" else np.where(nodes["is_leaf"] == 0, value, nodes[field])
    with pytest.raises(ValueError, match=r"leads out of its nodes|add up to no number"):
        KINDS[type(model)].make(**{**state, "trees": [[nodes.view(np.uint8), sets] for nodes, sets in forged]})


def test_what_does_not_belong_to_trees_is_refused() -> None:
    _, model = boosted(categories=True)
    state, make = take_boosted(model, vars(model)), KINDS[HistGradientBoostingClassifier].make
    nodes, sets = state["trees"][0]
    known = state["known"][0]
    for name, each, match in [
        ("trees", [[nodes, sets[:0]]], "leads out"), ("trees", [[nodes, sets[:, :7]]], "leads out"),
        ("trees", [[nodes, sets.astype(float)]], "leads out"), ("trees", [[nodes[:-1], sets]], "divisor|size"),
        ("trees", [[nodes[:0], sets]], "leads out|zero-size"), ("bins", state["bins"][:1], "Length mismatch|leads out"),
        ("known", {}, "leads out"), ("known", {0: known[:0]}, "no categories"), ("known", {9: known}, "no categories"),
        ("known", {0: np.arange(256.0)}, "more than 255"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=match):
            make(**{**state, name: each})
    with pytest.raises(pf.DataError, match=r"trees that scikit-learn 1\.0\.0 fitted"):
        make(**{**state, "sklearn": "1.0.0"})


def test_all_types_of_columns_survive() -> None:
    n = 4
    table = pd.DataFrame(
        {
            "text": pd.array(["a", "b", None, "é"], dtype="string"),
            "python": pd.array(["a", "b", "c", "d"], dtype=pd.StringDtype("python")),
            "plain text": pd.Series(["a", "b", "a", "b"], dtype=object).to_numpy(),
            "object": np.array(["a", 1, 1.0, None], dtype=object),
            "ordered": pd.Categorical(["x", "y", "x", "y"], categories=["y", "x"], ordered=True),
            "numbered": pd.Categorical([3, 1, 3, 1], categories=[1, 3, 5]),
            "masked": pd.array([1, None, 3, 4], dtype="Int16"),
            "truth": pd.array([True, None, False, True], dtype="boolean"),
            "half": np.arange(n, dtype=np.float16),
            "short": np.arange(n, dtype=np.int8),
            "times": pd.date_range("2020", periods=n, unit="s"),
            "zoned": pd.date_range("2020", periods=n, tz="Europe/Berlin"),
            "arrow": pd.array([1, 2, None, 4], dtype="int64[pyarrow]"),
            "missing": [0.0, -0.0, np.nan, np.inf],
            7: range(n),
        },
        index=pd.MultiIndex.from_product([["a", "b"], [1, 2]], names=["one", None]),
    )
    values = {
        "table": table,
        "dtypes": dict(table.dtypes),
        "labels": np.array(["ja", "nein"]),
        "numbers": (np.int8(3), np.float32(0.1), 2**80, float("nan"), pd.NA, frozenset({"b"})),
        "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    }
    writer = Writer()
    structure = json.loads(json.dumps(writer.write(values)))
    found = _read(structure, **writer.arrays)
    pd.testing.assert_frame_equal(found["table"], table, check_exact=True)
    assert found["dtypes"] == values["dtypes"]
    assert np.signbit(found["table"]["missing"].iloc[1])
    assert found["labels"].tolist() == ["ja", "nein"]
    assert repr(found["numbers"]) == repr(values["numbers"])
    assert found["columns"].flags.f_contiguous


FUZZ = """
import sys, warnings
warnings.simplefilter("ignore")
import numpy as np, pandas as pd
import pyrofair as pf
from pathlib import Path
from pyrofair.persistence.files import Content, read_file, to_bytes
folder, tries = Path(sys.argv[1]), int(sys.argv[2])
few = pd.read_parquet(folder / "table.parquet")
rng = np.random.default_rng(int(sys.argv[3]))
path = folder / "forged"
loaded = 0
for name in ("ipw", "onestep"):
    whole = read_file(folder / name)
    names = sorted(whole.arrays)
    for _ in range(tries):
        arrays = {each: whole.arrays[each].copy() for each in names}
        for name in rng.choice(names, rng.integers(1, 4)):
            flat = arrays[name].reshape(-1)
            if flat.size == 0:
                continue
            at = rng.integers(0, flat.size, 1 if rng.random() < 0.5 else flat.size)
            if rng.random() < 0.5:
                flat[at] = flat[rng.integers(0, flat.size)]
            elif flat.dtype.kind == "f":
                flat[at] = rng.choice([np.nan, np.inf, -1e308, 0.0, 1.0])
            elif flat.dtype.kind == "b":
                flat[at] = ~flat[at]
            else:
                flat[at] = np.array(rng.choice([0, 1, 2, 7, 255, 2**31, 2**62]), dtype=np.int64).astype(flat.dtype)
        path.write_bytes(to_bytes(Content(whole.structure, arrays)))
        try:
            source = pf.load(path)
        except pf.DataError:
            continue
        loaded += 1
        for models in source.nuisances_.models.values():
            for model in getattr(models, "models_", []):
                known = [c for c in few.columns if c in list(getattr(model, "feature_names_in_", []))]
                if known:
                    assert np.isfinite(model.predict_proba(few[known])).all()
print("loaded", loaded)
"""


def test_forged_arrays_of_boosted_sources_never_leave_their_memory(tmp_path: Path) -> None:
    """Each forged file is loaded and predicts numbers, or is refused; a crash of compiled code ends the process."""
    rng = np.random.default_rng(4)
    table = pd.DataFrame({"A": rng.integers(0, 2, 200), "C": pd.Categorical(rng.choice(["x", "y", "z"], 200))})
    table["M"] = table["A"] + rng.normal(size=200)
    unfair = pf.CausalGraph("C -> A; {A C} -> M; {A C M} -> Y", sensitive="A", outcome="Y").unfair("A -> M -> Y")
    for name, of in {"ipw": pf.IPW, "onestep": pf.OneStep}.items():
        pf.save(of(unfair, propensity="boosted", folds=2, random_state=0).fit(table), tmp_path / name)
    table[::20].to_parquet(tmp_path / "table.parquet")
    command = [sys.executable, "-c", FUZZ, str(tmp_path), "4", "0"]
    found = subprocess.run(command, cwd=tmp_path, env=ELSEWHERE, timeout=300, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr[-2000:]
    assert int(found.stdout.split()[-1]) > 0


def _read(node: Any, **arrays: Any) -> Any:
    return Reader(Content({"code": {}}, arrays), {}).read(node)


def _of(name: str, /, **state: Any) -> dict[str, Any]:
    return {"object": name, "state": state}


def _range(stop: int) -> dict[str, Any]:
    return _of("range", start=0, stop=stop, step=1, name=None)


MANY = 10**9
INT64 = _of("type", name="int64")
BIG: dict[str, tuple[Any, str]] = {
    "rows of no columns": (_of("table", columns=[], index=_range(MANY), names=_range(0)), "more than 64 times"),
    "an array twice": ([{"array": "a"}, {"array": "a"}], "'a'"),
    "one column many times": (
        [{"array": "a"}, _of("table", columns=[{"ref": 0}] * 2000, index=_range(2000), names=_range(2000))],
        "more than 64 times"),
    "texts of the length of one": (
        _of("values", dtype=_of("type", name="str"), items=["x" * 1000, *"y" * 10**4]), "one of 1000 characters"),
    "codes of a range": (_of("values", dtype=INT64, codes=_range(MANY)), "more than 64 times"),
    "categories of a range": (
        _of("tables.encoder.TableEncoder", numeric_=[], categories_={"dict": [["C", _range(MANY)]]}),
        "more than 64 times"),
}  # fmt: skip


@pytest.mark.parametrize("name", BIG)
def test_memory_is_that_of_the_file(name: str) -> None:
    node, match = BIG[name]
    arrays = {"a": np.zeros(2000, dtype=np.int32)}
    tracemalloc.start()
    try:
        with pytest.raises((ValueError, KeyError, TypeError), match=match):
            _read(node, **arrays)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_forged_classifiers_are_refused(tmp_path: Path) -> None:
    fitted = pf.PenalizedClassifier("network", epochs=1, progress=False, random_state=0).fit(TABLE, TABLE["A"])
    for name in ("features", "classes", "network"):
        forged = copy.deepcopy(fitted)
        if name == "features":
            forged.feature_names_in_ = np.array(["A", "B"], dtype=object)
        elif name == "classes":
            forged.classes_ = np.arange(3)
        else:  # of which the package's own takes no memory before its sizes are those of the arrays
            forged.encoder_.categories_ = {"C": pd.RangeIndex(10**5)}
            forged.encoder_.one_hot_ = forged.encoder_._one_hot()
        with pytest.raises(pf.DataError, match="cannot be read back"):
            pf.save(forged, tmp_path / "classifier")


FORGED: dict[str, Any] = {
    "nodes": lambda state: state["nodes"]["tuple"].__setitem__(0, 1.5),
    "a node twice": lambda state: state["nodes"]["tuple"].append("M"),
    "an edge of no node": lambda state: state["edges"]["tuple"].append({"tuple": ["A", "Z"]}),
    "no outcome": lambda state: state.update(outcome=None),
    "a latent that is no node": lambda state: state.update(latent={"tuple": ["Z"]}),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_graphs_are_refused(name: str, data: bytes, tmp_path: Path) -> None:
    def change(structure: Any, _: Any) -> None:
        structure["class"], structure["object"] = (
            "CausalGraph",
            structure["object"]["state"]["unfair"]["state"]["graph"],
        )
        FORGED[name](structure["object"]["state"])

    refused(tmp_path / "graph", rewritten(data, change, tmp_path), "cannot be loaded")


def test_forged_settings_of_what_is_fitted_are_refused(data: bytes, tmp_path: Path) -> None:
    def change(structure: Any, _: Any) -> None:
        structure["object"]["state"]["clip"] = "x"

    refused(tmp_path / "ipw", rewritten(data, change, tmp_path), "clip='x' must be")


FORGED_FITS: dict[str, Any] = {
    "no nuisance models": lambda state: state.update(nuisances_=[]),
    "overlap of no group": lambda state: state.update(candidates_=["x"]),
    "a world that is none": lambda state: state["groups_"]["dict"][0].__setitem__(0, "x"),
    "a part that is gone": lambda state: state.pop("trimmer_"),
    "weights that are none": lambda state: state["nuisances_"]["state"]["rows"]["state"].update(weight=1.0),
    "columns of others": lambda state: state["nuisances_"]["state"]["rows"]["state"].update(
        table=_of("table", columns=[], index=_range(0), names=_range(0))
    ),
}


@pytest.mark.parametrize("name", FORGED_FITS)
def test_forged_fits_are_refused_when_they_are_loaded(name: str, data: bytes, tmp_path: Path) -> None:
    def change(structure: Any, _: Any) -> None:
        FORGED_FITS[name](structure["object"]["state"])

    refused(tmp_path / "ipw", rewritten(data, change, tmp_path), "cannot be loaded")


@pytest.mark.parametrize("change", ["mean", "levels", "numeric", "repeated", "twice"])
def test_forged_encoders_are_refused(change: str, tmp_path: Path) -> None:
    """An encoder that would fail, or encode to no number, when it is used."""
    table = TABLE.assign(C=np.where(TABLE["M"] > 0, "x", "y"))
    encoder = TableEncoder().fit(table)
    if change == "mean":
        encoder.scaler_.mean_ = encoder.scaler_.mean_[:1]
    elif change == "levels":
        encoder.categories_["C"] = "xy"  # type: ignore[assignment]
    elif change == "repeated":
        encoder.categories_["C"] = pd.Index(["x", "x"])
    elif change == "twice":
        encoder.categories_["M"] = encoder.categories_.pop("C")
    else:
        encoder.numeric_ = ["A"]
    writer = Writer()
    with pytest.raises((ValueError, TypeError, AttributeError, pf.DataError)):
        _read(json.loads(json.dumps(writer.write(encoder))), **writer.arrays)


def test_every_public_class_is_saved_or_refused_by_name(tmp_path: Path) -> None:
    public = {name for name in pf.__all__ if isinstance(getattr(pf, name), type)}
    assert {*TOP} <= public
    for name in public - {*TOP}:
        of = getattr(pf, name)
        if getattr(of, "_is_protocol", False):
            continue
        with pytest.raises(pf.DataError, match=rf"class {of.__name__}; what can be saved is"):
            pf.save(of.__new__(of), tmp_path / "refused")
    listed = [name for names in CLASSES.values() for name in names.split()]
    assert {*TOP} <= {*listed}
    assert {*TAKE, *MAKE, *RESTORE} <= {*listed}


@pytest.mark.parametrize("value", [np.longdouble(1), np.complex128(1), np.ones(2, dtype=np.longdouble)])
def test_numbers_of_other_types_are_refused(value: Any) -> None:
    with pytest.raises(pf.DataError, match=r"float128|complex128|float96|longdouble"):
        Writer().write({"x": value})


CODE = """
import sys, warnings
warnings.simplefilter("error")
import numpy as np, pandas as pd, torch
torch.set_default_dtype(torch.float64)
import pyrofair as pf
folder = sys.argv[1]
table = pd.read_parquet(folder + "/table.parquet")
for name in ("classifier", "boosted", "pscf", "mechanisms"):
    loaded = pf.load(f"{folder}/{name}.pyrofair")
    if name in ("classifier", "pscf"):
        found = loaded.predict_proba(table)
    elif name == "boosted":
        found = loaded.worlds(df=table)[1].weight
    else:
        found = loaded.calibration()[["gap", "pit_distance"]].to_numpy()
    np.save(f"{folder}/{name}.npy", found)
assert torch.get_default_dtype() == torch.float64
"""


@pytest.mark.filterwarnings("ignore::pyrofair.PyrofairWarning")
def test_a_new_process_elsewhere_gives_the_same_numbers(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    a, q = rng.integers(0, 2, 300), rng.normal(size=300)
    table = pd.DataFrame({"A": a, "Q": q, "C": rng.choice(["ä", "ö"], 300), "M": a + q + rng.normal(size=300)})
    y = (table["M"] + rng.normal(size=300) > 0).astype(int)
    unfair = pf.CausalGraph("{A Q} -> M; {A Q C M} -> Y", sensitive="A", outcome="Y").unfair("A -> M -> Y")
    short: dict[str, Any] = {"epochs": 2, "progress": False, "random_state": 0}
    boosted = pf.IPW(unfair, propensity="boosted", random_state=0).fit(table)
    learned = pf.learn_mechanisms(table, unfair, hidden=(3,), steps=50, progress=False, random_state=0)
    fitted = pf.PenalizedClassifier(source=pf.IPW(unfair), **short).fit(table, y)
    replayed = pf.PSCF(unfair, **short).fit(table, y)
    few = table[::3]
    expected = {
        "classifier": fitted.predict_proba(few),
        "boosted": boosted.worlds(df=few)[1].weight,
        "pscf": replayed.predict_proba(few),
        "mechanisms": learned.calibration()[["gap", "pit_distance"]].to_numpy(),
    }
    for name, each in {"classifier": fitted, "boosted": boosted, "pscf": replayed, "mechanisms": learned}.items():
        pf.save(each, tmp_path / f"{name}.pyrofair")
    few.to_parquet(tmp_path / "table.parquet")
    command = [sys.executable, "-W", "error", "-c", CODE, str(tmp_path)]
    subprocess.run(command, check=True, cwd=tmp_path, env=ELSEWHERE, timeout=300)
    for name, values in expected.items():
        np.testing.assert_array_equal(np.load(tmp_path / f"{name}.npy"), values, err_msg=name)


NEVER = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}
CALLS = {"eval", "exec", "compile", "__import__"}
LOADERS = {("torch", "load"), ("joblib", "load"), ("np", "load"), ("pd", "read_pickle"), ("importlib", "import_module")}


def test_nothing_in_the_package_unpickles_or_runs_text() -> None:
    """Names of modules are imported from the package's own lists; nothing else reads code from data."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: set[str] = set()
            if isinstance(node, ast.Import):
                names = {each.name.split(".")[0] for each in node.names} & NEVER
            elif isinstance(node, ast.ImportFrom):
                names = {(node.module or "").split(".")[0]} & NEVER
            elif isinstance(node, ast.Call):
                called = node.func
                if isinstance(called, ast.Name):
                    names = {called.id} & (CALLS | {"import_module"})
                elif isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
                    names = {called.attr} if (called.value.id, called.attr) in LOADERS else set()
            found += [f"{path.relative_to(PACKAGE)}: {name}" for name in names]
    allowed = {
        "__init__.py: import_module",  # the package's own
        "commands/decisions.py: load",  # joblib, behind --trust-pickle
        "_defaults.py: import_module",  # the package's own
        "_lazy.py: import_module",  # those that folders list
        "persistence/classes.py: import_module",  # the closed list
        "tables/partitions.py: import_module",  # names of the package's own
    }
    assert {*found} <= allowed
