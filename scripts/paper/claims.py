"""What the paper says in figures, and what the simulator says to the same question.

Each claim is a number that a function takes from runs on a cluster, so that it can be asked again
with a curve of the cluster changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from runs import Runs, Variant

Measure = Callable[[Runs, Variant], float]
Case = dict[str, Any]

INFINITY = float("inf")
CONVERTED = "AOS to SOA$"
KEPT = r"^[^,]*$"
# More DMA threads than there are transfers: nothing waits for one.
UNBOUNDED = 1024


@dataclass(frozen=True)
class Claim:
    """A figure of the paper and how ours is found."""

    section: str
    what: str
    paper: str
    cluster: str
    unit: str
    measure: Measure
    # Between which values ours is what the paper says.
    says: tuple[float, float]
    why: str
    # What is said of the same with another of the numbers that the paper does not give.
    other: tuple[str, Measure] | None = None


def micro(runs: Runs, variant: Variant, name: str, **options: Any) -> Case:
    """The one case of the microbenchmark that is called `name`."""
    escaped = name.replace("*", r"\*")
    return runs.cases(variant, "micro", filter=f"^{escaped}$", **options)[0]


def rate(case: Case) -> float:
    value: float = case["copies"][0]["throughput"]
    return value


def pairs(runs: Runs, variant: Variant, threads: int = 1) -> list[Case]:
    return runs.cases(
        variant, "micro", filter=KEPT, baseline="store-and-forward", dma_threads=threads
    )


def speedup(case: Case) -> float:
    value: float = case["copies"][0]["speedup"]
    return value


def is_direct(case: Case) -> bool:
    return all(len(side["copies"][0]["memories"]) == 2 for side in (case, case["baseline"]))


def direct_speedup(runs: Runs, variant: Variant) -> float:
    """The one farthest from 1, of the pairs that both join by one hop."""
    direct = (speedup(case) for case in pairs(runs, variant) if is_direct(case))
    return max(direct, key=lambda value: abs(math.log(value)))


def largest_speedup(threads: int) -> Measure:
    def measure(runs: Runs, variant: Variant) -> float:
        return max(speedup(case) for case in pairs(runs, variant, threads) if not is_direct(case))

    return measure


def least_of_slowest_hop(runs: Runs, variant: Variant) -> float:
    return min(float(case["copies"][0]["ratio"]) for case in pairs(runs, variant))


def urgent_seconds(case: Case) -> float:
    value: float = case["copies"][1]["seconds"]
    return value


def urgent(runs: Runs, variant: Variant, kind: str, threads: int) -> list[tuple[float, float]]:
    """Seconds of the urgent copy, ours and the baseline's, as large as others and smaller."""
    cases = runs.cases(
        variant, "priority", filter=f"^{kind}", baseline="store-and-forward", dma_threads=threads
    )
    return [(urgent_seconds(case), urgent_seconds(case["baseline"])) for case in cases]


def shorter(kind: str, size: int) -> Measure:
    """How much shorter, in percent: as large as the others (0), or a sixteenth (1)."""

    def measure(runs: Runs, variant: Variant) -> float:
        ours, theirs = urgent(runs, variant, kind, 1)[size]
        return 100 * (1 - ours / theirs)

    return measure


def longer_with_threads(runs: Runs, variant: Variant) -> float:
    one, eight = (urgent(runs, variant, "direct", threads) for threads in (1, 8))
    longer: float = max(many[1] / alone[1] for alone, many in zip(one, eight, strict=True))
    return longer


def full_over(name: str, *others: str) -> Measure:
    def measure(runs: Runs, variant: Variant) -> float:
        full = rate(micro(runs, variant, name, algorithm="full"))
        return full / max(rate(micro(runs, variant, name, algorithm=other)) for other in others)

    return measure


def farthest_apart(runs: Runs, variant: Variant) -> float:
    """SPSL and SPDL, the faster over the slower, where that is the most."""
    spsl, spdl = (
        [rate(case) for case in runs.cases(variant, "micro", filter=CONVERTED, algorithm=algorithm)]
        for algorithm in ("spsl", "spdl")
    )
    return max(max(a / b, b / a) for a, b in zip(spsl, spdl, strict=True))


def ordered_pairs(runs: Runs, variant: Variant) -> float:
    """Of the pairs with a conversion, the part where full >= simple >= SPSL, SPDL."""
    by: dict[str, list[float]] = {}
    for algorithm in ("full", "simple", "spsl", "spdl"):
        cases = runs.cases(variant, "micro", filter=CONVERTED, algorithm=algorithm)
        by[algorithm] = [rate(case) for case in cases]
    rows = list(zip(by["full"], by["simple"], by["spsl"], by["spdl"], strict=True))
    # Rates that differ by a thousandth are equal: the pipelines fill differently.
    ordered = [row for row in rows if row[0] >= 0.999 * row[1] >= 0.998 * max(row[2:])]
    return 100 * len(ordered) / len(rows)


def fixed_path(name: str) -> Measure:
    def measure(runs: Runs, variant: Variant) -> float:
        return speedup(micro(runs, variant, name, baseline="device-converts"))

    return measure


def summary(runs: Runs, variant: Variant, app: str, **options: Any) -> Case:
    """What an application comes to; the cluster's nodes unless said."""
    return runs.cases(variant, app, summary=True, **options)[0]


def less(app: str, key: str, baseline: str = "store-and-forward", **options: Any) -> Measure:
    """How much less, in percent, than the baseline's `key`."""

    def measure(runs: Runs, variant: Variant) -> float:
        case = summary(runs, variant, app, baseline=baseline, **options)
        return 100 * (1 - float(case[key]) / float(case["baseline"][key]))

    return measure


COMMUNICATION = "communication_seconds"


def circuit_share(runs: Runs, variant: Variant) -> float:
    theirs = summary(runs, variant, "circuit", baseline="store-and-forward")["baseline"]
    return 100 * float(theirs[COMMUNICATION]) / float(theirs["seconds"])


def circuit_less_at_papers_share(runs: Runs, variant: Variant) -> float:
    """Overall, were the baseline's communication the part that the paper says."""
    return 0.36 * less("circuit", COMMUNICATION)(runs, variant)


def pagerank_without_path(runs: Runs, variant: Variant) -> float:
    case = summary(runs, variant, "pagerank", baseline="no-path")
    return float(case["baseline"][COMMUNICATION]) / float(case[COMMUNICATION])


def pagerank_without_pipeline(runs: Runs, variant: Variant) -> float:
    """The path being off already."""
    path = summary(runs, variant, "pagerank", baseline="no-path")["baseline"]
    both = summary(
        runs, variant, "pagerank", baseline="store-and-forward", dma_threads=UNBOUNDED
    )["baseline"]
    return float(both[COMMUNICATION]) / float(path[COMMUNICATION])


def pagerank_one_in_flight(runs: Runs, variant: Variant) -> float:
    case = summary(runs, variant, "pagerank", baseline="one-in-flight")
    return float(case["baseline"][COMMUNICATION]) / float(case[COMMUNICATION])


def held_ratio(runs: Runs, variant: Variant) -> float:
    """Whole instances between hops, of the baseline, over our staging."""
    case = micro(runs, variant, "FBM to FBM*", baseline="store-and-forward")
    return total(case["baseline"]["instances"]) / total(case["staging"])


def total(held: list[dict[str, Any]]) -> int:
    return sum(int(memory["bytes"]) for memory in held)


ABOUT_ASSUMED = "how slow a channel is with requests of 4 bytes is assumed, and decides this"

CLAIMS = [
    Claim("6.1", "transfers that are direct in both, over store-and-forward", "equal", "sapling", "×",
          direct_speedup, (0.97, 1.03),
          "one hop has nothing to pipeline; SYS to FBM and two others go by a faster way of two hops "
          "here, and count below"),
    Claim("6.1", "other transfers, over store-and-forward, at most", "up to 2.2 ×", "sapling", "×",
          largest_speedup(1), (1.9, 2.5),
          "the most is to be had where two hops are equally slow: disk to disk; the rest of the "
          "paper's may be what the baseline's own copies cost, which are free here. With one DMA "
          "thread a node: the paper does not say how many, and several do hops of several instances "
          "at a time",
          ("with four DMA threads", largest_speedup(4))),
    Claim("6.1", "throughput over what the slowest hop can, the least of all 18 pairs", "near-optimal",
          "sapling", "×", least_of_slowest_hop, (0.95, 1.0),
          "what is missing is the filling of the pipeline"),
    Claim("6.2", "urgent direct transfer, launch to end, shorter than with one DMA thread", "up to 62 %",
          "sapling", "%", shorter("direct", 1), (50, 75),
          "neither the sizes nor the number of other transfers are given; the smaller the urgent one "
          "is against those that it waits for (a sixteenth here), the more is gained",
          ("as large as the others", shorter("direct", 0))),
    Claim("6.2", "urgent multi-hop transfer, shorter than with one DMA thread", "up to 95 %",
          "sapling", "%", shorter("multi-hop", 1), (85, 99),
          "as above; it waits for a thread on each of its hops",
          ("as large as the others", shorter("multi-hop", 0))),
    Claim("6.2", "baseline's urgent direct transfer with eight DMA threads, of one thread's", "longer",
          "sapling", "×", longer_with_threads, (1.05, INFINITY),
          "eight transfers share the channel, of which the urgent one is one"),
    Claim("6.3", "full over simple, SYS to SYS*", "1.17 ×", "sapling", "×",
          full_over("SYS to SYS*", "simple"), (1.15, 1.2),
          "3180 over 2701 MB/s (Table 5): by way of REG"),
    Claim("6.3", "full over simple, FBM to DSK", "equal", "sapling", "×",
          full_over("FBM to DSK", "simple"), (0.99, 1.01), "the disk bounds both"),
    Claim("6.3", "full over the better of SPSL and SPDL, SYS to DSK, AOS to SOA", "both poor", "sapling",
          "×", full_over("SYS to DSK, AOS to SOA", "spsl", "spdl"), (2, INFINITY),
          "both convert in DiskWrite; " + ABOUT_ASSUMED),
    Claim("6.3", "SPSL and SPDL, the faster over the slower, where that is the most",
          "very different", "sapling", "×", farthest_apart, (2, INFINITY),
          "they convert on the last hop and on the first; " + ABOUT_ASSUMED),
    Claim("6.3", "pairs with a conversion where full ≥ simple ≥ SPSL, SPDL", "all", "sapling", "%",
          ordered_pairs, (100, 100),
          "simple adds a Memcpy to a shortest path, which these do not"),
    Claim("6.4", "over the fixed path, FBM to FBM*", "1 ×", "sapling", "×",
          fixed_path("FBM to FBM*"), (0.97, 1.03), "the network bounds both"),
    Claim("6.4", "over the fixed path, FBM to FBM*, AOS to SOA", "about 4 ×", "sapling", "×",
          fixed_path("FBM to FBM*, AOS to SOA"), (3, 5),
          "the fixed path converts on the device's hop, in requests of 4 bytes, which the assumed curve "
          "serves a thousand times slower than large ones; 4 × would be a hop of about 0.8 GB/s"),
    Claim("6.5", "PageRank, 16 nodes: communication less than Realm's", "40 to 80 %", "xstream", "%",
          less("pagerank", COMMUNICATION), (40, 80),
          "one DMA thread does the three hops in turn, on a slower path; with four there is less to gain",
          ("with four DMA threads", less("pagerank", COMMUNICATION, dma_threads=4))),
    Claim("6.5", "PageRank, 16 nodes: overall time less", "up to 60 %", "xstream", "%",
          less("pagerank", "seconds"), (30, 65),
          "the time of computing is assumed, and the number of DMA threads",
          ("with four DMA threads", less("pagerank", "seconds", dma_threads=4))),
    Claim("6.5", "VGG-16, 16 nodes: communication less than Realm's", "40 to 80 %", "xstream", "%",
          less("vgg16", COMMUNICATION), (40, 80),
          "Realm's conversion is assumed to be the last hop's, and " + ABOUT_ASSUMED),
    Claim("6.5", "the same, were Realm to convert on the host as we do", "40 to 80 %", "xstream", "%",
          less("vgg16", COMMUNICATION, "no-pipeline"), (40, 80),
          "what pipelining alone gives"),
    Claim("6.5", "VGG-16, one node: communication less than Realm's", "44 %", "xstream", "%",
          less("vgg16", COMMUNICATION, nodes=1), (35, 55),
          "as on 16 nodes"),
    Claim("6.5", "the same, were Realm to convert on the host as we do", "44 %", "xstream", "%",
          less("vgg16", COMMUNICATION, "no-pipeline", nodes=1), (35, 55),
          "conversion and upload at the same time"),
    Claim("6.5", "Circuit, 64 nodes: communication, of Realm's time", "36 %", "moonlight", "%",
          circuit_share, (30, 42),
          "the sizes are assumed; nothing but bytes takes time here, where Legion's master also "
          "launches every task"),
    Claim("6.5", "Circuit, 64 nodes: communication less than Realm's", "43 %", "moonlight", "%",
          less("circuit", COMMUNICATION), (35, 50),
          "the network's two rates (REG, else) and one hop after the other are all that differs; "
          "what several copiers lose that compete for a channel is not in the model"),
    Claim("6.5", "Circuit, 64 nodes: overall time less", "16 %", "moonlight", "%",
          less("circuit", "seconds"), (12, 20), "follows from the two lines above"),
    Claim("6.5", "the same, were 36 % of Realm's time communication", "16 %", "moonlight", "%",
          circuit_less_at_papers_share, (12, 20), "0.36 times the reduction"),
    Claim("6.5", "PageRank, 16 nodes: path optimization off", "1.6 ×", "xstream", "×",
          pagerank_without_path, (1.4, 1.8),
          "the ratio of two assumed rates, of registered memory and of other"),
    Claim("6.5", "PageRank, 16 nodes: then pipelining off too", "2.2 ×", "xstream", "×",
          pagerank_without_pipeline, (1.9, 2.5),
          "with as many transfers at once as there are, one uses a channel while others wait "
          "between theirs"),
    Claim("6.5", "PageRank, 16 nodes: one request in flight on each channel", "the rest", "xstream", "×",
          pagerank_one_in_flight, (1.05, INFINITY),
          "the cluster's latencies are not given and count as none: there is nothing to overlap"),
    Claim("6.1", "whole instances between hops, over our staging, FBM to FBM*", "–", "sapling", "×",
          held_ratio, (1.05, INFINITY), "64 instances of 128 MiB on two nodes, as room allows"),
]
