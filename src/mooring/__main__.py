"""`mooring`, and `python -m mooring`. Nothing heavy is imported here: Ctrl-C before a command began just ends it."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    try:
        from mooring.cli import main as run  # noqa: PLC0415 - it takes half a second

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
