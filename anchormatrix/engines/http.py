"""HTTP as clients of engines use it: one connection, answers taken or refused, and outputs hashed and timed."""

from __future__ import annotations

import hashlib
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anchormatrix.engines.client import Response, Told
from anchormatrix.records.requests import RequestStatus

if TYPE_CHECKING:
    import requests

_CONNECT_S = 5.0
_ERROR_CHARS = 300


@dataclass(frozen=True)
class Output:
    """An output's bytes and their type; the device memory that the request took and what was timed of it, where the
    answer tells them."""

    content: bytes
    media: str
    peak_memory_mb: float | None = None
    told: Told | None = None


class RefusedError(Exception):
    """The server answered, but not with an output."""


class HttpClient:
    """The part of a client that every HTTP server needs; an engine's client says in ``ask`` how an output is got."""

    def __init__(self, base_url: str, *, request_timeout_s: float) -> None:
        import requests  # noqa: PLC0415  a tenth of a second that is hidden behind the server's own start

        self._url = base_url.rstrip("/")
        self._timeout_s = request_timeout_s
        self._session = requests.Session()
        self._session.trust_env = False  # a proxy of the environment must not see a loopback server
        self._lost: tuple[type[Exception], ...] = (requests.RequestException,)

    def ask(self, steps: int) -> Output:
        """The output of one request. Raises :class:`RefusedError` when the server answers with something else."""
        raise NotImplementedError

    def ready(self) -> bool:
        """Whether ``GET /health`` answers 200."""
        try:
            return bool(self._session.get(f"{self._url}/health", timeout=_CONNECT_S).status_code == 200)
        except self._lost:
            return False

    def generate(self, steps: int) -> Response:
        """See :class:`~anchormatrix.engines.client.Client`."""
        started = time.monotonic()
        try:
            answer = self.ask(steps)
        except self._lost as error:
            return Response(RequestStatus.LOST, time.monotonic() - started, error=short(error), steps=steps)
        except RefusedError as error:
            return Response(RequestStatus.ERROR, time.monotonic() - started, error=str(error), steps=steps)
        latency_s, fingerprint = time.monotonic() - started, hashlib.sha256(answer.content).hexdigest()[:16]
        return Response(
            RequestStatus.OK,
            latency_s,
            fingerprint,
            peak_memory_mb=answer.peak_memory_mb,
            content=answer.content,
            media=answer.media,
            told=answer.told,
            steps=steps,
        )

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def tried(self, path: str) -> str | None:
        """Post to ``path``; returns what went wrong, or ``None``."""
        try:
            self.post(path)
        except self._lost as error:
            return f"{path}: {short(error)}"
        except RefusedError as error:
            return f"{path}: {error}"
        return None

    def post(self, path: str, **body: Any) -> requests.Response:
        """Post and return an answer below 400; raises :class:`RefusedError` for any other."""
        return _accepted(self._session.post(self._url + path, timeout=(_CONNECT_S, self._timeout_s), **body))

    def get(self, path: str) -> requests.Response:
        """Get an answer below 400; raises :class:`RefusedError` for any other."""
        return _accepted(self._session.get(self._url + path, timeout=(_CONNECT_S, self._timeout_s)))


def _accepted(answer: requests.Response) -> requests.Response:
    if answer.status_code >= 400:
        raise RefusedError(f"HTTP {answer.status_code}: {short(answer.text)}")
    return answer


def json_object(answer: requests.Response) -> dict[str, Any]:
    """The JSON object of an answer; raises :class:`RefusedError` when it is none."""
    try:
        values = answer.json()
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise RefusedError(f"the answer is not a JSON object: {short(answer.text)}")
    return values


def media_type(answer: requests.Response) -> str:
    """The media type of an answer, without parameters."""
    return str(answer.headers.get("Content-Type", "")).partition(";")[0].strip().lower()


def multipart(fields: dict[str, str]) -> dict[str, tuple[None, str]]:
    """Fields as ``requests`` sends a form without files."""
    return {key: (None, value) for key, value in fields.items()}


def positive(told: object) -> float | None:
    """The number that an answer tells; anything but a positive finite one tells nothing."""
    try:
        value = float(told)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return value if 0 < value < math.inf else None


def short(value: object) -> str:
    """A text on one line, cut to what an error shows."""
    text = " ".join(str(value).split())
    return text if len(text) <= _ERROR_CHARS else text[: _ERROR_CHARS - 1] + "…"
