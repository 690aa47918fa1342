import pytest

from mooring.clients.wire.quantity import epoch, milli, share_of, whole


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("250m", 250),
        ("1", 1000),
        ("1.5", 1500),
        ("0.0001", 1),
        ("100n", 1),
        ("2k", 2_000_000),
        (2, 2000),
        (0.5, 500),
        (None, 0),
        ("", 0),
        ("much", 0),
        ("1.2.3", 0),
    ],
)
def test_cpu_in_milli(text, expected):
    """CPU becomes whole milli-cores, rounded up as Kubernetes does; what cannot be read counts as nothing."""
    assert milli(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("128Mi", 128 << 20),
        ("1Gi", 1 << 30),
        ("1.5Gi", 3 << 29),
        ("1G", 10**9),
        ("2E", 2 * 10**18),
        ("12e3", 12_000),
        ("12E3", 12_000),
        ("1Ei", 1 << 60),
        ("1500m", 2),
        ("110", 110),
        (1024, 1024),
        ("1e400000000", 0),
        ("1e99999", 2**63 - 1),
        ("-1Gi", 0),
        ("NaN", 0),
    ],
)
def test_memory_in_bytes(text, expected):
    """Memory becomes bytes for every suffix and exponent that Kubernetes accepts, without ever raising."""
    assert whole(text) == expected


@pytest.mark.parametrize(
    ("value", "total", "up", "down"),
    [("25%", 10, 3, 2), ("0%", 7, 0, 0), ("100%", 7, 7, 7), (3, 10, 3, 3), ("3", 10, 3, 3), (None, 5, None, None)],
)
def test_int_or_percent(value, total, up, down):
    """An int-or-percent is resolved against the replicas, rounded the way that is asked for."""
    assert share_of(value, total, round_up=True) == up
    assert share_of(value, total, round_up=False) == down


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:10Z", 10.0),
        ("1970-01-01T00:00:10.250000Z", 10.25),
        ("1970-01-01T02:00:10+02:00", 10.0),
        ("1970-01-01T00:00:10", 10.0),
        ("yesterday", None),
        ("", None),
        (None, None),
    ],
)
def test_times(text, expected):
    """RFC 3339 times become seconds since the epoch; absent and unreadable ones become None."""
    assert epoch(text) == expected
