"""The report as one HTML file that needs no server and no network: tables, figures, captions."""

from __future__ import annotations

import html
from pathlib import Path

from evolver.disk import on_disk
from evolver.figures import save_png
from evolver.figures.run import figures
from evolver.report import report
from evolver.store import Store
from evolver.tables import Report, Table

STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1200px; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: 0.9rem; }
th, td { text-align: left; padding: 0.3rem 0.8rem 0.3rem 0; border-bottom: 1px solid #ddd; vertical-align: top; }
.right { text-align: right; font-variant-numeric: tabular-nums; }
.caption { color: #555; font-size: 0.9rem; max-width: 60rem; }
figure { margin: 1rem 0; }
"""


def write_page(store: Store) -> Path:
    """Writes RUN/report.html anew and returns its path. Raises `UsageError` for a full disk; the old page stays."""
    path = store.path / "report.html"
    half = path.with_suffix(".html.part")
    try:
        with on_disk(path):
            half.write_text(page(store), encoding="utf-8")
            half.replace(path)
    finally:
        half.unlink(missing_ok=True)
    return path


def page(store: Store) -> str:
    shown = report(store)
    lines = "".join(f"<li>{html.escape(line)}</li>" for line in shown.lines)
    body = f"<h1>{html.escape(shown.title)}</h1><ul>{lines}</ul>{_figures(store)}{_tables(shown)}"
    title = html.escape(shown.title)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>{body}</body></html>\n'
    )


def save_pictures(store: Store, folder: Path) -> list[Path]:
    """Writes each figure as a PNG file and returns their paths. Raises `NotReady` without Chromium."""
    folder.mkdir(parents=True, exist_ok=True)
    saved = []
    for shown in figures(store):
        saved.append(folder / f"{shown.name}.png")
        save_png(shown.figure, saved[-1])
    return saved


def _figures(store: Store) -> str:
    return "".join(
        f"<figure>{shown.figure.to_html(full_html=False, include_plotlyjs='inline' if first == 0 else False)}"
        f'<figcaption class="caption">{html.escape(shown.caption)}</figcaption></figure>'
        for first, shown in enumerate(figures(store))
    )


def _tables(shown: Report) -> str:
    return "".join(_table(table) for table in shown.tables)


def _table(table: Table) -> str:
    sides = ['class="right"' if column in table.right else "" for column in table.columns]
    head = "".join(f"<th {side}>{html.escape(c)}</th>" for c, side in zip(table.columns, sides, strict=True))
    rows = "".join(
        "<tr>" + "".join(f"<td {s}>{html.escape(cell)}</td>" for cell, s in zip(row, sides, strict=True)) + "</tr>"
        for row in table.rows
    )
    cells = f'<div class="scroll"><table><tr>{head}</tr>{rows}</table></div>' if table.rows else "<p>Nothing yet.</p>"
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in table.notes)
    under = f'<p class="caption">{html.escape(table.caption)}</p><ul class="caption">{notes}</ul>'
    return f"<h2>{html.escape(table.title)}</h2>{cells}{under}"
