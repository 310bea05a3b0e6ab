"""A role that kills itself at a named point: crashing.py ROLE CONFIG WORKER POINT TIMES [ARMED].

It is the product's own role, made by the same function, with a hook at the points that it names.
Where ARMED names a file, points count from when it is there.
"""

import os
import signal
import sys
from pathlib import Path

from farside import roles
from farside.compose import Site
from farside.settings import read_settings


def main(role: str, config: str, worker: str, point: str, times: str, armed: str = "") -> int:
    """Run the role; SIGKILL this process when `worker` comes to `point` the n-th time."""
    left = int(times)

    def crash(at_worker: str, at_point: str) -> None:
        nonlocal left
        if (at_worker, at_point) == (worker, point) and (not armed or Path(armed).exists()):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    if role != "detect":
        sys.exit(f"no points are named in {role}")
    path = Path(config)
    return roles.run(Site(read_settings(path)), path, lambda site: roles.detect(site, crash=crash))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
