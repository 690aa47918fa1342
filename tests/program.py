"""The `mooring` command, called in this process: what it prints and how it ends, without a second of imports each time.

`tests/cli/test_program.py` starts real processes, for what only they show: signals, pipes, closed streams.
"""

import contextlib
import io
import os
import signal
import sys
import traceback
from typing import NamedTuple
from unittest import mock

import structlog

from mooring.cli import main
from mooring.cli.server import _forwarded


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def mooring(*args, stdin: str = "", cwd=None, env=None) -> Done:
    """`env`: as `subprocess.run` takes it; not given, this process's own without what names a Mooring or a cluster."""
    given = env if env is not None else {k: v for k, v in os.environ.items() if not k.startswith(("MOORING_", "KUBE"))}
    out, err = _stream(), _stream()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    logs = structlog.get_config()
    with (
        contextlib.chdir(cwd or os.getcwd()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "argv", ["mooring", *map(str, args)]),
        mock.patch.object(sys, "stdin", _stream(stdin)),
        mock.patch.dict(os.environ, given, clear=True),
    ):
        try:
            main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
        except BaseException:
            code = 1
            traceback.print_exc()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            structlog.configure(**logs)
            while _forwarded:
                _forwarded.popitem()[1].close()
    return Done(code, _text(out), _text(err))


def _stream(text: str = "") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8", write_through=True)


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    return stream.buffer.getvalue().decode()
