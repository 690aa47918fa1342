"""Run benches by name, all of them without one. Each prints its figures beside the target."""

import importlib
import pkgutil
import sys
import time

import bench


def main() -> int:
    known = sorted(m.name for m in pkgutil.iter_modules(bench.__path__) if not m.name.startswith("_") and not m.ispkg)
    asked = sys.argv[1:] or known
    unknown = [name for name in asked if name not in known]
    if unknown:
        print(f"bench: no bench named {', '.join(unknown)}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    for name in asked:
        print(f"── {name} " + "─" * (70 - len(name)))
        began = time.perf_counter()
        module = importlib.import_module(f"bench.{name}")
        if hasattr(module, "main"):
            module.main()
        print(f"   ({time.perf_counter() - began:.0f} s)\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
