/*
 * A streaming source that ticks, inside the JVM: without data Spark runs no micro-batch, and rows that wait could not leave.
 *
 * source.py has Janino compile this text in the driver. It runs there alone: executors make the rows with classes of Spark's.
 * Janino knows neither lambdas nor most of generics, so there are none here.
 */
package headrace;

import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.time.Clock;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
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

/** The format "headrace.Heartbeat": the column `value` has the number of every shard with every tick. */
public final class Heartbeat implements TableProvider {
  static final StructType SCHEMA =
      new StructType().add("timestamp", DataTypes.TimestampType).add("value", DataTypes.LongType);

  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return SCHEMA;
  }

  public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
    return new HeartbeatTable();
  }
}

final class HeartbeatTable implements SupportsRead {
  public String name() {
    return "heartbeat";
  }

  public StructType schema() {
    return Heartbeat.SCHEMA;
  }

  public Set capabilities() {
    return Collections.singleton(TableCapability.MICRO_BATCH_READ);
  }

  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return new HeartbeatScan(options);
  }
}

final class HeartbeatScan implements ScanBuilder, Scan {
  private final CaseInsensitiveStringMap options;

  HeartbeatScan(CaseInsensitiveStringMap options) {
    this.options = options;
  }

  public Scan build() {
    return this;
  }

  public StructType readSchema() {
    return Heartbeat.SCHEMA;
  }

  public String description() {
    return "heartbeat";
  }

  public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
    return new HeartbeatStream(
        Long.parseLong(options.get("shards")),
        Double.parseDouble(options.get("period")),
        options.get("directory"),
        options.get("log"),
        Clock.systemUTC());
  }
}

/**
 * The ticks of one run of a query. A run begins with one. More follow, a period after the other: always, or, where tasks note
 * what they owe, while a task of this run has noted so. A run that ends by itself has its first tick, and others only while
 * something is owed, without a pause. An offset is the number of periods since 1970, or one more than the last offset.
 */
public final class HeartbeatStream implements MicroBatchStream, SupportsTriggerAvailableNow {
  private final long shards;
  private final double period;
  private final String directory;
  private final String log;
  private final Clock clock;
  /* Notes of other runs: a query that was given up may have left some, and is not waited for. */
  private final Map before;
  private boolean ends = false;
  private boolean begun = false;

  public HeartbeatStream(long shards, double period, String directory, String log, Clock clock) {
    this.shards = shards;
    this.period = period;
    this.directory = directory;
    this.log = log;
    this.clock = clock;
    this.before = notes();
  }

  public Offset initialOffset() {
    return new Tick(0);
  }

  public Offset latestOffset() {
    throw new UnsupportedOperationException("latestOffset(Offset, ReadLimit) is to be called");
  }

  public Offset latestOffset(Offset start, ReadLimit limit) {
    long last = ((Tick) start).number;
    long now = (long) (clock.millis() / 1000.0 / period);
    if (!begun) {
      begun = true;
      return new Tick(Math.max(last + 1, now));
    }
    if (ends) {
      return owes() ? new Tick(last + 1) : start;
    }
    // Never an earlier one, should the clock be set back.
    return now > last && (directory == null || owes()) ? new Tick(now) : start;
  }

  public void prepareForTriggerAvailableNow() {
    ends = true;
  }

  public Offset deserializeOffset(String json) {
    String digits = json.replaceAll("[^0-9]", "");
    if (!json.contains("tick") || digits.isEmpty()) {
      throw new IllegalArgumentException(
          "the checkpoint's offset " + json + " is not one of a heartbeat; begin anew with another checkpoint and state directory");
    }
    return new Tick(Long.parseLong(digits));
  }

  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    return new InputPartition[] {new RatePerMicroBatchStreamInputPartition(0, 1, 0L, 0L, shards, 0L)};
  }

  public PartitionReaderFactory createReaderFactory() {
    return RatePerMicroBatchStreamReaderFactory$.MODULE$;
  }

  public void commit(Offset end) {}

  public void stop() {}

  private boolean owes() {
    for (Iterator each = notes().entrySet().iterator(); each.hasNext(); ) {
      Map.Entry note = (Map.Entry) each.next();
      if (!Arrays.equals((byte[]) note.getValue(), (byte[]) before.get(note.getKey()))) {
        return true;
      }
    }
    return false;
  }

  /* The notes of tasks that owe something, of every query that keeps this log: DIRECTORY/query/LOG/owed/shard-0000. */
  private Map notes() {
    Map found = new HashMap();
    if (directory != null) {
      try {
        for (Iterator each = list(Paths.get(directory), "*"); each.hasNext(); ) {
          Path owed = ((Path) each.next()).resolve(log).resolve("owed");
          for (Iterator files = list(owed, "shard-*"); files.hasNext(); ) {
            Path file = (Path) files.next();
            try {
              // Compared alone: a damaged one makes a tick too many, and is written again.
              found.put(file, Files.readAllBytes(file));
            } catch (NoSuchFileException gone) {
              // a task has just paid what it owed
            }
          }
        }
      } catch (IOException error) {
        throw new RuntimeException(error);
      }
    }
    return found;
  }

  private static Iterator list(Path directory, String names) throws IOException {
    List paths = new ArrayList();
    DirectoryStream stream = null;
    try {
      stream = Files.newDirectoryStream(directory, names);
      for (Iterator each = stream.iterator(); each.hasNext(); ) {
        paths.add(each.next());
      }
    } catch (NoSuchFileException none) {
      // nobody has noted anything yet
    } catch (NotDirectoryException file) {
      // a file beside the logs
    } finally {
      if (stream != null) {
        stream.close();
      }
    }
    return paths.iterator();
  }
}

final class Tick extends Offset {
  final long number;

  Tick(long number) {
    this.number = number;
  }

  public String json() {
    return "{\"tick\": " + number + "}";
  }
}
