"""Documents of blog entries that share authors, joined by MultiWayJoin: how often each way of probing probes. [PQP] §7.2.6"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headrace.progressive import MultiWayJoin
from headrace.xml import Twig

AUTHORS = 10_000
PARTS = (1.0, 0.8, 0.6, 0.4, 0.1)  # of the authors, the part that each document has
PAGE = 31  # fragments of a document that come together, Table 7.1
_TWIG = Twig("//entry[author][title]")


def blog(part: float, rng: np.random.Generator) -> bytes:
    """A document with an entry by each of some authors, in a random order."""
    authors = rng.permutation(np.flatnonzero(rng.random(AUTHORS) < part)).tolist()
    entries = "".join(f"<entry><author>author {a}</author><title>about {a % 97}</title></entry>\n" for a in authors)
    return f"<blog>\n{entries}</blog>".encode()


def probes(probing: Any) -> int:
    """Join the documents; return the number of probes."""
    rng = np.random.default_rng(12)
    fragments = [
        pa.Table.from_batches(_TWIG.fragments([blog(part, rng)])).select(["author", "title"]).combine_chunks()
        for part in PARTS
    ]
    pages = [page for n, table in enumerate(fragments) for page in [n] * -(-table.num_rows // PAGE)]
    op = MultiWayJoin("author", len(PARTS), "64MiB", probing, selectivity=PARTS if probing == "apriori" else None)
    at = [0] * len(PARTS)
    for n in rng.permutation(pages).tolist():
        for batch in fragments[n].slice(at[n], PAGE).to_batches():
            for _ in op.insert(n, batch):
                pass
        at[n] += PAGE
    return int(op.stats.probes.sum())
