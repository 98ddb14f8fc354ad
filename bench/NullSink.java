import io.debezium.embedded.async.ConvertingAsyncEngineBuilderFactory;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.DebeziumEngine.RecordCommitter;
import io.debezium.engine.format.Json;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Properties;

/**
 * Debezium's engine as Debezium Server builds it (JSON, the asynchronous engine), with a sink that acknowledges each
 * event and forgets it.
 *
 * <p>`java -cp JARS NullSink.java FILE COUNT` reads COUNT events with the properties in FILE and prints one line of
 * JSON: the seconds and CPU seconds from the first event to the last, and those of the second half alone.
 */
public class NullSink implements DebeziumEngine.ChangeConsumer<ChangeEvent<String, String>> {
    private record Moment(long events, long wall, long cpu) {
        static Moment at(long events) {
            var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
            return new Moment(events, System.nanoTime(), system.getProcessCpuTime());
        }

        String until(Moment end) {
            return String.format(
                    "{\"events\": %d, \"wall\": %.6f, \"cpu\": %.6f}",
                    end.events - events, (end.wall - wall) / 1e9, (end.cpu - cpu) / 1e9);
        }
    }

    private final long wanted;
    private long seen;
    private long bytes;
    private Moment first;
    private Moment half;

    NullSink(long wanted) {
        this.wanted = wanted;
    }

    @Override
    public void handleBatch(
            List<ChangeEvent<String, String>> events, RecordCommitter<ChangeEvent<String, String>> committer)
            throws InterruptedException {
        if (first == null) {
            first = Moment.at(0);
        }
        for (var event : events) {
            bytes += event.value().length();
            committer.markProcessed(event);
        }
        committer.markBatchFinished();
        seen += events.size();
        if (half == null && seen >= wanted / 2) {
            half = Moment.at(seen);
        }
        if (seen >= wanted) {
            var last = Moment.at(seen);
            System.out.printf(
                    "{\"all\": %s, \"second_half\": %s, \"characters\": %d}%n", first.until(last), half.until(last), bytes);
            System.out.flush();
            // What the engine does when it is closed is not measured, and it waits long before it does it.
            Runtime.getRuntime().halt(0);
        }
    }

    public static void main(String[] arguments) throws Exception {
        var properties = new Properties();
        try (var file = Files.newBufferedReader(Path.of(arguments[0]))) {
            properties.load(file);
        }
        var json = Json.class;
        var engine = DebeziumEngine.create(json, json, json, ConvertingAsyncEngineBuilderFactory.class.getName())
                .using(properties)
                .using((success, message, error) -> {
                    System.err.println(message);
                    if (error != null) {
                        error.printStackTrace();
                    }
                })
                .notifying(new NullSink(Long.parseLong(arguments[1])))
                .build();
        engine.run();
        System.exit(1);
    }
}
