#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of scale.md from `spillway plan --published all --json`: record_scale.py all.json docs/scale.md. A table
stands between <!-- NAME --> and <!-- end -->; NAME is a group of runs, or "errors"."""
import json, pathlib, re, statistics, sys

runs = json.loads(pathlib.Path(sys.argv[1]).read_text())["runs"]
page = pathlib.Path(sys.argv[2])

def tflops(run: dict, of: str) -> float | None:
    return run[of].get("tflops_per_device")

def published(run: dict) -> str:
    low, high = run["published"]
    return "–" if low == 0 else f"at least {low:g}" if high >= 1000 else f"{low:.4g}" if low == high else f"{low:g} to {high:g}"

def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"

def error(run: dict) -> str:
    known = run["published"][0] > 0 and tflops(run, "predicted") is not None
    return f"{100 * run['error']:+.1f} %".replace("-", "−") if known else "–"

def longest_wait(run: dict) -> str:
    parts = {q: s for q, s in run["predicted"].get("of_step", {}).items() if q != "compute" and s > 0}
    if not parts:
        return "–"
    queue = max(parts, key=parts.get)
    return f"{queue} {100 * parts[queue] / run['predicted']['step_seconds']:.0f} %"

def rows(group: str) -> list[str]:
    out = ["| Run | Published | Predicted | Error | Ours | Longest wait |", "|---|---|---|---|---|---|"]
    for run in runs:
        if run["group"] == group and (tflops(run, "predicted") or tflops(run, "ours")):
            judged = "" if run["judge"] == "informative" else f" ({run['judge']})"
            out.append(f"| {run['id']}{judged} | {published(run)} | {number(tflops(run, 'predicted'))} | {error(run)} | "
                       f"{number(tflops(run, 'ours'))} | {longest_wait(run)} |")
    return out

def by_micro_batch(group: str) -> list[str]:
    """Runs whose ids differ by -mbN share a row."""
    series = {}
    for run in runs:
        if run["group"] == group:
            name, size = re.fullmatch(r"(.*)-mb(\d+)", run["id"]).groups()
            series.setdefault(name, {})[int(size)] = run
    sizes = sorted({size for of in series.values() for size in of})
    out = ["| Model, devices, tokens | " + " | ".join(f"micro-batch {n}" for n in sizes) + " |", "|---" * (len(sizes) + 1) + "|"]
    cell = lambda r: f"{r['published'][0]:.0f}: {error(r)}; {number(tflops(r, 'ours'))}"
    for name, of in series.items():
        out.append(f"| {name.removeprefix('azure-')} | " + " | ".join(cell(of[n]) if n in of else "" for n in sizes) + " |")
    return out

def errors() -> list[str]:
    out = ["| Group | Judged runs | Median error | Worst | Ours over predicted, median |", "|---|---|---|---|---|"]
    for group in dict.fromkeys(run["group"] for run in runs):
        judged = [r for r in runs if r["group"] == group and r["judge"] == "judged" and tflops(r, "predicted")]
        both = [tflops(r, "ours") / tflops(r, "predicted") for r in judged if tflops(r, "ours")]
        if judged:
            off = [100 * abs(r["error"]) for r in judged]
            out.append(f"| `{group}` | {len(judged)} | {statistics.median(off):.1f} % | {max(off):.1f} % | "
                       f"{f'{statistics.median(both):.2f} of {len(both)}' if both else '–'} |")
    return out

def table(name: str) -> str:
    made = errors() if name == "errors" else by_micro_batch(name) if name == "azure-a100" else rows(name)
    return f"<!-- {name} -->\n" + "\n".join(made) + "\n<!-- end -->"

page.write_text(re.sub(r"<!-- (\S+) -->\n.*?<!-- end -->", lambda m: table(m[1]), page.read_text(), flags=re.S))
