"""`sample`: a sample of a stream or of its window, as it is after each micro-batch. (DESIGN D7)"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from headrace.sampling import Sampler
from headrace.sampling.sampler_for import SampleMethod, default_method, sampler_for
from headrace.sampling.shard_operators import Quantities, ShardEstimate, ShardSample
from headrace.spark.dataframes import check_dataframe
from headrace.spark.sample_plan import sampled_sides, shard_seed
from headrace.windows import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class SampleSpec:
    """A sampler as it travels to the executors."""

    method: SampleMethod
    seed: int
    arguments: dict[str, Any]
    quantities: Quantities | None = None
    """what is estimated, in the place of the sample itself"""

    @property
    def name(self) -> str:
        """What reports call it."""
        return f"sample, {self.method}"

    def sampler(self, shard: int) -> Sampler:
        """The sampler of a shard."""
        return sampler_for(self.method, seed=shard_seed(self.seed, shard), **self.arguments)

    def open(self, shard: int) -> ShardSample | ShardEstimate:
        """The operator of a shard."""
        sampler = self.sampler(shard)
        return ShardSample(sampler) if self.quantities is None else ShardEstimate(sampler, self.quantities)


def sample(
    df: DataFrame,
    *,
    window: Window | None = None,
    size: int | None = None,
    memory: int | str | None = None,
    method: SampleMethod | None = None,
    seed: int = 0,
    batch_column: str | None = "batch",
    state: str | Path | None = None,
    workers: int | None = None,
) -> DataFrame:
    """Keep a sample of a stream or of its sliding window. Lazy; append mode.

    Each micro-batch gives the whole sample as it is then, and gives the same one if it is run again. One task has the sample.

    Parameters
    ----------
    df
        A stream; or a batch DataFrame, whose rows are taken as one micro-batch.
    window
        hr.rows(...) or hr.time(...); none for a sample of the whole stream. A window by time needs withWatermark on its column.
    size, memory
        One of: the rows of the sample; or bytes of an executor.
    method
        "fair", "expire", "winres", "fifo", "chain" or "reservoir", which needs no window; "fair" by default with a window, and
        "reservoir" without.
    seed
        Samples of different seeds are independent.
    batch_column
        The name of a last column with the number of the micro-batch; None for none.
    state
        Where the run log is kept; see `window_join`.
    workers
        Tasks that an executor runs at the same time; found out by default.
    """
    check_dataframe(df)
    sides = sampled_sides((df,), window, None, workers)
    method = method or default_method(window)
    arguments = {"size": size, "window": sides.shard_window, "memory": sides.worker_bytes(memory)}
    spec = SampleSpec(method=method, seed=seed, arguments=arguments)
    spec.sampler(0).insert(pa.RecordBatch.from_pylist([], sides.schemas[0]))  # refuses here what can be refused
    fields = StructType([StructField(f.name, f.dataType) for f in df.schema.fields])
    return sides.then(spec, fields, log="sample", memory=memory, state=state, batch_column=batch_column)
