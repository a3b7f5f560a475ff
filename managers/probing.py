"""Probes of the links, REST servers, keys and clocks of other managers, as they are reached from this host.

`dropflow doctor` has every manager probe every other. Any client that may submit graphs may request probes, and such a
client may run code anyway. Nevertheless probes cannot be used to scan a network: addresses have one strict form, few
are tried at a time, for few seconds, and of a server that is not a manager only that fact is reported.
"""

import logging
import queue
import re
import socket
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar
from urllib.parse import urlsplit

from dropflow.api.client import Client, measure_clock_skew
from dropflow.api.node_records import ProbeRequest, ProbeResult
from dropflow.clock import Clock, SystemClock
from dropflow.errors import DropflowError, HttpError, InternalError, LinkError, ProtocolError, UsageError
from managers.keys import ClusterKey
from managers.links.probes import LinkProbe, probe_links
from managers.links.zmq_transport import check_address
from managers.messages import PROTOCOL

_log = logging.getLogger(__name__)

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
_AT_A_TIME = 4
"""Requests that may run at a time; each may use one thread per address."""
_LARGEST = 64 * 1024
"""Bytes of an answer, which may come from a server that is not a manager."""
_SLACK = 0.25
"""Seconds to wait beyond the time limit, so that a call that reaches the limit can still report that."""
_FORM = re.compile(r"(tcp|https?)://[\w.:\[\]%/~-]+", re.ASCII)

# Calls in parallel, with one deadline for all.


@dataclass(frozen=True)
class CallResult(Generic[Value]):
    """The value of a call, or its error.

    Attributes
    ----------
    late : bool
        It was not over at the deadline, and still runs.
    """

    value: Value | None = None
    error: DropflowError | None = None
    late: bool = False


def call_in_parallel(
    calls: Mapping[Key, Callable[[], Value]], *, seconds: float, clock: Clock
) -> dict[Key, CallResult[Value]]:
    """Make all calls, each in its own thread, and wait for `seconds` at most.

    Returns
    -------
    dict
        A result for every call, in the order of `calls`. Errors that are not dropflow's become `InternalError`.
    """
    results: queue.SimpleQueue[tuple[Key, CallResult[Value]]] = queue.SimpleQueue()

    def run(key: Key, call: Callable[[], Value]) -> None:
        results.put((key, _result(key, call)))

    deadline = clock.monotonic() + seconds
    for key, call in calls.items():
        threading.Thread(target=run, args=(key, call), name=f"call:{key}", daemon=True).start()
    by_key: dict[Key, CallResult[Value]] = {}
    while len(by_key) < len(calls):
        try:
            key, result = results.get(timeout=max(deadline - clock.monotonic(), 0.0))
        except queue.Empty:
            break
        by_key[key] = result
    late = CallResult[Value](error=LinkError(f"no answer within {seconds:.3g} s"), late=True)
    return {key: by_key.get(key, late) for key in calls}


def _result(key: Key, call: Callable[[], Value]) -> CallResult[Value]:
    try:
        return CallResult(call())
    except DropflowError as error:
        return CallResult(error=error)
    except Exception as error:  # noqa: BLE001 - the caller waits for a result
        _log.exception("a call to %s failed", key)
        wrapped = InternalError(f"the call failed: {type(error).__name__}: {error}", hint="please report it")
        wrapped.__cause__ = error
        return CallResult(error=wrapped)


def resolve_host(host: str) -> str:
    """Return a numeric address of `host`.

    Raises
    ------
    LinkError
        The name cannot be resolved.
    """
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        hint = "let that node advertise an address (--advertise), or add its name to DNS or /etc/hosts"
        raise LinkError(f"the host name {host!r} cannot be resolved on this host", hint=hint) from error
    return str(addresses[0][4][0])


class Prober:
    """Tries addresses on behalf of one manager.

    Parameters
    ----------
    name : str
        Name of the manager, sent in handshakes.
    key : ClusterKey or None
        Signs requests to managers, and is compared with the key of links. Without it only the links of this host, and
        managers that require no credential, can be probed.
    clock : Clock, optional
        Clock that the clocks of others are compared with; by default that of the system.
    connect : callable, optional
        Makes a client for a manager, with a time limit in seconds.
    resolve : callable, optional
        Looks up a host; see `resolve_host`.
    """

    def __init__(
        self,
        name: str,
        key: ClusterKey | None,
        *,
        clock: Clock | None = None,
        connect: Callable[[str, float], Client] | None = None,
        resolve: Callable[[str], str] = resolve_host,
    ) -> None:
        self._name = name
        self._key = key
        self._clock = clock or SystemClock()
        self._connect = connect or self._client
        self._resolve = resolve
        # Bounds the requests that probe at a time. A queue would make the others wait; they get 503 instead.
        self._free = threading.BoundedSemaphore(_AT_A_TIME)

    def probe(self, request: ProbeRequest) -> tuple[ProbeResult, ...]:
        """Probe all addresses concurrently; return one result for each, in their order.

        Raises
        ------
        HttpError
            503 while too many other requests run.
        """
        if not self._free.acquire(blocking=False):
            raise HttpError(
                503, f"too many probes: {_AT_A_TIME} are already running", hint="try again in a few seconds"
            )
        try:
            return self._probed(request)
        finally:
            self._free.release()

    def _probed(self, request: ProbeRequest) -> tuple[ProbeResult, ...]:
        seconds = request.seconds
        results = {address: _no_address(address) for address in request.addresses if not _FORM.fullmatch(address)}
        good = [address for address in dict.fromkeys(request.addresses) if address not in results]
        links = tuple(address for address in good if address.startswith("tcp:"))
        calls: dict[object, Callable[[], tuple[ProbeResult, ...]]] = {
            url: partial(self._probe_manager, url, seconds) for url in good if url not in links
        }
        calls[links] = partial(self._probe_links, links, seconds)
        for key, outcome in call_in_parallel(calls, seconds=seconds + _SLACK, clock=self._clock).items():
            reaches = _results(key, outcome, seconds)
            results |= {reach.address: reach for reach in reaches}
        return tuple(results[address] for address in request.addresses)

    def _probe_manager(self, url: str, seconds: float) -> tuple[ProbeResult, ...]:
        began = self._clock.monotonic()
        try:
            with self._connect(url, seconds) as client:
                seen = measure_clock_skew(client, self._clock)
        except DropflowError as error:
            return (_failed(url, error, self._clock.monotonic() - began),)
        info = seen.info
        return (
            ProbeResult(
                address=url,
                ok=True,
                name=info.name,
                seconds=seen.delay,
                skew=seen.skew,
                version=info.version,
                protocol=info.protocol,
                incarnation=info.incarnation,
                key=info.key,
            ),
        )

    def _probe_links(self, addresses: tuple[str, ...], seconds: float) -> tuple[ProbeResult, ...]:
        end = self._clock.monotonic() + seconds
        hosts, results = self._look_up(addresses, seconds)
        left = max(end - self._clock.monotonic(), 0.05)
        links = probe_links(hosts.values(), name=self._name, key=self._key, seconds=left, clock=self._clock)
        results |= {address: self._link_result(address, links[hosts[address]]) for address in hosts}
        return tuple(results.values())

    def _look_up(self, addresses: Iterable[str], seconds: float) -> tuple[dict[str, str], dict[str, ProbeResult]]:
        """Return the addresses with their hosts resolved, and the results of those whose hosts cannot be resolved."""
        failures: dict[str, ProbeResult] = {}
        for address in addresses:
            try:
                check_address(address, self._key, binding=False)
            except DropflowError as error:
                failures[address] = _failed(address, error, 0.0)
        good = [address for address in addresses if address not in failures]
        names = {address: urlsplit(address).hostname or "" for address in good}
        calls = {("host", name): partial(self._resolve, name) for name in names.values()}
        hosts: dict[str, str] = {}
        # Half of the time, so that one slow name leaves time for the others.
        outcomes = call_in_parallel(calls, seconds=seconds / 2, clock=self._clock)
        for address in good:
            outcome = outcomes["host", names[address]]
            if outcome.error is None and outcome.value is not None:
                host = f"[{outcome.value}]" if ":" in outcome.value else outcome.value
                hosts[address] = f"tcp://{host}:{urlsplit(address).port}"
            elif outcome.late:
                hint = "let that node advertise an address (--advertise), or check the name server of this host"
                late = LinkError(f"resolving the host name {names[address]!r} takes too long", hint=hint)
                failures[address] = _failed(address, late, seconds / 2)
            elif outcome.error is not None:
                failures[address] = _failed(address, outcome.error, 0.0)
        return hosts, failures

    def _link_result(self, address: str, probe: LinkProbe) -> ProbeResult:
        protocol = 0 if probe.welcome is None else probe.welcome.protocol
        trouble, hint, code = probe.trouble, probe.hint, LinkError.code if probe.trouble else ""
        if not trouble and protocol not in (0, PROTOCOL):
            trouble = f"its links use protocol {protocol}, those here {PROTOCOL}"
            hint, code = "install the same version of dropflow on all hosts", ProtocolError.code
        return ProbeResult(
            address=address,
            ok=not trouble,
            name="" if probe.welcome is None else probe.welcome.name,
            seconds=probe.seconds,
            protocol=protocol,
            incarnation=0 if probe.welcome is None else probe.welcome.incarnation,
            key=self._key.fingerprint if probe.is_ours and self._key is not None else "",
            code=code,
            trouble=trouble,
            hint=hint,
        )

    def _client(self, url: str, seconds: float) -> Client:
        secret = None if self._key is None else self._key.secret
        return Client(url, secret=secret, timeout=seconds, clock=self._clock, most=_LARGEST)


def _results(key: object, outcome: "CallResult[tuple[ProbeResult, ...]]", seconds: float) -> tuple[ProbeResult, ...]:
    """Return the results for the addresses of one call."""
    if outcome.error is None:
        return outcome.value or ()
    addresses = [str(address) for address in (key if isinstance(key, tuple) else (key,))]
    error = outcome.error
    if outcome.late:
        hint = "is it busy, or is a firewall in between?"
        error = LinkError(f"it does not answer within {seconds:.3g} s", hint=hint)
    return tuple(_failed(address, error, seconds) for address in addresses)


def _failed(address: str, error: DropflowError, seconds: float) -> ProbeResult:
    return ProbeResult(
        address=address, ok=False, seconds=round(seconds, 4), code=error.code, trouble=error.text, hint=error.hint
    )


def _no_address(address: str) -> ProbeResult:
    hint = "such as tcp://host:5555 for links, or http://host:8000 for a manager"
    return ProbeResult(address=address, ok=False, code=UsageError.code, trouble="this is not an address", hint=hint)
