"""`xml_fragments`: XML documents of a directory or of a column, as rows of fragments that match a twig. [PQP] §7.1.2"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from headrace.errors import BadInput, shown
from headrace.files import exists, is_directory
from headrace.paths import local_path
from headrace.spark.column_names import ColumnNames
from headrace.spark.fragments_task import FragmentsTask, task_letters
from headrace.spark.schemas import numbered, stream_schema
from headrace.xml import DocumentMatcher, Limits, Twig
from headrace.xml.documents import Partial
from headrace.xml.machine import MEMORY
from headrace.xml.twig import Pattern

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark's file source keeps the books of files it has seen. Its columns must be these; contents are not asked for, so not read.
_FILES = "path string, modificationTime timestamp, length bigint, content binary"


def xml_fragments(
    documents: DataFrame | str | Path,
    twig: Twig | str,
    *,
    column: str | None = None,
    keep: str | Sequence[str] = (),
    document: str | None = "document",
    streaming: bool = False,
    options: Mapping[str, object] | None = None,
    dead_letters: str | Path | None = None,
    partial: Partial = "drop",
    memory: int | str = MEMORY,
    limits: Limits | None = None,
    spark: SparkSession | None = None,
) -> DataFrame:
    """Match a twig with XML documents: a row for each fragment, with the twig's columns. Lazy; append mode.

    One task reads a document from its beginning to its end, so nothing is lost where a file is split. A file is read in chunks
    and never held whole. Documents compressed with gzip or zstd are known by their first bytes.

    Parameters
    ----------
    documents
        A directory of documents, with those in directories below it, that the driver and all executors see under the same path;
        or a streaming or batch DataFrame that has documents in a column.
    twig
        A Twig, or its path.
    column
        Of a DataFrame: the column of documents, text or binary; the only one of these types by default. Null is no document.
    keep
        Of a DataFrame: columns that each fragment of a document gets, after the twig's.
    document
        Of a directory: the name of a last column with the path of the document's file; None for none.
    streaming
        Of a directory: whether documents are read as they appear, micro-batch by micro-batch, or those that are there now.
    options
        Of a directory: options of Spark's file sources, such as `{"pathGlobFilter": "*.xml.gz", "maxFilesPerTrigger": 100}`.
    dead_letters
        A directory for documents that are not well-formed, or cannot be decompressed. Without one such a document fails the
        query with IllFormed, which names file, line and column.
    partial
        "drop": a document that is not well-formed gives no fragment, so that it can be mended and come again; documents with more
        than some megabytes of fragments are read twice for it. "keep": it gives those that ended before the error.
    memory, limits
        Of a task, which has one document at a time: what the open elements of a document may take; see headrace.xml.
    spark
        For a directory: the session; the active one by default.
    """
    twig = Twig(twig) if isinstance(twig, str) else twig
    if not isinstance(twig, Twig):
        raise BadInput(
            f"twig={shown(twig)} is not a twig; give a path such as '//item[id][name]', or a headrace.xml.Twig"
        )
    return match_documents(
        documents,
        twig,
        column=column,
        keep=keep,
        document=document,
        streaming=streaming,
        options=options,
        dead_letters=dead_letters,
        partial=partial,
        memory=memory,
        limits=limits,
        spark=spark,
    )


def match_documents(
    documents: DataFrame | str | Path,
    twig: Pattern,
    *,
    column: str | None,
    keep: str | Sequence[str],
    document: str | None,
    streaming: bool,
    options: Mapping[str, object] | None,
    dead_letters: str | Path | None,
    partial: Partial,
    memory: int | str,
    limits: Limits | None,
    spark: SparkSession | None,
) -> DataFrame:
    """Match any pattern with XML documents: a row for each of its matches. The parameters are those of `xml_fragments`."""
    of_files = not isinstance(documents, DataFrame)
    if of_files:
        if column is not None or keep:
            raise BadInput(
                "column= and keep= are for a DataFrame of documents; document= names the column of a directory's paths"
            )
        df = _listed(documents, spark, streaming, options or {}, document)
        kept = df.columns[1:]
    else:
        for name, given in (("streaming", streaming), ("options", options), ("spark", spark)):
            if given:
                raise BadInput(f"{name}= is for a directory of documents; a DataFrame has its own")
        df, kept = _chosen(documents, column, [keep] if isinstance(keep, str) else list(keep))
    fields = StructType([*_pattern_fields(twig), *df.schema.fields[1:]])
    names = ColumnNames.of(df.sparkSession)
    for name in kept:
        if names.taken(name, twig.schema.names):
            instead = "document= gives it another name" if of_files else "rename it before"
            raise BadInput(f"column {name!r} would be beside that of the twig {twig.path}; {instead}")
    task = FragmentsTask(
        twig=twig,
        kept=tuple(kept),
        files=of_files,
        text=isinstance(df.schema.fields[0].dataType, StringType),
        partial=partial,
        memory=memory,
        limits=limits,
    )
    DocumentMatcher(twig, partial=partial, memory=memory, limits=limits)  # refuses here what can be refused
    directory = None if dead_letters is None else str(local_path(dead_letters, "dead_letters"))
    operator = uuid.uuid4().hex[:8]  # two operators of one query have files of their own

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return task.run(batches, None if directory is None else task_letters(directory, operator))

    plain = df.toDF(*numbered(df.schema).names)
    return plain.mapInArrow(run, numbered(fields)).toDF(*fields.names)


def _pattern_fields(twig: Pattern) -> list[StructField]:
    return [StructField(f.name, LongType() if pa.types.is_int64(f.type) else StringType()) for f in twig.schema]


def _listed(
    path: str | Path, spark: SparkSession | None, streaming: bool, options: Mapping[str, object], document: str | None
) -> DataFrame:
    """The paths of a directory's files, and once more as the column that is kept."""
    from pyspark.sql import SparkSession

    if not isinstance(path, str | Path):
        raise BadInput(f"documents={shown(path)} is neither a DataFrame nor the path of a directory")
    directory = local_path(path, "documents")
    if not is_directory(directory):
        found = "a file" if exists(directory) else "nothing"
        raise BadInput(f"found {found} at {str(directory)!r}, expected a directory of documents")
    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise BadInput("there is no active Spark session; give spark=...")
    reader = session.readStream if streaming else session.read
    reader = reader.format("binaryFile").schema(_FILES).option("recursiveFileLookup", "true")
    # Spark takes a path for a pattern.
    pattern = re.sub(r"([\\{}\[\]*?])", r"\\\1", f"file:{directory}")
    files = reader.options(**options).load(pattern).select(fn.regexp_replace("path", "^file:/+", "/").alias("path"))
    return files if document is None else files.select("path", fn.col("path").alias(document))


def _chosen(df: DataFrame, column: str | None, keep: list[str]) -> tuple[DataFrame, list[str]]:
    """The column of documents of a DataFrame, and those that are kept."""
    names = ColumnNames.of(df.sparkSession)
    types = {field.name: field.dataType for field in df.schema.fields}
    fit = [name for name, type_ in types.items() if isinstance(type_, StringType | BinaryType)]
    if column is None:
        if len(fit) != 1:
            raise BadInput(f"column= must name the column of documents; text or binary are {', '.join(fit) or 'none'}")
        column = fit[0]
    found = [names.resolve(name, types) for name in (column, *keep)]
    for name in found:
        if name not in types:
            raise BadInput(f"there is no column {shown(name)}; the DataFrame has {', '.join(types)}")
    if found[0] not in fit:
        raise BadInput(f"column={found[0]!r} has type {types[found[0]].simpleString()}; documents are text or binary")
    chosen = df.select(*(f"`{name.replace('`', '``')}`" for name in found))
    stream_schema(chosen.schema)  # refuses a type that Arrow does not have
    return chosen, found[1:]
