"""Settings of the site; build it from the root of the repository: ``sphinx-build -W -n -c docs . build/site``.

The source directory is the root, so that pages, notebooks and the licence of the data link to one another on the site
as they do in the repository. ``PYROFAIR_EXECUTE`` says how notebooks are run: ``force`` (the default), ``cache`` (only
those that changed since the last build) or ``off``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS.parent), str(DOCS / "_extensions")]

from pyrofair import __version__  # noqa: E402

project = "pyrofair"
author = "The pyrofair developers"
copyright = "the pyrofair developers"
version = release = __version__

# --- pages ---

root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "docs/reference/*/*.rst",  # which each build writes
    "examples/*.ipynb",
    "examples/README.md",
    "pyrofair/datasets/data/NOTICE.md",
]
exclude_patterns = [
    "**/.*",
    ".*",
    "**/__pycache__",
    "*.egg-info",
    "build",
    "dist",
    "tests",
    "compare-*",
    # In the repository only; pages quote their summaries.
    "docs/coverage.md",
    "docs/decisions",
    "docs/pscf-measured.md",
    "docs/reproduction.md",
    "examples/paper",
    "reproduction*",
]
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "command_pages",
    "public_names",
    "repository_links",
]

# --- Markdown and notebooks ---

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4  # as on GitHub
EXECUTE = os.environ.get("PYROFAIR_EXECUTE", "force")
if EXECUTE not in ("force", "cache", "off"):
    raise ValueError(f"PYROFAIR_EXECUTE is {EXECUTE!r}; it takes 'force', 'cache' or 'off'.")
if EXECUTE != "off":  # the pages of source take as long as all others, and a build without outputs is only looked at
    extensions.append("sphinx.ext.viewcode")
    # Kernels inherit it. Of tqdm, which Pyro imports: without widgets its bars are lines of text.
    os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"
nb_execution_mode = EXECUTE
nb_execution_timeout = 600
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_merge_streams = True
copybutton_exclude = ".linenos, .gp, .go"

# --- reference ---

autodoc_class_signature = "mixed"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
maximum_signature_line_length = 88
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_custom_sections = [("Attributes", "params_style"), ("Assumes", "notes")]
nitpicky = True  # `public_names` answers for names of other packages, whose inventories need a network

# --- HTML ---

html_theme = "furo"
html_title = f"pyrofair {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": False}
