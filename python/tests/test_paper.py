"""What `make paper` changes in a cluster, and what it asks."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts" / "paper"))

import claims  # noqa: E402
import runs  # noqa: E402


def cluster(name: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / "clusters" / f"{name}.toml").read_text())


def test_like_devices_have_one_curve() -> None:
    names = [name for name, _ in runs.assumed(cluster("xstream"))]
    assert len(names) == 16
    assert len(set(names)) == 11
    assert names.count("GPUWrite zcm → fbm") == 2


def test_a_peak_that_the_paper_gives_stays() -> None:
    channel: dict[str, Any] = {"throughput": [[1024, 1.0], [4096, 3.0], [65536, 4.0]]}
    runs.scale(channel, 2.0, keeps_peak=True)
    assert channel["throughput"] == [[1024, 2.0], [4096, 4.0], [65536, 4.0]]
    runs.scale(channel, 0.5, keeps_peak=True)
    assert channel["throughput"] == [[1024, 1.0], [4096, 2.0], [65536, 4.0]]
    runs.scale(channel, 0.5, keeps_peak=False)
    assert channel["throughput"] == [[1024, 0.5], [4096, 1.0], [65536, 2.0]]


def test_a_constant_is_a_peak() -> None:
    for keeps_peak, rate in ((True, 8.0), (False, 4.0)):
        channel = {"throughput": 8.0}
        runs.scale(channel, 0.5, keeps_peak)
        assert channel["throughput"] == rate


def test_each_curve_is_halved_and_doubled(tmp_path: Path) -> None:
    made = runs.variants("sapling", tmp_path)
    curves = {variant.curve for variant in made}
    assert len(made) == 2 * len(curves)
    assert {variant.factor for variant in made} == {0.5, 2.0}
    # Memcpy is the paper's own, at every request size.
    assert not any(curve.startswith("Memcpy") for curve in curves)
    assert len({Path(variant.path).read_text() for variant in made}) == len(made)


class Cases(runs.Runs):
    """Runs that come to these cases, whatever is asked."""

    def __init__(self, *cases: dict[str, Any]) -> None:
        super().__init__()
        self._cases = list(cases)

    def cases(self, variant: runs.Variant, workload: str, **options: Any) -> list[dict[str, Any]]:
        return self._cases


SAPLING = runs.committed("sapling")


def one_hop(speedup: float) -> dict[str, Any]:
    copies = [{"memories": ["n0.sys", "n0.fbm"], "speedup": speedup}]
    return {"copies": copies, "baseline": {"copies": copies}}


def test_direct_transfers_that_are_slower_are_seen() -> None:
    assert claims.direct_speedup(Cases(one_hop(1.0), one_hop(0.5), one_hop(1.2)), SAPLING) == 0.5


def test_no_effect_is_no_claim_reproduced() -> None:
    equal = {"equal", "1 ×", "near-optimal"}
    nothing = {"×": 1.0, "%": 0.0}
    for claim in claims.CLAIMS:
        least, most = claim.says
        says_nothing = least <= nothing[claim.unit] <= most
        assert says_nothing == (claim.paper in equal), claim.what
