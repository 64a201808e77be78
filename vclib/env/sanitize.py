"""What is taken out of a page before the browser sees it.

The browser enforces the rest by policy (see `browser`), so the text is changed as little as can
be: scripts stay where they are, because they do not run and selectors count them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import html as entities
import io
import re
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes

from PIL import Image, UnidentifiedImageError

MAX_HTML_BYTES = 200_000
MAX_NODES = 5_000
MAX_IMAGE_BYTES = 64_000
MAX_IMAGE_PIXELS = 4_000_000
HOST = "http://page.invalid/"
IMAGES = HOST + "image/"

# In a cascade layer, because an important rule in a layer beats the page's own important rules.
STILL = (
    "<style>@layer vclib{*,*::before,*::after{animation:none!important;"
    "transition:none!important;caret-color:transparent!important;"
    "scroll-behavior:auto!important}progress:indeterminate{appearance:none!important}}</style>"
)
FRAMES = "iframe|frameset|frame|object|embed|applet|portal|fencedframe|marquee"
DATA_IMAGE = re.compile(
    r"""(?P<open>["'])\s*(?P<quoted>data:image/.*?)(?P=open)|(?P<bare>data:image/[^\s"'<>)]+)""",
    re.I | re.S,
)
# Possessive, because a comment that could end at any `-->` would double the time with each.
DOCTYPE = re.compile(r"(?:\s|<!--.*?-->)*+<!doctype[^>]*>", re.I | re.S)


@dataclass
class SafePage:
    """A page to be shown: its HTML, its images by address as (type, bytes), what was blocked.

    source: the HTML as it was given.
    """

    html: str
    images: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    blocked: list[str] = field(default_factory=list)
    source: str = ""


def sanitize(source: str) -> SafePage | str:
    """The page without frames, plugins, refreshes and animations, or why it is not shown.

    Images in data URLs are checked and moved to addresses of their own: the browser loads
    nothing else, so that a picture that unpacks to gigabytes never reaches it.
    """
    # Lone surrogates cannot be sent to the browser; pairs are joined, the rest become U+FFFD.
    html = source.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    size = len(html.encode())
    if size > MAX_HTML_BYTES:
        return f"the HTML has {size} bytes; at most {MAX_HTML_BYTES} are rendered"
    tags = len(re.findall(r"<[a-zA-Z]", html))
    if tags > MAX_NODES:
        return f"the HTML has {tags} tags; at most {MAX_NODES} nodes are rendered"
    page = SafePage(html, source=source)
    if re.search(r"<script[\s/>]", html, re.I):
        page.blocked.append("script")
    _drop_active(page)
    page.html = DATA_IMAGE.sub(lambda match: _move_image(match, page), page.html)
    doctype = DOCTYPE.match(page.html)
    # The doctype stays first, because it decides between standards and quirks mode.
    at = doctype.end() if doctype else 0
    page.html = page.html[:at] + STILL + page.html[at:]
    return page


def _drop_active(page: SafePage) -> None:
    """Renames the tags and attributes that frame, refresh or move; their contents stay."""

    def rename(match: re.Match[str]) -> str:
        slash, name = match[1], match[2].lower()
        if not slash:
            page.blocked.append(name)
        # An element that is never closed must not swallow what follows it.
        return f"<{slash}{'wbr' if name in ('embed', 'frame') else 'span'}"

    def neutral(pattern: str, replacement: str, name: str) -> None:
        page.html, count = re.subn(pattern, replacement, page.html, flags=re.I)
        if count:
            page.blocked.append(name)

    page.html = re.sub(rf"<(/?)({FRAMES})(?=[\s/>])", rename, page.html, flags=re.I)
    neutral(r"<(/?)(?:animate\w*|set)(?=[\s/>])", r"<\1x-still", "animation")
    neutral(r"http-equiv(\s*=\s*[\"']?\s*refresh)", r"x-blocked\1", "refresh")


def _move_image(match: re.Match[str], page: SafePage) -> str:
    quote, url = match["open"] or "", match["quoted"] or match["bare"]
    image = _checked_image(entities.unescape(url))
    if isinstance(image, str):
        page.blocked.append(image)
        return f"{quote}data:,{quote}"
    address = IMAGES + hashlib.sha256(image[1]).hexdigest()[:32]
    page.images[address] = image
    return f"{quote}{address}{quote}"


def _checked_image(url: str) -> tuple[str, bytes] | str:
    """(type, bytes) of a harmless picture, or why it is refused."""
    header, _, payload = url[len("data:") :].partition(",")
    kind = header.split(";")[0].strip().lower()
    data = unquote_to_bytes(payload)
    if header.lower().rstrip().endswith(";base64"):
        try:
            data = base64.b64decode(re.sub(rb"\s", b"", data) + b"==")
        except binascii.Error:
            return f"data URL ({kind}) that is not base64"
    if len(data) > MAX_IMAGE_BYTES:
        return f"data URL ({kind}) of {len(data)} bytes"
    if kind == "image/svg+xml":
        inner = SafePage(data.decode("utf-8", "replace"))
        if re.search(r"data:|<!entity|<foreignobject", inner.html, re.I):
            return "data URL (image/svg+xml) with contents of its own"
        _drop_active(inner)
        return kind, inner.html.encode()
    try:
        with Image.open(io.BytesIO(data), formats=("PNG", "JPEG", "GIF", "WEBP")) as image:
            width, height = image.size
    except (UnidentifiedImageError, OSError, Image.DecompressionBombError):
        return f"data URL ({kind}) that is no picture"
    if width * height > MAX_IMAGE_PIXELS:
        return f"data URL ({kind}) of {width} x {height} pixels"
    return kind, data
