"""Streaming sources in Java, compiled in the driver's JVM when they are first used.

Janino, the compiler that Spark has for its own generated code, compiles them. A source in Python would have Spark start Python
processes for planning, offsets and reading, of some 330 MiB together.
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

from py4j.java_gateway import JavaObject

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOADERS = "_headrace_class_loaders"


def jvm_stream(session: SparkSession, name: str, **options: str) -> DataFrame:
    """The streaming DataFrame of the source `name`, whose text is the file NAME.java."""
    jvm = session.sparkContext._jvm
    assert jvm is not None
    reader = session.readStream.format(f"headrace.{name}").options(**options)
    thread = jvm.java.lang.Thread.currentThread()
    before = thread.getContextClassLoader()
    thread.setContextClassLoader(class_loader(session, name))  # where Spark looks for the class of a format
    try:
        return reader.load()
    finally:
        thread.setContextClassLoader(before)


def class_loader(session: SparkSession, name: str) -> JavaObject:
    """The class loader that has the source, compiled once for a SparkContext."""
    context = session.sparkContext
    loaders: dict[str, JavaObject] = context.__dict__.setdefault(_LOADERS, {})
    if name not in loaders:
        jvm = context._jvm
        assert jvm is not None
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
        text = resources.files(__package__).joinpath(f"{name}.java")
        compiler.cook(text.read_text(encoding="utf-8"))  # files: our own source
        loaders[name] = compiler.getClassLoader()
    return loaders[name]
