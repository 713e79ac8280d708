/*
 * A streaming source of a single row, inside the JVM: what a batch DataFrame is joined with to come into a stream once.
 * source.py has Janino compile this text in the driver; executors make the row with classes of Spark's.
 */
package headrace;

import java.util.Collections;
import java.util.Map;
import java.util.Set;

import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.execution.streaming.sources.RatePerMicroBatchStreamInputPartition;
import org.apache.spark.sql.execution.streaming.sources.RatePerMicroBatchStreamReaderFactory$;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The format "headrace.Once". It has no state of its own, so one class is provider, table and scan. */
public final class Once implements TableProvider, SupportsRead, ScanBuilder, Scan {
  private static final StructType SCHEMA =
      new StructType().add("timestamp", DataTypes.TimestampType).add("value", DataTypes.LongType);

  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return SCHEMA;
  }

  public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
    return this;
  }

  public String name() {
    return "once";
  }

  public StructType schema() {
    return SCHEMA;
  }

  public Set capabilities() {
    return Collections.singleton(TableCapability.MICRO_BATCH_READ);
  }

  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return this;
  }

  public Scan build() {
    return this;
  }

  public StructType readSchema() {
    return SCHEMA;
  }

  public String description() {
    return "once";
  }

  public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
    return new OnceStream();
  }
}

/** One row in the first micro-batch of a query, and never again: its checkpoint knows. */
final class OnceStream implements MicroBatchStream, SupportsTriggerAvailableNow {
  public Offset initialOffset() {
    return new Sent(0);
  }

  public Offset latestOffset() {
    return new Sent(1);
  }

  public Offset latestOffset(Offset start, ReadLimit limit) {
    return new Sent(1);
  }

  public void prepareForTriggerAvailableNow() {}

  public Offset deserializeOffset(String json) {
    return new Sent(json.contains("1") ? 1 : 0);
  }

  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    return new InputPartition[] {new RatePerMicroBatchStreamInputPartition(0, 1, 0L, 0L, 1L, 0L)};
  }

  public PartitionReaderFactory createReaderFactory() {
    return RatePerMicroBatchStreamReaderFactory$.MODULE$;
  }

  public void commit(Offset end) {}

  public void stop() {}
}

final class Sent extends Offset {
  private final int rows;

  Sent(int rows) {
    this.rows = rows;
  }

  public String json() {
    return "{\"sent\": " + rows + "}";
  }
}
