"""The report: a self-contained page with figures, Markdown without, and all values as JSON."""

from __future__ import annotations

import html
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claims import Claim

INTRODUCTION = (
    "Every value of ours is simulated: the planner and the engine as they ship, in virtual time, on "
    "clusters that the paper describes (clusters/). What the paper does not give (the shape of curves, "
    "capacities, the applications' sizes) is assumed, and was written down before the first "
    "comparison. The range says what becomes of our value when each assumed curve of the cluster is "
    "halved and doubled, one at a time; where `why` names another number that the paper does not give, "
    "such as a size, also with another one. The paper's figures are those of its words and tables."
)


@dataclass(frozen=True)
class Answer:
    """A claim, our value, and its range with the curves that it comes from."""

    claim: Claim
    value: float
    low: tuple[float, str]
    high: tuple[float, str]

    @property
    def verdict(self) -> str:
        least, most = self.claim.says
        if least <= self.value <= most:
            return "reproduced"
        overlaps = self.low[0] <= most and least <= self.high[0]
        return "within the range" if overlaps else "not reproduced"

    def row(self) -> list[str]:
        unit = self.claim.unit
        text = f"{number(self.low[0])} – {number(self.high[0])}"
        ours = f"{number(self.value)} {unit}"
        return [
            self.claim.section, self.claim.what, self.claim.paper, ours, text, self.verdict,
            self.claim.why,
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            "section": self.claim.section, "what": self.claim.what, "paper": self.claim.paper,
            "cluster": self.claim.cluster, "unit": self.claim.unit, "ours": self.value,
            "low": {"value": self.low[0], "curve": self.low[1]},
            "high": {"value": self.high[0], "curve": self.high[1]},
            "verdict": self.verdict, "why": self.claim.why,
        }


HEAD = ["section", "claim", "paper", "ours, simulated", "range", "verdict", "why"]


@dataclass(frozen=True)
class Table:
    """A table with a title and what is said of it."""

    title: str
    text: str
    head: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        lines = [self.head, ["---"] * len(self.head), *self.rows]
        table = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
        return f"## {self.title}\n\n{self.text}\n\n{table}\n"

    def html(self) -> str:
        def row(cells: list[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

        body = "\n".join(row(cells, "td") for cells in self.rows)
        title, text = html.escape(self.title), html.escape(self.text)
        return (
            f"<h2>{title}</h2><p>{text}</p><table><thead>{row(self.head, 'th')}</thead>"
            f"<tbody>{body}</tbody></table>"
        )


def number(value: float) -> str:
    """Three significant digits, thousands in full."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-size: 13px; }
th, td { border: 1px solid #ccc; padding: .25rem .5rem; text-align: left; vertical-align: top; }
figure { margin: 2rem 0; } figure svg { max-width: 100%; height: auto; }
"""


def write(
    out: Path, answers: list[Answer], tables: list[Table], figures: list[tuple[str, str, Path]]
) -> None:
    claims = Table("The paper's claims", INTRODUCTION, HEAD, [a.row() for a in answers])
    sections = [claims, *tables]
    title = "Isometry: the paper's evaluation, simulated"
    markdown = "\n".join(section.markdown() for section in sections)
    (out / "report.md").write_text(f"# {title}\n\n{markdown}")
    drawn = "\n".join(
        f"<figure>{inline(path)}<figcaption>{html.escape(text)}</figcaption></figure>"
        for _, text, path in figures
    )
    page = "\n".join(section.html() for section in sections)
    (out / "report.html").write_text(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style></head><body><h1>{title}</h1>{page}{drawn}</body></html>\n"
    )
    values = {
        "claims": [answer.to_json() for answer in answers],
        "tables": [{"title": t.title, "head": t.head, "rows": t.rows} for t in tables],
    }
    (out / "report.json").write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n")


def inline(path: Path) -> str:
    """The picture without what stands before its element."""
    text = path.read_text()
    return text[text.index("<svg") :]
