"""The course as a site, from the notebooks as they are stored; `make book` builds it, offline."""

import re
import shutil
import sys
from pathlib import Path

import latex2mathml.converter
from docutils.nodes import SkipNode

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from vclib import __version__  # noqa: E402 - the project is a folder, not installed, on some machines
from vclib.paths import project  # noqa: E402

project_address = project()["urls"]["Homepage"]
HERE = ROOT / "notebooks"

project = "VisionCoder"
author = "VisionCoder"
release = version = __version__
extensions = ["myst_nb"]
root_doc = "README"
exclude_patterns = ["times.json"]
nb_execution_mode = "off"  # the outputs that are stored are the ones that are shown
nb_merge_streams = True
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
# A widget's picture is shown where no kernel runs; its JavaScript would come from elsewhere.
nb_mime_priority_overrides = [
    ("html", "application/vnd.jupyter.widget-view+json", None),
    ("html", "image/png", 0),
]
suppress_warnings = ["mystnb.unknown_mime_type"]

html_theme = "furo"
html_title = "VisionCoder"
html_static_path = ["static"]
html_css_files = ["book.css"]
html_theme_options = {"source_repository": project_address, "source_directory": "notebooks/"}
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_math_renderer = "mathml"


def to_project(app, docname, source):
    """Links out of notebooks/ lead to the project's own address, as there is no page for them."""

    def absolute(match):
        target = (HERE / match[1]).resolve()
        kind = "tree" if target.is_dir() else "blob"
        place = target.relative_to(ROOT).as_posix()
        return f"]({project_address}/{kind}/v{__version__}/{place}"

    source[0] = re.sub(r"\]\((\.\./[^)#\s]+)", absolute, source[0])
    if docname == root_doc:
        names = "\n".join(path.stem for path in sorted(HERE.glob("*.ipynb")))
        source[0] += f"\n```{{toctree}}\n:hidden:\n\n{names}\n```\n"


def write_index(app, exception):
    """The map is where a visitor begins."""
    if not exception:
        shutil.copy(Path(app.outdir, f"{root_doc}.html"), Path(app.outdir, "index.html"))


def mathml(self, node):
    """A formula as MathML, which browsers draw by themselves: no script, no font to fetch."""
    block = node.tagname == "math_block"
    self.body.append('<div class="math">' if block else "")
    display = "block" if block else "inline"
    self.body.append(latex2mathml.converter.convert(node.astext(), display=display))
    self.body.append("</div>" if block else "")
    raise SkipNode


def setup(app):
    """What Sphinx calls."""
    app.connect("source-read", to_project)
    app.connect("build-finished", write_index)
    app.add_html_math_renderer("mathml", (mathml, None), (mathml, None))
