#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of scale.md from the output of `spillway plan --published all`:
record_scale.py published.txt share/published.json docs/scale.md. A table stands between
<!-- NAME --> and <!-- end -->; NAME is a group of runs, or "errors"."""
import json, pathlib, re, statistics, sys

text, shared, page = map(pathlib.Path, sys.argv[1:])
facts = {run["id"]: run for run in json.loads(shared.read_text())["runs"]}
row = re.compile(r"(\S+) +((?:>= )?\S+) +(\S+) +(\S+) +(\S+) +(\S+) *(met|MISSED|) *")

def read() -> list[dict]:
    out = []
    for line in text.read_text().splitlines():
        found = row.fullmatch(line)
        of = found and next((id for id in (found[1], re.sub(r"-[\d.]+B$", "", found[1])) if id in facts), None)
        if of: # a run with a range of sizes has a row for each end
            names = ("id", "published", "predicted", "error", "ours", "bound", "verdict")
            out.append(facts[of] | dict(zip(names, (x.replace("-", "–") if x == "-" else x for x in found.groups()))))
            out[-1]["published"] = out[-1]["published"].replace(">=", "at least")
            out[-1]["error"] = out[-1]["error"].replace("-", "−").replace("%", " %")
    return out

runs = read()

def known(run: dict, of: str) -> float | None:
    return None if run[of] == "–" else float(run[of])

def rows(group: str) -> list[str]:
    out = ["| Run | Published | Predicted | Error | Ours | Bound |", "|---|---|---|---|---|---|"]
    for run in runs:
        if run["group"] == group and (known(run, "predicted") or known(run, "ours")):
            judged = "" if run["judge"] == "informative" else f" ({run['judge']})"
            out.append(f"| {run['id']}{judged} | {run['published']} | {run['predicted']} | {run['error']} | {run['ours']} | {run['bound']} |")
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
    cell = lambda r: f"{float(r['published']):.0f}: {r['error']}; {r['ours']}"
    for name, of in series.items():
        out.append(f"| {name.removeprefix('azure-')} | " + " | ".join(cell(of[n]) if n in of else "" for n in sizes) + " |")
    return out

one = r"median error +([\d.]+)%.*worst +([\d.]+)%"
of_groups = re.findall(rf"^(\S+) +{one} of.*(?:\n +{one} by a formula)?", text.read_text(), flags=re.M)

def errors(_: str) -> list[str]:
    out = ["| Group | Judged runs | Median error | Worst | Both by a formula | Ours over predicted, median |", "|---|---|---|---|---|---|"]
    for group, median, worst, *formula in of_groups:
        judged = [r for r in runs if r["group"] == group and r["judge"] == "judged" and known(r, "predicted")]
        both = [known(r, "ours") / known(r, "predicted") for r in judged if known(r, "ours")]
        ours = f"{statistics.median(both):.2f}, of {len(both)}" if both else "–"
        also = f"{formula[0]} %, {formula[1]} %" if formula[0] else "–"
        out.append(f"| `{group}` | {len(judged)} | {median} % | {worst} % | {also} | {ours} |")
    return out

def table(name: str) -> str:
    make = {"errors": errors, "azure-a100": by_micro_batch}.get(name, rows)
    return f"<!-- {name} -->\n" + "\n".join(make(name)) + "\n<!-- end -->"

page.write_text(re.sub(r"<!-- (\S+) -->\n.*?<!-- end -->", lambda m: table(m[1]), page.read_text(), flags=re.S))
