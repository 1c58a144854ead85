"""What an outbox answers over HTTP: probes for an orchestrator, metrics, and figures for people. The extra `web`."""

from __future__ import annotations

from aftercommit.errors import MissingDriver

try:
    from aftercommit.web.access import Access
    from aftercommit.web.probes import probes_app
    from aftercommit.web.serving import ProbeServer, serve_probes
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn", "h11"):
        raise
    raise MissingDriver(f"{error.name} is not installed", fix='pip install "aftercommit[web]"') from error

__all__ = ["Access", "ProbeServer", "probes_app", "serve_probes"]
