"""What a seed of `mooring sim` costs: 30 virtual minutes on about 30 nodes, faults and all. At most 1 s of CPU."""

import time

from mooring_lab.simulate.seeds import SeedOptions, quiet_logs, run_seed

FIRST, SEEDS = 9001, 20


def main() -> None:
    quiet_logs()
    run_seed(FIRST, SeedOptions(hours=0.02))  # imports
    began, lasted_s = time.process_time(), 0.0
    for seed in range(FIRST, FIRST + SEEDS):
        lasted_s += run_seed(seed, SeedOptions()).lasted_s
    mean_s = (time.process_time() - began) / SEEDS
    print(
        f"sim      seed        {SEEDS} seeds from {FIRST}, {lasted_s / SEEDS / 60:.0f} virtual minutes each with their"
        f" coming to rest: {mean_s:.2f} s of CPU  (target ≤ 1 s)"
    )


if __name__ == "__main__":
    main()
