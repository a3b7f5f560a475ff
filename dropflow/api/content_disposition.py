"""Names of downloads in the header Content-Disposition (RFC 6266), safe for browsers and shells."""

import re
from email.message import Message
from urllib.parse import quote

from dropflow.ids import safe_name

_PLAIN = re.compile(r"[A-Za-z0-9._ -]+")


def attachment(name: str) -> tuple[str, str]:
    """Return the header of a download with this name: a plain name, and the full one as ``filename*``."""
    last = name.replace("\\", "/").rpartition("/")[2]
    clean = "".join(character for character in last if character.isprintable()).lstrip(".") or "download"
    clean = clean.encode("utf-8", errors="replace").decode()
    plain = clean if _PLAIN.fullmatch(clean) else safe_name(clean, fallback="download")
    whole = "" if plain == clean else f"; filename*=UTF-8''{quote(clean, safe='')}"
    return "Content-Disposition", f'attachment; filename="{plain}"{whole}'


def file_name(header: str) -> str:
    """Return the name in such a header, as one safe path segment."""
    message = Message()
    message["Content-Disposition"] = header or "attachment"
    found = message.get_filename(failobj="download")
    return safe_name(str(found), fallback="download")
