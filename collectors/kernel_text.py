"""The shapes in which the kernel prints numbers: key and value, sizes in kB, pressure.

Lines that have another shape are passed over: a newer kernel may print more than we know.
"""

_DIGITS_MAX = 20  # 2**64 has 20; Python would take its time over a million


def number(word: str) -> int | None:
    """Return a whole number as the kernel prints one; None for anything else ("max")."""
    if word.isascii() and word.isdecimal() and len(word) <= _DIGITS_MAX:
        return int(word)
    return None


def keyed(text: str) -> dict[str, int]:
    """Return lines "key value" (memory.stat, vmstat, cgroup.events)."""
    found = {}
    for line in text.splitlines():
        key, _, word = line.partition(" ")
        value = number(word)
        if value is not None:
            found[key] = value
    return found


def sizes(text: str) -> dict[str, int]:
    """Return lines "Key:  value kB" (meminfo, /proc/PID/status) in bytes."""
    found = {}
    for line in text.splitlines():
        key, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[1] == "kB":
            value = number(words[0])
            if value is not None:
                found[key] = value * 1024
    return found


def pressure_full_percent(text: str) -> float | None:
    """Return how much of the last 10 s all work waited, in percent (PSI "full avg10")."""
    for line in text.splitlines():
        words = line.split()
        if len(words) > 1 and words[0] == "full" and words[1].startswith("avg10="):
            try:
                return float(words[1].removeprefix("avg10="))
            except ValueError:
                return None
    return None
