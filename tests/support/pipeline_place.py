"""A directory with a pipeline file, what it reads and what it writes."""

import json
from pathlib import Path
from textwrap import dedent

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

import headrace as hr
from headrace.clock import SystemClock
from headrace.pipeline.check import check_pipeline
from headrace.pipeline.models import Pipeline
from headrace.pipeline.read import read_pipeline
from headrace.pipeline.run import PipelineResult, PipelineStatus, run
from headrace.signals import GracefulStop

SALES = """
name = "sales"
every = "10ms"

[source]
format = "json"
path = "incoming"

[source.columns]
sale = "long"
product_id = "long"
quantity = "int"

[[step]]
enrich = "products.rel"
on = "product_id"
memory = "4MiB"

[sink]
format = "delta"
path = "warehouse"
"""
SCHEMA = pa.schema({"sale": pa.int64(), "product_id": pa.int64(), "quantity": pa.int32()})
PRODUCTS = pa.table({"product_id": pa.array(range(50), pa.int64()), "price": pa.array([7 * i for i in range(50)])})


class Place:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.file = root / "sales.toml"
        (root / "incoming").mkdir()
        self.write(SALES)

    def write(self, text: str, *changes: tuple[str, str]) -> Path:
        for old, new in changes:
            assert old in text, old
            text = text.replace(old, new)
        self.file.write_text(dedent(text))
        return self.file

    def products(self) -> hr.Relation:
        return hr.Relation.create(self.root / "products.rel", PRODUCTS, key="product_id", overwrite=True)

    def arrive(self, name: str, *lines: object) -> None:
        """A file of records: texts as they are, dictionaries as JSON."""
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        draft = self.root / f"incoming/.{name}"
        draft.write_text("\n".join(texts) + "\n")
        draft.rename(self.root / "incoming" / name)

    def read(self, **environment: str) -> Pipeline:
        return read_pipeline(self.file, environment)

    def check(self, **environment: str):
        return check_pipeline(self.read(**environment))

    def run(self, spark, *, clock=None, watch=None, stopping=None, once=True, **environment: str) -> PipelineResult:
        with stopping or GracefulStop() as stop:
            return run(
                self.read(**environment),
                spark,
                once=once,
                watch=watch or _ignore,
                clock=clock or SystemClock(),
                stopping=stop,
            )

    def loaded(self) -> list[dict]:
        return sorted(DeltaTable(self.root / "warehouse").to_pyarrow_table().to_pylist(), key=str)

    def dead(self) -> list[dict]:
        folder = self.root / "sales.state/dead-letters"
        files = folder.glob("batch=*/part-*.parquet")
        return sorted((row for file in files for row in pq.read_table(file).to_pylist()), key=lambda d: d["record"])


def _ignore(status: PipelineStatus) -> None:
    pass


def sale(number: int, product: int | None = None, quantity: int = 1) -> dict:
    return {"sale": number, "product_id": number % 40 if product is None else product, "quantity": quantity}


def joined(row: dict) -> dict:
    return row | {"price": 7 * row["product_id"]}
