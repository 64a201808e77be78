import os
import re
from html import unescape
from importlib.util import find_spec
from itertools import combinations

import pytest

from vclib.env.errors import BadArguments
from vclib.env.markup import read_markup
from vclib.env.pages import WebSightPages, load_pages
from vclib.env.synth import DIFFICULTIES, SPLITS

PLACES = [(split, difficulty) for split in SPLITS for difficulty in DIFFICULTIES]
OUTSIDE = re.compile(
    r"(?i)\b(https?|wss?|ftp|file|data|javascript):|url\(|image-set\(|@import|@font-face|\bsrc(set)?\s*="
    r"|\baction\s*=|\bon\w+\s*=|<(script|link|base|iframe|frame|object|embed|img|video|audio)\b"
)


@pytest.fixture
def folder(tmp_path):
    """Thirty files, the n-th of n paragraphs, some of them a folder deeper."""
    (tmp_path / "deep").mkdir()
    for n in range(30):
        name = f"deep/page{n:02}.HTM" if n % 3 == 0 else f"page{n:02}.html"
        (tmp_path / name).write_text(f"<!doctype html><h1>{n}</h1>" + "<p>text</p>" * n)
    (tmp_path / "notes.txt").write_text("not a page")
    return tmp_path


def distinct_web_pages(split, difficulty):
    pages = pages_of(load_pages("web"), split, difficulty, 100)
    return list({page.id: page for page in pages}.values())


def runs_of_four(html):
    """Every four words that follow one another in the text of a page, without its markup."""
    text = unescape(re.sub(r"(?is)<style.*?</style>|<[^>]*>", " ", html))
    words = re.findall(r"\w+", text.casefold())
    return {tuple(words[i : i + 4]) for i in range(len(words) - 3)}


def pages_of(page_set, split, difficulty, count):
    return [page_set.at(split, difficulty, index) for index in range(count)]


@pytest.mark.parametrize("name", ["blocks", "web"])
def test_an_id_names_the_same_page_in_a_new_page_set(name):
    for split, difficulty in PLACES:
        for page in pages_of(load_pages(name), split, difficulty, 5):
            assert load_pages(name).page(page.id) == page
            assert (page.split, page.difficulty) == (split, difficulty)
            assert page.id.startswith(f"{name}/{split}/{difficulty}/")


@pytest.mark.parametrize(("name", "count"), [("blocks", 200), ("web", 20)])
def test_train_and_heldout_share_no_page(name, count):
    html = {
        split: {
            page.html for d in DIFFICULTIES for page in pages_of(load_pages(name), split, d, count)
        }
        for split in SPLITS
    }
    assert not html["train"] & html["heldout"]


def test_mixed_takes_easy_medium_and_hard_in_turn():
    page_set = load_pages("web")
    mixed = pages_of(page_set, "train", "mixed", 6)
    assert [page.difficulty for page in mixed] == ["easy", "medium", "hard"] * 2
    assert mixed[3] == page_set.at("train", "easy", 1)


def test_a_finite_set_wraps_and_a_generated_one_does_not_end():
    web = load_pages("web")
    ids = [page.id for page in pages_of(web, "train", "easy", 100)]
    size = len(set(ids))
    assert 2 <= size < 100
    assert ids[0] == ids[size]
    assert load_pages("blocks").at("train", "hard", 10**17).id == f"blocks/train/hard/{10**17}"


@pytest.mark.parametrize(("split", "difficulty"), PLACES)
def test_ten_web_pages_or_more_stand_in_every_place(split, difficulty):
    assert len(distinct_web_pages(split, difficulty)) >= 10


@pytest.mark.parametrize(("split", "difficulty"), PLACES)
def test_web_pages_are_whole_and_faultless_documents(split, difficulty):
    for page in distinct_web_pages(split, difficulty):
        markup = read_markup(page.html)
        assert (markup.format, markup.validity) == (1, 1), page.id
        ids = re.findall(r"""\sid\s*=\s*["']?([^\s"'>]+)""", page.html)
        assert len(ids) == len(set(ids)), page.id
        assert set(re.findall(r"""\sfor\s*=\s*["']?([^\s"'>]+)""", page.html)) <= set(ids), page.id


@pytest.mark.parametrize(("split", "difficulty"), PLACES)
def test_web_pages_ask_for_nothing_outside_and_run_nothing(split, difficulty):
    for page in distinct_web_pages(split, difficulty):
        asked = OUTSIDE.search(page.html)
        assert asked is None, f"{page.id}: {asked[0]}"
        assert set(re.findall(r"""href=["']?([^"'\s>]+)""", page.html)) <= {"#"}, page.id


def test_no_two_web_pages_share_more_than_a_tenth_of_their_words_in_runs_of_four():
    pages = [page for place in PLACES for page in distinct_web_pages(*place)]
    runs = {page.id: runs_of_four(page.html) for page in pages}
    for one, other in combinations(runs, 2):
        shared = runs[one] & runs[other]
        assert len(shared) <= 0.1 * min(len(runs[one]), len(runs[other])), (one, other, shared)


@pytest.mark.parametrize(
    "page_id",
    [
        "",
        "blocks",
        "blocks/train/easy",
        "blocks/train/easy/-1",
        "blocks/train/easy/007",
        "blocks/train/easy/1/2",
        "blocks/train/easy/٣",
        f"blocks/train/easy/{10**18}",
        "blocks/test/easy/1",
        "blocks/train/mixed/1",
        "web/train/easy/log-in",
        "../../etc/passwd",
        None,
    ],
)
def test_a_bad_id_is_refused_and_the_form_of_a_good_one_named(page_id):
    with pytest.raises(BadArguments, match=r"blocks/<train\|heldout>/<easy\|medium\|hard>/<0 to"):
        load_pages("blocks").page(page_id)


@pytest.mark.parametrize("page_id", ["web/train/easy/none", "web/train/easy/../hard/kanban", ""])
def test_a_bad_id_of_a_file_is_refused(page_id):
    with pytest.raises(BadArguments, match="ids look like 'web/train/easy/"):
        load_pages("web").page(page_id)


def test_bad_places_are_refused_and_the_good_ones_named():
    page_set = load_pages("blocks")
    with pytest.raises(BadArguments, match="expected one of train, heldout"):
        page_set.at("test", "easy", 0)
    with pytest.raises(BadArguments, match="expected one of easy, medium, hard, mixed"):
        page_set.at("train", "brutal", 0)
    for index in (-1, 10**18, 1.5, "1", None):
        with pytest.raises(BadArguments, match="not a whole number from 0"):
            page_set.at("train", "easy", index)


@pytest.mark.parametrize("name", ["", "block", "folder", "WEB"])
def test_an_unknown_set_is_refused_and_the_known_ones_named(name):
    with pytest.raises(BadArguments, match="blocks, web, websight, folder:PATH"):
        load_pages(name)


def test_a_folder_is_parted_into_thirds_by_size_and_a_fifth_is_held_out(folder):
    page_set = load_pages(f"folder:{folder}")
    found = {place: {p.id: p for p in pages_of(page_set, *place, 60)} for place in PLACES}
    assert [len(found[place]) for place in PLACES] == [8, 8, 8, 2, 2, 2]
    assert len(set().union(*found.values())) == 30
    sizes = [
        [len(page.html) for split in SPLITS for page in found[split, difficulty].values()]
        for difficulty in DIFFICULTIES
    ]
    assert max(sizes[0]) <= min(sizes[1]) and max(sizes[1]) <= min(sizes[2])
    again = load_pages(f"folder:{folder}")
    for pages in found.values():
        assert [again.page(page_id) for page_id in pages] == list(pages.values())


def test_a_folder_of_one_file_trains_but_holds_nothing_out(tmp_path):
    (tmp_path / "only.html").write_text("<p>one")
    page_set = load_pages(f"folder:{tmp_path}")
    assert page_set.at("train", "mixed", 7).id == "folder/train/easy/only.html"
    with pytest.raises(BadArguments, match="no heldout pages"):
        page_set.at("heldout", "mixed", 0)
    with pytest.raises(BadArguments, match="it has easy, mixed"):
        page_set.at("train", "hard", 0)


@pytest.mark.parametrize("count", range(2, 12))
def test_a_folder_of_two_files_or_more_holds_some_out_and_trains_on_the_others(tmp_path, count):
    for n in range(count):
        (tmp_path / f"{n}.html").write_text("<p>" + "x" * n)
    page_set = load_pages(f"folder:{tmp_path}")
    ids = {
        split: {page.html for page in pages_of(page_set, split, "mixed", 36)} for split in SPLITS
    }
    assert ids["train"] and ids["heldout"] and not ids["train"] & ids["heldout"]
    assert len(ids["train"] | ids["heldout"]) == count


def test_a_file_name_that_is_not_unicode_is_refused(tmp_path):
    try:
        (tmp_path / os.fsdecode(b"caf\xe9.html")).write_text("<p>one")
    except OSError:
        pytest.skip("this file system takes no such name")
    with pytest.raises(BadArguments, match=r"caf.*is not UTF-8; rename"):
        load_pages(f"folder:{tmp_path}")


def test_an_empty_and_a_missing_folder_are_refused(tmp_path):
    with pytest.raises(BadArguments, match="no HTML files in"):
        load_pages(f"folder:{tmp_path}")
    with pytest.raises(BadArguments, match="no folder"):
        load_pages(f"folder:{tmp_path / 'gone'}")
    with pytest.raises(BadArguments, match="no folder '~no-such-user/pages'"):
        load_pages("folder:~no-such-user/pages")
    with pytest.raises(BadArguments, match="expected folder:PATH"):
        load_pages("folder:")


def test_a_file_that_went_away_is_a_clear_error(folder):
    page_set = load_pages(f"folder:{folder}")
    page = page_set.at("train", "easy", 0)
    (folder / page.id.removeprefix("folder/train/easy/")).unlink()
    with pytest.raises(BadArguments, match="cannot be read"):
        page_set.page(page.id)


def test_a_stream_is_read_as_far_as_asked_and_gives_each_row_one_id():
    rows = [f"<p>{n}</p>" + "x" * (n % 7) * 300 for n in range(200)]
    here, there = WebSightPages(iter(rows)), WebSightPages(iter(rows))
    late = here.at("heldout", "hard", 3)
    assert there.page("websight/heldout/hard/3") == late
    pages = {
        place: [there.at(*place, index).html for index in range(4)] for place in reversed(PLACES)
    }
    assert len({html for found in pages.values() for html in found}) == 24
    assert pages["heldout", "hard"][3] == late.html


def test_a_stream_that_breaks_off_is_a_clear_error():
    with pytest.raises(BadArguments, match="broke off"):
        WebSightPages(iter(["<p>only"])).at("train", "hard", 0)


@pytest.mark.skipif(find_spec("datasets") is not None, reason="the package datasets is installed")
def test_websight_without_its_package_says_what_to_install():
    with pytest.raises(BadArguments, match="pip install datasets"):
        load_pages("websight")
