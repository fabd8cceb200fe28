"""`make paper`: asks the simulator what the paper claims, and writes down both."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import figures
import report
import scale
from claims import CLAIMS, COMMUNICATION, Claim, Measure, summary, total
from runs import ROOT, Runs, Variant, committed, variants

ONE_EACH_WAY = (
    "the trace has one accelerator of each node, one kind of large copy each way and one of small ones; "
    "the paper's instances are not given"
)
# Table 6, on 16 nodes: plans by the full and by the simple algorithm, and why ours differ.
TABLE_6 = [
    ("circuit", "moonlight", 0, "master", "96 / 50", ONE_EACH_WAY),
    ("circuit", "moonlight", 1, "others", "5 / 2", ONE_EACH_WAY),
    ("pagerank", "xstream", 0, "per node", "16 / 0", "–"),
    ("vgg16", "xstream", 0, "per node", "16 / 4",
     "layouts change between a node's host and its own accelerator; to the 15 others go parts of a layer "
     "in one layout, mostly smaller than what the full algorithm is for; how the paper's are cut is not "
     "given"),
]
ITERATIONS = 4


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make paper", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "out" / "paper")
    parser.add_argument(
        "--quick", action="store_true", help="leave the assumed curves alone, and scale out"
    )
    return parser.parse_args()


def main() -> None:
    args = arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    runs = Runs()
    with tempfile.TemporaryDirectory() as scratch:
        changed = {} if args.quick else by_cluster(Path(scratch))
        answers = answer(runs, changed)
    tables = [plans(runs), held(runs), options(runs), *([] if args.quick else [scale.table()])]
    report.write(args.out, answers, tables, figures.draw(runs, args.out))
    counts = Counter(answer.verdict for answer in answers)
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    print(f"{len(answers)} claims: {told}; {args.out}/report.html")


def by_cluster(scratch: Path) -> dict[str, list[Variant]]:
    return {name: variants(name, scratch) for name in {claim.cluster for claim in CLAIMS}}


def answer(runs: Runs, changed: dict[str, list[Variant]]) -> list[report.Answer]:
    """Asks every claim of every variant, as many at once as there are processors."""
    asked = [
        (at, name, measure, variant)
        for at, claim in enumerate(CLAIMS)
        for name, measure, variant in questions(claim, changed.get(claim.cluster, []))
    ]
    values: list[dict[str, float]] = [{} for _ in CLAIMS]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        futures = {
            pool.submit(measure, runs, variant): (at, name) for at, name, measure, variant in asked
        }
        for done, future in enumerate(as_completed(futures), 1):
            at, name = futures[future]
            values[at][name] = future.result()
            print(f"\r{done} of {len(asked)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return [of_claim(*of) for of in zip(CLAIMS, values, strict=True)]


AS_COMMITTED = "as committed"


def questions(claim: Claim, changed: list[Variant]) -> Iterator[tuple[str, Measure, Variant]]:
    """What is asked for a claim and its range, by name."""
    yield AS_COMMITTED, claim.measure, committed(claim.cluster)
    if claim.other:
        yield *claim.other, committed(claim.cluster)
    for variant in changed:
        yield f"{variant.curve} × {variant.factor:g}", claim.measure, variant


def of_claim(claim: Claim, values: dict[str, float]) -> report.Answer:
    ordered = sorted((value, name) for name, value in values.items())
    return report.Answer(claim, values[AS_COMMITTED], ordered[0], ordered[-1])


def plans(runs: Runs) -> report.Table:
    def rows() -> Iterator[list[str]]:
        for app, cluster, at, who, paper, why in TABLE_6:
            case = summary(runs, committed(cluster), app, nodes=16)
            planned = case["planned"][at]
            last = max(node["last_copy"] for node in case["planned"])
            yield [
                app, who, paper, pair(planned["by_papers_key"]), pair(planned["made"]),
                str(1 + last * ITERATIONS // case["transfers"]), why,
            ]

    text = (
        "Plans made by the full / by the simple algorithm on 16 nodes, by the node of the source. The "
        "paper's key is both memories and both layouts; ours is all that a plan depends on (extents "
        "too), with nodes that look alike taken together."
    )
    head = [
        "application", "node", "paper", "paper's key", "our key", "iteration of the last new plan", "why",
    ]
    return report.Table("Plans (Table 6)", text, head, list(rows()))


def pair(counts: dict[str, Any]) -> str:
    return f"{counts['full']} / {counts['simple']}"


def held(runs: Runs) -> report.Table:
    def rows() -> Iterator[list[str]]:
        for app, cluster in (("pagerank", "xstream"), ("vgg16", "xstream"), ("circuit", "moonlight")):
            case = summary(runs, committed(cluster), app, baseline="store-and-forward")
            yield [app, mib(total(case["staging"])), mib(total(case["baseline"]["instances"]))]

    text = "The most that lay between hops in each memory, summed over all memories of the cluster."
    head = ["application", "our staging", "Realm's whole instances"]
    return report.Table("Intermediate buffers", text, head, list(rows()))


def options(runs: Runs) -> report.Table:
    """The planner's options for what is busy."""

    def rows() -> Iterator[list[str]]:
        for cluster, workload, only in (
            ("sapling", "micro", r"^SYS to SYS\*$"),
            ("sapling", "micro", r"^FBM to FBM\*$"),
            ("modern", "pagerank", None),
            ("modern", "kv", None),
            ("modern", "reshard", None),
        ):
            seconds = [
                runs.cases(
                    committed(cluster), workload, filter=only, summary=True,
                    present_load=load, paths=paths,
                )[0][COMMUNICATION]
                for load, paths in ((None, None), (True, None), (None, 2), (True, 2))
            ]
            name = f"{cluster}, {workload}" + (f", {only.strip('^$')}" if only else "")
            yield [name.replace("\\", ""), *(f"{1e3 * value:,.1f} ms" for value in seconds)]

    text = (
        "Communication where copies are planned one by one on an idle cluster; beside what is under "
        "way at their start; split over two disjoint paths; and both. Splitting without regard to the "
        "others takes from them what they use."
    )
    head = ["workload", "as idle", "--present-load", "--paths 2", "both"]
    return report.Table("Contention", text, head, list(rows()))


def mib(size: int) -> str:
    return f"{size / (1 << 20):,.0f} MiB"


if __name__ == "__main__":
    main()
