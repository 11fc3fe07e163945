"""Sphinx configuration."""

from importlib.metadata import version as installed

project = "concal"
author = "the concal developers"
copyright = "the concal developers"
release = installed("concal")
extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build"]
html_theme = "alabaster"
html_title = f"concal {release}"
html_theme_options = {"page_width": "1100px", "description": "Consensus calibration of item banks"}
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"
default_role = "code"
