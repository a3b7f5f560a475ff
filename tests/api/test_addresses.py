"""Addresses of managers and of data: malformed ones are refused, wherever they come from."""

from types import SimpleNamespace
from typing import Any

import pytest

from dropflow.api.addresses import http_parts
from dropflow.api.client import Client
from dropflow.data.remote import location_of
from dropflow.errors import BadParameterError, UsageError
from dropflow.web.known_servers import public_address, same_server, split_target
from managers.composite.children import canonical
from managers.discovery import _read
from translator.web.deployer import _address

MALFORMED = ("http://[::1:8000", "http://host:80000", "http://host:port", "http://a..b:8000", f"http://{'x' * 70}.org")
"""Addresses that `urlsplit` refuses, or that no host can have."""


@pytest.mark.parametrize("url", [*MALFORMED, "ftp://host/", "http://", "host:8000"])
def test_a_malformed_address_is_no_manager(url: str) -> None:
    """A user gets an error with the address, a record of the network is ignored, and pages lead nowhere."""
    fields = {"name": "n", "url": url, "incarnation": "1", "version": "1", "key": ""}
    info: Any = SimpleNamespace(properties={name.encode(): value.encode() for name, value in fields.items()})

    assert http_parts(url) is None
    for use in (canonical, Client, _address):
        with pytest.raises(UsageError, match="not a manager URL"):
            use(url)
    assert _read("node", info) is None
    assert split_target(url) == ("", "")
    assert public_address("http://here:{port}", url) == "http://here:{port}"
    assert not same_server(url, "http://host:8000")


def test_a_malformed_address_of_data_is_a_bad_parameter() -> None:
    """The error has the address."""
    with pytest.raises(BadParameterError, match=r"http://\[::1:8000"):
        location_of("http://[::1:8000", {})
