"""Structured logs on stderr: readable on a terminal, one JSON object a line otherwise."""

import logging
import sys
from typing import Any

import msgspec
import structlog


def _json(_: Any, __: str, event: Any) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()


class _Libraries(logging.Handler):
    """What libraries log (aiohttp on a request that is not HTTP) is written the same way: one object a line, whatever a
    client has sent."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        said = {} if error is None else {"error": f"{type(error).__name__}: {error}"[:500]}
        log = structlog.get_logger()
        (log.error if record.levelno >= logging.ERROR else log.warning)(
            "library", logger=record.name, text=record.getMessage()[:500], **said
        )


def configure(level: str, form: str) -> None:
    """`form`: auto (console on a terminal, else json), console or json."""
    console = form == "console" or (form == "auto" and sys.stderr.isatty())
    processors: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if console:
        processors.append(structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()))
    else:
        processors += [structlog.processors.format_exc_info, _json]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, handlers=[_Libraries()], force=True)
