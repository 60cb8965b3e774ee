// RabbitMQ's stream client for Java doing what walks.py asks for: README.md has what it prints.

import com.rabbitmq.stream.Consumer;
import com.rabbitmq.stream.ConsumerBuilder;
import com.rabbitmq.stream.Environment;
import com.rabbitmq.stream.NoOffsetException;
import com.rabbitmq.stream.OffsetSpecification;
import com.rabbitmq.stream.StreamStats;
import com.rabbitmq.stream.impl.Client;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.function.UnaryOperator;
import java.util.stream.Collectors;

// Reads the streams in every way. Where it stores offsets itself, the client's checks are off: they store 0 for consumers
// that have stored nothing yet.
public final class Walk {
    private final Place place;
    private final String prefix;
    private final int count;
    private final Environment environment;

    private Walk(Place place, Environment environment) {
        this.place = place;
        prefix = place.prefix;
        count = place.count;
        this.environment = environment;
    }

    private record Taken(long offset, String text) {}

    private static String summary(List<Taken> taken) throws Exception {
        MessageDigest hash = MessageDigest.getInstance("SHA-256");
        for (Taken one : taken) {
            hash.update((one.offset + " " + one.text + "\n").getBytes(StandardCharsets.UTF_8));
        }
        long first = taken.get(0).offset;
        long last = taken.get(taken.size() - 1).offset;
        return taken.size() + " " + first + " " + last + " " + HexFormat.of().formatHex(hash.digest());
    }

    // Takes messages until there are so many, and those that come before it is closed.
    private List<Taken> take(Environment where, int wanted, UnaryOperator<ConsumerBuilder> made) throws Exception {
        List<Taken> taken = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch done = new CountDownLatch(wanted);
        ConsumerBuilder builder = where.consumerBuilder().messageHandler((context, message) -> {
            taken.add(new Taken(context.offset(), Place.textOf(message)));
            done.countDown();
        });
        try (Consumer consumer = made.apply(builder).build()) {
            done.await();
        }
        return new ArrayList<>(taken);
    }

    private List<Taken> read(String kind, int wanted, OffsetSpecification offset) throws Exception {
        return take(environment, wanted, builder -> builder.stream(prefix + "-" + kind).offset(offset));
    }

    private String byTurns(String way) throws Exception {
        int half = count / 2;
        List<Taken> first = Collections.synchronizedList(new ArrayList<>());
        List<Taken> second = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch halfway = new CountDownLatch(half);
        CountDownLatch done = new CountDownLatch(half);
        try (Environment other = place.open()) {
            Consumer one = turn(environment, way, first, half, halfway);
            Consumer two = turn(other, way, second, half, done);
            halfway.await();
            one.store(first.get(half - 1).offset);
            while (one.storedOffset() != first.get(half - 1).offset) {
                Thread.sleep(5);
            }
            one.close();
            done.await();
            two.close();
        }
        first.addAll(second);
        return summary(first);
    }

    private Consumer turn(Environment where, String way, List<Taken> taken, int wanted, CountDownLatch done) {
        return where.consumerBuilder().stream(prefix + "-filtered").name("turns-" + way).singleActiveConsumer()
            .offset(OffsetSpecification.first()).manualTrackingStrategy().checkInterval(Duration.ZERO).builder()
            .messageHandler((context, message) -> {
                if (taken.size() < wanted) {
                    taken.add(new Taken(context.offset(), Place.textOf(message)));
                    done.countDown();
                }
            })
            .build();
    }

    private String resumed(String way) throws Exception {
        String reference = "resumed-" + way;
        String unknown = "";
        UnaryOperator<ConsumerBuilder> named = builder -> builder.stream(prefix + "-filtered").name(reference)
            .offset(OffsetSpecification.first()).manualTrackingStrategy().checkInterval(Duration.ZERO).builder();
        try (Consumer consumer = named.apply(environment.consumerBuilder()).messageHandler((c, m) -> { }).build()) {
            try {
                unknown += consumer.storedOffset();
            } catch (NoOffsetException error) {
                unknown = "no offset";
            }
            consumer.store(99);
            while (!isStored(consumer, 99)) {
                Thread.sleep(5);
            }
        }
        return unknown + "; " + summary(take(environment, 100, named).subList(0, 100));
    }

    private static boolean isStored(Consumer consumer, long offset) {
        try {
            return consumer.storedOffset() == offset;
        } catch (NoOffsetException error) {
            return false;
        }
    }

    // Two consumers of a group share the partitions; some messages may come twice.
    private String shared(String way) throws Exception {
        Map<String, Long> taken = Collections.synchronizedMap(new LinkedHashMap<>());
        CountDownLatch done = new CountDownLatch(1);
        List<Consumer> consumers = new ArrayList<>();
        try (Environment other = place.open()) {
            for (Environment where : List.of(environment, other)) {
                consumers.add(where.consumerBuilder().superStream(prefix + "-super").name("shared-" + way)
                    .singleActiveConsumer().offset(OffsetSpecification.first())
                    .autoTrackingStrategy().messageCountBeforeStorage(100).builder()
                    .messageHandler((context, message) -> {
                        taken.put(Place.textOf(message), context.offset());
                        if (taken.size() == count) {
                            done.countDown();
                        }
                    }).build());
            }
            done.await();
            consumers.forEach(Consumer::close);
        }
        return summary(sorted(taken.entrySet().stream().map(one -> new Taken(one.getValue(), one.getKey())).toList()));
    }

    private static List<Taken> sorted(List<Taken> taken) {
        return taken.stream().sorted(Comparator.comparing(Taken::text)).toList();
    }

    private String walk(long middle, String way, String before) throws Exception {
        Map<String, String> found = new LinkedHashMap<>();
        String superStream = prefix + "-super";
        try (Client client = place.client()) {
            found.put("partitions", client.partitions(superStream).stream().sorted().collect(Collectors.joining(" ")));
            found.put("route", String.join(" ", client.route("1", superStream)));
        }
        found.put("super", summary(sorted(take(environment, count,
            builder -> builder.superStream(superStream).offset(OffsetSpecification.first())))));
        found.put("first", summary(read("filtered", count, OffsetSpecification.first())));
        found.put("offset", summary(read("filtered", 300, OffsetSpecification.offset(123)).subList(0, 300)));
        found.put("timestamp", summary(read("filtered", 300, OffsetSpecification.timestamp(middle)).subList(0, 300)));
        found.put("filtered", summary(take(environment, count / 2, builder -> builder.stream(prefix + "-filtered")
            .offset(OffsetSpecification.first())
            .filter().values("north").postFilter(message -> Place.regionOf(message).equals("north")).builder())));
        found.put("packed", summary(read("packed", count, OffsetSpecification.first())));
        found.put("turns", byTurns(way));
        found.put("resumed", resumed(way));
        found.put("shared", shared(way));
        StreamStats stats = environment.queryStreamStats(prefix + "-filtered");
        found.put("stats", Long.toString(stats.firstOffset()));
        if (!before.isEmpty()) {
            ConsumerBuilder named = environment.consumerBuilder().stream(prefix + "-filtered").name("resumed-" + before)
                .offset(OffsetSpecification.next()).manualTrackingStrategy().checkInterval(Duration.ZERO).builder()
                .messageHandler((c, m) -> { });
            try (Consumer consumer = named.build()) {
                found.put("stored", Long.toString(consumer.storedOffset()));
            }
        }
        return found.entrySet().stream().map(one -> "\"" + one.getKey() + "\": \"" + one.getValue() + "\"")
            .collect(Collectors.joining(", ", "{", "}"));
    }

    public static void main(String[] arguments) {
        String authority = arguments.length > 8 ? arguments[8] : "";
        try {
            Place place = new Place(arguments[1], arguments[2], arguments[3], arguments[4], authority);
            Environment environment = place.open();
            String done = arguments[0].equals("fill")
                ? new Fill(place, environment).fill(!arguments[5].isEmpty())
                : new Walk(place, environment).walk(Long.parseLong(arguments[5]), arguments[6], arguments[7]);
            environment.close();
            System.out.println(done);
            System.exit(0);
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1);
        }
    }
}
