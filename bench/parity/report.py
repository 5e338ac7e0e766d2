from __future__ import annotations
from collections import Counter
BEGIN="<!-- parity: {scope} -->"; END="<!-- /parity -->"
def told(found, scope, asked, seconds):
    c=Counter(o.status for o in found)
    fam=len({o.family for o in found if o.counts})
    tot=Counter()
    for o in found: tot.update(o.counts)
    lines=[f"{len(found)} of {asked} begun, {fam} families compared, {seconds:.0f} s: {dict(c)}", str(dict(tot))]
    for o in found:
        if o.status not in ("same",):
            lines.append(f"{o.status}: {o.name} ({o.family}, shots {o.shots}): {o.said[:300]} [{len(o.differences)}]")
            lines+= ["    "+d for d in o.differences[:4]]
    return "\n".join(lines)
def block(*a): return ""
