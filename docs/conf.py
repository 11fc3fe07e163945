"""Sphinx configuration."""

import sys
from importlib.metadata import version as installed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "concal"
author = "the concal developers"
copyright = "the concal developers"
release = installed("concal")
extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "mathml",
    "generated",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "_ext"]
html_theme = "furo"
html_title = f"concal {release}"
html_static_path = ["_static"]
html_css_files = ["concal.css"]
html_math_renderer = "mathml"
html_theme_options = {"sidebar_hide_name": False, "navigation_with_keys": True}
pygments_style = "friendly"
pygments_dark_style = "monokai"
myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
python_use_unqualified_type_names = True
default_role = "code"
