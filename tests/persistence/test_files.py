"""Damaged, foreign and hostile files end in an error that names the file, and never in another object."""

from __future__ import annotations

import ast
import json
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from safetensors.numpy import save as save_arrays
from sklearn.ensemble import HistGradientBoostingClassifier

import pyrofair as pf
from pyrofair.mechanisms.conditional import Network
from pyrofair.persistence.classes import BESIDES, CLASSES, KINDS, LEFT_OUT, TOP, find_kind
from pyrofair.persistence.codec import Reader, Writer
from pyrofair.persistence.files import FORMAT, MARK, Content, read_file, to_bytes
from pyrofair.persistence.trees import make_boosted, take_boosted
from pyrofair.tables.encoder import TableEncoder

PACKAGE = Path(pf.__file__).parent
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


def test_each_flipped_byte_is_noticed(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "flipped.pyrofair"
    (header,) = struct.unpack("<Q", data[:8])
    places = {
        *range(0, 8 + header, 7),
        *range(8),
        *range(8 + header, len(data), max(1, len(data) // 150)),
        len(data) - 1,
    }
    padding = {8 + at for at, byte in enumerate(data[8 : 8 + header]) if byte == 0x20}
    for at in sorted(places - padding):
        for bit in (0x01, 0x80):
            changed = bytearray(data)
            changed[at] ^= bit
            refused(path, bytes(changed), "damaged|not a file|the format")


def test_each_place_of_a_cut_is_noticed(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "cut.pyrofair"
    for end in sorted({*range(1, 24), *range(24, len(data), max(1, len(data) // 100)), len(data) - 1}):
        refused(path, data[:end], "damaged|not a file")
    refused(path, data + b"\0", "damaged or cut off")
    refused(path, b"", "is empty")


def test_foreign_files_are_named(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "foreign"
    tensors = {"x": np.zeros(3)}
    for content in (b"PK\x03\x04" + b"\0" * 50, b"\x80\x04\x95", b"A,B\n1,2\n", save_arrays(tensors), b"\0" * 100,
                    struct.pack("<Q", 2**63) + b"{}", save_arrays(tensors, metadata={"format": "pt"})):  # fmt: skip
        refused(path, content, "not a file that pyrofair.save wrote")
    refused(path, save_arrays(tensors, metadata={MARK: f"{FORMAT + 1} 00"}), f"format '{FORMAT + 1}'.* {FORMAT}")
    refused(path, save_arrays(tensors, metadata={MARK: f"{FORMAT} 00"}), "its digest is not that of its content")
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
        structure["versions"]["pyrofair"] = "0.0.1"

    path = tmp_path / "older.pyrofair"
    path.write_bytes(rewritten(data, older, tmp_path))
    with pytest.warns(pf.PyrofairWarning, match=r"older.pyrofair' was written by version 0\.0\.1 of the package"):
        pf.load(path)


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
    "codes without values": {"object": "values", "state": {"objects": [], "codes": {"array": "0"}}},
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


def test_deep_structures_and_absurd_sizes_are_refused(data: bytes, tmp_path: Path) -> None:
    def deep(structure: Any, _: Any) -> None:
        structure["object"] = nested

    nested: Any = 1
    for _ in range(500):
        nested = [nested]
    refused(tmp_path / "deep", rewritten(data, deep, tmp_path), "nested too deep")
    text = b"[" * 200_000
    held = {"structure.json": np.frombuffer(text, dtype=np.uint8)}
    refused(tmp_path / "deeper", save_arrays(held, metadata={MARK: f"{FORMAT} 00"}), "digest")
    header = json.dumps({"x": {"dtype": "F64", "shape": [0, 2**60], "data_offsets": [0, 0]},
                         "__metadata__": {MARK: f"{FORMAT} 00"}}).encode()  # fmt: skip
    refused(tmp_path / "absurd", struct.pack("<Q", len(header)) + header, "damaged")

    def another(structure: Any, _: Any) -> None:
        structure["class"] = "PSCF"

    refused(tmp_path / "class", rewritten(data, another, tmp_path), "it holds a IPW")


def test_unfair_paths_of_another_graph_are_refused(data: bytes, tmp_path: Path) -> None:
    def change(structure: Any, _: Any) -> None:
        structure["class"] = "UnfairPaths"
        structure["object"] = structure["object"]["state"]["unfair"]
        structure["object"]["state"]["paths"]["state"]["states"] = {"tuple": [{"tuple": ["A", {"tuple": [0]}]}]}

    refused(tmp_path / "paths", rewritten(data, change, tmp_path), "paths do not go forward")


def test_trees_that_lead_out_of_their_memory_are_refused() -> None:
    table = pd.DataFrame({"c": pd.Categorical(RNG.choice(["x", "y", "z"], 200)), "v": RNG.normal(size=200)})
    labels = ((table["c"] == "x") | (table["v"] > 0)).astype(int)
    model = HistGradientBoostingClassifier(max_iter=3, categorical_features="from_dtype", random_state=0)
    state = take_boosted(model.fit(table, labels))
    again = make_boosted(**state)
    np.testing.assert_array_equal(again.predict_proba(table), model.predict_proba(table))
    for one, other in zip(again.staged_decision_function(table), model.staged_decision_function(table), strict=True):
        np.testing.assert_array_equal(one, other)
    assert again.get_params() == model.get_params()
    assert state["bits"].sum() > 0, "a tree splits by categories"
    for field, value in {"left": 0, "right": 10**6, "feature_idx": 2, "is_leaf": 7, "bitset_idx": 99}.items():
        nodes = {name: each.copy() for name, each in state["nodes"].items()}
        nodes[field][:] = np.where(nodes["is_leaf"] == 0, value, nodes[field])
        with pytest.raises(ValueError, match="leads out of its nodes"):
            make_boosted(**{**state, "nodes": nodes})
    with pytest.raises(ValueError, match="differ in size"):
        make_boosted(**{**state, "sizes": -state["sizes"]})
    with pytest.raises(pf.DataError, match=r"trees that scikit-learn 1\.0\.0 fitted"):
        make_boosted(**{**state, "version": "1.0.0"})


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
    writer = Writer(find_kind, lambda _: None)
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
    path = {"PYTHONPATH": str(PACKAGE.parent), "OMP_NUM_THREADS": "1", "PATH": ""}
    command = [sys.executable, "-c", FUZZ, str(tmp_path), "4", "0"]
    found = subprocess.run(command, cwd=tmp_path, env=path, timeout=300, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr[-2000:]
    assert int(found.stdout.split()[-1]) > 0


def test_trees_ask_sets_of_columns_of_categories_alone() -> None:
    table = pd.DataFrame({"v": RNG.normal(size=200), "w": RNG.normal(size=200)})
    state = take_boosted(HistGradientBoostingClassifier(max_iter=3).fit(table, (table["v"] > 0).astype(int)))
    nodes, trees = dict(state["nodes"]), len(state["sizes"])
    nodes["is_categorical"] = (nodes["is_leaf"] == 0).astype(np.uint8)
    sets = np.zeros((trees, 8), dtype=np.uint32)
    forged = {**state, "nodes": nodes, "bits": np.ones(trees, dtype=np.int64)}
    with pytest.raises(ValueError, match="splits numbers by a set of categories"):
        make_boosted(**{**forged, "binned_left_cat_bitsets": sets, "raw_left_cat_bitsets": sets})
    huge = {**state["nodes"], "value": np.full_like(nodes["value"], 1e308)}
    with pytest.raises(ValueError, match="add up to no number"):
        make_boosted(**{**state, "nodes": huge})
    with pytest.raises(ValueError, match="another type or shape"):
        make_boosted(**{**state, "nodes": {**nodes, "left": nodes["left"].astype(float)}})


def _read(node: Any, **arrays: Any) -> Any:
    kinds = {kind.name: kind for kind in KINDS.values()}
    return Reader(kinds, Content({"code": []}, arrays), {}, lambda *_: None).read(node)


def _of(name: str, /, **state: Any) -> dict[str, Any]:
    return {"object": name, "state": state}


BIG: dict[str, tuple[Any, str]] = {
    "rows of no columns": (
        _of("table", columns={"dict": []}, index=_of("range", start=0, stop=10**15, step=1, name=None),
            names=_of("range", start=0, stop=0, step=1, name=None)), "rows of no columns"),
    "an array twice": ([{"array": "a"}, {"array": "a"}], "'a'"),
    "texts of small codes": (_of("values", objects=["x" * 1000], codes={"array": "bytes"}), "codes without a value"),
    "a text repeated": (
        _of("column", dtype=_of("column type", name="nan python"),
            objects=_of("values", objects=["x" * 1000], codes={"array": "a"})), "more than 400 characters"),
    "no characters": (_of("values", points={"array": "points"}), "a text of no characters"),
    "a frame of many columns": (
        _of("boosted", settings={"dict": []}, nodes={"dict": []}, version=sklearn.__version__, classes=[0, 1],
            columns=10**9, categories={"dict": []}), "trees of 1000000000 columns"),
}  # fmt: skip


@pytest.mark.parametrize("name", BIG)
def test_memory_is_that_of_the_file(name: str) -> None:
    node, match = BIG[name]
    arrays = {"a": np.zeros(2000, dtype=np.int32), "bytes": np.zeros(2000, dtype=np.int8),
              "points": np.full((2, 1), 2**31, dtype=np.uint32)}  # fmt: skip
    tracemalloc.start()
    try:
        with pytest.raises((ValueError, KeyError, TypeError), match=match):
            _read(node, **arrays)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("change", ["mean", "levels", "numeric", "repeated"])
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
    else:
        encoder.numeric_ = ["A"]
    writer = Writer(find_kind, lambda _: None)
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
    assert {*LEFT_OUT} | {*BESIDES} <= {*listed, *(each.name for each in KINDS.values())}


@pytest.mark.parametrize("value", [np.longdouble(1), np.complex128(1), np.ones(2, dtype=np.longdouble)])
def test_numbers_of_other_types_are_refused(value: Any) -> None:
    with pytest.raises(pf.DataError, match=r"float128|complex128|float96|longdouble"):
        Writer(find_kind, lambda _: None).write({"x": value})


@pytest.mark.parametrize("name", ["size", "widths", "direct"])
def test_fields_of_another_type_are_refused(name: str) -> None:
    kind = KINDS[Network]
    state = {"widths": (1, 2), "hidden": (3,), "size": 2, "direct": True}
    assert kind.make(**state).size == 2
    with pytest.raises(TypeError, match=rf"Network\.{name} .* str: 'x'"):
        kind.make(**{**state, name: "x"})


def test_the_width_of_a_module_is_that_of_its_encoder(tmp_path: Path) -> None:
    labels = (TABLE["M"] > 0).astype(int)
    model = pf.PenalizedClassifier("network", source=pf.IPW(UNFAIR), epochs=1, progress=False, random_state=0)
    pf.save(model.fit(TABLE, labels), tmp_path / "model")

    def change(structure: Any, arrays: Any) -> None:
        scaler = structure["object"]["state"]["encoder_"]["state"]["scaler_"]["state"]
        for each in ("mean_", "var_", "scale_"):
            arrays[scaler[each]["array"]] = np.ones(3)
        scaler["n_features_in_"] = 3
        structure["object"]["state"]["encoder_"]["state"]["numeric_"] = ["A", "M", "N"]

    forged = rewritten((tmp_path / "model").read_bytes(), change, tmp_path)
    refused(tmp_path / "forged", forged, "mat1 and mat2 shapes")


def test_contrasts_are_saved(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    race = rng.choice(["w", "b", "a"], 300)
    table = pd.DataFrame({"race": race, "M": rng.normal(race == "b")})
    labels = (table["M"] > 0).astype(int)
    graph = pf.CausalGraph("race -> M -> Y; race -> Y", sensitive="race", outcome="Y", baseline="w", contrast="b")
    source = pf.Contrasts(pf.IPW(graph.unfair("race -> Y")), over={"a": 1.0, "b": 2.0})
    model = pf.PenalizedClassifier("logistic", source=source, epochs=2, progress=False, random_state=0)
    pf.save(model.fit(table, labels), tmp_path / "model")
    loaded = pf.load(tmp_path / "model")
    assert loaded.source.over == source.over
    np.testing.assert_array_equal(loaded.predict_proba(table), model.predict_proba(table))
    pf.save(model.source_, tmp_path / "source")
    for level, pair in pf.load(tmp_path / "source").pairs(df=table).items():
        for one, other in zip(pair, model.source_.pairs(df=table)[level], strict=True):
            np.testing.assert_array_equal(one.weight, other.weight)


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
    path = {"PYTHONPATH": str(PACKAGE.parent), "LC_ALL": "C", "OMP_NUM_THREADS": "1", "PATH": ""}
    command = [sys.executable, "-W", "error", "-c", CODE, str(tmp_path)]
    subprocess.run(command, check=True, cwd=tmp_path, env=path, timeout=300)
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
        "__init__.py: import_module",  # lazy names, of the package's own list
        "commands/models.py: load",  # joblib, behind --trust-pickle
        "_defaults.py: import_module",  # the package's own
        "persistence/classes.py: import_module",  # the closed list
    }
    assert {*found} <= allowed
