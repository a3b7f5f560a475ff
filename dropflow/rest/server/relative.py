"""Makes the addresses in an answer relative, so that a server works below any path of a proxy.

Handlers and templates name addresses from the root of the server: ``/sessions``. A proxy may serve that root below a
path that the server does not know, such as ``/user/ada/proxy/8002/``. So an answer to ``/sessions/one`` names
``../sessions`` instead, which is right below every path, if the proxy removes its own from requests.
"""

import re

__all__ = ["relative_address", "relative_page"]

# Text between tags and values of attributes have no quotation marks of their own: templates escape them.
_ADDRESS = re.compile(r'(?<=\s)((?:href|src|action|data-(?:api|base|events|moment|page|session|twin))=")/(?!/)')


def relative_address(address: str, target: str) -> str:
    """Return an address on this server relative to the request for `target`, and another address as it is."""
    if not address.startswith("/") or address.startswith("//"):
        return address
    return _root(target) + address[1:]


def relative_page(page: str, target: str) -> str:
    """Return a page of HTML, the answer to a request for `target`, with all its addresses on this server relative."""
    return _ADDRESS.sub(rf"\g<1>{_root(target)}", page)


def _root(target: str) -> str:
    depth = target.partition("?")[0].count("/") - 1
    return "../" * depth or "./"
