"""Builds sdist and wheel of this tree, checks them, and tries the wheel in a virtual environment of its own.

    python .ci/distributions.py FOLDER

The wheel is made of the sdist. The environment of the wheel sees the dependencies of the one that runs this, and not
the package that is installed there. The tools of the extra `release` are installed if they are missing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
NEEDED = ("pyrofair/__init__.py", "pyrofair/py.typed", "pyrofair/datasets/data/NOTICE.md")
IN_SDIST = ("LICENSE", "README.md", "pyproject.toml", "CITATION.cff", "tests/conftest.py", ".ci/run", "docs/api.md")

TRY = """
import pathlib, sys
import numpy as np, pandas as pd
import pyrofair as pf

assert pathlib.Path(pf.__file__).is_relative_to(sys.prefix), pf.__file__
rng = np.random.default_rng(0)
a, m = rng.integers(0, 2, 300), rng.normal(size=300)
table = pd.DataFrame({"A": a, "M": m + a, "Y": (rng.random(300) < 0.5 + 0.2 * a).astype(int)})
unfair = pf.CausalGraph("A -> M; {A M} -> Y", sensitive="A", outcome="Y").unfair("A -> Y")
model = pf.PenalizedClassifier("logistic", source=pf.IPW(unfair), epochs=5, progress=False, random_state=0)
model.fit(table[["A", "M"]], table["Y"])
report = pf.audit({"model": model}, pf.OneStep(unfair, propensity="logistic", regression="logistic"), table)
assert "Audit of 1 model(s) on 300 rows" in str(report)
path = pathlib.Path("model.pyrofair")
pf.save(model, path, overwrite=True)
assert (pf.load(path).predict_proba(table) == model.predict_proba(table)).all()
assert len(pf.datasets.load_german().frame) == 1000
"""


def run(*command: object, **settings: object) -> None:
    """Run a command, shown, and end with its error."""
    print("+", *(str(part) if "\n" not in str(part) else "..." for part in command), flush=True)
    subprocess.run([str(part) for part in command], check=True, **settings)  # type: ignore[call-overload]


def require(fine: bool, what: str) -> None:
    """End with an error unless something holds."""
    if not fine:
        sys.exit(f"The distributions are not as they should be: {what}.")


def tracked() -> set[str]:
    """Return the files of the repository, or nothing outside one."""
    found = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    return {name for name in found.stdout.split("\0") if name} if found.returncode == 0 else set()


def check(sdist: Path, wheel: Path) -> None:
    """Compare what is in the distributions with what has to be."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    roots = {PurePosixPath(name).parts[0] for name in names}
    require(
        roots == {"pyrofair", next(root for root in roots if root.endswith(".dist-info"))}, f"the wheel has {roots}"
    )
    require(not (missing := [name for name in NEEDED if name not in names]), f"the wheel lacks {missing}")
    data = {str(path.relative_to(ROOT).as_posix()) for path in (ROOT / "pyrofair").rglob("*")
            if path.is_file() and "__pycache__" not in path.parts}  # fmt: skip
    require(data <= {*names}, f"the wheel lacks {sorted(data - {*names})}")
    licences = [name for name in names if "/licenses/" in name]
    require(len(licences) == 2, f"the wheel has the licences {licences}")
    with tarfile.open(sdist) as archive:
        inside = {PurePosixPath(*PurePosixPath(name).parts[1:]).as_posix() for name in archive.getnames()}
    require(not (missing := [name for name in IN_SDIST if name not in inside]), f"the sdist lacks {missing}")
    require(not (left := sorted(tracked() - inside)), f"the sdist lacks {left}")


def main(folder: Path) -> None:
    """Build, check, install and try."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        tools = tomllib.load(file)["project"]["optional-dependencies"]["release"]
    run(sys.executable, "-m", "pip", "install", "--quiet", *tools)
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, stdout=subprocess.DEVNULL)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
    check(sdist, wheel)
    own = folder / "venv"
    venv.create(own, with_pip=True)
    python = own / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", wheel)
    ours = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], check=True,
                          capture_output=True, text=True).stdout.strip()  # fmt: skip
    # A path file comes after the environment's own packages, and path files in that folder are not read: the editable
    # install there stays out of sight.
    Path(ours, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    run(python, "-W", "error", "-c", TRY, cwd=elsewhere, env=environment)
    run(own / "bin" / "pyrofair", "--version", cwd=elsewhere, env=environment)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
