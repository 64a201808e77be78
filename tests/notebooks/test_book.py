"""The site is built from the stored notebooks, offline and without a warning."""

import re
import subprocess
import sys

import pytest

from vclib.paths import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("myst_nb", reason="pip install -e '.[book]'")
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "--quiet", "-c", "docs/book"]
    done = subprocess.run(
        [*build, "notebooks", str(folder)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_there_is_a_page_for_every_notebook_and_a_map_to_begin_with(site):
    names = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert names <= {path.stem for path in site.glob("*.html")}
    index = (site / "index.html").read_text()
    assert all(f'href="{name}.html"' in index for name in names)


def test_nothing_that_a_page_is_made_of_comes_from_elsewhere(site):
    for page in site.glob("*.html"):
        for tag in re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", page.read_text()):
            if 'alt="Open in Colab"' in tag or 'rel="canonical"' in tag:
                continue
            assert not re.search(r"(?:src|href)=\"(?:https?:)?//", tag), f"{page.name}: {tag}"


def test_formulas_are_drawn_and_not_left_as_source(site):
    returns = (site / "06_shaped_returns.html").read_text()
    assert "<math" in returns and "\\lambda" not in re.sub(
        r"<math.*?</math>", "", returns, flags=re.S
    )
